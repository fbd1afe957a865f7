/** Connection strings: `couchbase://host[:port][,host[:port]…][/bucket]`. */

import { FeatureNotAvailableError, InvalidArgumentError } from './errors.js'

/** Port of the key-value service where a connection string names none. */
export const DEFAULT_PORT = 11210

const HOST = /^(\[[0-9A-Fa-f:.%]+\]|[^\s[\]:/?#@]+)(?::(\d{1,5}))?$/

/** Host and port of a service. */
export interface Address {
  host: string
  port: number
}

/** An address as it is written; also what addresses are told apart by. */
export function addressText({ host, port }: Address): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`
}

/** What a connection string says. */
export interface ConnectionString {
  /** Nodes to ask for the cluster's map, in order. */
  seeds: Address[]
  /** Bucket after the slash, if any. */
  bucket: string | undefined
}

/**
 * Reads a connection string; the port is that of the key-value service.
 *
 * @throws InvalidArgumentError it has another scheme, no host, or options: those are arguments of `connect` here.
 * @throws FeatureNotAvailableError it asks for TLS.
 */
export function parseConnectionString(text: string): ConnectionString {
  const prefix = 'couchbase://'
  if (typeof text !== 'string' || !text.startsWith(prefix)) {
    if (/^couchbases:/.test(text)) {
      throw new FeatureNotAvailableError('TLS (couchbases://) is not available yet: connect with couchbase://')
    }
    throw new InvalidArgumentError(`${JSON.stringify(text)} does not start with couchbase://`)
  }
  const rest = text.slice(prefix.length)
  if (rest.includes('?')) throw new InvalidArgumentError('options are arguments of connect, not of its address')
  const slash = rest.indexOf('/')
  const hosts = slash < 0 ? rest : rest.slice(0, slash)
  const bucket = slash < 0 ? '' : rest.slice(slash + 1)
  return { seeds: hosts.split(',').map(parseAddress), bucket: bucket || undefined }
}

function parseAddress(text: string): Address {
  const match = HOST.exec(text)
  if (!match) throw new InvalidArgumentError(`${JSON.stringify(text)} is no host or host:port`)
  const port = Number(match[2] ?? DEFAULT_PORT)
  if (port < 1 || port > 65535) throw new InvalidArgumentError(`${port} is no port`)
  return { host: match[1]!.replace(/^\[|\]$/g, ''), port }
}
