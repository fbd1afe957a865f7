/** Connection strings: `couchbase[s]://host[:port][,host[:port]…][/bucket]`. */

import { isIP } from 'node:net'

import { InvalidArgumentError } from './errors.js'

/** Default port of the key-value service. */
export const DEFAULT_PORT = 11210

/** Default port with TLS. */
export const DEFAULT_TLS_PORT = 11207

const HOST = /^(\[[0-9A-Fa-f:.%]+\]|[^\s[\]:/?#@]+)(?::(\d{1,5}))?$/

/** Host and port of a service. */
export interface Address {
  host: string
  port: number
}

/** Formats an address. The text also identifies it. */
export function addressText({ host, port }: Address): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

/** A parsed connection string. */
export interface ConnectionString {
  /** True if the connections use TLS. */
  tls: boolean
  /** The only host, if it has no port: it may have SRV records in DNS. */
  name: string | undefined
  /** Nodes that can return the cluster map, in order. */
  seeds: Address[]
  /** Bucket after the slash, if any. */
  bucket: string | undefined
}

/**
 * Parses a connection string, whose ports belong to the key-value service.
 *
 * @throws InvalidArgumentError if it has another scheme, no host, or options, which are arguments of `connect` here.
 */
export function parseConnectionString(text: string): ConnectionString {
  const prefix = typeof text === 'string' ? /^couchbase(s?):\/\//.exec(text) : null
  if (typeof text === 'string' && /^https?:\/\//.test(text)) {
    throw new InvalidArgumentError('an address of HTTP is for connect of nacre/http; this one needs couchbase://')
  }
  if (!prefix)
    throw new InvalidArgumentError(`${JSON.stringify(text)} does not start with couchbase:// or couchbases://`)
  const tls = prefix[1] === 's'
  const rest = text.slice(prefix[0].length)
  if (rest.includes('?')) throw new InvalidArgumentError('options are arguments of connect, not of its address')
  const slash = rest.indexOf('/')
  const hosts = slash < 0 ? rest : rest.slice(0, slash)
  const bucket = slash < 0 ? '' : rest.slice(slash + 1)
  const seeds = hosts.split(',').map((host) => parseAddress(host, tls ? DEFAULT_TLS_PORT : DEFAULT_PORT))
  const name = seeds.length === 1 && seeds[0]!.host === hosts && !isIP(hosts) ? hosts : undefined
  return { tls, name, seeds, bucket: bucket || undefined }
}

/** Timeout of a DNS query for SRV records. */
const SRV_MS_MAX = 5000

/** Returns the nodes in the SRV records of the name, or the seeds if it has none. */
export async function resolveSeeds(
  { tls, name, seeds }: ConnectionString,
  timeoutMs: number = SRV_MS_MAX,
): Promise<Address[]> {
  if (name === undefined || !name.includes('.')) return seeds
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<[]>((resolve) => {
    timer = setTimeout(resolve, timeoutMs, [])
  })
  try {
    const { resolveSrv } = await import('node:dns/promises')
    const records = await Promise.race([resolveSrv(`_couchbase${tls ? 's' : ''}._tcp.${name}`), late])
    const found = [...records].sort((a, b) => a.priority - b.priority || b.weight - a.weight)
    return found.length ? found.map((record) => ({ host: record.name, port: record.port })) : seeds
  } catch {
    // The name has no SRV records, so it is the name of a host.
    return seeds
  } finally {
    clearTimeout(timer)
  }
}

function parseAddress(text: string, defaultPort: number): Address {
  const match = HOST.exec(text)
  if (!match) throw new InvalidArgumentError(`${JSON.stringify(text)} is no host or host:port`)
  const port = Number(match[2] ?? defaultPort)
  if (port < 1 || port > 65535) throw new InvalidArgumentError(`${port} is no port`)
  return { host: match[1]!.replace(/^\[|\]$/g, ''), port }
}
