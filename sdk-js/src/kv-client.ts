/**
 * Routes a bucket's requests to the nodes that serve them, and tries again what may succeed later.
 *
 * A request goes round this loop until it has a final answer or its time is up:
 *
 *     connection to the node of its vBucket -> id of its collection -> send -> answer
 *     not my vBucket: take the newer map    | temporary failure, lock: wait, twice as long each time
 *     unknown collection: forget its id     | connection lost: again, unless it may have taken effect
 *     node or bucket not there: take the map of another node, which may be newer
 *
 * There is one connection a node. It is opened when first needed, and again once lost, after a pause that grows. A node
 * that refuses the client, as one without the bucket does, is like one that is down while others may know better: there
 * is no bucket once all nodes say so. The connection to a node that has left the cluster ends with the last answer on it.
 *
 * The `HttpClient` learns here which nodes run the other services.
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
import { type Instruments, watch } from './tracing.js'
import { detailOf, errorOf, retryReason } from './statuses.js'

/** How long a node may take to give its map before the next one is asked. */
const MAP_WAIT_MS_MAX = 5000

/**
 * How old the map may be for requests over HTTP: a node that has left the cluster but still runs answers them as a
 * cluster of its own, where it refuses those for documents. As in official SDKs.
 */
const MAP_AGE_MS_MAX = 2500

/** What a request needs besides its bytes. Its frame carries neither key nor vBucket yet. */
export interface Operation {
  request: Request
  key: string
  scope: string
  collection: string
  /** It changes nothing, so it may be sent twice. */
  reads?: boolean
  /** It insists on a new document. */
  adds?: boolean
  /** Statuses that are answers, not errors, besides success. */
  accepted?: readonly number[]
  /** Feature without which the server would not understand it. */
  needs?: number
  /** When its value began to be encoded, in Unix milliseconds, where that is watched. */
  began?: number | undefined
}

/** Connections and map of a bucket, or of the cluster as a whole if `bucket` is undefined. */
export class KvClient {
  readonly bucket: string | undefined
  readonly #seeds: Address[]
  readonly #access: Access
  readonly #connections = new Map<string, Connection>()
  readonly #collectionIds = new Map<string, number>([['_default._default', 0]])
  /** When `nodes` fetches the map again, on the clock of `performance.now()`; 0 is at once. */
  mapDue = 0
  #map: ClusterMap | undefined
  #turn = 0
  #closed = false

  constructor(seeds: Address[], access: Access, bucket?: string) {
    this.#seeds = seeds
    this.#access = access
    this.bucket = bucket
  }

  /** What watches operations. */
  get instruments(): Instruments {
    return this.#access.instruments
  }

  /** The newest map, once there is one. */
  get map(): ClusterMap | undefined {
    return this.#map
  }

  /**
   * The map, fetched from the first seed that has one.
   *
   * @throws UnambiguousTimeoutError no node answered in time.
   * @throws AuthenticationFailureError, BucketNotFoundError a node says so, and no other gives a map. That is not tried
   *   again.
   */
  async bootstrap(options: OperationOptions, defaultMs: number): Promise<ClusterMap> {
    const context: ErrorContext = { operation: 'connect' }
    if (this.bucket !== undefined) context.bucket = this.bucket
    return this.within(context, options, defaultMs, true, (attempt) => this.#fetchMap(attempt))
  }

  /**
   * Answer to a request for a document, after as many attempts as fit into the time.
   *
   * `copy` is the replica that is asked, or 0 for the active copy.
   *
   * @throws CouchbaseError of the kind that the answer's status asks for.
   * @throws TimeoutError there was no answer.
   * @throws DocumentUnretrievableError no node has the replica, or the one that has it cannot be asked.
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
   * Answer about a vBucket from the node of one of its copies (0 is the active one), whatever its status.
   *
   * For requests that only read. Waits until the node can be asked.
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
   * Answers about a vBucket from its active node, up to and with the first that `isLast`.
   *
   * For requests that only read. Waits until the node can be asked, and follows a vBucket that has moved.
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
   * The id of a collection.
   *
   * @throws CollectionNotFoundError, ScopeNotFoundError there is none until the deadline.
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
   * Nodes that run a service besides key-value, each time beginning with the next one.
   *
   * @throws ServiceNotAvailableError there are none.
   */
  async nodes(service: string, attempt: Attempt): Promise<Address[]> {
    let map = this.#map ?? (await this.#fetchMap(attempt))
    if (this.mapDue <= now() || !nodesWith(map, service).length) {
      // Where none gives one, there is still the old one.
      await this.#askForMap(attempt)
      map = this.#map ?? map
    }
    const nodes = nodesWith(map, service)
    if (!nodes.length) throw new ServiceNotAvailableError(`no node runs ${service}`, attempt.context)
    const first = this.#turn++ % nodes.length
    return [...nodes.slice(first), ...nodes.slice(0, first)]
  }

  /** The connections that are there, for diagnostics. */
  get connections(): Connection[] {
    return [...this.#connections.values()]
  }

  /**
   * Connection to a node, which is opened if need be; fails as soon as the node cannot be connected to.
   *
   * @throws ConnectionLost, AuthenticationFailureError, BucketNotFoundError the node does not let the client in.
   */
  async connectTo(address: Address, attempt: Attempt): Promise<Connection> {
    return this.#connection(address, attempt)
  }

  /** What `work` gives, or the error that says what became of it in time. `reads`: it may be done twice. */
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

  /** Ends all connections. Requests under way fail with `RequestCanceledError`. */
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
        connection = copy ? await this.#replica(vbid, attempt, copy) : await this.#connectionFor(vbid, attempt)
        const request = await this.#addressed(operation, key, vbid, connection, attempt)
        if (!request) continue
        response = await this.#dispatch(connection, request, attempt)
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

  async #dispatch(connection: Connection, request: Request, attempt: Attempt): Promise<Response> {
    const onSent = (): void => {
      attempt.inFlight = true
    }
    if (!attempt.watch) return connection.ask(request, attempt.deadline, onSent)
    const end = attempt.watch.dispatch(addressText(connection.address), connection.id)
    try {
      const response = await connection.ask(request, attempt.deadline, onSent)
      end(response.opaque)
      return response
    } finally {
      end()
    }
  }

  /** The request with vBucket and key; nothing to start over, as the collection is unknown. */
  async #addressed(
    operation: Operation,
    key: Buffer,
    vbid: number,
    connection: Connection,
    attempt: Attempt,
  ): Promise<Request | undefined> {
    if (operation.needs !== undefined && !connection.features.has(operation.needs)) {
      throw new FeatureNotAvailableError(undefined, attempt.context)
    }
    if (!connection.features.has(Feature.Collections)) {
      if (isDefault(operation)) return { ...operation.request, key, vbid }
      throw new FeatureNotAvailableError('the server has no collections', attempt.context)
    }
    const path = collectionPath(operation)
    const id = this.#collectionIds.get(path) ?? (await this.#collectionId(operation, connection, attempt))
    if (id === undefined) return undefined
    return { ...operation.request, key: Buffer.concat([leb128(id), key]), vbid }
  }

