/** Management of analytics: dataverses, datasets, indexes and links. */

import { analyticsRefusal } from './analytics-errors.js'
import {
  AnalyticsEncryptionLevel,
  type AnalyticsLink,
  AnalyticsLinkType,
  AzureExternalAnalyticsLink,
  CouchbaseAnalyticsEncryptionSettings,
  CouchbaseRemoteAnalyticsLink,
  type IAnalyticsLink,
  type IAzureExternalAnalyticsLink,
  type ICouchbaseRemoteAnalyticsLink,
  type IS3ExternalAnalyticsLink,
  S3ExternalAnalyticsLink,
} from './analytics-links.js'
import type { Cluster } from './cluster.js'
import type { OperationOptions } from './deadline.js'
import { DecodingFailureError, InvalidArgumentError } from './errors.js'
import { formBody, type HttpRequest, type HttpResponse, readJson, segment } from './http-messages.js'
import { checkOptions } from './option-names.js'
import { identifier } from './query.js'

/** Dataverse and link of requests that name none. */
const DATAVERSE = 'Default'
const LINK = 'Local'

/** A link of any kind. */
type AnyLink = IAnalyticsLink | ICouchbaseRemoteAnalyticsLink | IS3ExternalAnalyticsLink | IAzureExternalAnalyticsLink

/** A dataset: the copy of a collection. */
export interface AnalyticsDataset {
  name: string
  dataverseName: string
  linkName: string
  bucketName: string
}

/** An index of a dataset. */
export interface AnalyticsIndex {
  name: string
  datasetName: string
  dataverseName: string
  isPrimary: boolean
}

/** Options of `createDataverse`. */
export interface CreateAnalyticsDataverseOptions extends OperationOptions {
  /** True if an existing dataverse is not an error. */
  ignoreIfExists?: boolean
}

/** Options of `dropDataverse`. */
export interface DropAnalyticsDataverseOptions extends OperationOptions {
  /** True if a missing dataverse is not an error. */
  ignoreIfNotExists?: boolean
}

/** Options of `createDataset`. */
export interface CreateAnalyticsDatasetOptions extends OperationOptions {
  /** True if an existing dataset is not an error. */
  ignoreIfExists?: boolean
  dataverseName?: string
  /** Expression that selects the documents of the dataset, as after `WHERE`. */
  condition?: string
}

/** Options of `dropDataset`. */
export interface DropAnalyticsDatasetOptions extends OperationOptions {
  /** True if a missing dataset is not an error. */
  ignoreIfNotExists?: boolean
  dataverseName?: string
}

/** Options of `getAllDatasets`. */
export interface GetAllAnalyticsDatasetsOptions extends OperationOptions {}

/** Options of `createIndex`. */
export interface CreateAnalyticsIndexOptions extends OperationOptions {
  /** True if an existing index is not an error. */
  ignoreIfExists?: boolean
  dataverseName?: string
}

/** Options of `dropIndex`. */
export interface DropAnalyticsIndexOptions extends OperationOptions {
  /** True if a missing index is not an error. */
  ignoreIfNotExists?: boolean
  dataverseName?: string
}

/** Options of `getAllIndexes`. */
export interface GetAllAnalyticsIndexesOptions extends OperationOptions {}

/** Options of `disconnectLink`. */
export interface DisconnectAnalyticsLinkOptions extends OperationOptions {
  dataverseName?: string
  linkName?: string
}

/** Options of `connectLink`. */
export interface ConnectAnalyticsLinkOptions extends DisconnectAnalyticsLinkOptions {
  /** True if the link connects although the bucket has been dropped and created again. */
  force?: boolean
}

/** Options of `getPendingMutations`. */
export interface GetPendingAnalyticsMutationsOptions extends OperationOptions {}

/** Options of `createLink`. */
export interface CreateAnalyticsLinkOptions extends OperationOptions {}

/** Options of `replaceLink`. */
export interface ReplaceAnalyticsLinkOptions extends OperationOptions {}

