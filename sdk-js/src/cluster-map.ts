/** The cluster map: the node of each vBucket, and the addresses of all services. */

import type { Network } from './access.js'
import { type Address, addressText } from './connection-string.js'
import { DecodingFailureError } from './errors.js'

/** A cluster map from the server. The client uses the newest one. */
export interface ClusterMap {
  epoch: number
  revision: number
  /** Nodes of the data service, in the order that `vbuckets` refers to. */
  kv: Address[]
  /** For each vBucket, the indexes of the active node and of the replicas; -1 for none. */
  vbuckets: number[][]
  /** Name and address of every service of every node. */
  services: [string, Address][]
  /** Server group of each node in `kv`, if it has one. */
  groups: (string | undefined)[]
}

/** Returns the node with a copy of a vBucket, or undefined while there is none. Copy 0 is the active copy. */
export function nodeOf(map: ClusterMap, vbid: number, copy = 0): Address | undefined {
  return map.kv[map.vbuckets[vbid]?.[copy] ?? -1]
}

/** Returns the nodes that run a service, for example `mgmt` or `capi`. */
export function nodesWith(map: ClusterMap, service: string): Address[] {
  return map.services.filter(([name]) => name === service).map(([, address]) => address)
}

/** Returns the nodes that can return the map, by address; nodes with documents of the bucket come first. */
export function membersOf(map: ClusterMap): Map<string, Address> {
  return byText([...map.kv, ...nodesWith(map, 'kv')])
}

/** Returns each address once, by its text. */
export function byText(addresses: Address[]): Map<string, Address> {
  return new Map(addresses.map((address) => [addressText(address), address]))
}

/** Returns the configured number of replicas of the bucket. */
export function replicaCount(map: ClusterMap | undefined): number {
  return Math.max(0, (map?.vbuckets[0]?.length ?? 1) - 1)
}

/** Returns true if `map` is newer than `other`, by epoch and then by revision. */
export function isNewer(map: ClusterMap, other: ClusterMap | undefined): boolean {
  if (!other) return true
  return map.epoch > other.epoch || (map.epoch === other.epoch && map.revision > other.revision)
}

/** Selects the addresses in a map. */
export interface Reading {
  tls?: boolean
  network?: Network
}

/**
 * Parses a map received from `host`. If a node has no host name in the map, its name is `host`. With TLS, the ports of
 * services are those with TLS.
 *
 * @throws DecodingFailureError if it is not JSON, or is incomplete.
 */
export function parseClusterMap(text: Buffer, host: string, reading: Reading = {}): ClusterMap {
  try {
    return read(JSON.parse(text.toString()), host, reading)
  } catch (error) {
    throw new DecodingFailureError(`the cluster's map cannot be read: ${error}`, {}, error)
  }
}

interface NodeConfig {
  hostname?: string
  serverGroup?: string
  services: Record<string, unknown>
  alternateAddresses?: { external?: { hostname: string; ports?: Record<string, unknown> } }
}

interface Config {
  rev: unknown
  revEpoch?: unknown
  nodesExt: NodeConfig[]
  vBucketServerMap?: { serverList: string[]; vBucketMap: unknown[][] }
}

function read(config: Config, host: string, { tls = false, network = 'auto' }: Reading): ClusterMap {
  const external = network === 'external' || (network === 'auto' && isReachedFromOutside(config.nodesExt, host))
  const nodes = config.nodesExt.map((node) => addressesOf(node, host, tls, external))
  const buckets = config.vBucketServerMap
  const kv = buckets?.serverList.map((server, index): Address => {
    // The lists of nodes correspond by position. A node without the data service has no vBuckets.
    if (tls || external) return new Map(nodes[index]).get('kv') ?? { host: 'invalid', port: 1 }
    const colon = server.lastIndexOf(':')
    return { host: hostOr(server.slice(0, colon), host), port: integer(Number(server.slice(colon + 1))) }
  })
  const vbuckets = buckets?.vBucketMap.map((row) => row.map(integer))
  if (kv && vbuckets && (!vbuckets.length || vbuckets.some((row) => !row.length || Math.max(...row) >= kv.length))) {
    throw new RangeError('a vBucket is on a node that is not listed')
  }
  const groups = (kv ?? []).map((_, index) => config.nodesExt[index]?.serverGroup)
  const epoch = integer(config.revEpoch ?? 0)
  const revision = integer(config.rev)
  return { epoch, revision, kv: kv ?? [], vbuckets: vbuckets ?? [], services: nodes.flat(), groups }
}

/** Services whose TLS port does not have the suffix `SSL` in its name. */
const TLS_NAMES: Record<string, string> = { eventingSSL: 'eventingAdminPort', indexHttps: 'indexHttp' }

/** Returns the services of a node. With TLS, they have the same names as without. */
function addressesOf(node: NodeConfig, host: string, tls: boolean, external: boolean): [string, Address][] {
  const alternate = external ? node.alternateAddresses?.external : undefined
  const name = hostOr(alternate?.hostname ?? node.hostname, host)
  // If the alternate address has no ports, the ports are those of the node.
  return Object.entries(alternate?.ports ?? node.services).flatMap(([service, port]): [string, Address][] => {
    const address = { host: name, port: integer(port) }
    if (!tls) return [[service, address]]
    const plain = TLS_NAMES[service] ?? (service.endsWith('SSL') ? service.slice(0, -3) : undefined)
    return plain === undefined ? [] : [[plain, address]]
  })
}

/** Returns true if `host` is an alternate address of a node, and not a node's own address. */
function isReachedFromOutside(nodes: NodeConfig[], host: string): boolean {
  if (nodes.some((node) => hostOr(node.hostname, host) === host && node.hostname)) return false
  return nodes.some((node) => node.alternateAddresses?.external?.hostname === host)
}

function integer(value: unknown): number {
  if (!Number.isInteger(value)) throw new TypeError(`${value} is no integer`)
  return value as number
}

function hostOr(name: string | undefined, host: string): string {
  return !name || name === '$HOST' ? host : name.replace(/^\[|\]$/g, '')
}
