/** Functions that react to changes: defined, deployed, paused and dropped. */

import type { Cluster } from './cluster.js'
import type { OperationOptions } from './deadline.js'
import {
  CouchbaseError,
  BucketNotFoundError,
  CollectionNotFoundError,
  type ErrorContext,
  EventingFunctionCompilationFailureError,
  EventingFunctionDeployedError,
  EventingFunctionIdenticalKeyspaceError,
  EventingFunctionNotBootstrappedError,
  EventingFunctionNotDeployedError,
  EventingFunctionNotFoundError,
  EventingFunctionPausedError,
  InvalidArgumentError,
} from './errors.js'
import { type HttpRequest, type HttpResponse, readJson, segment } from './http.js'
import { checkOptions } from './option-names.js'
import type { QueryScanConsistency } from './query.js'
import { encodeJson } from './transcoders.js'

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

/** Settings whose names in the REST interface are the same in snake case. */
const SETTINGS = `
  cppWorkerThreadCount dcpStreamBoundary description languageCompatibility logLevel executionTimeout
  lcbInstCapacity lcbRetryCount lcbTimeout numTimerPartitions sockBatchSize tickDuration timerContextSize
  userPrefix bucketCacheSize bucketCacheAge curlMaxAllowedRespSize workerCount handlerHeaders handlerFooters
  appLogDir appLogMaxSize appLogMaxFiles checkpointInterval
`

/** Name of each setting in the REST interface. */
const SETTING_NAMES: Record<string, string> = {
  queryConsistency: 'n1ql_consistency',
  queryPrepareAll: 'n1ql_prepare_all',
  enableAppLogRotation: 'enable_applog_rotation',
}
for (const name of SETTINGS.trim().split(/\s+/)) SETTING_NAMES[name] = name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)

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

/** Functions of a cluster, or of one scope. */
export class EventingFunctionManager {
  readonly #cluster: Cluster
  readonly #place: { bucket: string; scope: string } | undefined

  /** @internal */
  constructor(cluster: Cluster, place?: { bucket: string; scope: string }) {
    this.#cluster = cluster
    this.#place = place
  }