  /** The id of a collection as a node knows it; nothing if another attempt is to be made. */
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

  /** Prepares another attempt, or throws. */
  async #afterRefusal(
    operation: Pick<Operation, 'scope' | 'collection' | 'adds'>,
    response: Response,
    connection: Connection,
    attempt: Attempt,
  ): Promise<void> {
    const { status, opcode, opaque } = response
    const { context } = attempt
    if (status === Status.AuthStale) {
      // The login has ended, as with a new password: the next connection logs in anew.
      connection.close()
      return attempt.again('AUTHENTICATION_ERROR')
    }
    Object.assign(context, { status, opaque, endpoint: addressText(connection.address) })
    const detail = detailOf(response)
    if (detail !== undefined) context.detail = detail
    const reason = retryReason(status, opcode)
    if (!reason) throw errorOf(status, opcode, context, operation.adds)
    if (status === Status.NoBucket) {
      // Of one node; whether there is none at all is for the others to say.
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

  /** Takes the newer map, from the refusal itself or by asking. */
  async #moved(response: Response, address: Address, attempt: Attempt): Promise<void> {
    const found = response.value.length ? this.#mapIn(response, address) : undefined
    if (found && this.#take(found)) return
    // Who refused knows of the move, but has no map to give once it has left the cluster.
    await this.#askForMap(attempt, address)
  }

  /** The map that a node gave; nothing if it is that of the cluster and lacks the bucket. */
  #mapIn(response: Pick<Response, 'value'>, address: Address): ClusterMap | undefined {
    const { tls, network } = this.#access
    const found = parseClusterMap(response.value, address.host, { tls: tls !== undefined, network })
    return this.bucket === undefined || found.vbuckets.length ? found : undefined
  }

  /** Takes a map that a server sends when it changes. */
  #pushed({ opcode, key, value }: Response, address: Address): void {
    if (opcode !== PUSHED_MAP || key.toString() !== (this.bucket ?? '') || !value.length) return
    try {
      const found = this.#mapIn({ value }, address)
      if (found) this.#take(found)
    } catch (error) {
      // The next request that goes to the wrong node brings a map too.
      if (!(error instanceof DecodingFailureError)) throw error
    }
  }

  /** Takes a map if it is newer. False if it is older, as of a node that left the cluster. */
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

  /** Nodes to ask for the map. Those that the client is connected to answer soonest. */
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
   * Takes the map of the first node that gives one; if none does, says why.
   *
   * @throws AuthenticationFailureError, BucketNotFoundError all say so. Where there was a map, one that cannot be asked
   *   might know better.
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
        // The node may have left: ask others for a newer map, but keep what there is.
        await this.#askForMap(attempt)
        await attempt.again(reasonOf(error))
      }
    }
  }

  /** Connection to the node of a replica, which is not waited for. */
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
    // Shared by all who wait: it goes on for the others when one of them gives up.
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

/** Errors of a node that cannot be asked, though others may be. */
type Unavailable = ConnectionLost | AuthenticationFailureError | BucketNotFoundError

function isUnavailable(error: unknown): error is Unavailable {
  return [ConnectionLost, AuthenticationFailureError, BucketNotFoundError].some((kind) => error instanceof kind)
}

/** Why a node cannot be asked: the reason's official name. */
function reasonOf(error: Unavailable): string {
  if (error instanceof BucketNotFoundError || error instanceof BucketNotReady) return 'BUCKET_NOT_AVAILABLE'
  return error instanceof AuthenticationFailureError ? 'AUTHENTICATION_ERROR' : 'NODE_NOT_AVAILABLE'
}

function collectionPath({ scope, collection }: Pick<Operation, 'scope' | 'collection'>): string {
  return `${scope}.${collection}`
}

function isDefault(operation: Operation): boolean {
  return collectionPath(operation) === '_default._default'
}
