/** Authentication by password or certificate, TLS, and the choice among a node's addresses. */

import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import type { connect, SecureContextOptions } from 'node:tls'

import type { Address } from './connection-string.js'
import type { Database } from './embedded.js'
import { FeatureNotAvailableError, InvalidArgumentError } from './errors.js'
import { CouchbaseLogger } from './logger.js'
import type { Instruments } from './tracing.js'

/** A user and password. */
export interface IPasswordAuthenticator {
  username: string
  password: string
  /** Allowed mechanisms in order of preference. `PLAIN` sends the password to the server. */
  allowed_sasl_mechanisms?: string[]
}

/** Files of a client's certificate and its private key, in PEM. */
export interface ICertificateAuthenticator {
  certificatePath: string
  keyPath: string
}

/** Credentials of the client. */
export type Authenticator = IPasswordAuthenticator | ICertificateAuthenticator

/** A user and password. The client sends the password itself only over TLS and if the server requires it. */
export class PasswordAuthenticator implements IPasswordAuthenticator {
  username: string
  password: string
  allowed_sasl_mechanisms?: string[]

  constructor(username: string, password: string) {
    this.username = username
    this.password = password
  }

  /**
   * For servers that delegate the check of passwords and therefore need the password itself. Requires TLS or a local
   * server.
   */
  static ldapCompatible(username: string, password: string): PasswordAuthenticator {
    const authenticator = new PasswordAuthenticator(username, password)
    authenticator.allowed_sasl_mechanisms = [PLAIN]
    return authenticator
  }
}

/** A client certificate that identifies the user. Requires `couchbases://`. */
export class CertificateAuthenticator implements ICertificateAuthenticator {
  certificatePath: string
  keyPath: string

  constructor(certificatePath: string, keyPath: string) {
    this.certificatePath = certificatePath
    this.keyPath = keyPath
  }
}

/** The trusted authorities. By default, these are the authorities that Node trusts. */
export interface SecurityConfig {
  /** File with the certificates of authorities, in PEM. */
  trustStorePath?: string
  /** Certificates of authorities, in PEM. */
  trustCertificates?: string | string[]
}

/** Selects the addresses of the nodes: their own, their alternate addresses, or the set that contains the seed. */
export type Network = 'auto' | 'default' | 'external'

/** Receives orphan responses: those that arrived after their operation had ended. */
export interface OrphanSink {
  take(operation: string, opaque: number, remote: string, local: string): void
}

/** Mechanism that sends the password itself. */
export const PLAIN = 'PLAIN'
const MECHANISMS = ['SCRAM-SHA512', 'SCRAM-SHA256', 'SCRAM-SHA1']

/** Data that every connection of a cluster needs. The authenticator can be replaced. */
export class Access {
  readonly tls: SecureContextOptions | undefined
  readonly network: Network
  readonly logger: CouchbaseLogger
  /** The embedded database that replaces the nodes, if there is one. It requires no authentication. */
  readonly database: Database | undefined
  /** Tracer and meter of the operations. */
  instruments: Instruments = {}
  /** Opens a connection with TLS. Its module is loaded only if there is TLS. */
  connectTls: typeof connect | undefined
  /** Receives orphan responses, if they are reported. */
  orphans: OrphanSink | undefined
  #authenticator: Authenticator

  /** @throws InvalidArgumentError if something is missing, or a file cannot be read. */
  constructor(
    authenticator: Authenticator,
    security: SecurityConfig | undefined,
    network: Network = 'auto',
    logger: CouchbaseLogger = new CouchbaseLogger(),
    database?: Database,
  ) {
    if (!['auto', 'default', 'external'].includes(network)) {
      throw new InvalidArgumentError('the network is auto, default or external')
    }
    this.tls = security && { ...trusted(security), ...clientCertificate(authenticator) }
    this.network = network
    this.logger = logger
    this.database = database
    this.#authenticator = this.#checked(authenticator)
  }

  /** Replaces the credentials. Existing connections remain open. */
  set authenticator(authenticator: Authenticator) {
    this.#authenticator = this.#checked(authenticator)
    if (this.tls) Object.assign(this.tls, { cert: undefined, key: undefined }, clientCertificate(authenticator))
  }

  /** User and password, or undefined if the client authenticates by certificate. */
  get credentials(): IPasswordAuthenticator | undefined {
    return this.database || 'certificatePath' in this.#authenticator ? undefined : this.#authenticator
  }

  /** Headers that authenticate HTTP requests. */
  get headers(): Record<string, string> {
    const { credentials } = this
    if (!credentials) return {}
    const text = `${credentials.username}:${credentials.password}`
    return { authorization: `Basic ${Buffer.from(text).toString('base64')}` }
  }

  /** TLS options of a socket to the address, or undefined without TLS. */
  tlsFor({ host }: Address): (SecureContextOptions & { servername?: string; minVersion: 'TLSv1.2' }) | undefined {
    // Server name indication does not allow IP addresses; a certificate lists them directly.
    return this.tls && { ...this.tls, minVersion: 'TLSv1.2', ...(isIP(host) ? {} : { servername: host }) }
  }

  /**
   * Mechanisms that may be used with a node, in order of preference.
   *
   * @throws InvalidArgumentError the password would cross a network in the clear.
   */
  mechanisms({ host }: Address): string[] {
    const allowed = this.credentials?.allowed_sasl_mechanisms
    if (!allowed) return MECHANISMS
    const known = allowed.filter((mechanism) => mechanism === PLAIN || MECHANISMS.includes(mechanism))
    if (!known.length) throw new InvalidArgumentError(`none of the mechanisms ${allowed} is known`)
    const usable = this.tls || isLoopback(host) ? known : known.filter((mechanism) => mechanism !== PLAIN)
    if (!usable.length) throw new InvalidArgumentError('PLAIN needs couchbases:// or a node on this machine')
    return usable
  }

  #checked(authenticator: Authenticator): Authenticator {
    if (this.database) return authenticator
    if (authenticator && 'token' in authenticator) {
      throw new FeatureNotAvailableError(
        'key-value takes no tokens: log in with a password or certificate, or connect by nacre/http with { token }',
      )
    }
    if (authenticator && 'certificatePath' in authenticator) {
      if (!this.tls) throw new InvalidArgumentError('a certificate needs couchbases://')
      return authenticator
    }
    if (typeof authenticator?.username !== 'string' || typeof authenticator.password !== 'string') {
      throw new InvalidArgumentError('connecting needs a user name and a password')
    }
    return authenticator
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

function trusted({ trustStorePath, trustCertificates }: SecurityConfig): SecureContextOptions {
  const certificates = [trustCertificates ?? []].flat()
  if (trustStorePath !== undefined) certificates.push(read(trustStorePath))
  if (certificates.some((text) => !String(text).includes('-----BEGIN CERTIFICATE-----'))) {
    throw new InvalidArgumentError('trusted certificates are in PEM')
  }
  return certificates.length ? { ca: certificates } : {}
}

function clientCertificate(authenticator: Authenticator): SecureContextOptions {
  if (!authenticator || !('certificatePath' in authenticator)) return {}
  return { cert: read(authenticator.certificatePath), key: read(authenticator.keyPath) }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new InvalidArgumentError(`${path} cannot be read`, {}, error)
  }
}

/** Error codes of Node for certificates that are not accepted. */
const CERTIFICATE_CODE = /CERT|SELF_SIGNED|UNABLE_TO_|HOSTNAME_MISMATCH|ALTNAME/

/** True if a connection failed because of a certificate, so that a retry would not help. */
export function isCertificateError(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code
  return typeof code === 'string' && CERTIFICATE_CODE.test(code)
}
