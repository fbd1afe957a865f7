/** Types of `ping`, `diagnostics` and `waitUntilReady`. */


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

/** The availability of a cluster. */
export const ClusterState = {
  /** All nodes of the services. */
  Online: 'online',
  /** A node of each service. */
  Degraded: 'degraded',
  Offline: 'offline',
} as const
/** The availability of a cluster. */
export type ClusterState = (typeof ClusterState)[keyof typeof ClusterState]

/** Options of `ping`. */
export interface PingOptions extends OperationOptions {
  /** ID of the report; random by default. */
  reportId?: string
  /** Services to ping; by default all services of the cluster. */
  serviceTypes?: ServiceType[]
}

/** Options of `diagnostics`. */
export interface DiagnosticsOptions {
  /** ID of the report; random by default. */
  reportId?: string
}

/** Options of `waitUntilReady`. */
export interface WaitUntilReadyOptions {
  desiredState?: ClusterState
  /** Services to wait for; by default all services of the cluster. */
  serviceTypes?: ServiceType[]
}

/** The result of pinging a node. */
export interface PingEndpoint {
  type: ServiceType
  id: string
  remote: string
  local: string
  /** Latency in microseconds. */
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
  /** Time since the last response, in microseconds. */
  lastActivity: number
  state: EndpointState
  bucket?: string
}
