/**
 * Documents over HTTP, for the browser client: nacre's own API, `/api/v1/…/documents/{id}`.
 *
 * The CAS of a document is its ETag. The client retries a request that the node refuses as busy until the deadline. It
 * does not retry a change whose connection breaks: `fetch` does not report whether the change was sent.
 */

import { Attempt } from './attempt.js'
import { Deadline, DeadlineOver, type OperationOptions } from './deadline.js'
import {
  AuthenticationFailureError,
  CasMismatchError,
  CollectionNotFoundError,
  CouchbaseError,
  DecodingFailureError,
  DocumentExistsError,
  DocumentNotFoundError,
  EncodingFailureError,
  type ErrorContext,
  InvalidArgumentError,
  RequestCanceledError,
  TemporaryFailureError,
  ValueTooLargeError,
} from './errors.js'
import { type HttpRequest, type HttpTransport, isRead, type Nodes, segment } from './http-messages.js'
import type { ExistsResult, GetResult, MutationResult } from './results.js'

/** Maximum size of a document. */
const VALUE_BYTES_MAX = 20 * 1024 * 1024

/** Options of `get` over HTTP. */
export interface HttpGetOptions extends OperationOptions {
  /** True if the result contains the expiry of the document. */
  withExpiry?: boolean
}

/** Options of `insert` over HTTP. */
export interface HttpInsertOptions extends OperationOptions {
  /** Expiry in seconds from now, or as a date; 0 for never. */
  expiry?: number | Date
}

/** Options of `upsert` over HTTP. */
export interface HttpUpsertOptions extends HttpInsertOptions {
  /** True if the document keeps its expiry. */
  preserveExpiry?: boolean
}

/** Options of `replace` over HTTP. */
export interface HttpReplaceOptions extends HttpUpsertOptions {
  /** CAS that the document must have. */
  cas?: bigint
}

/** Options of `remove` over HTTP. */
export interface HttpRemoveOptions extends OperationOptions {
  /** CAS that the document must have. */
  cas?: bigint
}

/** Sends requests about documents. */
export interface DocumentsSender {
  http: HttpTransport
  client: Nodes
  /** Path of the collection. */
  path: string
  scope: string
  collection: string
  /** Default timeout of an operation, in milliseconds. */
  defaultMs: number
}

/** A received response. */
interface Answer {
  status: number
  /** The body of a successful response. */
  content: any
  cas: bigint
  expiryTime: number
  context: ErrorContext
}

/** Reads a document. A document that is not JSON is a `Uint8Array`. */
export async function getDocument<T>(sender: DocumentsSender, key: string, options: HttpGetOptions): Promise<GetResult<T>> {
  const { content, cas, expiryTime } = await exchange(sender, 'get', key, { method: 'GET' }, options, missing)
  return { content, cas, ...(options.withExpiry ? { expiryTime } : {}) }
}

/** Reports whether a document exists. */
export async function documentExists(sender: DocumentsSender, key: string, options: OperationOptions): Promise<ExistsResult> {
  const { status, cas } = await exchange(sender, 'exists', key, { method: 'HEAD' }, options, ({ status: found, context }) =>
    found === 404 ? undefined : errorOf(found, context),
  )
  return status === 404 ? { exists: false, cas: undefined } : { exists: true, cas }
}

/** Stores a document that must not exist. */
export function insertDocument(
  sender: DocumentsSender,
  key: string,
  value: unknown,
  options: HttpInsertOptions,
): Promise<MutationResult> {
  return store(sender, 'insert', key, value, options, { 'if-none-match': '*' }, ({ status, context }) =>
    status === 412 ? new DocumentExistsError(undefined, context) : stored(status, context),
  )
}

/** Stores a document. */
export function upsertDocument(
  sender: DocumentsSender,
  key: string,
  value: unknown,
  options: HttpUpsertOptions,
): Promise<MutationResult> {
  return store(sender, 'upsert', key, value, options, {}, ({ status, context }) => stored(status, context))
}

/** Stores a document that must exist. */
export async function replaceDocument(
  sender: DocumentsSender,
  key: string,
  value: unknown,
  options: HttpReplaceOptions,
): Promise<MutationResult> {
  const headers = { 'if-match': options.cas === undefined ? '*' : etagOf(options.cas) }
  try {
    return await store(sender, 'replace', key, value, options, headers, ({ status, context }) => {
      if (status !== 412) return stored(status, context)
      return options.cas === undefined ? new DocumentNotFoundError(undefined, context) : new CasMismatchError(undefined, context)
    })
  } catch (error) {
    throw await settled(sender, key, error, options)
  }
}

/** Removes a document. */
export async function removeDocument(
  sender: DocumentsSender,
  key: string,
  options: HttpRemoveOptions,
): Promise<MutationResult> {
  const headers: Record<string, string> = options.cas === undefined ? {} : { 'if-match': etagOf(options.cas) }
  try {
    const { cas } = await exchange(sender, 'remove', key, { method: 'DELETE', headers }, options, (answer) =>
      answer.status === 412 ? new CasMismatchError(undefined, answer.context) : missing(answer),
    )
    return { cas, token: undefined }
  } catch (error) {
    throw await settled(sender, key, error, options)
  }
}

/**
 * Determines the error of a change with a CAS: the API responds alike if the CAS differs and if the document does not
 * exist.
 */
async function settled(sender: DocumentsSender, key: string, error: unknown, options: OperationOptions): Promise<unknown> {
  if (!(error instanceof CasMismatchError)) return error
  const { exists } = await documentExists(sender, key, options)
  return exists ? error : new DocumentNotFoundError(undefined, error.context)
}