/** Options of `dropLink`. */
export interface DropAnalyticsLinkOptions extends OperationOptions {}

/** Options of `getAllLinks`. */
export interface GetAllAnalyticsLinksOptions extends OperationOptions {
  dataverse?: string
  name?: string
  linkType?: AnalyticsLinkType
}

/**
 * Manages the dataverses, datasets, indexes and links of analytics. Without the service, throws
 * `ServiceNotAvailableError`.
 *
 * The name of a dataverse has one part, or two parts with a slash: `bucket/scope`. Where no dataverse is named, it is
 * `Default`.
 */
export class AnalyticsIndexManager {
  readonly #cluster: Cluster

  /** @internal */
  constructor(cluster: Cluster) {
    this.#cluster = cluster
  }

  /**
   * Creates a dataverse.
   *
   * @throws DataverseExistsError if it exists already.
   */
  async createDataverse(dataverseName: string, options: CreateAnalyticsDataverseOptions = {}): Promise<void> {
    checkOptions('createDataverse', options)
    const ignores = options.ignoreIfExists ? ' IF NOT EXISTS' : ''
    await this.#run(`CREATE DATAVERSE ${dataverse(dataverseName)}${ignores}`, options)
  }

  /**
   * Drops a dataverse and its datasets.
   *
   * @throws DataverseNotFoundError if it does not exist.
   */
  async dropDataverse(dataverseName: string, options: DropAnalyticsDataverseOptions = {}): Promise<void> {
    checkOptions('dropDataverse', options)
    await this.#run(`DROP DATAVERSE ${dataverse(dataverseName)}${ifExists(options)}`, options)
  }

  /**
   * Creates a dataset, which follows the default collection of a bucket. For another collection, execute
   * `CREATE ANALYTICS COLLECTION …`.
   *
   * @throws DatasetExistsError if it exists already.
   * @throws DataverseNotFoundError if its dataverse does not exist.
   */
  async createDataset(
    bucketName: string,
    datasetName: string,
    options: CreateAnalyticsDatasetOptions = {},
  ): Promise<void> {
    checkOptions('createDataset', options)
    const { ignoreIfExists, condition } = options
    const ignores = ignoreIfExists ? 'IF NOT EXISTS ' : ''
    const where = condition ? ` WHERE ${condition}` : ''
    const dataset = within(options, datasetName)
    await this.#run(`CREATE DATASET ${ignores}${dataset} ON ${identifier(bucketName)}${where}`, options)
  }

  /**
   * Drops a dataset and its indexes.
   *
   * @throws DatasetNotFoundError if it does not exist.
   */
  async dropDataset(datasetName: string, options: DropAnalyticsDatasetOptions = {}): Promise<void> {
    checkOptions('dropDataset', options)
    await this.#run(`DROP DATASET ${within(options, datasetName)}${ifExists(options)}`, options)
  }

  /** Returns all datasets that follow collections. */
  async getAllDatasets(options: GetAllAnalyticsDatasetsOptions = {}): Promise<AnalyticsDataset[]> {
    checkOptions('getAllDatasets', options)
    const conditions = 'd.DataverseName <> "Metadata" AND d.DatasetType = "INTERNAL"'
    const rows = await this.#read(`SELECT d.* FROM Metadata.\`Dataset\` d WHERE ${conditions}`, options)
    return rows.map((row) => ({
      name: member(row, 'DatasetName'),
      dataverseName: member(row, 'DataverseName'),
      linkName: member(row, 'LinkName'),
      bucketName: member(row, 'BucketName'),
    }))
  }

