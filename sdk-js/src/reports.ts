/** Reports about nodes and connections: `ping`, `diagnostics`, and waiting until all is well. */

import { randomUUID } from 'node:crypto'

import { nodesWith } from './cluster-map.js'
import { type Connection, ConnectionLost } from './connection.js'
import { type Address, addressText } from './connection-string.js'
import { now, Deadline, DeadlineOver } from './deadline.js'
import { CouchbaseError, InvalidArgumentError, RequestCanceledError, UnambiguousTimeoutError } from './errors.js'
import type { HttpClient } from './http.js'
import { Attempt } from './attempt.js'
import type { KvClient } from './kv-client.js'
import { Opcode } from './opcodes.js'
import {
  ClusterState,
  type DiagnosticsEndpoint,
  type DiagnosticsOptions,
  EndpointState,
  type PingEndpoint,
  type PingOptions,
  PingState,
  ServiceType,
  type WaitUntilReadyOptions,
} from './diagnostics.js'

/** A report in the format of all SDKs. */
interface JsonReport<Endpoint> {
  version: number
  id: string
  sdk: string
  services: { [serviceType: string]: Endpoint[] }
}

/** What the endpoints of a report have in common. */
interface JsonEndpoint {
  id: string
  remote: string
  local: string
  state: string
  namespace?: string
}

interface JsonPingEndpoint extends JsonEndpoint {
  latency_us: number
  error?: string
}

interface JsonDiagnosticsEndpoint extends JsonEndpoint {
  last_activity_us: number
}

/** Outcome of `ping`, in the format of all SDKs. */
export type JsonPingReport = JsonReport<JsonPingEndpoint>

/** Outcome of `diagnostics`, in the format of all SDKs. */
export type JsonDiagnosticsReport = JsonReport<JsonDiagnosticsEndpoint>

/** A report about the endpoints of each service. */
export class Report<E extends PingEndpoint | DiagnosticsEndpoint> {
  readonly version = 2
  readonly id: string
  readonly sdk = 'nacre-js/0.1.0'
  readonly services: Record<string, E[]>

  /** @internal */
  constructor(id: string | undefined, endpoints: E[]) {
    this.id = id ?? randomUUID()
    this.services = {}
    for (const endpoint of endpoints) (this.services[endpoint.type] ??= []).push(endpoint)
  }

  /** Returns the report in the format of all SDKs. */
  toJSON(): E extends PingEndpoint ? JsonPingReport : JsonDiagnosticsReport
  toJSON(): JsonReport<JsonEndpoint> {
    const entries = Object.entries(this.services).map(([service, endpoints]) => [service, endpoints.map(jsonOf)])
    return { version: this.version, id: this.id, sdk: this.sdk, services: Object.fromEntries(entries) }
  }
}

/** Outcome of `ping`. */
export type PingResult = Report<PingEndpoint>

/** Outcome of `diagnostics`. */
export type DiagnosticsResult = Report<DiagnosticsEndpoint>

const PING_NAMES = ['ok', 'timeout', 'error']
const STATE_NAMES = ['disconnected', 'connecting', 'connected', 'disconnecting']

function jsonOf(endpoint: PingEndpoint | DiagnosticsEndpoint): JsonPingEndpoint | JsonDiagnosticsEndpoint {
  const { id, remote, local, bucket } = endpoint
  const namespace = bucket === undefined ? {} : { namespace: bucket }
  if ('latency' in endpoint) {
    const error = endpoint.error === undefined ? {} : { error: endpoint.error }
    return {
      id,
      remote,
      local,
      latency_us: endpoint.latency,
      state: PING_NAMES[endpoint.state]!,
      ...namespace,
      ...error,
    }
  }
  return {
    id,
    remote,
    local,
    last_activity_us: endpoint.lastActivity,
    state: STATE_NAMES[endpoint.state]!,
    ...namespace,
  }
}

/** For each HTTP service, its name in the map and the path for a ping. */
const HTTP_SERVICES: [ServiceType, string, string][] = [
  [ServiceType.Management, 'mgmt', '/whoami'],
  [ServiceType.Views, 'capi', '/'],
  [ServiceType.Query, 'n1ql', '/admin/ping'],
  [ServiceType.Search, 'fts', '/api/ping'],
  [ServiceType.Analytics, 'cbas', '/admin/ping'],
  [ServiceType.Eventing, 'eventingAdminPort', '/api/v1/status'],
]

