/**
 * The changes of a collection, as they happen: `for await (const change of collection.changes({ since }))`.
 *
 * The changes arrive as server-sent events over HTTP. Some events have an ID: the token of all earlier changes. The
 * client replaces a broken connection, and continues from the last token. Changes after that token then arrive twice.
 */

import { Deadline, DeadlineOver } from './deadline.js'
import {
  AuthenticationFailureError,
  BucketNotFoundError,
  ChangesLostError,
  CollectionNotFoundError,
  CouchbaseError,
  DecodingFailureError,
  type ErrorContext,
  InvalidArgumentError,
  RequestCanceledError,
  ServiceNotAvailableError,
} from './errors.js'
import { ConnectionFailed, type HttpStream, type HttpTransport, type Nodes } from './http-messages.js'
import { Attempt } from './attempt.js'
import { concat, fromBase64, textOf } from './bytes.js'
import { RowScanner } from './rows.js'
import { jsonText } from './transcoders.js'

/** The collection whose changes are requested. */
export interface ChangesSource {
  readonly name: string
  readonly scope: {
    readonly name: string
    readonly bucket: {
      readonly name: string
      /** @internal */
      readonly client: Nodes
      readonly cluster: {
        /** @internal */
        readonly http: HttpTransport
      }
    }
  }
}

/** Options of `changes`. */
export interface ChangesOptions {
  /** The token of an earlier feed, `0` for all changes, or `'now'`. The default is `0`. */
  since?: string | 0
  /** True if changes contain the documents (default). */
  includeDocs?: boolean
  /** Restricts the feed to these documents. */
  keys?: string[]
  /** True if the feed continues with future changes (default); false if it ends after the present ones. */
  live?: boolean
  /** Ends the feed without an error. */
  signal?: AbortSignal
}

/** A change of a document, with the newest version. */
export interface Change<T = any> {
  /** Key of the document; undefined if it is not UTF-8. */
  id: string | undefined
  /** Key in hexadecimal, if it is not UTF-8. */
  idHex?: string
  /** The document; undefined if it is deleted or was not requested. A document that is not JSON is a Buffer. */
  content: T | undefined
  /** True if the document was deleted or has expired. */
  deleted: boolean
  cas: bigint
  /** Number of changes of the document. */
  revision: bigint
  /** Number of the vBucket. The changes of a vBucket are in order. */
  partitionId: number
  /** Seqno of the change in its vBucket. */
  sequenceNumber: number
}

/** Silence after which the connection counts as broken. The server sends a heartbeat every 30 s. */
const SILENCE_MS_MAX = 75_000
const PAUSE_MS_FIRST = 50
const PAUSE_MS_MAX = 5000
/** Maximum size of an event: a document of 20 MiB in base64, and the text around it. */
const EVENT_BYTES_MAX = 64 * 1024 * 1024
const LINE_FEED = 0x0a
/** A timeout that never ends a feed: the maximum of Node's timers. */
const ENDLESS_MS = 0x7fffffff

/** A feed of changes. Read it with `for await`, once. */
export class Changes<T = any> implements AsyncIterable<Change<T>> {
  readonly #collection: ChangesSource
  readonly #options: ChangesOptions
  #token: string | undefined
  #begun = false

  /** @internal */
  constructor(collection: ChangesSource, options: ChangesOptions) {
    const { since, keys } = options
    if (since !== undefined && since !== 0 && typeof since !== 'string') {
      throw new InvalidArgumentError("since is a token, 0 or 'now'")
    }
    if (keys !== undefined && !Array.isArray(keys)) throw new InvalidArgumentError('keys are an array of strings')
    this.#collection = collection
    this.#options = options
    this.#token = typeof since === 'string' && since !== 'now' && since !== '0' ? since : undefined
  }

  /**
   * The token for a later feed. A feed `since` this token returns every change that this feed has not returned yet, and
   * may repeat those of the last second. Undefined until the first token arrives.
   */
  get token(): string | undefined {
    return this.#token
  }

