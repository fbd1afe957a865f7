/**
 * Routes the requests of a bucket to the right nodes, and retries those that may succeed later.
 *
 * A request repeats this loop until it has a final response or its time is over:
 *
 *     connection to the node of its vBucket -> id of its collection -> send -> answer
 *     not my vBucket: take the newer map    | temporary failure, lock: wait, twice as long each time
 *     unknown collection: forget its id     | connection lost: again, unless it may have taken effect
 *     node or bucket not there: take the map of another node, which may be newer
 *
 * There is one connection per node. The client opens it on first use and reopens it when it is lost, after a growing
 * pause. A node that refuses the client, for instance because it does not have the bucket, counts as unavailable as
 * long as other nodes may know better: the bucket does not exist once all nodes say so. The connection to a node that
 * has left the cluster is closed after the last outstanding response.
 *
 * The `HttpClient` gets the nodes of the other services from this class.
 */

import { byText, type ClusterMap, isNewer, membersOf, nodeOf, nodesWith, parseClusterMap } from './cluster-map.js'
import type { Access } from './access.js'
import { Attempt } from './attempt.js'
import { BucketNotReady, Connection, ConnectionLost } from './connection.js'
import { type Address, addressText } from './connection-string.js'
import { now, Deadline, DeadlineOver, type OperationOptions } from './deadline.js'
import {
  AuthenticationFailureError,
  BucketNotFoundError,
  DecodingFailureError,
  DocumentUnretrievableError,
  type ErrorContext,
  FeatureNotAvailableError,
  RequestCanceledError,
  ServiceNotAvailableError,
} from './errors.js'
import type { Request, Response } from './frame.js'
import { checkKey, leb128, vbucketOf } from './keys.js'
import { Feature, Opcode, operationName, PUSHED_MAP, Status } from './opcodes.js'
import { type Instruments, type Watch, watch } from './tracing.js'
import { detailOf, errorOf, retryReason } from './statuses.js'

/** Timeout of a node's response to a map request, after which the client asks the next one. */
const MAP_WAIT_MS_MAX = 5000

/**
 * Maximum age of the map for HTTP requests. A node that has left the cluster but still runs answers HTTP requests as a
 * separate cluster, whereas it refuses requests for documents. The value is that of official SDKs.
 */
const MAP_AGE_MS_MAX = 2500

/** In place of a collection's ID on a server without collections. */
const NO_COLLECTIONS = -1

/** A request and its properties. Its frame contains neither key nor vBucket yet. */
export interface Operation {
  request: Request
  key: string
  scope: string
  collection: string
  /** True if the request changes nothing, so that it may be sent twice. */
  reads?: boolean | undefined
  /** True if the document must not exist. */
  adds?: boolean | undefined
  /** Statuses other than success that are not errors. */
  accepted?: readonly number[] | undefined
  /** The feature that the server must support. */
  needs?: number | undefined
  /** Start time of the encoding in Unix milliseconds, if it is traced. */
  began?: number | undefined
}

/** The connections and the map of a bucket, or of the cluster if `bucket` is undefined. */
export class KvClient {
  readonly bucket: string | undefined
  readonly #seeds: Address[]
  readonly #access: Access
  readonly #connections = new Map<string, Connection>()
  readonly #collectionIds = new Map<string, number>([['_default._default', 0]])
  /** The time at which `nodes` fetches the map again, on the clock of `performance.now()`; 0 means immediately. */
  mapDue = 0
  #map: ClusterMap | undefined
  #turn = 0
  #closed = false

  constructor(seeds: Address[], access: Access, bucket?: string) {
    this.#seeds = seeds
    this.#access = access
    this.bucket = bucket
  }

  /** Tracer and meter of the operations. */
  get instruments(): Instruments {
    return this.#access.instruments
  }

  /** The newest map, if there is one. */
  get map(): ClusterMap | undefined {
    return this.#map
  }

