/** Management of search indexes. */

import type { Cluster } from './cluster.js'
import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError } from './errors.js'
import { type HttpRequest, type HttpResponse, readJson, segment } from './http-messages.js'
import { refusal } from './search-errors.js'
import { type ISearchIndex, SearchIndex } from './search-indexes.js'
import { checkOptions } from './option-names.js'
import { jsonText } from './transcoders.js'

/**
 * Manages the search indexes of the cluster or of one scope. Without the service, throws `ServiceNotAvailableError`.
 */
export class SearchIndexManager {
  readonly #cluster: Cluster
  readonly #path: string

  /** @internal */
  constructor(cluster: Cluster, place?: { bucket: string; scope: string }) {
    this.#cluster = cluster
    const names = place && [place.bucket, place.scope].map(encodeURIComponent)
    this.#path = names ? `/api/bucket/${names[0]}/scope/${names[1]}/index` : '/api/index'
  }

  /**
   * Returns an index.
   *
   * @throws IndexNotFoundError if it does not exist.
   */
  async getIndex(indexName: string, options: OperationOptions = {}): Promise<SearchIndex> {
    checkOptions('getIndex', options)
    const response = await this.#send({ method: 'GET', path: this.#of(indexName) }, options)
    return readJson(response, ({ indexDef }) => new SearchIndex(indexDef))
  }

  /** Returns all indexes. */
  async getAllIndexes(options: OperationOptions = {}): Promise<SearchIndex[]> {
    checkOptions('getAllSearchIndexes', options)
    const response = await this.#send({ method: 'GET', path: this.#path }, options)
    return readJson(response, ({ indexDefs }) =>
      Object.values<ISearchIndex>(indexDefs?.indexDefs ?? {}).map((index) => new SearchIndex(index)),
    )
  }

  /**
   * Creates an index, or replaces the version whose `uuid` is given.
   *
   * @throws IndexExistsError if the index exists, and the `uuid` is missing or differs.
   */
  async upsertIndex(definition: ISearchIndex, options: OperationOptions = {}): Promise<void> {
    checkOptions('upsertIndex', options)
    const body = jsonText(new SearchIndex(definition))
    await this.#send({ method: 'PUT', path: this.#of(definition.name), body }, options)
  }

  /**
   * Drops an index.
   *
   * @throws IndexNotFoundError if it does not exist.
   */
  async dropIndex(indexName: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropSearchIndex', options)
    await this.#send({ method: 'DELETE', path: this.#of(indexName) }, options)
  }

  /** Returns the number of documents in an index. */
  async getIndexedDocumentsCount(indexName: string, options: OperationOptions = {}): Promise<number> {
    checkOptions('getIndexedDocumentsCount', options)
    const response = await this.#send({ method: 'GET', path: `${this.#of(indexName)}/count` }, options)
    return readJson(response, ({ count }) => Number(count))
  }

  /** Pauses the ingest of documents. */
  async pauseIngest(indexName: string, options: OperationOptions = {}): Promise<void> {
    await this.#control(indexName, 'ingestControl/pause', options)
  }

  /** Resumes the ingest of documents. */
  async resumeIngest(indexName: string, options: OperationOptions = {}): Promise<void> {
    await this.#control(indexName, 'ingestControl/resume', options)
  }

  /** Allows queries of an index. */
  async allowQuerying(indexName: string, options: OperationOptions = {}): Promise<void> {
    await this.#control(indexName, 'queryControl/allow', options)
  }

  /** Disallows queries of an index. */
  async disallowQuerying(indexName: string, options: OperationOptions = {}): Promise<void> {
    await this.#control(indexName, 'queryControl/disallow', options)
  }

  /** Freezes the placement of an index's partitions. */
  async freezePlan(indexName: string, options: OperationOptions = {}): Promise<void> {
    await this.#control(indexName, 'planFreezeControl/freeze', options)
  }

  /** Allows an index's partitions to move again. */
  async unfreezePlan(indexName: string, options: OperationOptions = {}): Promise<void> {
    await this.#control(indexName, 'planFreezeControl/unfreeze', options)
  }

  /** Returns the fields and tokens that an index produces for a document. */
  async analyzeDocument(indexName: string, document: any, options: OperationOptions = {}): Promise<any> {
    checkOptions('analyzeDocument', options)
    const body = jsonText(document)
    const request = { method: 'POST', path: `${this.#of(indexName)}/analyzeDoc`, body, reads: true } as const
    return readJson(await this.#send(request, options), ({ analyzed }) => analyzed)
  }

  async #control(indexName: string, operation: string, options: OperationOptions): Promise<void> {
    checkOptions('controlIndex', options)
    await this.#send({ method: 'POST', path: `${this.#of(indexName)}/${operation}` }, options)
  }

  #of(indexName: string): string {
    if (typeof indexName !== 'string' || !indexName) throw new InvalidArgumentError('an index has a name')
    return `${this.#path}/${segment(indexName)}`
  }

  async #send(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    const { client, http, managementTimeout } = this.#cluster
    const response = await http.send(client, 'fts', request, options, managementTimeout)
    if (response.status >= 300) throw refusal(response)
    return response
  }
}

/** Manages the search indexes in one scope. */
export class ScopeSearchIndexManager extends SearchIndexManager {
  /** @internal */
  constructor(cluster: Cluster, bucket: string, scope: string) {
    super(cluster, { bucket, scope })
  }
}