  /**
   * Creates an index on fields of a dataset, given by their paths and types: `{ 'address.city': 'string' }`.
   *
   * @throws IndexExistsError if it exists already.
   * @throws DatasetNotFoundError if the dataset does not exist.
   */
  async createIndex(
    datasetName: string,
    indexName: string,
    fields: { [path: string]: string },
    options: CreateAnalyticsIndexOptions = {},
  ): Promise<void> {
    checkOptions('createAnalyticsIndex', options)
    const keys = Object.entries(fields).map(([path, type]) => `${path}:${type}`)
    if (!keys.length) throw new InvalidArgumentError('an index has fields')
    const name = `${identifier(indexName)}${options.ignoreIfExists ? ' IF NOT EXISTS' : ''}`
    await this.#run(`CREATE INDEX ${name} ON ${within(options, datasetName)} (${keys.join(',')})`, options)
  }

  /**
   * Drops an index of a dataset.
   *
   * @throws IndexNotFoundError if it does not exist.
   */
  async dropIndex(datasetName: string, indexName: string, options: DropAnalyticsIndexOptions = {}): Promise<void> {
    checkOptions('dropAnalyticsIndex', options)
    const name = `${within(options, datasetName)}.${identifier(indexName)}`
    await this.#run(`DROP INDEX ${name}${ifExists(options)}`, options)
  }

  /** Returns all indexes; each dataset has a primary index. */
  async getAllIndexes(options: GetAllAnalyticsIndexesOptions = {}): Promise<AnalyticsIndex[]> {
    checkOptions('getAllAnalyticsIndexes', options)
    const statement = 'SELECT d.* FROM Metadata.`Index` d WHERE d.DataverseName <> "Metadata"'
    const rows = await this.#read(statement, options)
    return rows.map((row) => ({
      name: member(row, 'IndexName'),
      datasetName: member(row, 'DatasetName'),
      dataverseName: member(row, 'DataverseName'),
      isPrimary: row.IsPrimary === true,
    }))
  }

  /**
   * Connects a link, `Local` by default, so that its datasets follow their collections. A string is the quoted name of
   * the link.
   *
   * @throws LinkNotFoundError if it does not exist.
   */
  connectLink(link: string, options?: ConnectAnalyticsLinkOptions): Promise<void>
  connectLink(options?: ConnectAnalyticsLinkOptions): Promise<void>
  async connectLink(...given: any[]): Promise<void> {
    const { link, options } = linkOf<ConnectAnalyticsLinkOptions>('connectLink', given)
    await this.#run(`CONNECT LINK ${link}${options.force ? ' WITH {"force": true}' : ''}`, options)
  }

  /**
   * Disconnects a link, `Local` by default. Its datasets remain as they are. A string is the quoted name of the link.
   *
   * @throws LinkNotFoundError if it does not exist.
   */
  disconnectLink(link: string, options?: DisconnectAnalyticsLinkOptions): Promise<void>
  disconnectLink(options?: DisconnectAnalyticsLinkOptions): Promise<void>
  async disconnectLink(...given: any[]): Promise<void> {
    const { link, options } = linkOf<DisconnectAnalyticsLinkOptions>('disconnectLink', given)
    await this.#run(`DISCONNECT LINK ${link}`, options)
  }

  /** Returns the numbers of mutations that datasets have not copied yet, by dataverse and dataset. */
  async getPendingMutations(
    options: GetPendingAnalyticsMutationsOptions = {},
  ): Promise<{ [dataverse: string]: { [dataset: string]: number } }> {
    checkOptions('getPendingMutations', options)
    const response = await this.#ask({ method: 'GET', path: '/analytics/node/agg/stats/remaining' }, options)
    return readJson(response, (found) => {
      const datasets = Object.values(object(found)).map(object)
      if (!datasets.flatMap(Object.values).every(Number.isInteger)) throw new TypeError('a count is no number')
      return found
    })
  }

  /**
   * Creates a link to another cluster or store.
   *
   * @throws LinkExistsError if it exists already.
   * @throws DataverseNotFoundError if its dataverse does not exist.
   */
  async createLink(link: AnyLink, options: CreateAnalyticsLinkOptions = {}): Promise<void> {
    checkOptions('createLink', options)
    await this.#ask(changeOf('POST', link), options)
  }

