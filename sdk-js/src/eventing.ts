/** Functions that react to changes: defined, deployed, paused and dropped. */

import type { QueryScanConsistency } from './query.js'

/** Which changes a function sees that is deployed for the first time. */
export const EventingFunctionDcpBoundary = {
  Everything: 'everything',
  FromNow: 'from_now',
} as const
/** Which changes a function sees that is deployed for the first time. */
export type EventingFunctionDcpBoundary = (typeof EventingFunctionDcpBoundary)[keyof typeof EventingFunctionDcpBoundary]

/** Whether a function is deployed. */
export const EventingFunctionDeploymentStatus = {
  Deployed: 'deployed',
  Undeployed: 'undeployed',
} as const
/** Whether a function is deployed. */
export type EventingFunctionDeploymentStatus = (typeof EventingFunctionDeploymentStatus)[keyof typeof EventingFunctionDeploymentStatus]

/** Whether a function that is deployed runs. */
export const EventingFunctionProcessingStatus = {
  Running: 'running',
  Paused: 'paused',
} as const
/** Whether a function that is deployed runs. */
export type EventingFunctionProcessingStatus = (typeof EventingFunctionProcessingStatus)[keyof typeof EventingFunctionProcessingStatus]

/** What a function does at the moment. */
export const EventingFunctionStatus = {
  Undeployed: 'undeployed',
  Deploying: 'deploying',
  Deployed: 'deployed',
  Undeploying: 'undeploying',
  Paused: 'paused',
  Pausing: 'pausing',
} as const
/** What a function does at the moment. */
export type EventingFunctionStatus = (typeof EventingFunctionStatus)[keyof typeof EventingFunctionStatus]

/** Version of the language that a function is written in. */
export const EventingFunctionLanguageCompatibility = {
  Version_6_0_0: '6.0.0',
  Version_6_5_0: '6.5.0',
  Version_6_6_2: '6.6.2',
  Version_7_2_0: '7.2.0',
} as const
/** Version of the language that a function is written in. */
export type EventingFunctionLanguageCompatibility = (typeof EventingFunctionLanguageCompatibility)[keyof typeof EventingFunctionLanguageCompatibility]

/** How much is logged. */
export const EventingFunctionLogLevel = {
  Info: 'INFO',
  Error: 'ERROR',
  Warning: 'WARNING',
  Debug: 'DEBUG',
  Trace: 'TRACE',
} as const
/** How much is logged. */
export type EventingFunctionLogLevel = (typeof EventingFunctionLogLevel)[keyof typeof EventingFunctionLogLevel]

/** What a function may do with the documents of an alias. */
export const EventingFunctionBucketAccess = {
  ReadOnly: 'r',
  ReadWrite: 'rw',
} as const
/** What a function may do with the documents of an alias. */
export type EventingFunctionBucketAccess = (typeof EventingFunctionBucketAccess)[keyof typeof EventingFunctionBucketAccess]

/** How a function logs in at an address. */
export const EventingFunctionUrlAuthMethod = {
  None: 'no-auth',
  Basic: 'basic',
  Digest: 'digest',
  Bearer: 'bearer',
} as const
/** How a function logs in at an address. */
export type EventingFunctionUrlAuthMethod = (typeof EventingFunctionUrlAuthMethod)[keyof typeof EventingFunctionUrlAuthMethod]

/** A collection. */
export class EventingFunctionKeyspace {
  bucket: string
  scope: string
  collection: string

  constructor({
    bucket,
    scope = '_default',
    collection = '_default',
  }: {
    bucket: string
    scope?: string
    collection?: string
  }) {
    this.bucket = bucket
    this.scope = scope
    this.collection = collection
  }
}

/** A name by which code finds the documents of a collection. */
export class EventingFunctionBucketBinding {
  alias: string
  name: EventingFunctionKeyspace
  access: EventingFunctionBucketAccess

  constructor(data: { alias: string; name: EventingFunctionKeyspace; access: EventingFunctionBucketAccess }) {
    this.alias = data.alias
    this.name = data.name
    this.access = data.access
  }
}

/** How a function logs in at an address. */
export interface EventingFunctionUrlAuth {
  method: EventingFunctionUrlAuthMethod
  username?: string
  password?: string
  key?: string
}

/** Login by user and password. */
export class EventingFunctionUrlAuthBasic implements EventingFunctionUrlAuth {
  method: EventingFunctionUrlAuthMethod = EventingFunctionUrlAuthMethod.Basic
  username: string
  password: string

  constructor({ username, password }: { username: string; password: string }) {
    this.username = username
    this.password = password
  }
}

/** Login by user and password, which is not shown. */
export class EventingFunctionUrlAuthDigest extends EventingFunctionUrlAuthBasic {
  override method: EventingFunctionUrlAuthMethod = EventingFunctionUrlAuthMethod.Digest
}

