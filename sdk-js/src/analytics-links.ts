/** Links of analytics: access to the data of other clusters and stores. */

import { InvalidArgumentError } from './errors.js'

/** Kind of the store that a link leads to. */
export const AnalyticsLinkType = {
  S3External: 's3',
  AzureBlobExternal: 'azureblob',
  CouchbaseRemote: 'couchbase',
} as const
/** Kind of the store that a link leads to. */
export type AnalyticsLinkType = (typeof AnalyticsLinkType)[keyof typeof AnalyticsLinkType]

/** What is encrypted on a link to another cluster. */
export const AnalyticsEncryptionLevel = {
  None: 'none',
  /** Only the password. */
  Half: 'half',
  /** All data, with TLS. */
  Full: 'full',
} as const
/** What is encrypted on a link to another cluster. */
export type AnalyticsEncryptionLevel = (typeof AnalyticsEncryptionLevel)[keyof typeof AnalyticsEncryptionLevel]

/** Encryption of a link to another cluster. Certificates and keys are PEM texts. */
export interface ICouchbaseAnalyticsEncryptionSettings {
  encryptionLevel: AnalyticsEncryptionLevel
  /** Certificate of the other cluster's authority. */
  certificate?: Buffer
  clientCertificate?: Buffer
  clientKey?: Buffer
}

/** Encryption of a link to another cluster. */
export class CouchbaseAnalyticsEncryptionSettings implements ICouchbaseAnalyticsEncryptionSettings {
  declare encryptionLevel: AnalyticsEncryptionLevel
  declare certificate?: Buffer
  declare clientCertificate?: Buffer
  declare clientKey?: Buffer

  constructor(data: ICouchbaseAnalyticsEncryptionSettings) {
    Object.assign(this, data)
  }
}

/** A link: access to the data of another cluster or store. */
export interface IAnalyticsLink {
  linkType: AnalyticsLinkType
  dataverse: string
  name: string
}

/** A link to another cluster. */
export interface ICouchbaseRemoteAnalyticsLink extends IAnalyticsLink {
  linkType: 'couchbase'
  hostname: string
  /** None by default. */
  encryption?: ICouchbaseAnalyticsEncryptionSettings
  username?: string
  password?: string
}

/** A link to a store with the protocol of S3. */
export interface IS3ExternalAnalyticsLink extends IAnalyticsLink {
  linkType: 's3'
  accessKeyId: string
  secretAccessKey?: string
  sessionToken?: string
  region: string
  serviceEndpoint?: string
}

/** A link to a blob store of Azure. */
export interface IAzureExternalAnalyticsLink extends IAnalyticsLink {
  linkType: 'azureblob'
  connectionString?: string
  accountName?: string
  accountKey?: string
  sharedAccessSignature?: string
  blobEndpoint?: string
  endpointSuffix?: string
}

/** What a link is made of; its class has the type. */
type Init<Link extends IAnalyticsLink> = Omit<Link, 'linkType'> & Partial<Pick<Link, 'linkType'>>

/** Base class of links. */
export abstract class AnalyticsLink implements IAnalyticsLink {
  declare linkType: AnalyticsLinkType
  declare dataverse: string
  declare name: string

  /**
   * Checks that the link has what its kind needs.
   *
   * @throws InvalidArgumentError if something is missing.
   */
  abstract validate(): void

  /** @internal */
  _require(needs: Record<string, unknown>): void {
    for (const [name, value] of Object.entries({ dataverse: this.dataverse, name: this.name, ...needs })) {
      if (!value) throw new InvalidArgumentError(`a link of type ${this.linkType} needs ${name}`)
    }
  }
}

/**
 * A link to another cluster.
 *
 * It needs a user and password. With full encryption, it needs a certificate, and may have a client certificate and its
 * key instead of user and password.
 */
export class CouchbaseRemoteAnalyticsLink extends AnalyticsLink implements ICouchbaseRemoteAnalyticsLink {
  declare linkType: 'couchbase'
  declare hostname: string
  declare encryption?: CouchbaseAnalyticsEncryptionSettings
  declare username?: string
  declare password?: string

  constructor(data: Init<ICouchbaseRemoteAnalyticsLink>) {
    super()
    Object.assign(this, data, { linkType: AnalyticsLinkType.CouchbaseRemote })
  }

  /** @throws InvalidArgumentError if something is missing. */
  validate(): void {
    const { hostname, encryption, username, password } = this
    const user = username && password
    if (encryption?.encryptionLevel !== AnalyticsEncryptionLevel.Full) {
      return this._require({ hostname, 'username and password': user })
    }
    const { certificate, clientCertificate, clientKey } = encryption
    const identity = 'clientCertificate and clientKey, or username and password'
    this._require({ hostname, certificate, [identity]: (clientCertificate && clientKey) || user })
  }
}

/** A link to a store with the protocol of S3. */
export class S3ExternalAnalyticsLink extends AnalyticsLink implements IS3ExternalAnalyticsLink {
  declare linkType: 's3'
  declare accessKeyId: string
  declare secretAccessKey?: string
  declare sessionToken?: string
  declare region: string
  declare serviceEndpoint?: string

  constructor(data: Init<IS3ExternalAnalyticsLink>) {
    super()
    Object.assign(this, data, { linkType: AnalyticsLinkType.S3External })
  }

  /** @throws InvalidArgumentError if something is missing. */
  validate(): void {
    const { accessKeyId, secretAccessKey, region } = this
    this._require({ accessKeyId, secretAccessKey, region })
  }
}

/**
 * A link to a blob store of Azure.
 *
 * It needs a connection string, or an account name with an account key or a shared access signature.
 */
export class AzureExternalAnalyticsLink extends AnalyticsLink implements IAzureExternalAnalyticsLink {
  declare linkType: 'azureblob'
  declare connectionString?: string
  declare accountName?: string
  declare accountKey?: string
  declare sharedAccessSignature?: string
  declare blobEndpoint?: string
  declare endpointSuffix?: string

  constructor(data: Init<IAzureExternalAnalyticsLink>) {
    super()
    Object.assign(this, data, { linkType: AnalyticsLinkType.AzureBlobExternal })
  }

  /** @throws InvalidArgumentError if something is missing. */
  validate(): void {
    const { connectionString, accountName, accountKey, sharedAccessSignature } = this
    const login = 'connectionString, or accountName and accountKey or sharedAccessSignature'
    this._require({ [login]: connectionString || (accountName && (accountKey || sharedAccessSignature)) })
  }
}
