/**
 * Sync of an embedded database with a bucket of a cluster: `import { DeviceSync } from 'nacre/embedded'`.
 *
 *     DeviceSync.start → Database.sync → a thread of the addon, which waits for the network
 *                        status(), waitInStep(), events() ← its reports
 *
 * The application continues to read and write its database, with or without a network.
 */

import type { Cluster } from './cluster.js'
import type { NativeSync } from './embedded.js'
import { CouchbaseError, InvalidArgumentError, UnambiguousTimeoutError } from './errors.js'

/** Maximum milliseconds that a thread of Node's pool waits, so that other work gets its turn. */
const PIECE_MS = 500
const IN_STEP_TIMEOUT_MS = 60_000

/** Options of sync. */
export interface DeviceSyncOptions {
  /** The bucket, as `https://host:18091/bucket`. */
  url: string
  /** The user at the hub. */
  username: string
  /** The password of the user. */
  password: string
  /** The collections, as `scope.collection`. They have the same names on both sides. */
  collections: string[]
  /** `log` parks the loser of a conflict on the device, which is the default; `server` drops it. */
  conflicts?: 'log' | 'server'
  /** `both`, which is the default, or `pull` from the hub only. */
  direction?: 'both' | 'pull'
  /** Certificates of authorities in PEM; by default the public ones. */
  certificates?: string
  /** The name of the device in the hub's lists. */
  device?: string
  /** Allows `http` over a network. */
  allowPlain?: boolean
}

/** The names of the options in the addon. */
const NAMES: Record<keyof DeviceSyncOptions, string> = {
  url: 'url',
  username: 'user',
  password: 'password',
  collections: 'collections',
  conflicts: 'conflicts',
  direction: 'direction',
  certificates: 'certificates',
  device: 'device',
  allowPlain: 'allow_plain',
}

/** The state of sync. `stopped` is final. */
export type DeviceSyncState = 'offline' | 'connecting' | 'catching_up' | 'live' | 'stopped'

/** Figures of sync. */
export interface DeviceSyncStatus {
  /** The state. */
  state: DeviceSyncState
  /** The reason why sync has stopped, if it has. */
  reason: string | null
  /** The reason why the last connection failed, if it did. */
  trouble: string | null
  /** Versions received from the hub and stored. */
  pulled: number
  /** Versions that the hub has accepted. */
  pushed: number
  /** Resolved conflicts. */
  conflicts: number
  /** Parked versions. */
  parked: number
  /** The maximum number of changes that the hub still has to send. */
  remaining: number
  /** Versions sent to the hub and not yet answered. */
  onTheWay: number
}

/** An event of sync. */
export type DeviceSyncEvent =
  | { event: 'state'; state: DeviceSyncState; reason?: string }
  | { event: 'conflict'; collection: string; key: string; kept: 'hub' | 'device' | 'merged' }
  | { event: 'parked'; collection: string; key: string; reason: string }
  | { event: 'no_collection'; collection: string }
  | { event: 'again'; lost: boolean }

function toNative(options: DeviceSyncOptions): string {
  const found: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(NAMES, name)) throw new InvalidArgumentError(`${name} is not an option of sync`)
    if (value !== undefined) found[NAMES[name as keyof DeviceSyncOptions]] = value
  }
  return JSON.stringify(found)
}

/** A running sync. `await using` stops it at the end of the block. */
export class DeviceSync implements AsyncDisposable {
  readonly #native: NativeSync
  #isStopped = false

  private constructor(native: NativeSync) {
    this.#native = native
  }

  /**
   * Keeps the database of a cluster (`connect('nacre:///folder')`) in step with a bucket, until sync is stopped. A
   * database has one sync at a time.
   *
   * @throws InvalidArgumentError if the cluster is not an embedded database, an option is invalid, or sync is already running.
   */
  static async start(cluster: Cluster, options: DeviceSyncOptions): Promise<DeviceSync> {
    const { database } = cluster
    if (!database) throw new InvalidArgumentError("sync needs a database: connect('nacre:///folder')")
    return new DeviceSync(database.sync(toNative(options)))
  }

  #running(): NativeSync {
    if (this.#isStopped) throw new InvalidArgumentError('sync was stopped')
    return this.#native
  }

  /** Returns figures. */
  status(): DeviceSyncStatus {
    const { on_the_way: onTheWay, ...figures } = JSON.parse(this.#running().status())
    return { ...figures, onTheWay }
  }

  /**
   * Waits until each side has everything that the other side has now.
   *
   * @throws UnambiguousTimeoutError after `timeout` milliseconds, one minute by default.
   * @throws CouchbaseError if sync has stopped; the message contains the reason.
   */
  async waitInStep({ timeout = IN_STEP_TIMEOUT_MS }: { timeout?: number } = {}): Promise<void> {
    const end = performance.now() + timeout
    for (let left = timeout; left > 0; left = end - performance.now()) {
      const isInStep = await this.#running()
        .waitInStep(Math.ceil(Math.min(left, PIECE_MS)))
        .catch((error: Error) => {
          throw new CouchbaseError(error.message.replace(/^[A-Z_]+: /, ''), {}, error)
        })
      if (isInStep) return
    }
    throw new UnambiguousTimeoutError(`not in step: ${JSON.stringify(this.status())}`)
  }

  /** Yields events until sync stops. */
  async *events(): AsyncGenerator<DeviceSyncEvent, void, undefined> {
    while (!this.#isStopped) {
      const text = await this.#native.nextEvent(PIECE_MS)
      if (text) yield JSON.parse(text) as DeviceSyncEvent
      else if (this.#isStopped || this.status().state === 'stopped') return
    }
  }

  /** Connects immediately, for instance when the network is back. */
  retryNow(): void {
    this.#running().retry()
  }

  /** Ends sync; the next sync sends what was not sent. Call it before the cluster is closed. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#native.stop()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }
}
