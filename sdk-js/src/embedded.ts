/**
 * An embedded database instead of a cluster: `connect('nacre:///path/to/folder')`.
 *
 *     Connection → EmbeddedSocket.write → Session.receive(frames) → responses, in the same turn
 *                  'data'               ← Session.poll()          ← wake, when a request has waited for the disk
 *
 * The classes of this package talk to the database as to a server: the frames are the same, but they do not cross a
 * network. The native part is a Node-API addon. `NACRE_ADDON` names its file; by default, it is in the package
 * `@nacre/embedded`.
 */

import { createRequire } from 'node:module'
import { constants } from 'node:os'
import { Duplex } from 'node:stream'

import { Access } from './access.js'
import { type Address, DEFAULT_PORT } from './connection-string.js'
import { InvalidArgumentError } from './errors.js'
import { CouchbaseLogger, type Logger } from './logger.js'

/** Path of an in-memory database. */
const IN_MEMORY = ':memory:'

/** Options of the native addon. */
interface NativeOptions {
  sync?: string
  syncDelayMs?: number
  quotaMib?: number
  vbuckets?: number
  store?: string
  create?: boolean
  key?: Buffer
  passphrase?: string
}

interface NativeSession {
  receive(requests: Buffer): Buffer
  poll(): Buffer
  close(): void
  readonly ended: string | null
}

/** A running sync. The promises wait on threads of Node's pool. */
export interface NativeSync {
  /** Figures as JSON. */
  status(): string
  /** Resolves to false after the timeout. */
  waitInStep(timeoutMs: number): Promise<boolean>
  /** Resolves to an event as JSON, or to an empty string after the timeout. */
  nextEvent(timeoutMs: number): Promise<string>
  retry(): void
  stop(): void
}

interface NativeDatabase {
  session(wake: () => void): NativeSession
  sync(options: string): NativeSync
  manage(method: string, path: string, body: Buffer): { status: number; body: string }
  /** Resolves on a thread of Node's pool. */
  manageLater(method: string, path: string, body: Buffer): Promise<{ status: number; body: string }>
  /** The new key has 32 bytes, or is a passphrase. */
  rekey(key: Buffer | null, passphrase: string | null): void
  close(): void
}

interface Addon {
  Database: new (path: string, options: NativeOptions) => NativeDatabase
}

let loaded: Addon | undefined

function addon(): Addon {
  if (loaded) return loaded
  const { NACRE_ADDON: file } = process.env
  try {
    if (file) {
      const module = { exports: {} }
      process.dlopen(module, file, constants.dlopen.RTLD_NOW)
      loaded = module.exports as Addon
    } else {
      loaded = createRequire(import.meta.url)('@nacre/embedded') as Addon
    }
    return loaded
  } catch (error) {
    const message = 'a database in this process needs the addon: install @nacre/embedded, or name its file in NACRE_ADDON'
    throw new InvalidArgumentError(message, {}, error)
  }
}

/**
 * Opens the database of a connection string, or returns the open one.
 *
 * @throws InvalidArgumentError if the string is invalid, or the database cannot be opened.
 */
export function open(
  text: string,
  logger: Logger | undefined,
  key?: Uint8Array | string,
): { seeds: Address[]; access: Access } {
  const database = Database.open(withKey(parsePlace(text), key))
  const nobody = { username: '', password: '' }
  const access = new Access(nobody, undefined, 'default', new CouchbaseLogger(logger), database)
  return { seeds: [{ host: 'embedded', port: DEFAULT_PORT }], access }
}

/** The path and the options of a database. */
export interface Place {
  path: string
  options: NativeOptions
}

/**
 * Parses `nacre:///path/to/folder?option=value` or `nacre://:memory:`.
 *
 * @throws InvalidArgumentError if the path is not absolute, or an option is unknown or out of range.
 */
export function parsePlace(text: string): Place {
  const scheme = 'nacre://'
  const at = text.indexOf('?')
  const path = decodeURIComponent(text.slice(scheme.length, at < 0 ? undefined : at))
  if (!text.startsWith(scheme) || (path !== IN_MEMORY && !path.startsWith('/'))) {
    throw new InvalidArgumentError(`a database is nacre:///path/to/folder or nacre://${IN_MEMORY}, not nacre://${path}`)
  }
  const options: NativeOptions = {}
  for (const [name, value] of new URLSearchParams(at < 0 ? '' : text.slice(at + 1))) {
    if (name === 'sync' || name === 'store') options[name] = value
    else if (name === 'create') options.create = value !== 'false'
    else if (name === 'sync_delay_ms') options.syncDelayMs = numberOf(name, value)
    else if (name === 'quota_mib') options.quotaMib = numberOf(name, value)
    else if (name === 'vbuckets') options.vbuckets = numberOf(name, value)
    else {
      const known = 'create, quota_mib, store, sync, sync_delay_ms and vbuckets'
      throw new InvalidArgumentError(`options of a database are ${known}, not ${name}`)
    }
  }
  return { path, options }
}

/**
 * Adds the key of an encrypted folder to a place.
 *
 * @throws InvalidArgumentError if it is neither 32 bytes nor a passphrase.
 */
