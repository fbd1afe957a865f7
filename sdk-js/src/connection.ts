/**
 * An authenticated TCP connection, which pipelines requests.
 *
 * The connection sends requests as they come, and matches responses to them by opaque. A closed connection is never
 * reopened: the `KvClient` opens a new one.
 */

import { randomBytes } from 'node:crypto'
import { connect, type Socket } from 'node:net'

import { type Access, isCertificateError, type OrphanSink, PLAIN } from './access.js'
import { type Address, addressText } from './connection-string.js'
import { type Deadline, DeadlineOver } from './deadline.js'
import type { EmbeddedSocket } from './embedded.js'
import { AuthenticationFailureError, BucketNotFoundError, type ErrorContext } from './errors.js'
import { encodeRequest, FrameReader, type Request, type Response } from './frame.js'
import type { CouchbaseLogger } from './logger.js'
import { Feature, Opcode, operationName, Status } from './opcodes.js'
import { digestOf, Scram } from './scram.js'
import { Slots } from './slots.js'
import { detailOf, errorOf, retryReason } from './statuses.js'

const AGENT = 'nacre-js/0.1.0'

/** Timeout of opening a connection, after which the client tries the next node. */
const OPEN_MS_MAX = 5000

/** The connection was closed before the response arrived. Callers only see this error as the `cause` of a timeout. */
export class ConnectionLost extends Error {}

/** The node does not have the bucket yet. */
export class BucketNotReady extends ConnectionLost {}

/** Maximum size of buffered responses to one request. */
const ANSWERS_BYTES_MAX = 64 * 1024 * 1024

/** Requests whose responses may arrive after the end of a scan. They do not count as orphans. */
const UNAWAITED: ReadonlySet<number> = new Set([Opcode.RangeScanContinue, Opcode.RangeScanCancel])

interface Waiting {
  resolve: (response: Response) => void
  reject: (error: Error) => void
}

/** A connection, which may be `lost`. */
export class Connection {
  readonly address: Address
  readonly #socket: Socket | EmbeddedSocket
  readonly #reader = new FrameReader()
  readonly #waiting = new Slots<Waiting>()
  #features: ReadonlySet<number> = new Set()
  #lost = false
  /** The reason why the connection was closed, if known. */
  #cause: Error | undefined
  #corked = false
  /** For the request being sent: processes a response and returns true if more responses follow. */
  #more: ((response: Response) => boolean) | undefined
  #closesWhenIdle = false

  /**
   * Resolves after the negotiation of features, the login, and the selection of the bucket.
   *
   * @throws ConnectionLost if the node does not answer, or the bucket is not ready.
   * @throws AuthenticationFailureError if the user or password is wrong.
   * @throws BucketNotFoundError if the bucket does not exist.
   */
  readonly opened: Promise<void>
  #isOpen = false
  readonly #onPush: (response: Response) => void
  readonly #logger: CouchbaseLogger
  readonly #orphans: OrphanSink | undefined
  /** ID of the connection in diagnostics. */
  readonly id: string = randomBytes(8).toString('hex')
  /** Name of the selected bucket. */
  readonly bucket: string | undefined
  /** Time of the last response, in Unix milliseconds. */
  lastActivity = 0

  /** `onPush` receives requests that the server sends. */
  constructor(address: Address, access: Access, bucket: string | undefined, onPush: (response: Response) => void) {
    this.address = address
    this.bucket = bucket
    this.#onPush = onPush
    this.#logger = access.logger
    this.#orphans = access.orphans
    const tls = access.tlsFor(address)
    const { host, port } = address
    this.#socket =
      access.database?.connect() ?? (tls ? access.connectTls!({ ...tls, host, port }) : connect({ host, port }))
    this.#socket.setNoDelay()
    this.#socket.on('data', (data: Buffer) => this.#receive(data))
    this.#socket.on('error', (error) => this.close(error))
    this.#socket.on('close', () => this.close())
    this.opened = this.#open(access, bucket)
  }

  /** True if `opened` has resolved. */
  get isOpen(): boolean {
    return this.#isOpen
  }

  /** The negotiated features. */
  get features(): ReadonlySet<number> {
    return this.#features
  }

  /** Local address and port. */
  get local(): string {
    const { localAddress, localPort } = this.#socket
    return localAddress === undefined ? '' : addressText({ host: localAddress, port: localPort! })
  }

  /** True if the connection is closed. */
  get lost(): boolean {
    return this.#lost
  }

