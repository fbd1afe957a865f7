/** Management of design documents. */

import type { Bucket } from './bucket.js'
import type { OperationOptions } from './deadline.js'
import { CouchbaseError, DesignDocumentNotFoundError } from './errors.js'
import { type HttpRequest, type HttpResponse, readJson, segment } from './http-messages.js'
import { checkOptions } from './option-names.js'
import { jsonText } from './transcoders.js'
import { DesignDocument, DesignDocumentNamespace, type DesignDocumentView, designPath } from './views.js'

/** Manages the design documents of a bucket. */
export class ViewIndexManager {
  readonly #bucket: Bucket

  /** @internal */
  constructor(bucket: Bucket) {
    this.#bucket = bucket
  }

  /** Returns all design documents in a namespace. */
  async getAllDesignDocuments(
    namespace?: DesignDocumentNamespace | OperationOptions,
    options: OperationOptions = {},
  ): Promise<DesignDocument[]> {
    const given = split(namespace, options)
    checkOptions('getAllDesignDocuments', given.options)
    const path = `/pools/default/buckets/${segment(this.#bucket.name)}/ddocs`
    const response = await this.#bucket.cluster.askManagement({ method: 'GET', path }, given.options)
    if (response.status >= 300) throw new CouchbaseError(response.text, response.context)
    const isDevelopment = given.namespace === DesignDocumentNamespace.Development
    return readJson(response, ({ rows }) =>
      rows
        .map(({ doc }: any) => readDesignDocument(String(doc.meta.id).replace(/^_design\//, ''), doc.json))
        .filter(({ isInDevelopment }: StoredDesignDocument) => isInDevelopment === isDevelopment)
        .map(({ document }: StoredDesignDocument) => document),
    )
  }

  /**
   * Reads a design document.
   *
   * @throws DesignDocumentNotFoundError if it does not exist.
   */
  async getDesignDocument(
    name: string,
    namespace?: DesignDocumentNamespace | OperationOptions,
    options: OperationOptions = {},
  ): Promise<DesignDocument> {
    const given = split(namespace, options)
    checkOptions('getDesignDocument', given.options)
    const response = await this.#send({ method: 'GET', path: this.#path(name, given.namespace) }, given.options)
    return readJson(response, (document) => readDesignDocument(name, document).document)
  }

  /** Creates or replaces a design document. The server rebuilds changed views. */
  async upsertDesignDocument(
    designDocument: DesignDocument,
    namespace?: DesignDocumentNamespace | OperationOptions,
    options: OperationOptions = {},
  ): Promise<void> {
    const given = split(namespace, options)
    checkOptions('upsertDesignDocument', given.options)
    const { views, collection, members } = designDocument
    const body = jsonText({ ...members, ...(collection === undefined ? {} : { collection }), views })
    const path = this.#path(designDocument.name, given.namespace)
    await this.#send({ method: 'PUT', path, body }, given.options)
  }

  /**
   * Drops a design document and its indexes.
   *
   * @throws DesignDocumentNotFoundError if it does not exist.
   */
  async dropDesignDocument(
    name: string,
    namespace?: DesignDocumentNamespace | OperationOptions,
    options: OperationOptions = {},
  ): Promise<void> {
    const given = split(namespace, options)
    checkOptions('dropDesignDocument', given.options)
    await this.#send({ method: 'DELETE', path: this.#path(name, given.namespace) }, given.options)
  }

  /**
   * Publishes a design document that is under development.
   *
   * @throws DesignDocumentNotFoundError if there is none under development.
   */
  async publishDesignDocument(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('publishDesignDocument', options)
    const document = await this.getDesignDocument(name, DesignDocumentNamespace.Development, options)
    await this.upsertDesignDocument(document, DesignDocumentNamespace.Production, options)
  }

  #path(name: string, namespace?: DesignDocumentNamespace): string {
    return designPath(this.#bucket.name, name, namespace)
  }

  async #send(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    const response = await this.#bucket.askViews(request, options, this.#bucket.timeouts.managementTimeout)
    if (response.status === 404) throw new DesignDocumentNotFoundError(response.text, response.context)
    if (response.status >= 300) throw new CouchbaseError(response.text, response.context)
    return response
  }
}

interface StoredDesignDocument {
  document: DesignDocument
  isInDevelopment: boolean
}

function readDesignDocument(name: string, { views, collection, ...members }: any): StoredDesignDocument {
  const entries = Object.entries<DesignDocumentView>(views ?? {}).map(([view, { map, reduce, ...more }]) => {
    if (typeof map !== 'string') throw new TypeError(`the view ${view} has no map function`)
    return [view, { map, ...(reduce ? { reduce } : {}), ...more }] as const
  })
  const bare = name.replace(/^dev_/, '')
  const document = new DesignDocument({ name: bare, views: Object.fromEntries(entries), collection, members })
  return { document, isInDevelopment: bare !== name }
}

/** Accepts options in place of the namespace. */
function split(
  namespace: DesignDocumentNamespace | OperationOptions | undefined,
  options: OperationOptions,
): { namespace: DesignDocumentNamespace | undefined; options: OperationOptions } {
  return typeof namespace === 'object' && namespace !== null
    ? { namespace: undefined, options: namespace }
    : { namespace, options }
}
