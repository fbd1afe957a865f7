/** Indexes of the search service, for servers that have it: defined, listed, held up and dropped. */


/** What an index is made of; the objects are as the service documents them. */
export interface ISearchIndex {
  name: string
  /** `fulltext-index`, or `fulltext-alias`. */
  type?: string
  /** Version of the definition, which has to be given to replace it. */
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