  /**
   * Sends a request and waits for the response. `onSent` is called when the bytes are sent.
   *
   * @throws ConnectionLost if the connection is closed first.
   * @throws DeadlineOver if the time is over first. The client then drops the response.
   */
  ask(request: Request, deadline?: Deadline, onSent?: () => void): Promise<Response> {
    if (this.#lost) return Promise.reject(this.#ended())
    return new Promise<Response>((resolve, reject) => {
      let forget: (() => void) | undefined
      const settle =
        <T>(action: (value: T) => void) =>
        (value: T): void => {
          this.#waiting.delete(opaque)
          forget?.()
          action(value)
          if (this.#closesWhenIdle) this.closeWhenIdle()
        }
      const more = this.#more
      const done = settle(resolve)
      const next = (response: Response): void => {
        if (!more?.(response)) done(response)
      }
      const opaque = this.#waiting.add({ resolve: next, reject: settle(reject) })
      forget = deadline?.onEnd(() => this.#waiting.get(opaque)?.reject(new DeadlineOver()))
      if (deadline?.over) return
      this.#write(encodeRequest(request, opaque))
      onSent?.()
    })
  }

  /**
   * Sends a request and waits for several responses, up to and including the first for which `isLast` returns true.
   *
   * @throws ConnectionLost if the connection is closed first, which also happens if there are too many responses.
   * @throws DeadlineOver if the time is over first.
   */
  async askAll(request: Request, deadline: Deadline, isLast?: (response: Response) => boolean): Promise<Response[]> {
    const responses: Response[] = []
    if (!isLast) return [await this.ask(request, deadline)]
    let byteCount = 0
    this.#more = (response): boolean => {
      responses.push(response)
      byteCount += response.value.length
      if (byteCount > ANSWERS_BYTES_MAX) this.close(new Error('the answers to one request are over the limit'))
      return !isLast(response)
    }
    const asked = this.ask(request, deadline)
    this.#more = undefined
    await asked
    return responses
  }

  /** Closes the connection, with the given cause if any. Outstanding responses are lost. */
  close(cause?: Error): void {
    if (this.#lost) return
    this.#lost = true
    this.#cause = cause
    if (cause) this.#logger.warn(`the connection to ${addressText(this.address)} ended: ${cause.message}`)
    else this.#logger.debug(`the connection to ${addressText(this.address)} ended`)
    this.#socket.destroy()
    for (const waiting of this.#waiting.values()) waiting.reject(this.#ended())
  }

  /** Closes the connection once no response is outstanding. */
  closeWhenIdle(): void {
    this.#closesWhenIdle = true
    if (!this.#waiting.size) this.close()
  }

  #write(bytes: Buffer): void {
    // The requests of one turn of the event loop are sent together.
    if (!this.#corked) {
      this.#corked = true
      this.#socket.cork()
      process.nextTick(() => {
        this.#corked = false
        this.#socket.uncork()
      })
    }
    // The socket buffers what it cannot send yet. Back-pressure comes from callers, who await their responses.
    this.#socket.write(bytes)
  }

  #receive(data: Buffer): void {
    try {
      this.lastActivity = Date.now()
      for (const response of this.#reader.feed(data)) {
        if (response.pushed) this.#onPush(response)
        else this.#answer(response)
      }
    } catch (error) {
      // The stream has lost its framing: all further bytes are unreliable.
      const hint = this.#isOpen ? '' : ', so this may not be a key-value port (11210)'
      this.close(new Error(`the answer cannot be read${hint}`, { cause: error }))
    }
  }

  #answer(response: Response): void {
    const { opcode, opaque } = response
    const waiting = this.#waiting.get(opaque)
    if (waiting) waiting.resolve(response)
    else if (!UNAWAITED.has(opcode)) {
      this.#orphans?.take(operationName(opcode), opaque, addressText(this.address), this.local)
    }
  }

  async #open(access: Access, bucket: string | undefined): Promise<void> {
    const late = (): void => this.close(new Error(`the node did not complete the login within ${OPEN_MS_MAX} ms`))
    const timer = setTimeout(late, OPEN_MS_MAX)
    try {
      await this.#logIn(access)
      if (bucket !== undefined) await this.#select(bucket)
      this.#isOpen = true
      this.#logger.debug(`connected to ${addressText(this.address)}`, { bucket, id: this.id })
    } catch (error) {
      const cause = this.#cause
      this.close()
      if (!isCertificateError(cause)) throw error
      // A retry would not help, as with a wrong password.
      const message = `the certificate of ${addressText(this.address)} is not accepted: ${cause!.message}`
      throw new AuthenticationFailureError(message, { endpoint: addressText(this.address) }, cause)
    } finally {
      clearTimeout(timer)
    }
  }

  #ended(): ConnectionLost {
    const message = this.#cause?.message || 'the node closed the connection'
    return new ConnectionLost(message, this.#cause && { cause: this.#cause })
  }

  async #logIn(access: Access): Promise<void> {
    const { credentials } = access
    if (!credentials) {
      this.#agree(await this.ask(helloRequest()))
      return
    }
    const mechanisms = access.mechanisms(this.address)
    const first = new Login(mechanisms[0]!, credentials)
    // The client sends all requests at once, because the server responds in order.
    const [hello, list, answer] = await Promise.all([
      this.ask(helloRequest()),
      this.ask({ opcode: Opcode.SaslListMechs }),
      this.ask(first.request()),
    ])
    this.#agree(hello)
    const offered = list.value.toString().split(' ')
    const mechanism = mechanisms.find((name) => offered.includes(name))
    if (!mechanism) throw new AuthenticationFailureError(`the server offers ${offered}, not ${mechanisms.join(', ')}`)
    if (mechanism === first.mechanism) return this.#prove(first, answer)
    const next = new Login(mechanism, credentials)
    return this.#prove(next, await this.ask(next.request()))
  }

