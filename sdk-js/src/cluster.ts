/** A cluster: the way in. */

import { Bucket } from './bucket.js'
import { type Address, parseConnectionString } from './connection-string.js'
import type { Credentials } from './connection.js'
import type { OperationOptions } from './deadline.js'
import { InvalidArgumentError, RequestCanceledError } from './errors.js'
import { HttpClient, type HttpRequest, type HttpResponse } from './http.js'
import { KvClient } from './kv-client.js'
import { BucketManager } from './management.js'
import { checkOptions } from './option-names.js'
import { DEFAULT_TIMEOUTS, type TimeoutConfig, type Timeouts } from './options.js'
import { DefaultTranscoder, type Transcoder } from './transcoders.js'

/** How to connect to a cluster. */
export interface ConnectOptions extends Credentials {
  timeouts?: TimeoutConfig
  /** Turns values into bytes where an operation names no other transcoder. */
  transcoder?: Transcoder
  /** Group of nodes that replica reads may be limited to. */
  preferredServerGroup?: string
}

/** A cluster and a user of it. `await using` closes it at the end. */
export class Cluster implements AsyncDisposable {
  /** @internal */
  readonly timeouts: Timeouts
  /** @internal */
  readonly http: HttpClient
  /** @internal */
  readonly transcoder: Transcoder
  /** @internal */
  readonly serverGroup: string | undefined
  readonly #seeds: Address[]
  readonly #credentials: Credentials
  readonly #client: KvClient
  readonly #buckets = new Map<string, Bucket>()
  #closed = false

  private constructor(connectionString: string, options: ConnectOptions) {
    checkOptions('connect', options)
    checkOptions('timeouts', options.timeouts)
    const { username, password } = options
    if (typeof username !== 'string' || typeof password !== 'string') {
      throw new InvalidArgumentError('connecting needs a user name and a password')
    }
    this.#credentials = { username, password }
    this.#seeds = parseConnectionString(connectionString).seeds
    this.timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts }
    this.transcoder = options.transcoder ?? new DefaultTranscoder()
    this.serverGroup = options.preferredServerGroup
    this.http = new HttpClient(this.#credentials)
    this.#client = new KvClient(this.#seeds, this.#credentials)
  }

  /**
   * Connects and logs in.
   *
   * @throws AuthenticationFailureError the user or password is wrong.
   * @throws UnambiguousTimeoutError no node answered in time.
   */
  static async connect(connectionString: string, options: ConnectOptions): Promise<Cluster> {
    const cluster = new Cluster(connectionString, options)
    try {
      await cluster.#client.bootstrap({}, cluster.timeouts.connectTimeout)
      return cluster
    } catch (error) {
      await cluster.close()
      throw error
    }
  }

  /** A bucket; the same object for the same name, with one connection a node. */
  bucket(name: string): Bucket {
    if (this.#closed) throw new RequestCanceledError('the cluster is closed')
    if (!name) throw new InvalidArgumentError('a bucket has a name')
    let bucket = this.#buckets.get(name)
    if (!bucket) {
      bucket = new Bucket(this, name, new KvClient(this.#seeds, this.#credentials, name))
      this.#buckets.set(name, bucket)
    }
    return bucket
  }

  /** Creates, drops and lists buckets. */
  buckets(): BucketManager {
    return new BucketManager(this)
  }

  /** Ends all connections; requests under way fail. */
  async close(): Promise<void> {
    this.#closed = true
    this.http.close()
    this.#client.close()
    for (const bucket of this.#buckets.values()) bucket.client.close()
  }

  /** Closes the cluster. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /** @internal */
  async askManagement(request: HttpRequest, options: OperationOptions): Promise<HttpResponse> {
    return this.http.send(this.#client, 'mgmt', request, options, this.timeouts.managementTimeout)
  }
}

/**
 * Connects to `couchbase://host[:port]` and logs in, with a user and password or with options that hold them.
 *
 * @throws AuthenticationFailureError the user or password is wrong.
 * @throws UnambiguousTimeoutError no node answered in time.
 */
export async function connect(connectionString: string, options: ConnectOptions): Promise<Cluster>
export async function connect(
  connectionString: string,
  username: string,
  password: string,
  timeouts?: TimeoutConfig,
): Promise<Cluster>
export async function connect(
  connectionString: string,
  user: string | ConnectOptions,
  password?: string,
  timeouts: TimeoutConfig = {},
): Promise<Cluster> {
  const options = typeof user === 'string' ? { username: user, password: password as string, timeouts } : user
  return Cluster.connect(connectionString, options)
}