  /**
   * Defines a function, or replaces its definition.
   *
   * @throws EventingFunctionCompilationFailureError its code cannot be read.
   */
  async upsertFunction(definition: EventingFunction, options: OperationOptions = {}): Promise<void> {
    checkOptions('upsertFunction', options)
    const body = encodeJson(writeFunction(definition, this.#place)).toString()
    await this.#send({ method: 'POST', path: functionPath(definition.name), body }, options)
  }

  /**
   * Drops a function that is not deployed.
   *
   * @throws EventingFunctionNotFoundError there is none of this name.
   * @throws EventingFunctionDeployedError it is deployed.
   */
  async dropFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropFunction', options)
    await this.#send({ method: 'DELETE', path: functionPath(name) }, options)
  }

  /** All functions. */
  async getAllFunctions(options: OperationOptions = {}): Promise<EventingFunction[]> {
    checkOptions('getAllFunctions', options)
    const response = await this.#send({ method: 'GET', path: '/api/v1/functions' }, options)
    return readJson(response, (functions) => functions.filter((it: any) => this.#isHere(it)).map(readFunction))
  }

  /**
   * A function.
   *
   * @throws EventingFunctionNotFoundError there is none of this name.
   */
  async getFunction(name: string, options: OperationOptions = {}): Promise<EventingFunction> {
    checkOptions('getFunction', options)
    return readJson(await this.#send({ method: 'GET', path: functionPath(name) }, options), readFunction)
  }

  /** Deploys a function: it begins to run soon after. */
  async deployFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('deployFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/deploy` }, options)
  }

  /**
   * Ends a function and forgets how far it is.
   *
   * @throws EventingFunctionNotDeployedError it is not deployed.
   */
  async undeployFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('undeployFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/undeploy` }, options)
  }

  /**
   * Stops a function, which goes on where it was when it is resumed.
   *
   * @throws EventingFunctionNotBootstrappedError it does not run.
   */
  async pauseFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('pauseFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/pause` }, options)
  }

  /**
   * Lets a function go on that was paused.
   *
   * @throws EventingFunctionNotDeployedError it was not.
   */
  async resumeFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('resumeFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/resume` }, options)
  }

  /** What the functions do at the moment. */
  async functionsStatus(options: OperationOptions = {}): Promise<EventingState> {
    checkOptions('functionsStatus', options)
    const response = await this.#send({ method: 'GET', path: '/api/v1/status' }, options)
    return readJson(response, (state) => ({
      numEventingNodes: state.num_eventing_nodes,
      functions: (state.apps ?? []).filter((it: any) => this.#isHere(it)).map(readState),
    }))
  }

  #isHere({ function_scope: place }: any): boolean {
    const here = this.#place ?? { bucket: '*', scope: '*' }
    return (place?.bucket ?? '*') === here.bucket && (place?.scope ?? '*') === here.scope
  }

  async #send(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    const place = this.#place && `?${new URLSearchParams(this.#place)}`
    const response = await this.#cluster.askEventing({ ...request, path: request.path + (place ?? '') }, options)
    requireOutcome(response)
    return response
  }
}

/** Functions of one scope. */
export class ScopeEventingFunctionManager extends EventingFunctionManager {
  /** @internal */
  constructor(cluster: Cluster, bucket: string, scope: string) {
    super(cluster, { bucket, scope })
  }
}

function functionPath(name: string): string {
  if (typeof name !== 'string' || !name) throw new InvalidArgumentError('a function has a name')
  return `/api/v1/functions/${segment(name)}`
}

type ErrorClass = new (message?: string, context?: ErrorContext) => CouchbaseError

const OUTCOMES = new Map<string, ErrorClass>([
  ['ERR_APP_NOT_FOUND_TS', EventingFunctionNotFoundError],
  ['ERR_APP_NOT_DEPLOYED', EventingFunctionNotDeployedError],
  ['ERR_HANDLER_COMPILATION', EventingFunctionCompilationFailureError],
  ['ERR_SRC_MB_SAME', EventingFunctionIdenticalKeyspaceError],
  ['ERR_APP_NOT_BOOTSTRAPPED', EventingFunctionNotBootstrappedError],
  ['ERR_APP_NOT_UNDEPLOYED', EventingFunctionDeployedError],
  ['ERR_APP_ALREADY_DEPLOYED', EventingFunctionDeployedError],
  ['ERR_APP_DELETED', EventingFunctionNotFoundError],
  ['ERR_APP_PAUSED', EventingFunctionPausedError],
  ['ERR_COLLECTION_MISSING', CollectionNotFoundError],
  ['ERR_BUCKET_MISSING', BucketNotFoundError],
])

function requireOutcome(response: HttpResponse): void {
  if (response.status < 300) return
  let outcome: { name?: unknown; description?: unknown } = {}
  try {
    outcome = JSON.parse(response.text) ?? {}
  } catch {
    // The text itself has to do.
  }
  const { context } = response
  const kind = OUTCOMES.get(String(outcome.name)) ?? (response.status === 400 ? InvalidArgumentError : CouchbaseError)
  throw new kind(String(outcome.description ?? response.text), context)
}

function writeFunction(definition: EventingFunction, place: { bucket: string; scope: string } | undefined): object {
  const { sourceKeyspace: source, metadataKeyspace: metadata, settings } = definition
  const given = Object.entries(SETTING_NAMES).flatMap(([name, wire]) => {
    const value = settings[name as keyof EventingFunctionSettings]
    return value === undefined ? [] : [[wire, name === 'queryConsistency' ? CONSISTENCIES[value as string] : value]]
  })
  return {
    appname: definition.name,
    appcode: definition.code,
    version: definition.version,
    enforce_schema: definition.enforceSchema,
    handleruuid: definition.handlerUuid,
    function_instance_id: definition.functionInstanceId,
    ...(place ? { function_scope: place } : {}),
    depcfg: {
      source_bucket: source.bucket,
      source_scope: source.scope,
      source_collection: source.collection,
      metadata_bucket: metadata.bucket,
      metadata_scope: metadata.scope,
      metadata_collection: metadata.collection,
      buckets: definition.bucketBindings.map(({ alias, access, name }) => ({
        alias,
        access,
        bucket_name: name.bucket,
        scope_name: name.scope,
        collection_name: name.collection,
      })),
      constants: definition.constantBindings.map(({ alias, literal }) => ({ value: alias, literal })),
      curl: definition.urlBindings.map((binding) => ({
        value: binding.alias,
        hostname: binding.hostname,
        allow_cookies: binding.allowCookies,
        validate_ssl_certificate: binding.validateSslCertificate,
        auth_type: binding.auth?.method ?? EventingFunctionUrlAuthMethod.None,
        username: binding.auth?.username,
        password: binding.auth?.password,
        bearer_key: binding.auth?.key,
      })),
    },
    settings: {
      processing_status: settings.processingStatus === EventingFunctionProcessingStatus.Running,
      deployment_status: settings.deploymentStatus === EventingFunctionDeploymentStatus.Deployed,
      ...Object.fromEntries(given),
      ...settings.raw,
    },
  }
}

/** What the settings of functions call consistency, by its name in queries. */
const CONSISTENCIES: Record<string, string> = { not_bounded: 'none', request_plus: 'request' }

function readFunction(definition: any): EventingFunction {
  const { depcfg } = definition
  return new EventingFunction({
    name: definition.appname,
    code: definition.appcode,
    version: definition.version,
    enforceSchema: definition.enforce_schema,
    handlerUuid: definition.handleruuid,
    functionInstanceId: definition.function_instance_id,
    sourceKeyspace: readKeyspace(depcfg.source_bucket, depcfg.source_scope, depcfg.source_collection),
    metadataKeyspace: readKeyspace(depcfg.metadata_bucket, depcfg.metadata_scope, depcfg.metadata_collection),
    bucketBindings: (depcfg.buckets ?? []).map(
      (it: any) =>
        new EventingFunctionBucketBinding({
          alias: it.alias,
          access: it.access,
          name: readKeyspace(it.bucket_name, it.scope_name, it.collection_name),
        }),
    ),
    constantBindings: (depcfg.constants ?? []).map(
      (it: any) => new EventingFunctionConstantBinding({ alias: it.value, literal: it.literal }),
    ),
    urlBindings: (depcfg.curl ?? []).map(
      (it: any) =>
        new EventingFunctionUrlBinding({
          alias: it.value,
          hostname: it.hostname,
          allowCookies: it.allow_cookies,
          validateSslCertificate: it.validate_ssl_certificate,
          auth: readAuth(it),
        }),
    ),
    settings: readSettings(definition.settings ?? {}),
  })
}

function readKeyspace(bucket: string, scope?: string, collection?: string): EventingFunctionKeyspace {
  return new EventingFunctionKeyspace({ bucket, ...(scope ? { scope } : {}), ...(collection ? { collection } : {}) })
}

function readAuth({
  auth_type: method,
  username,
  password,
  bearer_key: key,
}: any): EventingFunctionUrlAuth | undefined {
  switch (method) {
    case EventingFunctionUrlAuthMethod.Basic:
      return new EventingFunctionUrlAuthBasic({ username, password })
    case EventingFunctionUrlAuthMethod.Digest:
      return new EventingFunctionUrlAuthDigest({ username, password })
    case EventingFunctionUrlAuthMethod.Bearer:
      return new EventingFunctionUrlAuthBearer({ key })
    default:
      return undefined
  }
}

function readSettings(settings: Record<string, any>): EventingFunctionSettings {
  const { deployment_status: deployed, processing_status: running, ...rest } = settings
  const known = Object.entries(SETTING_NAMES).flatMap(([name, wire]) => {
    const value = rest[wire]
    delete rest[wire]
    if (name !== 'queryConsistency') return value === undefined ? [] : [[name, value]]
    const consistency = Object.entries(CONSISTENCIES).find(([, text]) => text === value)
    return consistency ? [[name, consistency[0]]] : []
  })
  return new EventingFunctionSettings({
    ...Object.fromEntries(known),
    ...statuses(deployed, running),
    ...(Object.keys(rest).length ? { raw: rest } : {}),
  })
}

function statuses(
  deployed: boolean,
  running: boolean,
): Pick<EventingFunctionState, 'deploymentStatus' | 'processingStatus'> {
  return {
    deploymentStatus: deployed
      ? EventingFunctionDeploymentStatus.Deployed
      : EventingFunctionDeploymentStatus.Undeployed,
    processingStatus: running ? EventingFunctionProcessingStatus.Running : EventingFunctionProcessingStatus.Paused,
  }
}

function readState(state: any): EventingFunctionState {
  return {
    name: state.name,
    status: state.composite_status,
    numBootstrappingNodes: state.num_bootstrapping_nodes,
    numDeployedNodes: state.num_deployed_nodes,
    ...statuses(state.deployment_status, state.processing_status),
  }
}
