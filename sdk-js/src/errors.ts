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

  constructor(message: string, context: ErrorContext = {}, cause?: unknown) {
    const described = describe(context)
    super(described ? `${message} (${described})` : message, cause === undefined ? {} : { cause })
    this.name = new.target.name
    this.context = context
  }
}

/** An argument cannot be used; nothing was sent. */
export class InvalidArgumentError extends CouchbaseError {
  constructor(message = 'An argument cannot be used; nothing was sent.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The user or password is wrong, or lacks the right. */
export class AuthenticationFailureError extends CouchbaseError {
  constructor(message = 'The user or password is wrong, or lacks the right.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The server does not offer this. */
export class FeatureNotAvailableError extends CouchbaseError {
  constructor(message = 'The server does not offer this.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** No node of the cluster runs the service. */
export class ServiceNotAvailableError extends CouchbaseError {
  constructor(message = 'No node of the cluster runs the service.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The server failed, or gave an answer that this client does not know. */
export class InternalServerFailureError extends CouchbaseError {
  constructor(message = 'The server failed, or gave an answer that this client does not know.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The server's answer, or the document, cannot be read. */
export class DecodingFailureError extends CouchbaseError {
  constructor(message = "The server's answer, or the document, cannot be read.", context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The value cannot be turned into bytes. */
export class EncodingFailureError extends CouchbaseError {
  constructor(message = 'The value cannot be turned into bytes.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The request was aborted, or its connection lost, and it is unknown whether it took effect. */
export class RequestCanceledError extends CouchbaseError {
  constructor(message = 'The request was aborted, or its connection lost, and it is unknown whether it took effect.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** Time ran out. */
export class TimeoutError extends CouchbaseError {
  constructor(message = 'Time ran out.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** Time ran out, and the request changed nothing. */
export class UnambiguousTimeoutError extends TimeoutError {
  constructor(message = 'Time ran out, and the request changed nothing.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** Time ran out, and it is unknown whether the request took effect. */
export class AmbiguousTimeoutError extends TimeoutError {
  constructor(message = 'Time ran out, and it is unknown whether the request took effect.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The server was too busy until the deadline. */
export class TemporaryFailureError extends CouchbaseError {
  constructor(message = 'The server was too busy until the deadline.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is no such document. */
export class DocumentNotFoundError extends CouchbaseError {
  constructor(message = 'There is no such document.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is such a document already. */
export class DocumentExistsError extends CouchbaseError {
  constructor(message = 'There is such a document already.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document changed since its CAS was read. */
export class CasMismatchError extends CouchbaseError {
  constructor(message = 'The document changed since its CAS was read.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** Somebody else holds the document's lock. */
export class DocumentLockedError extends CouchbaseError {
  constructor(message = "Somebody else holds the document's lock.", context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document is not locked. */
export class DocumentNotLockedError extends CouchbaseError {
  constructor(message = 'The document is not locked.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document would be larger than the server allows. */
export class ValueTooLargeError extends CouchbaseError {
  constructor(message = 'The document would be larger than the server allows.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document is no counter, or the delta is no number that a counter can take. */
export class DeltaInvalidError extends CouchbaseError {
  constructor(message = 'The document is no counter, or the delta is no number that a counter can take.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The bucket has fewer copies than the durability asks for. */
export class DurabilityImpossibleError extends CouchbaseError {
  constructor(message = 'The bucket has fewer copies than the durability asks for.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** A fail-over lost the mutation before it was as durable as asked. */
export class MutationLostError extends CouchbaseError {
  constructor(message = 'A fail-over lost the mutation before it was as durable as asked.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document has nothing at the path. */
export class PathNotFoundError extends CouchbaseError {
  constructor(message = 'The document has nothing at the path.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document has something at the path already. */
export class PathExistsError extends CouchbaseError {
  constructor(message = 'The document has something at the path already.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The path goes through a value that is of another kind. */
export class PathMismatchError extends CouchbaseError {
  constructor(message = 'The path goes through a value that is of another kind.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The path cannot be read, or not be used with this operation. */
export class PathInvalidError extends CouchbaseError {
  constructor(message = 'The path cannot be read, or not be used with this operation.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The path is too long or has too many parts. */
export class PathTooBigError extends CouchbaseError {
  constructor(message = 'The path is too long or has too many parts.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document is nested too deeply. */
export class PathTooDeepError extends CouchbaseError {
  constructor(message = 'The document is nested too deeply.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The value would be nested too deeply. */
export class ValueTooDeepError extends CouchbaseError {
  constructor(message = 'The value would be nested too deeply.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The value cannot be put there, or is not JSON. */
export class ValueInvalidError extends CouchbaseError {
  constructor(message = 'The value cannot be put there, or is not JSON.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The document is not JSON. */
export class DocumentNotJsonError extends CouchbaseError {
  constructor(message = 'The document is not JSON.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The number at the path is no 64-bit integer. */
export class NumberTooBigError extends CouchbaseError {
  constructor(message = 'The number at the path is no 64-bit integer.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The extended attribute cannot be used in this way. */
export class XattrInvalidError extends CouchbaseError {
  constructor(message = 'The extended attribute cannot be used in this way.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is no such bucket. */
export class BucketNotFoundError extends CouchbaseError {
  constructor(message = 'There is no such bucket.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is such a bucket already. */
export class BucketExistsError extends CouchbaseError {
  constructor(message = 'There is such a bucket already.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is no such scope. */
export class ScopeNotFoundError extends CouchbaseError {
  constructor(message = 'There is no such scope.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is such a scope already. */
export class ScopeExistsError extends CouchbaseError {
  constructor(message = 'There is such a scope already.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is no such collection. */
export class CollectionNotFoundError extends CouchbaseError {
  constructor(message = 'There is no such collection.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is such a collection already. */
export class CollectionExistsError extends CouchbaseError {
  constructor(message = 'There is such a collection already.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is no such design document. */
export class DesignDocumentNotFoundError extends CouchbaseError {
  constructor(message = 'There is no such design document.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** There is no such view or design document. */
export class ViewNotFoundError extends CouchbaseError {
  constructor(message = 'There is no such view or design document.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
}

/** The view engine refused the query, or part of it failed. */
export class ViewEngineError extends CouchbaseError {
  constructor(message = 'The view engine refused the query, or part of it failed.', context?: ErrorContext, cause?: unknown) {
    super(message, context, cause)
  }
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
