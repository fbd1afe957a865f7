/** The cluster's map: which node serves which vBucket, and where its other services are. */

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

/**
 * Reads a map that was received from `host`, which stands in where it names none.
 *
 * @throws DecodingFailureError it is not JSON or lacks what a map has.
 */
export function parseClusterMap(text: Buffer, host: string): ClusterMap {
  try {
    return read(JSON.parse(text.toString()), host)
  } catch (error) {
    throw new DecodingFailureError(`the cluster's map cannot be read: ${error}`, {}, error)
  }
}

interface Config {
  rev: unknown
  revEpoch?: unknown
  nodesExt: { hostname?: string; serverGroup?: string; services: Record<string, unknown> }[]
  vBucketServerMap?: { serverList: string[]; vBucketMap: unknown[][] }
}

function read(config: Config, host: string): ClusterMap {
  const services = config.nodesExt.flatMap((node) =>
    Object.entries(node.services).map(([name, port]): [string, Address] => [
      name,
      { host: hostOr(node.hostname, host), port: integer(port) },
    ]),
  )
  const buckets = config.vBucketServerMap
  const kv = buckets?.serverList.map((server) => {
    const colon = server.lastIndexOf(':')
    return { host: hostOr(server.slice(0, colon), host), port: integer(Number(server.slice(colon + 1))) }
  })
  const vbuckets = buckets?.vBucketMap.map((row) => row.map(integer))
  if (kv && vbuckets && (!vbuckets.length || vbuckets.some((row) => !row.length || Math.max(...row) >= kv.length))) {
    throw new RangeError('a vBucket is on a node that is not listed')
  }
  // The lists of nodes go together by position.
  const groups = (kv ?? []).map((_, index) => config.nodesExt[index]?.serverGroup)
  const epoch = integer(config.revEpoch ?? 0)
  return { epoch, revision: integer(config.rev), kv: kv ?? [], vbuckets: vbuckets ?? [], services, groups }
}

function integer(value: unknown): number {
  if (!Number.isInteger(value)) throw new TypeError(`${value} is no integer`)
  return value as number
}

function hostOr(name: string | undefined, host: string): string {
  return !name || name === '$HOST' ? host : name.replace(/^\[|\]$/g, '')
}