  #agree({ value }: Response): void {
    this.#features = new Set(
      Array.from({ length: Math.floor(value.length / 2) }, (_, index) => value.readUInt16BE(index * 2)),
    )
  }

  async #prove(login: Login, answer: Response): Promise<void> {
    if (!login.scram) {
      if (answer.status !== Status.Success) throw this.#refusal(answer)
      return
    }
    if (answer.status !== Status.AuthContinue) throw this.#refusal(answer)
    const proof = await login.scram.final(answer.value)
    const outcome = await this.ask({ opcode: Opcode.SaslStep, key: Buffer.from(login.mechanism), value: proof })
    if (outcome.status !== Status.Success) throw this.#refusal(outcome)
    login.scram.verify(outcome.value)
  }

  async #select(bucket: string): Promise<void> {
    const response = await this.ask({ opcode: Opcode.SelectBucket, key: Buffer.from(bucket) })
    const context = this.#context(response)
    // The node knows that the bucket exists: otherwise it would refuse access.
    if (response.status === Status.KeyNotFound || retryReason(response.status, response.opcode)) {
      throw new BucketNotReady()
    }
    if (response.status === Status.Access) {
      // Servers may not distinguish a missing bucket from one that the user may not see.
      throw new BucketNotFoundError('there is no such bucket, or none that the user may use', context)
    }
    if (response.status !== Status.Success) throw errorOf(response.status, response.opcode, context)
  }

  #refusal(response: Response): AuthenticationFailureError {
    return new AuthenticationFailureError('the user or password is wrong', this.#context(response))
  }

  #context(response: Response): ErrorContext {
    const { status, opaque } = response
    const context = { operation: operationName(response.opcode), status, opaque, endpoint: addressText(this.address) }
    const detail = detailOf(response)
    return detail === undefined ? context : { ...context, detail }
  }
}

/** A login attempt. */
class Login {
  readonly mechanism: string
  /** The SCRAM exchange, unless the client sends the password itself. */
  readonly scram: Scram | undefined
  readonly #credentials: { username: string; password: string }

  constructor(mechanism: string, credentials: { username: string; password: string }) {
    const { username, password } = credentials
    this.mechanism = mechanism
    this.#credentials = credentials
    const nonce = randomBytes(24).toString('hex')
    if (mechanism !== PLAIN) this.scram = new Scram(username, password, nonce, digestOf(mechanism))
  }

  request(): Request {
    const { username, password } = this.#credentials
    const value = this.scram?.first() ?? Buffer.from(`\0${username}\0${password}`)
    return { opcode: Opcode.SaslAuth, key: Buffer.from(this.mechanism), value }
  }
}

function helloRequest(): Request {
  const id = `${randomBytes(8).toString('hex')}/${randomBytes(8).toString('hex')}`
  const codes = Object.values(Feature)
  const value = Buffer.alloc(codes.length * 2)
  codes.forEach((code, index) => value.writeUInt16BE(code, index * 2))
  return { opcode: Opcode.Hello, key: Buffer.from(JSON.stringify({ a: AGENT, i: id })), value }
}
