/** The cluster's map: which node serves which vBucket, and where its other services are. */

import type { Network } from './access.js'
import { type Address, addressText } from './connection-string.js'
import { DecodingFailureError } from './errors.js'

/** A map as the server gave it; of two maps the newer one counts. */
export interface ClusterMap {
  epoch: number
  revision: number
  /** Nodes that hold documents, in the order that `vbuckets` refers to. */
  kv: Address[]
  /** A row for each vBucket: number of the active node, then of the replicas; -1 is none. */
  vbuckets: number[][]
  /** Name and address of every service of every node. */
  services: [string, Address][]
  /** Group of each node of `kv`, if it has one. */
  groups: (string | undefined)[]
}

/** Node with a copy of a vBucket, 0 being the active one; nothing while there is none. */
export function nodeOf(map: ClusterMap, vbid: number, copy = 0): Address | undefined {
  return map.kv[map.vbuckets[vbid]?.[copy] ?? -1]
}

/** Nodes that run the service, for example `mgmt` or `capi`. */
export function nodesWith(map: ClusterMap, service: string): Address[] {
  return map.services.filter(([name]) => name === service).map(([, address]) => address)
}

/** Nodes that can be asked for the map, by their addresses; those that hold documents of the bucket first. */
export function membersOf(map: ClusterMap): Map<string, Address> {
  return byText([...map.kv, ...nodesWith(map, 'kv')])
}

/** Each address once. */
export function byText(addresses: Address[]): Map<string, Address> {
  return new Map(addresses.map((address) => [addressText(address), address]))
}

/** How many replicas the bucket is configured for. */
export function replicaCount(map: ClusterMap | undefined): number {
  return Math.max(0, (map?.vbuckets[0]?.length ?? 1) - 1)
}

/** Whether `map` is newer than `other`: by epoch, then by revision. */
export function isNewer(map: ClusterMap, other: ClusterMap | undefined): boolean {
  if (!other) return true
  return map.epoch > other.epoch || (map.epoch === other.epoch && map.revision > other.revision)
}

/** Which of the addresses in a map are used. */
export interface Reading {
  tls?: boolean
  network?: Network
}

/**
 * Reads a map that was received from `host`, which stands in where it names none. With TLS, the ports of services are
 * those with TLS.
 *
 * @throws DecodingFailureError it is not JSON or lacks what a map has.
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
    // The lists of nodes go together by position. A server without the service there is in no use.
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

/** Names of services whose port with TLS is not named by `SSL` at the end. */
const TLS_NAMES: Record<string, string> = { eventingSSL: 'eventingAdminPort', indexHttps: 'indexHttp' }

/** The services of a node; with TLS, under the names that they have without. */
function addressesOf(node: NodeConfig, host: string, tls: boolean, external: boolean): [string, Address][] {
  const alternate = external ? node.alternateAddresses?.external : undefined
  const name = hostOr(alternate?.hostname ?? node.hostname, host)
  // Where no ports are given, they are the node's own.
  return Object.entries(alternate?.ports ?? node.services).flatMap(([service, port]): [string, Address][] => {
    const address = { host: name, port: integer(port) }
    if (!tls) return [[service, address]]
    const plain = TLS_NAMES[service] ?? (service.endsWith('SSL') ? service.slice(0, -3) : undefined)
    return plain === undefined ? [] : [[plain, address]]
  })
}

/** Whether `host` is an address for clients elsewhere, and no node's own. */
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