async function store(
  sender: DocumentsSender,
  operation: string,
  key: string,
  value: unknown,
  options: HttpUpsertOptions,
  headers: Record<string, string>,
  judge: (answer: Answer) => CouchbaseError | undefined,
): Promise<MutationResult> {
  const { expiry, preserveExpiry } = options
  if (expiry && preserveExpiry) throw new InvalidArgumentError('expiry and preserveExpiry exclude each other')
  const ttl = preserveExpiry ? 'keep' : expiry ? String(secondsUntil(expiry)) : undefined
  const request = { method: 'PUT' as const, headers, body: jsonOf(value), query: ttl === undefined ? '' : `?ttl=${ttl}` }
  const { cas } = await exchange(sender, operation, key, request, options, judge)
  return { cas, token: undefined }
}

async function exchange(
  { http, client, path, scope, collection, defaultMs }: DocumentsSender,
  operation: string,
  key: string,
  { query = '', ...rest }: Omit<HttpRequest, 'path'> & { query?: string },
  options: OperationOptions,
  judge: (answer: Answer) => CouchbaseError | undefined,
): Promise<Answer> {
  const byteCount = typeof key === 'string' ? new TextEncoder().encode(key).length : 0
  if (!byteCount || byteCount > 250) throw new InvalidArgumentError('a key is a string of 1 to 250 bytes')
  const request: HttpRequest = { ...rest, path: `${path}/documents/${segment(key)}${query}` }
  const context: ErrorContext = { operation, key, scope, collection, ...(client.bucket ? { bucket: client.bucket } : {}) }
  const deadline = new Deadline(options, defaultMs)
  const attempt = new Attempt(context, deadline)
  try {
    for (;;) {
      const answer = await once(http, client, request, attempt)
      attempt.inFlight = false
      if (answer.status !== 503) {
        const error = answer.status < 300 ? undefined : judge(answer)
        if (error) throw error
        return answer
      }
      attempt.refusal = () => new TemporaryFailureError(undefined, context)
      await attempt.again('SERVICE_RESPONSE_CODE_INDICATED')
    }
  } catch (error) {
    if (error instanceof DeadlineOver) throw attempt.expired(isRead(request))
    throw error instanceof CouchbaseError ? error : new RequestCanceledError((error as Error).message, context, error)
  } finally {
    deadline.clear()
  }
}

async function once(http: HttpTransport, client: Nodes, request: HttpRequest, attempt: Attempt): Promise<Answer> {
  const stream = await http.open(client, 'mgmt', request, attempt)
  const { status, context } = stream
  const header = (name: string): string => stream.headers?.get(name) ?? ''
  const body = await stream.bytes()
  const etag = /^"(\d{1,20})"$/.exec(header('etag'))
  const answer = { status, content: undefined as any, cas: BigInt(etag?.[1] ?? 0), expiryTime: 0, context }
  if (status >= 300) {
    context.detail = detailOf(body) ?? `the node answered ${status}`
    return answer
  }
  answer.expiryTime = Number(header('nacre-expiry'))
  if (request.method === 'GET' || request.method === 'HEAD') {
    if (!etag) throw new DecodingFailureError('the node names no version of the document', context)
  }
  if (request.method !== 'GET') return answer
  answer.content = body
  if (header('content-type').startsWith('application/json')) {
    try {
      answer.content = JSON.parse(new TextDecoder().decode(body))
    } catch (error) {
      throw new DecodingFailureError(`the document cannot be read: ${error}`, context, error)
    }
  }
  return answer
}

/** Returns the detail of a problem document (RFC 9457). */
function detailOf(body: Uint8Array): string | undefined {
  try {
    const { detail } = JSON.parse(new TextDecoder().decode(body))
    return typeof detail === 'string' ? detail : undefined
  } catch {
    return undefined
  }
}

function missing({ status, context }: Answer): CouchbaseError {
  if (status !== 404) return errorOf(status, context)
  return new DocumentNotFoundError(undefined, context)
}

function stored(status: number, context: ErrorContext): CouchbaseError {
  // A missing document cannot be the reason of a refused write.
  return status === 404 ? new CollectionNotFoundError(undefined, context) : errorOf(status, context)
}

function errorOf(status: number, context: ErrorContext): CouchbaseError {
  const kinds: Record<number, new (message?: string, context?: ErrorContext) => CouchbaseError> = {
    400: InvalidArgumentError,
    403: AuthenticationFailureError,
    413: ValueTooLargeError,
  }
  return new (kinds[status] ?? CouchbaseError)(undefined, context)
}

function jsonOf(value: unknown): string {
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (error) {
    throw new EncodingFailureError(`the value cannot be encoded: ${error}`, {}, error)
  }
  if (text === undefined) throw new EncodingFailureError(`JSON has no ${typeof value}`)
  // A node may respond and close the connection before it has read a larger document, which looks like a network error.
  if (text.length > VALUE_BYTES_MAX / 3 && new TextEncoder().encode(text).length > VALUE_BYTES_MAX) {
    throw new ValueTooLargeError()
  }
  return text
}

function etagOf(cas: bigint): string {
  if (typeof cas !== 'bigint' || cas <= 0n) throw new InvalidArgumentError('a CAS is a bigint of an earlier result')
  return `"${cas}"`
}

function secondsUntil(expiry: number | Date): number {
  const seconds = expiry instanceof Date ? Math.ceil((expiry.getTime() - Date.now()) / 1000) : expiry
  if (!Number.isInteger(seconds) || seconds < 1) {
    throw new InvalidArgumentError('an expiry is a whole number of seconds, or a time to come')
  }
  return seconds
}