  /**
   * Fetches the map from the first seed that has one.
   *
   * @throws UnambiguousTimeoutError if no node answers in time.
   * @throws AuthenticationFailureError, BucketNotFoundError if a node reports this, and no other node returns a map.
   * This is not retried.
   */
  async bootstrap(options: OperationOptions, defaultMs: number): Promise<ClusterMap> {
    const context: ErrorContext = { operation: 'connect' }
    if (this.bucket !== undefined) context.bucket = this.bucket
    return this.within(context, options, defaultMs, true, (attempt) => this.#fetchMap(attempt))
  }

  /**
   * Returns the response to a request for a document, after as many attempts as the time allows.
   *
   * `copy` is the number of the replica, or 0 for the active copy.
   *
   * @throws CouchbaseError of the class for the response's status.
   * @throws TimeoutError if there is no response in time.
   * @throws DocumentUnretrievableError if no node has the replica, or its node is not available.
   */
  async execute(operation: Operation, options: OperationOptions, defaultMs: number, copy = 0): Promise<Response> {
    const key = checkKey(operation.key, isDefault(operation))
    const { scope, collection } = operation
    const context: ErrorContext = { key: operation.key, scope, collection }
    if (this.bucket !== undefined) context.bucket = this.bucket
    context.operation = operationName(operation.request.opcode)
    const work = (attempt: Attempt): Promise<Response> => {
      if (operation.began !== undefined) attempt.watch?.encoded()
      return this.#attempts(operation, key, attempt, copy)
    }
    return this.within(context, options, defaultMs, operation.reads ?? false, work, 'kv', operation.began)
  }

  /**
   * Returns the response of the node with a copy of a vBucket, with any status. Copy 0 is the active copy.
   *
   * For requests that only read. Waits until the node is available.
   */
  async askCopy(request: Request, copy: number, deadline: Deadline): Promise<Response> {
    const attempt = new Attempt({}, deadline)
    for (;;) {
      try {
        const connection = await this.#connectionFor(request.vbid ?? 0, attempt, copy)
        return await connection.ask(request, deadline)
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error
        await attempt.again('SOCKET_CLOSED_WHILE_IN_FLIGHT')
      }
    }
  }

  /**
   * Returns the responses of the active node of a vBucket, up to and including the first for which `isLast` returns
   * true.
   *
   * For requests that only read. Waits until the node is available, and follows a vBucket that moves.
   */
  async askVbucket(
    request: Request & { vbid: number },
    attempt: Attempt,
    isLast?: (response: Response) => boolean,
  ): Promise<Response[]> {
    for (;;) {
      const connection = await this.#connectionFor(request.vbid, attempt)
      let responses: Response[]
      try {
        responses = await connection.askAll(request, attempt.deadline, isLast)
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error
        await attempt.again('SOCKET_CLOSED_WHILE_IN_FLIGHT')
        continue
      }
      const last = responses.at(-1)!
      if (!retryReason(last.status, last.opcode)) return responses
      await this.#afterRefusal({ scope: '', collection: '' }, last, connection, attempt)
    }
  }

  /**
   * Returns the ID of a collection.
   *
   * @throws CollectionNotFoundError, ScopeNotFoundError if it does not exist until the deadline.
   */
  async collectionId(scope: string, collection: string, attempt: Attempt): Promise<number> {
    const place = { scope, collection }
    for (;;) {
      const known = this.#collectionIds.get(collectionPath(place))
      if (known !== undefined) return known
      try {
        const id = await this.#collectionId(place, await this.#connectionFor(0, attempt), attempt)
        if (id !== undefined) return id
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error
        await attempt.again('SOCKET_CLOSED_WHILE_IN_FLIGHT')
      }
    }
  }

  /**
   * Returns the nodes with a service other than key-value, in round-robin order.
   *
   * @throws ServiceNotAvailableError if there are none.
   */
  async nodes(service: string, attempt: Attempt): Promise<Address[]> {
    let map = this.#map ?? (await this.#fetchMap(attempt))
    if (this.mapDue <= now() || !nodesWith(map, service).length) {
      // If no node returns a map, the client uses the old one.
      await this.#askForMap(attempt)
      map = this.#map ?? map
    }
    const nodes = nodesWith(map, service)
    if (!nodes.length) throw new ServiceNotAvailableError(`no node runs ${service}`, attempt.context)
    const first = this.#turn++ % nodes.length
    return [...nodes.slice(first), ...nodes.slice(0, first)]
  }

  /** The present connections, for diagnostics. */
  get connections(): Connection[] {
    return [...this.#connections.values()]
  }

  /**
   * Returns the connection to a node, and opens it if necessary. Fails as soon as this is impossible.
   *
   * @throws ConnectionLost, AuthenticationFailureError, BucketNotFoundError if the node does not accept the client.
   */
  async connectTo(address: Address, attempt: Attempt): Promise<Connection> {
    return this.#connection(address, attempt)
  }

  /**
   * Returns the result of `work`, or throws the error for its outcome at the deadline. `reads` means that it may run
   * twice.
   */
  async within<T>(
    context: ErrorContext,
    options: OperationOptions,
    defaultMs: number,
    reads: boolean,
    work: (attempt: Attempt) => Promise<T>,
    service = 'kv',
    began?: number,
  ): Promise<T> {
    const deadline = new Deadline(options, defaultMs)
    const watched = watch(this.#access.instruments, service, context, options.parentSpan, { began })
    const attempt = new Attempt(context, deadline, watched)
    let failure: unknown
    try {
      if (deadline.over) throw new DeadlineOver()
      return await work(attempt)
    } catch (error) {
      failure = error instanceof DeadlineOver ? attempt.expired(reads) : error
      throw failure
    } finally {
      deadline.clear()
      watched?.end(failure)
    }
  }

  /** Closes all connections. Requests in progress fail with `RequestCanceledError`. */
  close(): void {
    this.#closed = true
    for (const connection of this.#connections.values()) connection.close()
  }

  async #attempts(operation: Operation, key: Buffer, attempt: Attempt, copy: number): Promise<Response> {
    for (;;) {
      const map = this.#map ?? (await this.#fetchMap(attempt))
      const vbid = vbucketOf(key, map.vbuckets.length)
      let connection: Connection
      let response: Response
      try {
        connection =
          this.#openTo(nodeOf(map, vbid, copy), attempt) ??
          (copy ? await this.#replica(vbid, attempt, copy) : await this.#connectionFor(vbid, attempt))
        const id = this.#idOf(operation, connection, attempt) ?? (await this.#collectionId(operation, connection, attempt))
        if (id === undefined) continue
        response = await this.#dispatch(connection, addressed(operation.request, key, vbid, id), attempt)
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error
        if (attempt.inFlight && !operation.reads) {
          throw new RequestCanceledError('the connection was lost before the answer came', attempt.context)
        }
        attempt.inFlight = false
        await attempt.again('SOCKET_CLOSED_WHILE_IN_FLIGHT')
        continue
      }
      attempt.inFlight = false
      if (response.status === Status.Success || operation.accepted?.includes(response.status)) return response
      await this.#afterRefusal(operation, response, connection, attempt)
    }
  }

  #dispatch(connection: Connection, request: Request, attempt: Attempt): Promise<Response> {
    const onSent = (): void => {
      attempt.inFlight = true
    }
    const { watch } = attempt
    if (!watch) return connection.ask(request, attempt.deadline, onSent)
    return this.#watched(watch, connection, request, attempt, onSent)
  }

  async #watched(
    watch: Watch,
    connection: Connection,
    request: Request,
    attempt: Attempt,
    onSent: () => void,
  ): Promise<Response> {
    const end = watch.dispatch(addressText(connection.address), connection.id)
    try {
      const response = await connection.ask(request, attempt.deadline, onSent)
      end(response.opaque)
      return response
    } finally {
      end()
    }
  }

  /** Returns the ID of the operation's collection if it is known; `NO_COLLECTIONS` if the server has none. */
  #idOf(operation: Operation, connection: Connection, attempt: Attempt): number | undefined {
    if (operation.needs !== undefined && !connection.features.has(operation.needs)) {
      throw new FeatureNotAvailableError(undefined, attempt.context)
    }
    if (!connection.features.has(Feature.Collections)) {
      if (isDefault(operation)) return NO_COLLECTIONS
      throw new FeatureNotAvailableError('the server has no collections', attempt.context)
    }
    return this.#collectionIds.get(collectionPath(operation))
  }

  /** Returns the ID of a collection on a node, or undefined for a retry. */
  async #collectionId(
    place: Pick<Operation, 'scope' | 'collection' | 'adds'>,
    connection: Connection,
    attempt: Attempt,
  ): Promise<number | undefined> {
    const path = collectionPath(place)
    const request = { opcode: Opcode.GetCollectionId, value: Buffer.from(path) }
    const response = await connection.ask(request, attempt.deadline)
    if (response.status !== Status.Success) {
      await this.#afterRefusal(place, response, connection, attempt)
      return undefined
    }
    if (response.extras.length < 12) throw new DecodingFailureError("a collection's id is missing", attempt.context)
    const id = response.extras.readUInt32BE(8)
    this.#collectionIds.set(path, id)
    return id
  }

