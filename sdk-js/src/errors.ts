/**
 * What can go wrong, under the names that the official SDKs use.
 *
 * Every error is a `CouchbaseError` and carries a `context`: which document or request it was, what the
 * server answered and how often it was tried.
 */

import { hex } from './opcodes.js'

/** Circumstances of an error; what does not apply is absent. */
export interface ErrorContext {
  /** Key of the document. */
  key?: string
  /** Name of the bucket. */
  bucket?: string
  /** Name of the scope. */
  scope?: string
  /** Name of the collection. */
  collection?: string
  /** Name of the operation, or method and path of an HTTP request. */
  operation?: string
  /** Status of the answer: of the binary protocol, or of HTTP. */
  status?: number
  /** Number by which the request is found in logs and captures. */
  opaque?: number
  /** `host:port` that was asked. */
  endpoint?: string
  /** Text the server gave. */
  detail?: string
  /** How often it was tried again. */
  retryAttempts?: number
  /** Why it was tried again, in order of first occurrence. */
  retryReasons?: string[]
}

/** Base of all errors of this package. */
export class CouchbaseError extends Error {
  /** Which request it was and what became of it. */
  readonly context: ErrorContext

  /** What the error says where nothing more is known. */
  static summary: string = 'The request failed.'

  constructor(message?: string, context: ErrorContext = {}, cause?: unknown) {
    const described = describe(context)
    const text = message ?? new.target.summary
    super(described ? `${text} (${described})` : text, cause === undefined ? {} : { cause })
    this.name = new.target.name
    this.context = context
  }
}

/** An argument cannot be used; nothing was sent. */
export class InvalidArgumentError extends CouchbaseError {
  static override summary: string = 'An argument cannot be used; nothing was sent.'
}

/** The user or password is wrong, or lacks the right. */
export class AuthenticationFailureError extends CouchbaseError {
  static override summary: string = 'The user or password is wrong, or lacks the right.'
}

/** The server does not offer this. */
export class FeatureNotAvailableError extends CouchbaseError {
  static override summary: string = 'The server does not offer this.'
}

/** No node of the cluster runs the service. */
export class ServiceNotAvailableError extends CouchbaseError {
  static override summary: string = 'No node of the cluster runs the service.'
}

/** The server failed, or gave an answer that this client does not know. */
export class InternalServerFailureError extends CouchbaseError {
  static override summary: string = 'The server failed, or gave an answer that this client does not know.'
}

/** The server's answer, or the document, cannot be read. */
export class DecodingFailureError extends CouchbaseError {
  static override summary: string = "The server's answer, or the document, cannot be read."
}

/** The value cannot be turned into bytes. */
export class EncodingFailureError extends CouchbaseError {
  static override summary: string = 'The value cannot be turned into bytes.'
}

/** The request was aborted or its connection lost: it may have taken effect. */
export class RequestCanceledError extends CouchbaseError {
  static override summary: string = 'The request was aborted or its connection lost: it may have taken effect.'
}

/** Time ran out. */
export class TimeoutError extends CouchbaseError {
  static override summary: string = 'Time ran out.'
}

/** Time ran out, and the request changed nothing. */
export class UnambiguousTimeoutError extends TimeoutError {
  static override summary: string = 'Time ran out, and the request changed nothing.'
}

/** Time ran out, and it is unknown whether the request took effect. */
export class AmbiguousTimeoutError extends TimeoutError {
  static override summary: string = 'Time ran out, and it is unknown whether the request took effect.'
}

/** The server was too busy until the deadline. */
export class TemporaryFailureError extends CouchbaseError {
  static override summary: string = 'The server was too busy until the deadline.'
}

/** There is no such document. */
export class DocumentNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such document.'
}

/** There is such a document already. */
export class DocumentExistsError extends CouchbaseError {
  static override summary: string = 'There is such a document already.'
}

/** The document changed since its CAS was read. */
export class CasMismatchError extends CouchbaseError {
  static override summary: string = 'The document changed since its CAS was read.'
}

/** Somebody else holds the document's lock. */
export class DocumentLockedError extends CouchbaseError {
  static override summary: string = "Somebody else holds the document's lock."
}

/** The document is not locked. */
export class DocumentNotLockedError extends CouchbaseError {
  static override summary: string = 'The document is not locked.'
}

/** The document would be larger than the server allows. */
export class ValueTooLargeError extends CouchbaseError {
  static override summary: string = 'The document would be larger than the server allows.'
}

