/** Types of search indexes. */


/** The definition of an index. The service documents its objects. */
export interface ISearchIndex {
  name: string
  /** `fulltext-index`, or `fulltext-alias`. */
  type?: string
  /** Version of the definition, which is required to replace it. */
  uuid?: string | undefined
  sourceType?: string
  /** The bucket. */
  sourceName?: string
  sourceUuid?: string
  params?: Record<string, any>
  sourceParams?: Record<string, any>
  planParams?: Record<string, any>
}

/** An index of the search service. */
export class SearchIndex implements ISearchIndex {
  name: string
  type: string
  uuid: string | undefined
  sourceType: string
  sourceName: string
  sourceUuid: string
  params: Record<string, any>
  sourceParams: Record<string, any>
  planParams: Record<string, any>

  constructor(data: ISearchIndex) {
    this.name = data.name
    this.type = data.type ?? 'fulltext-index'
    this.uuid = data.uuid
    this.sourceType = data.sourceType ?? 'couchbase'
    this.sourceName = data.sourceName ?? ''
    this.sourceUuid = data.sourceUuid ?? ''
    this.params = data.params ?? {}
    this.sourceParams = data.sourceParams ?? {}
    this.planParams = data.planParams ?? {}
  }
}