  /**
   * Replaces a link.
   *
   * @throws LinkNotFoundError if it does not exist.
   */
  async replaceLink(link: AnyLink, options: ReplaceAnalyticsLinkOptions = {}): Promise<void> {
    checkOptions('replaceLink', options)
    await this.#ask(changeOf('PUT', link), options)
  }

  /**
   * Drops a link.
   *
   * @throws LinkNotFoundError if it does not exist.
   */
  async dropLink(linkName: string, dataverseName: string, options: DropAnalyticsLinkOptions = {}): Promise<void> {
    checkOptions('dropLink', options)
    if (!linkName || !dataverseName) throw new InvalidArgumentError('a link has a name and a dataverse')
    const place = placeOf(dataverseName, linkName)
    const contentType = 'application/x-www-form-urlencoded'
    await this.#ask({ method: 'DELETE', path: place.path, body: formBody(place.fields), contentType }, options)
  }

  /**
   * Returns the links to other clusters and stores: all of them, those of a dataverse, those of a kind, or one by its
   * dataverse and name.
   */
  async getAllLinks(options: GetAllAnalyticsLinksOptions = {}): Promise<AnalyticsLink[]> {
    checkOptions('getAllLinks', options)
    const { dataverse: dataverseName = '', name, linkType } = options
    if (name && !dataverseName) throw new InvalidArgumentError('a link is named with its dataverse')
    const { path, fields } = placeOf(dataverseName, name)
    const query = formBody({ ...(dataverseName ? fields : {}), type: linkType })
    const response = await this.#ask({ method: 'GET', path: query ? `${path}?${query}` : path }, options)
    return readJson(response, (found) => {
      if (!Array.isArray(found)) throw new TypeError('the links are no list')
      return found.map(readLink).filter((link) => link !== undefined)
    })
  }

  async #run(statement: string, options: OperationOptions): Promise<void> {
    await this.#cluster.analyticsQuery(statement, this.#limits(options))
  }

  async #read(statement: string, options: OperationOptions): Promise<any[]> {
    const { rows } = await this.#cluster.analyticsQuery(statement, { ...this.#limits(options), readOnly: true })
    return rows
  }

  #limits({ timeout = this.#cluster.managementTimeout, signal, parentSpan }: OperationOptions): OperationOptions {
    return { timeout, ...(signal ? { signal } : {}), ...(parentSpan ? { parentSpan } : {}) }
  }

  async #ask(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    const { client, http, managementTimeout } = this.#cluster
    const response = await http.send(client, 'cbas', request, options, managementTimeout)
    if (response.status >= 300) throw analyticsRefusal(response)
    return response
  }
}

function dataverse(name: string): string {
  if (typeof name !== 'string') throw new InvalidArgumentError('a dataverse has a name')
  return name.split('/').map(identifier).join('.')
}

function within({ dataverseName }: { dataverseName?: string }, name: string): string {
  return `${dataverse(dataverseName ?? DATAVERSE)}.${identifier(name)}`
}

function ifExists({ ignoreIfNotExists }: { ignoreIfNotExists?: boolean }): string {
  return ignoreIfNotExists ? ' IF EXISTS' : ''
}

/** Returns the link and the options of a call with an optional name. */
function linkOf<O extends DisconnectAnalyticsLinkOptions>(operation: string, given: any[]): { link: string; options: O } {
  const isNamed = typeof given[0] === 'string'
  const options: O = (isNamed ? given[1] : given[0]) ?? {}
  checkOptions(operation, options)
  return { link: isNamed ? given[0] : within(options, options.linkName ?? LINK), options }
}

function member(row: any, name: string): string {
  const value: unknown = row?.[name]
  if (typeof value !== 'string') throw new DecodingFailureError(`a row of the catalog has no ${name}`)
  return value
}

function object(value: unknown): Record<string, unknown> {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new TypeError('that is no object')
  return value as Record<string, unknown>
}