/** The document is no counter, or the delta is no number that a counter can take. */
export class DeltaInvalidError extends CouchbaseError {
  static override summary: string = 'The document is no counter, or the delta is no number that a counter can take.'
}

/** The bucket cannot be as durable as is asked of its writes. */
export class DurabilityLevelNotAvailableError extends CouchbaseError {
  static override summary: string = 'The bucket cannot be as durable as is asked of its writes.'
}

/** The bucket has fewer copies than the durability asks for. */
export class DurabilityImpossibleError extends CouchbaseError {
  static override summary: string = 'The bucket has fewer copies than the durability asks for.'
}

/** The server gave up a durable write, and it is unknown whether it took effect. */
export class DurabilityAmbiguousError extends CouchbaseError {
  static override summary: string = 'The server gave up a durable write, and it is unknown whether it took effect.'
}

/** A fail-over lost the mutation before it was as durable as asked. */
export class MutationLostError extends CouchbaseError {
  static override summary: string = 'A fail-over lost the mutation before it was as durable as asked.'
}

/** The document has nothing at the path. */
export class PathNotFoundError extends CouchbaseError {
  static override summary: string = 'The document has nothing at the path.'
}

/** The document has something at the path already. */
export class PathExistsError extends CouchbaseError {
  static override summary: string = 'The document has something at the path already.'
}

/** The path goes through a value that is of another kind. */
export class PathMismatchError extends CouchbaseError {
  static override summary: string = 'The path goes through a value that is of another kind.'
}

/** The path cannot be read, or not be used with this operation. */
export class PathInvalidError extends CouchbaseError {
  static override summary: string = 'The path cannot be read, or not be used with this operation.'
}

/** The path is too long or has too many parts. */
export class PathTooBigError extends CouchbaseError {
  static override summary: string = 'The path is too long or has too many parts.'
}

/** The document is nested too deeply. */
export class PathTooDeepError extends CouchbaseError {
  static override summary: string = 'The document is nested too deeply.'
}

/** The value would be nested too deeply. */
export class ValueTooDeepError extends CouchbaseError {
  static override summary: string = 'The value would be nested too deeply.'
}

/** The value cannot be put there, or is not JSON. */
export class ValueInvalidError extends CouchbaseError {
  static override summary: string = 'The value cannot be put there, or is not JSON.'
}

/** The document is not JSON. */
export class DocumentNotJsonError extends CouchbaseError {
  static override summary: string = 'The document is not JSON.'
}

/** The number at the path is no 64-bit integer. */
export class NumberTooBigError extends CouchbaseError {
  static override summary: string = 'The number at the path is no 64-bit integer.'
}

/** The extended attribute cannot be used in this way. */
export class XattrInvalidError extends CouchbaseError {
  static override summary: string = 'The extended attribute cannot be used in this way.'
}

/** There is no such bucket. */
export class BucketNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such bucket.'
}

/** There is such a bucket already. */
export class BucketExistsError extends CouchbaseError {
  static override summary: string = 'There is such a bucket already.'
}

/** There is no such scope. */
export class ScopeNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such scope.'
}

/** There is such a scope already. */
export class ScopeExistsError extends CouchbaseError {
  static override summary: string = 'There is such a scope already.'
}

/** There is no such collection. */
export class CollectionNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such collection.'
}

/** There is such a collection already. */
export class CollectionExistsError extends CouchbaseError {
  static override summary: string = 'There is such a collection already.'
}

/** There is no such design document. */
export class DesignDocumentNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such design document.'
}

/** There is no such view or design document. */
export class ViewNotFoundError extends CouchbaseError {
  static override summary: string = 'There is no such view or design document.'
}

/** The view engine refused the query, or part of it failed. */
export class ViewEngineError extends CouchbaseError {
  static override summary: string = 'The view engine refused the query, or part of it failed.'
}

function describe(context: ErrorContext): string {
  const named: [string, unknown][] = [
    ['key', context.key],
    ['operation', context.operation],
    ['status', context.status === undefined ? undefined : hex(context.status)],
    ['opaque', context.opaque],
    ['endpoint', context.endpoint],
    ['detail', context.detail],
    ['tried again for', context.retryReasons?.join(', ') || undefined],
  ]
  return named.filter(([, value]) => value !== undefined).map(([name, value]) => `${name} ${value}`).join(', ')
}