  /**
   * Yields the changes. Leaving the loop, or the signal, ends the feed; a broken connection does not.
   *
   * @throws ChangesLostError if the changes since the token would have gaps: restart with 0.
   * @throws CollectionNotFoundError, BucketNotFoundError if the collection does not exist.
   * @throws AuthenticationFailureError if the user may not read it.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<Change<T>, void, void> {
    if (this.#begun) throw new InvalidArgumentError('a feed is read once: make another one from its token')
    this.#begun = true
    const { signal, live = true } = this.#options
    const deadline = new Deadline({ ...(signal ? { signal } : {}), timeout: ENDLESS_MS }, ENDLESS_MS)
    try {
      // 'now' means this moment, however long the first connection takes.
      if (live) await this.#takeNow(deadline)
      for (;;) {
        const done = yield* this.#pass(deadline, live)
        if (done) return
      }
    } catch (error) {
      if (signal?.aborted) return
      throw error
    } finally {
      deadline.clear()
    }
  }

  /**
   * Reads one connection to its end, and replaces it if it breaks before the first event. Returns true at the end of
   * the feed.
   */
  async *#pass(deadline: Deadline, live: boolean): AsyncGenerator<Change<T>, boolean, void> {
    const stream = await this.#retrying(deadline, () => this.#open(deadline, live))
    try {
      if (!live) {
        const scanner = new RowScanner('results')
        for await (const part of stream.parts()) for (const row of scanner.feed(part)) yield readChange<T>(row)
        this.#token = scanner.rest().last_seq
        return true
      }
      for await (const { data, id } of events(stream)) {
        if (data !== undefined) yield readChange<T>(parse(data, stream.context))
        if (id !== undefined) this.#token = id
      }
    } catch (error) {
      if (!(error instanceof ConnectionFailed)) throw error
    } finally {
      stream.close()
    }
    // The next connection continues from the last token.
    await deadline.sleep(PAUSE_MS_FIRST)
    return false
  }

  /** Starts a feed with `since: 'now'` before it is read. @internal */
  async prepare(): Promise<void> {
    const { signal } = this.#options
    const deadline = new Deadline({ ...(signal ? { signal } : {}), timeout: ENDLESS_MS }, ENDLESS_MS)
    try {
      await this.#takeNow(deadline)
    } finally {
      deadline.clear()
    }
  }

  async #takeNow(deadline: Deadline): Promise<void> {
    if (this.#options.since !== 'now' || this.#token !== undefined) return
    await this.#retrying(deadline, () => this.#drain(deadline))
  }

  /** Reads the token of the present position. */
  async #drain(deadline: Deadline): Promise<void> {
    const stream = await this.#open(deadline, false)
    this.#token = parse((await stream.whole()).text, stream.context).last_seq
  }

  /** Retries `attempt` after temporary failures. */
  async #retrying<R>(deadline: Deadline, attempt: () => Promise<R>): Promise<R> {
    for (let pause = PAUSE_MS_FIRST; ; pause = Math.min(pause * 2, PAUSE_MS_MAX)) {
      try {
        return await attempt()
      } catch (error) {
        const passes =
          error instanceof ConnectionFailed || error instanceof ServiceNotAvailableError || error instanceof Unavailable
        if (!passes) throw error instanceof DeadlineOver ? new RequestCanceledError('the feed was aborted') : error
      }
      await deadline.sleep(pause)
    }
  }

  async #open(deadline: Deadline, live: boolean): Promise<HttpStream> {
    const { scope, name } = this.#collection
    const { bucket } = scope
    const path = `/${[bucket.name, scope.name, name].map(encodeURIComponent).join('/')}/_changes`
    const context: ErrorContext = {
      operation: `POST ${path}`,
      bucket: bucket.name,
      scope: scope.name,
      collection: name,
    }
    const { keys, since = 0, includeDocs = true } = this.#options
    const body = {
      feed: live ? 'sse' : 'normal',
      since: this.#token ?? String(since),
      include_docs: includeDocs,
      ...(keys ? { filter: '_doc_ids', doc_ids: keys } : {}),
    }
    const request = { method: 'POST', path, body: jsonText(body), reads: true } as const
    const stream = await bucket.cluster.http.open(bucket.client, 'capi', request, new Attempt(context, deadline))
    if (stream.status === 200) return stream
    const { text } = await stream.whole()
    throw refusal(stream.status, text, context)
  }
}

/** The service is temporarily unavailable. */
class Unavailable extends Error {}

function refusal(status: number, text: string, context: ErrorContext): Error {
  switch (status) {
    case 400:
      return new InvalidArgumentError(text, context)
    case 403:
      return new AuthenticationFailureError(text, context)
    case 404:
      return new (/no such bucket/.test(text) ? BucketNotFoundError : CollectionNotFoundError)(text, context)
    case 410:
      return new ChangesLostError(text, context)
    case 429:
    case 502:
    case 503:
    case 504:
      return new Unavailable(text)
    default:
      return new CouchbaseError(text, context)
  }
}

/** Yields the events of a stream, until it ends or is silent for too long. */
async function* events(stream: HttpStream): AsyncGenerator<{ data?: string; id?: string }, void, void> {
  let pending: Uint8Array = new Uint8Array(0)
  let late: ReturnType<typeof setTimeout> | undefined
  const parts = stream.parts()
  try {
    for (;;) {
      // Only the silence of the server counts, not the time that the reader needs.
      late = setTimeout(() => stream.close(), SILENCE_MS_MAX)
      const { done, value } = await parts.next()
      clearTimeout(late)
      if (done) return
      pending = pending.length ? concat([pending, value]) : value
      for (let end = endOfEvent(pending); end >= 0; end = endOfEvent(pending)) {
        const event = readEvent(textOf([pending.subarray(0, end)]))
        pending = pending.subarray(end + 2)
        yield event
      }
      if (pending.length > EVENT_BYTES_MAX) throw new DecodingFailureError('an event is over the limit', stream.context)
    }
  } finally {
    clearTimeout(late)
    await parts.return()
  }
}

/** Returns the end of the first event, after its empty line, or -1 if the event is incomplete. */
function endOfEvent(bytes: Uint8Array): number {
  for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED, at + 1)) {
    if (bytes[at + 1] === LINE_FEED) return at
  }
  return -1
}

function readEvent(text: string): { data?: string; id?: string } {
  const event: { data?: string; id?: string } = {}
  for (const line of text.split('\n')) {
    if (line.startsWith('data:')) event.data = (event.data ?? '') + line.slice(5)
    else if (line.startsWith('id:')) event.id = line.slice(3).trim()
  }
  return event
}

function parse(text: string, context: ErrorContext): any {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new DecodingFailureError(`a change cannot be read: ${error}`, context, error)
  }
}

function readChange<T>(row: any): Change<T> {
  const rev = /^(\d+)-([0-9a-f]{1,16})$/.exec(row?.rev)
  if (!rev) throw new DecodingFailureError('a change has no version')
  const content = row.base64 === undefined ? row.doc : fromBase64(row.base64)
  return {
    id: row.id,
    ...(row.id_hex === undefined ? {} : { idHex: row.id_hex }),
    content,
    deleted: row.deleted === true,
    cas: BigInt(`0x${rev[2]}`),
    revision: BigInt(rev[1]!),
    partitionId: row.vbucket,
    sequenceNumber: row.seqno,
  }
}
