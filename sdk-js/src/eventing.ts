/** Types of eventing functions. */

import type { QueryScanConsistency } from './query.js'

/** The changes that a newly deployed function receives. */
export const EventingFunctionDcpBoundary = {
  Everything: 'everything',
  FromNow: 'from_now',
} as const
/** The changes that a newly deployed function receives. */
export type EventingFunctionDcpBoundary = (typeof EventingFunctionDcpBoundary)[keyof typeof EventingFunctionDcpBoundary]

/** Whether a function is deployed. */
export const EventingFunctionDeploymentStatus = {
  Deployed: 'deployed',
  Undeployed: 'undeployed',
} as const
/** Whether a function is deployed. */
export type EventingFunctionDeploymentStatus = (typeof EventingFunctionDeploymentStatus)[keyof typeof EventingFunctionDeploymentStatus]

/** Whether a deployed function runs. */
export const EventingFunctionProcessingStatus = {
  Running: 'running',
  Paused: 'paused',
} as const
/** Whether a deployed function runs. */
export type EventingFunctionProcessingStatus = (typeof EventingFunctionProcessingStatus)[keyof typeof EventingFunctionProcessingStatus]

/** The state of a function. */
export const EventingFunctionStatus = {
  Undeployed: 'undeployed',
  Deploying: 'deploying',
  Deployed: 'deployed',
  Undeploying: 'undeploying',
  Paused: 'paused',
  Pausing: 'pausing',
} as const
/** The state of a function. */
export type EventingFunctionStatus = (typeof EventingFunctionStatus)[keyof typeof EventingFunctionStatus]

/** Language version of a function. */
export const EventingFunctionLanguageCompatibility = {
  Version_6_0_0: '6.0.0',
  Version_6_5_0: '6.5.0',
  Version_6_6_2: '6.6.2',
  Version_7_2_0: '7.2.0',
} as const
/** Language version of a function. */
export type EventingFunctionLanguageCompatibility = (typeof EventingFunctionLanguageCompatibility)[keyof typeof EventingFunctionLanguageCompatibility]

/** Log level. */
export const EventingFunctionLogLevel = {
  Info: 'INFO',
  Error: 'ERROR',
  Warning: 'WARNING',
  Debug: 'DEBUG',
  Trace: 'TRACE',
} as const
/** Log level. */
export type EventingFunctionLogLevel = (typeof EventingFunctionLogLevel)[keyof typeof EventingFunctionLogLevel]

/** Access of a function to the documents of a bucket binding. */
export const EventingFunctionBucketAccess = {
  ReadOnly: 'r',
  ReadWrite: 'rw',
} as const
/** Access of a function to the documents of a bucket binding. */
export type EventingFunctionBucketAccess = (typeof EventingFunctionBucketAccess)[keyof typeof EventingFunctionBucketAccess]

/** Authentication of a function at a URL. */
export const EventingFunctionUrlAuthMethod = {
  None: 'no-auth',
  Basic: 'basic',
  Digest: 'digest',
  Bearer: 'bearer',
} as const
/** Authentication of a function at a URL. */
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

/** A name by which the code accesses the documents of a collection. */
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

/** Authentication of a function at a URL. */
export interface EventingFunctionUrlAuth {
  method: EventingFunctionUrlAuthMethod
  username?: string
  password?: string
  key?: string
}

/** Authentication by user and password. */
export class EventingFunctionUrlAuthBasic implements EventingFunctionUrlAuth {
  method: EventingFunctionUrlAuthMethod = EventingFunctionUrlAuthMethod.Basic
  username: string
  password: string

  constructor({ username, password }: { username: string; password: string }) {
    this.username = username
    this.password = password
  }
}

/** Digest authentication: the password itself is not sent. */
export class EventingFunctionUrlAuthDigest extends EventingFunctionUrlAuthBasic {
  override method: EventingFunctionUrlAuthMethod = EventingFunctionUrlAuthMethod.Digest
}

/** Authentication by bearer token. */
export class EventingFunctionUrlAuthBearer implements EventingFunctionUrlAuth {
  method: EventingFunctionUrlAuthMethod = EventingFunctionUrlAuthMethod.Bearer
  key: string

  constructor({ key }: { key: string }) {
    this.key = key
  }
}

/** A name by which the code sends requests to a URL. */
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

/** A constant with a name in the code. */
export class EventingFunctionConstantBinding {
  alias: string
  /** The value as a JavaScript literal. */
  literal: string

  constructor({ alias, literal }: { alias: string; literal: string }) {
    this.alias = alias
    this.literal = literal
  }
}

/**
 * Settings of a function. The server has defaults for absent ones. Times are in seconds, those of timers in
 * milliseconds.
 */
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
  /** Settings specific to nacre, such as `filter` and `old_documents`, by their REST names. */
  declare raw?: Record<string, unknown>

  constructor(settings: Partial<EventingFunctionSettings> = {}) {
    Object.assign(this, settings)
  }
}

/** Members of a function. */
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

/** The state of a function. */
export interface EventingFunctionState {
  name: string
  status: EventingFunctionStatus
  numBootstrappingNodes: number
  numDeployedNodes: number
  deploymentStatus: EventingFunctionDeploymentStatus
  processingStatus: EventingFunctionProcessingStatus
}

/** The state of all functions. */
export interface EventingState {
  numEventingNodes: number
  functions: EventingFunctionState[]
}
