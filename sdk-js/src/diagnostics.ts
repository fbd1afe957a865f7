/** Whether nodes answer (`ping`), which connections there are (`diagnostics`), and waiting until all is well. */


import { type OperationOptions } from './deadline.js'

/** A service of a cluster. */
export const ServiceType = {
  KeyValue: 'kv',
  Management: 'mgmt',
  Views: 'views',
  Query: 'query',
  Search: 'search',
  Analytics: 'analytics',
  Eventing: 'eventing',
} as const
/** A service of a cluster. */
export type ServiceType = (typeof ServiceType)[keyof typeof ServiceType]

/** State of a connection. */
export enum EndpointState {
  Disconnected = 0,
  Connecting = 1,
  Connected = 2,
  Disconnecting = 3,
}

/** Outcome of a ping. */
export enum PingState {
  Ok = 0,
  Timeout = 1,
  Error = 2,
}

/** How much of a cluster answers. */
export const ClusterState = {
  /** All nodes of the services. */
  Online: 'online',
  /** A node of each service. */
  Degraded: 'degraded',
  Offline: 'offline',
} as const
/** How much of a cluster answers. */
export type ClusterState = (typeof ClusterState)[keyof typeof ClusterState]

/** Options of `ping`. */
export interface PingOptions extends OperationOptions {
  /** Text that the report is found by; random if not given. */
  reportId?: string
  /** Services to ask; all that the cluster has if not given. */
  serviceTypes?: ServiceType[]
}

/** Options of `diagnostics`. */
export interface DiagnosticsOptions {
  /** Text that the report is found by; random if not given. */
  reportId?: string
}

/** Options of `waitUntilReady`. */
export interface WaitUntilReadyOptions {
  desiredState?: ClusterState
  /** Services to wait for; all that the cluster has if not given. */
  serviceTypes?: ServiceType[]
}

/** What a node answered. */
export interface PingEndpoint {
  type: ServiceType
  id: string
  remote: string
  local: string
  /** How long the answer took, in microseconds. */
  latency: number
  state: PingState
  bucket?: string
  error?: string
}

/** A connection. */
export interface DiagnosticsEndpoint {
  type: ServiceType
  id: string
  local: string
  remote: string
  /** How long ago the last answer came, in microseconds. */
  lastActivity: number
  state: EndpointState
  bucket?: string
}