/** Login by a token. */
export class EventingFunctionUrlAuthBearer implements EventingFunctionUrlAuth {
  method: EventingFunctionUrlAuthMethod = EventingFunctionUrlAuthMethod.Bearer
  key: string

  constructor({ key }: { key: string }) {
    this.key = key
  }
}

/** A name by which code sends requests to an address. */
export class EventingFunctionUrlBinding {
  alias: string
  hostname: string
  auth: EventingFunctionUrlAuth | undefined
  allowCookies: boolean
  validateSslCertificate: boolean

  constructor(data: {
    alias: string
    hostname: string
    auth?: EventingFunctionUrlAuth | undefined
    allowCookies?: boolean
    validateSslCertificate?: boolean
  }) {
    this.alias = data.alias
    this.hostname = data.hostname
    this.auth = data.auth
    this.allowCookies = data.allowCookies ?? false
    this.validateSslCertificate = data.validateSslCertificate ?? false
  }
}

/** A name that code has for a value. */
export class EventingFunctionConstantBinding {
  alias: string
  /** The value as it is written in code. */
  literal: string

  constructor({ alias, literal }: { alias: string; literal: string }) {
    this.alias = alias
    this.literal = literal
  }
}

/** Settings of a function; what is absent is left to the server. Times are seconds, those of timers milliseconds. */
export class EventingFunctionSettings {
  declare cppWorkerThreadCount?: number
  declare dcpStreamBoundary?: EventingFunctionDcpBoundary
  declare description?: string
  declare deploymentStatus?: EventingFunctionDeploymentStatus
  declare processingStatus?: EventingFunctionProcessingStatus
  declare languageCompatibility?: EventingFunctionLanguageCompatibility
  declare logLevel?: EventingFunctionLogLevel
  declare executionTimeout?: number
  declare lcbInstCapacity?: number
  declare lcbRetryCount?: number
  declare lcbTimeout?: number
  declare queryConsistency?: QueryScanConsistency
  declare numTimerPartitions?: number
  declare sockBatchSize?: number
  declare tickDuration?: number
  declare timerContextSize?: number
  declare userPrefix?: string
  declare bucketCacheSize?: number
  declare bucketCacheAge?: number
  declare curlMaxAllowedRespSize?: number
  declare queryPrepareAll?: boolean
  declare workerCount?: number
  declare handlerHeaders?: string[]
  declare handlerFooters?: string[]
  declare enableAppLogRotation?: boolean
  declare appLogDir?: string
  declare appLogMaxSize?: number
  declare appLogMaxFiles?: number
  declare checkpointInterval?: number
  /** Settings that only nacre has, such as `filter` and `old_documents`, by their names in the REST interface. */
  declare raw?: Record<string, unknown>

  constructor(settings: Partial<EventingFunctionSettings> = {}) {
    Object.assign(this, settings)
  }
}

/** What a function is made of. */
export interface EventingFunctionInit {
  name: string
  code: string
  version?: string | undefined
  enforceSchema?: boolean | undefined
  handlerUuid?: number | undefined
  functionInstanceId?: string | undefined
  metadataKeyspace: EventingFunctionKeyspace
  sourceKeyspace: EventingFunctionKeyspace
  bucketBindings?: EventingFunctionBucketBinding[]
  urlBindings?: EventingFunctionUrlBinding[]
  constantBindings?: EventingFunctionConstantBinding[]
  settings?: EventingFunctionSettings
}

/** A function. */
export class EventingFunction {
  declare name: string
  declare code: string
  declare version: string | undefined
  declare enforceSchema: boolean | undefined
  declare handlerUuid: number | undefined
  declare functionInstanceId: string | undefined
  declare metadataKeyspace: EventingFunctionKeyspace
  declare sourceKeyspace: EventingFunctionKeyspace
  bucketBindings: EventingFunctionBucketBinding[]
  urlBindings: EventingFunctionUrlBinding[]
  constantBindings: EventingFunctionConstantBinding[]
  settings: EventingFunctionSettings

  constructor(data: EventingFunctionInit) {
    Object.assign(this, data)
    this.bucketBindings = data.bucketBindings ?? []
    this.urlBindings = data.urlBindings ?? []
    this.constantBindings = data.constantBindings ?? []
    this.settings = data.settings ?? new EventingFunctionSettings()
  }
}

/** What a function does at the moment. */
export interface EventingFunctionState {
  name: string
  status: EventingFunctionStatus
  numBootstrappingNodes: number
  numDeployedNodes: number
  deploymentStatus: EventingFunctionDeploymentStatus
  processingStatus: EventingFunctionProcessingStatus
}

/** What all functions do at the moment. */
export interface EventingState {
  numEventingNodes: number
  functions: EventingFunctionState[]
}
