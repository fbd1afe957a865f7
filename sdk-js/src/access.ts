/** Who connects, and how: user and password or a certificate, TLS, and which of a node's addresses. */

import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import type { SecureContextOptions } from 'node:tls'

import type { Address } from './connection-string.js'
import type { Database } from './embedded.js'
import { FeatureNotAvailableError, InvalidArgumentError } from './errors.js'
import { CouchbaseLogger } from './logger.js'
import type { Instruments } from './tracing.js'

/** A user and password. */
export interface IPasswordAuthenticator {
  username: string
  password: string
  /** Mechanisms that may be used, the first that the server offers; `PLAIN` shows the password to the server. */
  allowed_sasl_mechanisms?: string[]
}

/** Files of a client's certificate and its private key, in PEM. */
export interface ICertificateAuthenticator {
  certificatePath: string
  keyPath: string
}

/** Who connects. */
export type Authenticator = IPasswordAuthenticator | ICertificateAuthenticator

/** A user and password, which the server is not shown but over TLS and on request. */
export class PasswordAuthenticator implements IPasswordAuthenticator {
  username: string
  password: string
  allowed_sasl_mechanisms?: string[]

  constructor(username: string, password: string) {
    this.username = username
    this.password = password
  }

  /** For servers that check passwords elsewhere and have to see them: TLS or this machine only. */
  static ldapCompatible(username: string, password: string): PasswordAuthenticator {
    const authenticator = new PasswordAuthenticator(username, password)
    authenticator.allowed_sasl_mechanisms = [PLAIN]
    return authenticator
  }
}

/** A certificate, by which the server knows the user; for `couchbases://` only. */
export class CertificateAuthenticator implements ICertificateAuthenticator {
  certificatePath: string
  keyPath: string

  constructor(certificatePath: string, keyPath: string) {
    this.certificatePath = certificatePath
    this.keyPath = keyPath
  }
}

/** Whom the client trusts; without any, the authorities that Node trusts. */
export interface SecurityConfig {
  /** File with the certificates of authorities, in PEM. */
  trustStorePath?: string
  /** Certificates of authorities, in PEM. */
  trustCertificates?: string | string[]
}

/**
 * Which addresses of the nodes are used: their own, those given to them for clients elsewhere, or those that fit the
 * seed.
 */
export type Network = 'auto' | 'default' | 'external'

/** Takes answers that came when nobody waited for them any more. */
export interface OrphanSink {
  take(operation: string, opaque: number, remote: string, local: string): void
}

/** Mechanism that shows the password to the server. */
export const PLAIN = 'PLAIN'
const MECHANISMS = ['SCRAM-SHA512', 'SCRAM-SHA256', 'SCRAM-SHA1']

/** What every connection of a cluster needs; the authenticator may be exchanged. */
export class Access {
  readonly tls: SecureContextOptions | undefined
  readonly network: Network
  readonly logger: CouchbaseLogger
  /** The database in this process that stands for the nodes, if there is one; it asks nobody who they are. */
  readonly database: Database | undefined
  /** What watches operations. */
  instruments: Instruments = {}
  /** Takes answers that nobody waits for any more, if they are reported. */
  orphans: OrphanSink | undefined
  #authenticator: Authenticator

  /** @throws InvalidArgumentError something is missing, or a file cannot be read. */
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

  /** Exchanges who connects; connections that exist go on. */
  set authenticator(authenticator: Authenticator) {
    this.#authenticator = this.#checked(authenticator)
    if (this.tls) Object.assign(this.tls, { cert: undefined, key: undefined }, clientCertificate(authenticator))
  }

  /** User and password; nothing if a certificate says who connects. */
  get credentials(): IPasswordAuthenticator | undefined {
    return this.database || 'certificatePath' in this.#authenticator ? undefined : this.#authenticator
  }

  /** Header of HTTP requests that says who asks. */
  get headers(): Record<string, string> {
    const { credentials } = this
    if (!credentials) return {}
    const text = `${credentials.username}:${credentials.password}`
    return { authorization: `Basic ${Buffer.from(text).toString('base64')}` }
  }

  /** What a socket to the address needs for TLS; nothing without. */
  tlsFor({ host }: Address): (SecureContextOptions & { servername?: string; minVersion: 'TLSv1.2' }) | undefined {
    // Certificates name addresses by themselves, and the extension for names takes none.
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

/** Whether a connection failed because of a certificate, which waiting does not mend. */
export function isCertificateError(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException | undefined)?.code
  return typeof code === 'string' && CERTIFICATE_CODE.test(code)
}