/** Returns the path of a link. A dataverse with one part is not in the path but in the fields, with the name. */
function placeOf(dataverse: string, name?: string): { path: string; fields: Record<string, string | undefined> } {
  const path = '/analytics/link'
  if (!dataverse.includes('/')) return { path, fields: { dataverse, name } }
  return { path: [path, segment(dataverse), ...(name ? [segment(name)] : [])].join('/'), fields: {} }
}

/** Returns the request that creates or replaces a link. */
function changeOf(method: 'POST' | 'PUT', data: AnyLink): HttpRequest {
  const link = classOf(data)
  if (!link) throw new InvalidArgumentError(`there are no links of type ${JSON.stringify(data?.linkType)}`)
  link.validate()
  const { path, fields } = placeOf(link.dataverse, link.name)
  const body = formBody({ ...fields, type: link.linkType, ...fieldsOf(link) })
  return { method, path, body, contentType: 'application/x-www-form-urlencoded' }
}

/** Members of links that are fields of the same name. */
const FIELDS = [
  'hostname',
  'username',
  'password',
  'accessKeyId',
  'secretAccessKey',
  'sessionToken',
  'region',
  'serviceEndpoint',
  'connectionString',
  'accountName',
  'accountKey',
  'sharedAccessSignature',
  'blobEndpoint',
  'endpointSuffix',
]

/** Returns the fields of a link in addition to those of all links. */
function fieldsOf(link: any): Record<string, string | undefined> {
  const fields = Object.fromEntries(FIELDS.map((name) => [name, link[name]]))
  if (!(link instanceof CouchbaseRemoteAnalyticsLink)) return fields
  const { encryption } = link
  return {
    ...fields,
    encryption: encryption?.encryptionLevel ?? AnalyticsEncryptionLevel.None,
    certificate: encryption?.certificate?.toString(),
    clientCertificate: encryption?.clientCertificate?.toString(),
    clientKey: encryption?.clientKey?.toString(),
  }
}

function classOf(data: any): AnalyticsLink | undefined {
  switch (data?.linkType) {
    case AnalyticsLinkType.CouchbaseRemote:
      return new CouchbaseRemoteAnalyticsLink(data)
    case AnalyticsLinkType.S3External:
      return new S3ExternalAnalyticsLink(data)
    case AnalyticsLinkType.AzureBlobExternal:
      return new AzureExternalAnalyticsLink(data)
    default:
      return undefined
  }
}

/** Parses a link from the service, which returns no secrets. Links of unknown types are left out. */
function readLink({ scope, dataverse = scope, type: linkType, ...data }: any): AnalyticsLink | undefined {
  const { name, activeHostname: hostname = data.hostname, username, accountName } = data
  if (typeof name !== 'string' || typeof dataverse !== 'string') throw new TypeError('a link has no name')
  const { accessKeyId, region, serviceEndpoint, blobEndpoint, endpointSuffix } = data
  const found = { linkType, dataverse, name }
  switch (linkType) {
    case AnalyticsLinkType.CouchbaseRemote:
      return classOf({ ...found, hostname, encryption: readEncryption(data), ...given({ username }) })
    case AnalyticsLinkType.S3External:
      return classOf({ ...found, accessKeyId, region, ...given({ serviceEndpoint }) })
    default:
      return classOf({ ...found, ...given({ accountName, blobEndpoint, endpointSuffix }) })
  }
}

function readEncryption({ encryption, certificate, clientCertificate, clientKey }: any): CouchbaseAnalyticsEncryptionSettings {
  const texts = given({ certificate, clientCertificate, clientKey })
  const buffers = Object.entries(texts).map(([name, text]) => [name, Buffer.from(text)])
  const encryptionLevel = (encryption ?? 'none') as AnalyticsEncryptionLevel
  return new CouchbaseAnalyticsEncryptionSettings({ encryptionLevel, ...Object.fromEntries(buffers) })
}

/** Returns the members that are not empty. */
function given(members: Record<string, any>): Record<string, any> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value))
}
