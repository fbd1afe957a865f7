/** Errors of the search service. */

import {
  CouchbaseError,
  type ErrorContext,
  IndexExistsError,
  IndexNotFoundError,
  IndexNotReadyError,
  InvalidArgumentError,
  QuotaLimitedError,
  RateLimitedError,
} from './errors.js'
import type { HttpResponse } from './http-messages.js'

type ErrorClass = new (message?: string, context?: ErrorContext) => CouchbaseError

/** Errors by the text of a refusal. */
const OUTCOMES: [RegExp, ErrorClass][] = [
  [/index not found/i, IndexNotFoundError],
  [/index with the same name already exists/i, IndexExistsError],
  [/no planPIndexes/i, IndexNotReadyError],
  [/num_fts_indexes/i, QuotaLimitedError],
  [/num_concurrent_requests|num_queries_per_min/, RateLimitedError],
]

/** Returns the error of a refused request. */
export function refusal({ status, text, context }: HttpResponse): CouchbaseError {
  const known = OUTCOMES.find(([pattern]) => pattern.test(text))?.[1]
  return new (known ?? (status === 400 ? InvalidArgumentError : CouchbaseError))(text, context)
}
