/** Errors of the analytics service, identified by their codes. */

import * as e from './errors.js'
import type { ErrorContext } from './errors.js'
import type { HttpResponse } from './http-messages.js'

/** An error in the format of the service. */
export interface AnalyticsServiceError {
  code: number
  msg: string
  retriable?: boolean
}

type ErrorClass = new (message?: string, context?: ErrorContext) => e.CouchbaseError

/** Codes of a service that is starting, moves its data, or is full. It has done nothing. */
const TEMPORARY = new Set([23000, 23003, 23007])

const EXACT = new Map<number, ErrorClass>([
  // The service reports only requests that it has ended.
  [21002, e.UnambiguousTimeoutError],
  [21007, e.RequestCanceledError],
  [23000, e.TemporaryFailureError],
  [23003, e.TemporaryFailureError],
  [23007, e.JobQueueFullError],
  [24006, e.LinkNotFoundError],
  [24025, e.DatasetNotFoundError],
  [24034, e.DataverseNotFoundError],
  [24039, e.DataverseExistsError],
  [24040, e.DatasetExistsError],
  [24044, e.DatasetNotFoundError],
  [24045, e.DatasetNotFoundError],
  [24047, e.IndexNotFoundError],
  [24048, e.IndexExistsError],
  [24055, e.LinkExistsError],
])

/** Classes of other codes, by thousands. */
const RANGES = new Map<number, ErrorClass>([
  [20, e.AuthenticationFailureError],
  [21, e.InvalidArgumentError],
  [24, e.CompilationFailureError],
  [25, e.InternalServerFailureError],
])

/** Returns the errors in a response or its text; none if it is another one. */
export function errorsIn(response: any): AnalyticsServiceError[] {
  let errors: unknown
  try {
    errors = (typeof response === 'string' ? JSON.parse(response) : response)?.errors
  } catch {
    // It is a plain text.
  }
  return Array.isArray(errors) ? errors.filter((error) => error !== null && typeof error === 'object') : []
}

/** Returns true if the same request may succeed when it is sent again. */
export function isTemporary([first]: AnalyticsServiceError[]): boolean {
  return first !== undefined && (TEMPORARY.has(first.code) || first.retriable === true)
}

/** Returns the error of a failed statement; the first of its errors decides. */
export function analyticsError([first]: AnalyticsServiceError[], context: ErrorContext): e.CouchbaseError {
  const { code, msg } = first!
  return new (classOf(code))(`${msg} (${code})`, { ...context, errorCode: code, errorMessage: msg })
}

/** Returns the error of a refused request about links, whose body is JSON or plain text. */
export function analyticsRefusal({ text, context }: HttpResponse): e.CouchbaseError {
  const errors = errorsIn(text)
  if (errors.length) return analyticsError(errors, context)
  const code = /\b2[0-5]\d{3}\b/.exec(text)?.[0]
  return new (code === undefined ? e.CouchbaseError : classOf(Number(code)))(text, context)
}

function classOf(code: number): ErrorClass {
  return EXACT.get(code) ?? RANGES.get(Math.floor(code / 1000)) ?? e.CouchbaseError
}