export function withKey(place: Place, key: Uint8Array | string | undefined): Place {
  if (key === undefined) return place
  if (typeof key === 'string' && key !== '') return { ...place, options: { ...place.options, passphrase: key } }
  if (key instanceof Uint8Array && key.length === 32) {
    return { ...place, options: { ...place.options, key: Buffer.from(key) } }
  }
  throw new InvalidArgumentError('a key has 32 bytes, or is a passphrase')
}

function numberOf(name: string, value: string): number {
  const number = Number(value)
  if (!/^\d{1,9}$/.test(value)) throw new InvalidArgumentError(`${name}=${value} is out of range`)
  return number
}

/** Returns the key under which clusters share an open database; undefined for one in memory, which nobody shares. */
function shareKey({ path, options }: Place): string | undefined {
  return path === IN_MEMORY ? undefined : JSON.stringify([path, options])
}

/** An open database. All clusters in this process with the same folder share it. */
export class Database {
  static readonly #open = new Map<string, Database>()
  #place: Place
  readonly #native: NativeDatabase
  #users = 0

  private constructor(place: Place, native: NativeDatabase) {
    this.#place = place
    this.#native = native
  }

  /**
   * Opens a database, or returns the open one.
   *
   * @throws InvalidArgumentError if it cannot be opened; the message contains the reason, for instance another process, or
   *   a wrong key.
   */
  static open(place: Place): Database {
    const { path, options } = place
    const key = shareKey(place)
    let database = key === undefined ? undefined : Database.#open.get(key)
    if (!database) {
      const { Database: Native } = addon()
      try {
        database = new Database(place, new Native(path, options))
      } catch (error) {
        throw new InvalidArgumentError(`the database cannot be opened: ${(error as Error).message}`, {}, error)
      }
      if (key !== undefined) Database.#open.set(key, database)
    }
    database.#users += 1
    return database
  }

  /** Opens a session, as a socket. */
  connect(): EmbeddedSocket {
    return new EmbeddedSocket((wake) => this.#native.session(wake))
  }

  /** Answers a management request about scopes and collections; 404 for any other request. */
  manage(method: string, path: string, body = ''): { status: number; text: string } {
    const answer = this.#native.manage(method, path, Buffer.from(body))
    return { status: answer.status, text: answer.body }
  }

  /** Answers a request about views, or for SQL++, on another thread, because both read many documents. */
  async manageLater(method: string, path: string, body = ''): Promise<{ status: number; text: string }> {
    const answer = await this.#native.manageLater(method, path, Buffer.from(body))
    return { status: answer.status, text: answer.body }
  }

  /**
   * Starts sync with a bucket. The options are JSON in the form of the addon.
   *
   * @throws InvalidArgumentError if the options are invalid, or sync is already running.
   */
  sync(options: string): NativeSync {
    try {
      return this.#native.sync(options)
    } catch (error) {
      throw new InvalidArgumentError(`sync cannot start: ${(error as Error).message}`, {}, error)
    }
  }

  /**
   * Replaces the key. Clusters that open the folder from then on share this database if they have the new key.
   *
   * @throws InvalidArgumentError if the key is neither 32 bytes nor a passphrase, or the database refuses it, for
   *   instance because it is not encrypted.
   */
  rekey(key: Uint8Array | string): void {
    const bare = { ...this.#place.options }
    delete bare.key
    delete bare.passphrase
    const place = withKey({ path: this.#place.path, options: bare }, key)
    try {
      this.#native.rekey(place.options.key ?? null, place.options.passphrase ?? null)
    } catch (error) {
      throw new InvalidArgumentError(`the key cannot be replaced: ${(error as Error).message}`, {}, error)
    }
    const shared = shareKey(this.#place)
    if (shared !== undefined) Database.#open.delete(shared)
    this.#place = place
    const next = shareKey(place)
    if (next !== undefined) Database.#open.set(next, this)
  }

  /** Leaves the database. The last leaver closes it, which persists all changes. */
  leave(): void {
    this.#users -= 1
    if (this.#users > 0) return
    const shared = shareKey(this.#place)
    if (shared !== undefined) Database.#open.delete(shared)
    this.#native.close()
  }
}

/** A session in the form of a Node socket. */
export class EmbeddedSocket extends Duplex {
  /** Undefined, because there is no network. */
  readonly localAddress = undefined
  readonly localPort = undefined
  readonly #session: NativeSession

  constructor(begin: (wake: () => void) => NativeSession) {
    super({ allowHalfOpen: false })
    this.#session = begin(() => {
      if (!this.destroyed) this.#deliver(this.#session.poll())
    })
  }

  /** Does nothing, because nothing is delayed. */
  setNoDelay(): this {
    return this
  }

  override _read(): void {
    // Responses arrive at the pace of the requests, so no back-pressure is needed.
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#deliver(this.#session.receive(chunk))
    done()
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.#deliver(this.#session.receive(Buffer.concat(chunks.map(({ chunk }) => chunk))))
    done()
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#session.close()
    done(error)
  }

  #deliver(responses: Buffer): void {
    if (this.destroyed) return
    if (responses.length) this.push(responses)
    const { ended } = this.#session
    if (ended !== null && ended !== undefined) this.destroy(new Error(ended))
  }
}