  /** Prepares a retry, or throws. */
  async #afterRefusal(
    operation: Pick<Operation, 'scope' | 'collection' | 'adds'>,
    response: Response,
    connection: Connection,
    attempt: Attempt,
  ): Promise<void> {
    const { status, opcode, opaque } = response
    const { context } = attempt
    if (status === Status.AuthStale) {
      // The login has ended, for instance by a new password. The next connection logs in again.
      connection.close()
      return attempt.again('AUTHENTICATION_ERROR')
    }
    Object.assign(context, { status, opaque, endpoint: addressText(connection.address) })
    const detail = detailOf(response)
    if (detail !== undefined) context.detail = detail
    const reason = retryReason(status, opcode)
    if (!reason) throw errorOf(status, opcode, context, operation.adds)
    if (status === Status.NoBucket) {
      // This node does not have the bucket, but another one may.
      await this.#askForMap(attempt, connection.address)
      return attempt.again(reason)
    }
    attempt.refusal = () => errorOf(status, opcode, context, operation.adds)
    if (status === Status.NotMyVbucket) await this.#moved(response, connection.address, attempt)
    else if (status === Status.UnknownCollection || status === Status.UnknownScope) {
      this.#collectionIds.delete(collectionPath(operation))
    }
    await attempt.again(reason)
  }

  /** Installs the newer map, either from the response itself or by a request. */
  async #moved(response: Response, address: Address, attempt: Attempt): Promise<void> {
    const found = response.value.length ? this.#mapIn(response, address) : undefined
    if (found && this.#take(found)) return
    // The node knows about the move, but has no map any more if it has left the cluster.
    await this.#askForMap(attempt, address)
  }

  /** Returns the map in a response, or undefined if it is the map of the cluster without the bucket. */
  #mapIn(response: Pick<Response, 'value'>, address: Address): ClusterMap | undefined {
    const { tls, network } = this.#access
    const found = parseClusterMap(response.value, address.host, { tls: tls !== undefined, network })
    return this.bucket === undefined || found.vbuckets.length ? found : undefined
  }

  /** Installs a map that the server has pushed. */
  #pushed({ opcode, key, value }: Response, address: Address): void {
    if (opcode !== PUSHED_MAP || key.toString() !== (this.bucket ?? '') || !value.length) return
    try {
      const found = this.#mapIn({ value }, address)
      if (found) this.#take(found)
    } catch (error) {
      // The next request to a wrong node returns a map too.
      if (!(error instanceof DecodingFailureError)) throw error
    }
  }

  /**
   * Installs a map if it is newer. Returns false if it is older, for instance from a node that has left the cluster.
   */
  #take(found: ClusterMap): boolean {
    if (this.#map && !isNewer(found, this.#map)) return !isNewer(this.#map, found)
    this.#map = found
    const { epoch, revision, kv } = found
    this.#access.logger.debug(`map ${epoch}.${revision} of ${this.bucket ?? 'the cluster'}, ${kv.length} nodes`)
    const members = membersOf(found)
    for (const [name, connection] of this.#connections) {
      if (members.has(name)) continue
      connection.closeWhenIdle()
      if (connection.lost) this.#connections.delete(name)
    }
    return true
  }

  async #fetchMap(attempt: Attempt): Promise<ClusterMap> {
    while (!this.#map) {
      const reasons = await this.#askForMap(attempt)
      if (reasons.length) await attempt.again(...reasons)
    }
    return this.#map
  }

  /** Returns the nodes for a map request. Connected nodes come first, because they answer sooner. */
  #nodes(...first: Address[]): Address[] {
    const members = this.#map ? membersOf(this.#map).values() : []
    const [connected, others]: Address[][] = [[], []]
    for (const [name, node] of byText([...first, ...members, ...this.#seeds])) {
      const connection = this.#connections.get(name)
      ;(connection?.isOpen && !connection.lost ? connected : others)!.push(node)
    }
    return [...connected!, ...others!]
  }

  /**
   * Installs the map of the first node that returns one. If none does, reports why.
   *
   * @throws AuthenticationFailureError, BucketNotFoundError if all nodes report this. If there was a map, a node that
   * is unavailable may know better.
   */
  async #askForMap(attempt: Attempt, ...first: Address[]): Promise<string[]> {
    this.mapDue = now() + MAP_AGE_MS_MAX
    const errors: Unavailable[] = []
    for (const address of this.#nodes(...first)) {
      try {
        await this.#askNode(address, attempt)
        return []
      } catch (error) {
        if (!isUnavailable(error)) throw error
        errors.push(error)
      }
    }
    const refusals = errors.filter((error) => !(error instanceof ConnectionLost))
    if (refusals[0] && (!this.#map || refusals.length === errors.length)) throw refusals[0]
    return errors.map(reasonOf)
  }

  async #askNode(address: Address, attempt: Attempt): Promise<void> {
    const connection = await this.#connection(address, attempt)
    const response = await Promise.race([
      connection.ask({ opcode: Opcode.GetClusterConfig }, attempt.deadline),
      attempt.deadline.sleep(MAP_WAIT_MS_MAX).then(() => Promise.reject(new ConnectionLost())),
    ])
    const { status } = response
    if (status !== Status.Success && status !== Status.NoBucket) throw new ConnectionLost()
    const found = status === Status.Success ? this.#mapIn(response, address) : undefined
    if (!found) throw new BucketNotFoundError(undefined, attempt.context)
    if (!this.#take(found)) throw new ConnectionLost()
  }

  async #connectionFor(vbid: number, attempt: Attempt, copy = 0): Promise<Connection> {
    for (;;) {
      const map = this.#map ?? (await this.#fetchMap(attempt))
      try {
        return await this.#connection(nodeOf(map, vbid, copy), attempt)
      } catch (error) {
        if (!isUnavailable(error)) throw error
        // The node may have left: the client asks other nodes for a newer map, but keeps the present one.
        await this.#askForMap(attempt)
        await attempt.again(reasonOf(error))
      }
    }
  }

  /** Returns the connection to a node if it is open, without the promises of `#connection`. */
  #openTo(address: Address | undefined, attempt: Attempt): Connection | undefined {
    if (this.#closed || !address || attempt.unreachable) return undefined
    const connection = this.#connections.get(addressText(address))
    return connection?.isOpen && !connection.lost ? connection : undefined
  }

  /** Returns the connection to the node of a replica, without waiting for a missing replica. */
  async #replica(vbid: number, attempt: Attempt, copy: number): Promise<Connection> {
    const map = this.#map ?? (await this.#fetchMap(attempt))
    try {
      return await this.#connection(nodeOf(map, vbid, copy), attempt)
    } catch (error) {
      if (!isUnavailable(error)) throw error
      throw new DocumentUnretrievableError('the replica cannot be asked', attempt.context, error)
    }
  }

  async #connection(address: Address | undefined, attempt: Attempt): Promise<Connection> {
    if (this.#closed) throw new RequestCanceledError('the cluster is closed', attempt.context)
    if (!address) throw new ConnectionLost()
    const name = addressText(address)
    let connection = this.#connections.get(name)
    if (!connection || connection.lost) {
      const onPush = (pushed: Response): void => this.#pushed(pushed, address)
      connection = new Connection(address, this.#access, this.bucket, onPush)
      this.#connections.set(name, connection)
    }
    // All waiting requests share this: it continues for the others when one of them times out.
    try {
      if (!connection.isOpen) await attempt.deadline.race(connection.opened)
    } catch (error) {
      if (error instanceof ConnectionLost && error.message) (attempt.unreachable ??= new Map()).set(name, error)
      throw error
    }
    attempt.unreachable?.delete(name)
    return connection
  }
}

