/** Errors of the query service, identified by their code and, if that is ambiguous, by their text. */

import * as e from './errors.js'
import type { ErrorContext } from './errors.js'

/** An error in the format of the query service. */
export interface ServiceError {
  code: number
  msg: string
  retry?: boolean
  reason?: any
  cause?: any
}

type ErrorClass = new (message?: string, context?: ErrorContext, cause?: unknown) => e.CouchbaseError

/** Codes after which a statement must be prepared again. */
const PREPARED = new Set([4040, 4050, 4060, 4070, 4080, 4090])

const EXACT = new Map<number, ErrorClass>([
  [1191, e.RateLimitedError],
  [1192, e.RateLimitedError],
  [1193, e.RateLimitedError],
  [1194, e.RateLimitedError],
  [1197, e.FeatureNotAvailableError],
  [3000, e.ParsingFailureError],
  [3230, e.FeatureNotAvailableError],
  [4300, e.IndexExistsError],
  [12004, e.IndexNotFoundError],
  [12016, e.IndexNotFoundError],
  [13014, e.AuthenticationFailureError],
  [12003, e.CollectionNotFoundError],
  [17010, e.TransactionExpiredError],
  [17012, e.DocumentExistsError],
  [17014, e.DocumentNotFoundError],
  [17015, e.CasMismatchError],
  [17019, e.TransactionCommitAmbiguousError],
  [12021, e.ScopeNotFoundError],
  [12020, e.BucketNotFoundError],
])

/** Reasons of a failed change of documents. */
const DML_REASONS = new Map<number, ErrorClass>([
  [12033, e.CasMismatchError],
  [17012, e.DocumentExistsError],
  [17014, e.DocumentNotFoundError],
])

/** Returns true if a statement must be prepared again. */
export function isPreparedFailure({ code }: ServiceError): boolean {
  return PREPARED.has(code)
}

/** Returns the error of a failed request to the query service. `reads` means that it changed nothing. */
export function queryError(errors: ServiceError[], context: ErrorContext, reads: boolean): e.CouchbaseError {
  const [first] = errors
  if (!first) return new e.InternalServerFailureError(undefined, context)
  const told = {
    ...context,
    errorCode: first.code,
    errorMessage: first.msg,
    ...(first.cause === undefined ? {} : { errorCause: first.cause }),
  }
  return new (classOf(first, reads))(`${first.msg} (${first.code})`, told)
}

function classOf({ code, msg, reason }: ServiceError, reads: boolean): ErrorClass {
  const exact = EXACT.get(code)
  if (exact) return exact
  if (code === 1080) return reads ? e.UnambiguousTimeoutError : e.AmbiguousTimeoutError
  if (code === 1065 && /query_context|preserve_expiry|use_replica/.test(msg)) return e.FeatureNotAvailableError
  if (PREPARED.has(code)) return e.PreparedStatementFailureError
  if (code === 12009) return DML_REASONS.get(reason?.code) ?? dmlByText(msg)
  if (code === 5000 || code >= 12_000) {
    if (/index.*already exist/i.test(msg)) return e.IndexExistsError
    if (/index.*(not found|does not exist|not exist)/i.test(msg)) return e.IndexNotFoundError
  }
  switch (Math.floor(code / 1000)) {
    case 1:
      return e.InvalidArgumentError
    case 3:
      return e.ParsingFailureError
    case 4:
      return e.PlanningFailureError
    case 5:
      return e.InternalServerFailureError
    case 10:
      return e.AuthenticationFailureError
    case 12:
    case 14:
      return e.IndexFailureError
    default:
      return e.CouchbaseError
  }
}

function dmlByText(msg: string): ErrorClass {
  if (/CAS mismatch/i.test(msg)) return e.CasMismatchError
  if (/duplicate key/i.test(msg)) return e.DocumentExistsError
  return e.DmlFailureError
}
