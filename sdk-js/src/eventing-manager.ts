/** Management of eventing functions. */

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
import { type HttpRequest, type HttpResponse, readJson, segment } from './http-messages.js'
import { checkOptions } from './option-names.js'
import { jsonText } from './transcoders.js'
import {
  EventingFunction,
  EventingFunctionBucketBinding,
  EventingFunctionConstantBinding,
  EventingFunctionDeploymentStatus,
  EventingFunctionKeyspace,
  EventingFunctionProcessingStatus,
  EventingFunctionSettings,
  type EventingFunctionState,
  type EventingFunctionUrlAuth,
  EventingFunctionUrlAuthBasic,
  EventingFunctionUrlAuthBearer,
  EventingFunctionUrlAuthDigest,
  EventingFunctionUrlAuthMethod,
  EventingFunctionUrlBinding,
  type EventingState,
} from './eventing.js'

/** Settings whose REST names are their names in snake case. */
const SETTINGS = `
  cppWorkerThreadCount dcpStreamBoundary description languageCompatibility logLevel executionTimeout
  lcbInstCapacity lcbRetryCount lcbTimeout numTimerPartitions sockBatchSize tickDuration timerContextSize
  userPrefix bucketCacheSize bucketCacheAge curlMaxAllowedRespSize workerCount handlerHeaders handlerFooters
  appLogDir appLogMaxSize appLogMaxFiles checkpointInterval
`

/** REST name of each setting. */
const SETTING_NAMES: Record<string, string> = {
  queryConsistency: 'n1ql_consistency',
  queryPrepareAll: 'n1ql_prepare_all',
  enableAppLogRotation: 'enable_applog_rotation',
}
for (const name of SETTINGS.trim().split(/\s+/)) SETTING_NAMES[name] = name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)

/** Manages the eventing functions of a cluster, or of one scope. */
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
   * @throws EventingFunctionCompilationFailureError if its code cannot be compiled.
   */
  async upsertFunction(definition: EventingFunction, options: OperationOptions = {}): Promise<void> {
    checkOptions('upsertFunction', options)
    const body = jsonText(writeFunction(definition, this.#place))
    await this.#send({ method: 'POST', path: functionPath(definition.name), body }, options)
  }

  /**
   * Drops a function that is not deployed.
   *
   * @throws EventingFunctionNotFoundError if it does not exist.
   * @throws EventingFunctionDeployedError if the function is deployed.
   */
  async dropFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('dropFunction', options)
    await this.#send({ method: 'DELETE', path: functionPath(name) }, options)
  }

  /** Returns all functions. */
  async getAllFunctions(options: OperationOptions = {}): Promise<EventingFunction[]> {
    checkOptions('getAllFunctions', options)
    const response = await this.#send({ method: 'GET', path: '/api/v1/functions' }, options)
    return readJson(response, (functions) => functions.filter((it: any) => this.#isHere(it)).map(readFunction))
  }

  /**
   * Returns a function.
   *
   * @throws EventingFunctionNotFoundError if it does not exist.
   */
  async getFunction(name: string, options: OperationOptions = {}): Promise<EventingFunction> {
    checkOptions('getFunction', options)
    return readJson(await this.#send({ method: 'GET', path: functionPath(name) }, options), readFunction)
  }

  /** Deploys a function, which starts soon after. */
  async deployFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('deployFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/deploy` }, options)
  }

  /**
   * Undeploys a function, and deletes its position.
   *
   * @throws EventingFunctionNotDeployedError if the function is not deployed.
   */
  async undeployFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('undeployFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/undeploy` }, options)
  }

  /**
   * Pauses a function. When resumed, it continues from its position.
   *
   * @throws EventingFunctionNotBootstrappedError if the function does not run.
   */
  async pauseFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('pauseFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/pause` }, options)
  }

  /**
   * Resumes a paused function.
   *
   * @throws EventingFunctionNotDeployedError if the function is not paused.
   */
  async resumeFunction(name: string, options: OperationOptions = {}): Promise<void> {
    checkOptions('resumeFunction', options)
    await this.#send({ method: 'POST', path: `${functionPath(name)}/resume` }, options)
  }

  /** Returns the present state of the functions. */
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

/** Manages the eventing functions of one scope. */
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
    // The text itself is the detail.
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

/** Names of consistency levels in functions' settings, by their names in queries. */
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