/** Errors of an unavailable node, where other nodes may be available. */
type Unavailable = ConnectionLost | AuthenticationFailureError | BucketNotFoundError

function isUnavailable(error: unknown): error is Unavailable {
  return [ConnectionLost, AuthenticationFailureError, BucketNotFoundError].some((kind) => error instanceof kind)
}

/** Returns the official name of the reason why a node is unavailable. */
function reasonOf(error: Unavailable): string {
  if (error instanceof BucketNotFoundError || error instanceof BucketNotReady) return 'BUCKET_NOT_AVAILABLE'
  return error instanceof AuthenticationFailureError ? 'AUTHENTICATION_ERROR' : 'NODE_NOT_AVAILABLE'
}

/**
 * Returns the request with vBucket, collection and key. A spread would leave memory behind that only a full collection
 * frees.
 */
function addressed(request: Request, name: Buffer, vbid: number, collection: number): Request {
  const { opcode, extras, value, cas, datatype, framing } = request
  const key = collection === NO_COLLECTIONS ? name : Buffer.concat([leb128(collection), name])
  return { opcode, key, extras, value, vbid, cas, datatype, framing }
}

function collectionPath({ scope, collection }: Pick<Operation, 'scope' | 'collection'>): string {
  return `${scope}.${collection}`
}

function isDefault(operation: Operation): boolean {
  return collectionPath(operation) === '_default._default'
}