/** Pings every node of the services. `client` belongs to the bucket or the cluster. */
export async function ping(
  client: KvClient,
  http: HttpClient,
  options: PingOptions,
  defaultMs: number,
): Promise<PingResult> {
  const wanted = new Set(checkServices(options.serviceTypes))
  const map = await client.bootstrap(options, options.timeout ?? defaultMs)
  const deadline = new Deadline(options, defaultMs)
  const asked: Promise<PingEndpoint>[] = []
  const time = (
    type: ServiceType,
    address: Address,
    ask: (attempt: Attempt) => Promise<Partial<PingEndpoint>>,
  ): void => {
    if (wanted.size && !wanted.has(type)) return
    asked.push(timed(type, address, client.bucket, deadline, ask))
  }
  for (const address of map.kv.length ? map.kv : nodesWith(map, 'kv')) {
    time(ServiceType.KeyValue, address, async (attempt) => {
      const connection = await client.connectTo(address, attempt)
      await connection.ask({ opcode: Opcode.Noop }, deadline)
      return { id: connection.id, local: connection.local }
    })
  }
  for (const [type, service, path] of HTTP_SERVICES) {
    for (const address of nodesWith(map, service)) {
      time(type, address, async (attempt) => {
        await http.ask(address, { method: 'GET', path }, attempt)
        return {}
      })
    }
  }
  try {
    return new Report(options.reportId, await Promise.all(asked))
  } finally {
    deadline.clear()
  }
}

async function timed(
  type: ServiceType,
  address: Address,
  bucket: string | undefined,
  deadline: Deadline,
  ask: (attempt: Attempt) => Promise<Partial<PingEndpoint>>,
): Promise<PingEndpoint> {
  const begun = now()
  const endpoint = { type, id: randomUUID(), remote: addressText(address), local: '', ...(bucket ? { bucket } : {}) }
  const passed = (): number => Math.round((now() - begun) * 1000)
  try {
    const more = await ask(new Attempt({ operation: 'ping' }, deadline))
    return { ...endpoint, ...more, state: PingState.Ok, latency: passed() }
  } catch (error) {
    if (deadline.aborted) throw new RequestCanceledError('the request was aborted', {}, deadline.aborted.reason)
    if (error instanceof DeadlineOver) return { ...endpoint, state: PingState.Timeout, latency: passed() }
    if (!(error instanceof CouchbaseError || error instanceof ConnectionLost)) throw error
    return { ...endpoint, state: PingState.Error, latency: passed(), error: error.message }
  }
}

/** Describes the present connections, without sending requests. */
export function diagnose(clients: KvClient[], { reportId }: DiagnosticsOptions): DiagnosticsResult {
  const endpoints = clients.flatMap((client) => client.connections.map(describe))
  return new Report(reportId, endpoints)
}

function describe(connection: Connection): DiagnosticsEndpoint {
  const { id, local, address, bucket, lost, isOpen, lastActivity } = connection
  const state = lost ? EndpointState.Disconnected : isOpen ? EndpointState.Connected : EndpointState.Connecting
  return {
    type: ServiceType.KeyValue,
    id,
    local,
    remote: addressText(address),
    lastActivity: lastActivity && (Date.now() - lastActivity) * 1000,
    state,
    ...(bucket === undefined ? {} : { bucket }),
  }
}

/**
 * Resolves when enough services answer.
 *
 * @throws UnambiguousTimeoutError if they do not answer in time. The message names the missing ones.
 */
export async function waitUntilReady(
  client: KvClient,
  http: HttpClient,
  timeout: number,
  { desiredState = ClusterState.Online, serviceTypes }: WaitUntilReadyOptions,
): Promise<void> {
  if (desiredState === ClusterState.Offline) throw new InvalidArgumentError('nobody waits for a cluster to be offline')
  const deadline = new Deadline({ timeout }, timeout)
  const attempt = new Attempt({ operation: 'waitUntilReady' }, deadline)
  let missing = 'the cluster'
  try {
    for (;;) {
      const remaining = Math.max(1, Math.min(1000, deadline.at - now()))
      try {
        const options = { timeout: remaining, ...(serviceTypes ? { serviceTypes } : {}) }
        const { services } = await ping(client, http, options, remaining)
        const wanted = serviceTypes ?? (Object.keys(services) as ServiceType[])
        const isOk = (endpoint: PingEndpoint): boolean => endpoint.state === PingState.Ok
        const lacking = wanted.filter((service) => {
          const endpoints = services[service] ?? []
          return (
            !endpoints.length || !(desiredState === ClusterState.Online ? endpoints.every(isOk) : endpoints.some(isOk))
          )
        })
        if (!lacking.length) return
        missing = lacking.join(', ')
      } catch (error) {
        // A temporary error is retried; a wrong password is reported at once.
        if (!(error instanceof UnambiguousTimeoutError)) throw error
        missing = error.message
      }
      await attempt.pause()
    }
  } catch (error) {
    if (!(error instanceof DeadlineOver)) throw error
    throw new UnambiguousTimeoutError(`not ready in time: ${missing}`, attempt.context)
  } finally {
    deadline.clear()
  }
}

function checkServices(serviceTypes: ServiceType[] = []): ServiceType[] {
  const known: string[] = Object.values(ServiceType)
  for (const service of serviceTypes) {
    if (!known.includes(service)) throw new InvalidArgumentError(`there is no service ${JSON.stringify(service)}`)
  }
  return serviceTypes
}
