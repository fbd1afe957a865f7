/** Errors and retries by status. No other module decides this. */

import * as e from './errors.js'
import type { ErrorContext } from './errors.js'
import type { Response } from './frame.js'
import { DATATYPE_JSON, Opcode, Status } from './opcodes.js'

/** Statuses of requests that have done nothing and may be retried, with the official name of the reason. */
const RETRIED = new Map<number, string>([
  [Status.NoBucket, 'BUCKET_NOT_AVAILABLE'],
  [Status.Locked, 'KV_LOCKED'],
  [Status.NoMemory, 'KV_TEMPORARY_FAILURE'],
  [Status.Busy, 'KV_TEMPORARY_FAILURE'],
  [Status.TemporaryFailure, 'KV_TEMPORARY_FAILURE'],
  [Status.SyncWriteInProgress, 'KV_SYNC_WRITE_IN_PROGRESS'],
  [Status.SyncWriteRecommit, 'KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS'],
  [Status.NotMyVbucket, 'KV_NOT_MY_VBUCKET'],
  [Status.UnknownCollection, 'KV_COLLECTION_OUTDATED'],
  [Status.UnknownScope, 'KV_SCOPE_OUTDATED'],
])

type ErrorClass = new (message?: string, context?: ErrorContext) => e.CouchbaseError

const ERRORS = new Map<number, ErrorClass>([
  [Status.KeyNotFound, e.DocumentNotFoundError],
  [Status.KeyExists, e.CasMismatchError],
  [Status.TooBig, e.ValueTooLargeError],
  [Status.Invalid, e.InvalidArgumentError],
  [Status.NotStored, e.DocumentNotFoundError],
  [Status.DeltaBadValue, e.DeltaInvalidError],
  [Status.NotMyVbucket, e.TemporaryFailureError],
  [Status.NoBucket, e.BucketNotFoundError],
  [Status.Locked, e.DocumentLockedError],
  [Status.NotLocked, e.DocumentNotLockedError],
  [Status.AuthStale, e.AuthenticationFailureError],
  [Status.AuthError, e.AuthenticationFailureError],
  [Status.Access, e.AuthenticationFailureError],
  [Status.UnknownCommand, e.FeatureNotAvailableError],
  [Status.NotSupported, e.FeatureNotAvailableError],
  [Status.NoMemory, e.TemporaryFailureError],
  [Status.Busy, e.TemporaryFailureError],
  [Status.TemporaryFailure, e.TemporaryFailureError],
  [Status.DurabilityInvalidLevel, e.DurabilityLevelNotAvailableError],
  [Status.DurabilityImpossible, e.DurabilityImpossibleError],
  [Status.SyncWriteInProgress, e.DurableWriteInProgressError],
  [Status.SyncWriteAmbiguous, e.DurabilityAmbiguousError],
  [Status.SyncWriteRecommit, e.DurableWriteReCommitInProgressError],
  [Status.XattrInvalid, e.XattrInvalidError],
  [Status.UnknownCollection, e.CollectionNotFoundError],
  [Status.UnknownScope, e.ScopeNotFoundError],
  [Status.PathNotFound, e.PathNotFoundError],
  [Status.PathMismatch, e.PathMismatchError],
  [Status.PathInvalid, e.PathInvalidError],
  [Status.PathTooBig, e.PathTooBigError],
  [Status.DocumentTooDeep, e.PathTooDeepError],
  [Status.ValueCannotInsert, e.ValueInvalidError],
  [Status.DocumentNotJson, e.DocumentNotJsonError],
  [Status.NumberRange, e.NumberTooBigError],
  [Status.DeltaInvalid, e.DeltaInvalidError],
  [Status.PathExists, e.PathExistsError],
  [Status.ValueTooDeep, e.ValueTooDeepError],
  [Status.InvalidCombination, e.InvalidArgumentError],
  [Status.XattrUnknownMacro, e.XattrInvalidError],
  [Status.XattrUnknownVirtual, e.XattrInvalidError],
  [Status.XattrCannotModifyVirtual, e.XattrInvalidError],
  [Status.InvalidXattrOrder, e.InvalidArgumentError],
  [Status.CanOnlyReviveDeleted, e.DocumentExistsError],
])

/**
 * Returns the error for a status. Some statuses have different meanings for different operations.
 *
 * `adds` means that the document must not exist.
 */
export function errorOf(status: number, opcode: number, context: ErrorContext, adds = false): e.CouchbaseError {
  let kind = ERRORS.get(status) ?? e.InternalServerFailureError
  if (adds && (status === Status.KeyExists || status === Status.NotStored)) kind = e.DocumentExistsError
  else if (opcode === Opcode.Unlock && status === Status.Locked) kind = e.CasMismatchError
  return new kind(undefined, context)
}

/** Returns the reason for a retry after this status, or undefined. */
export function retryReason(status: number, opcode: number): string | undefined {
  return opcode === Opcode.Unlock && status === Status.Locked ? undefined : RETRIED.get(status)
}

/** Returns the text of the server about an error, if any. */
export function detailOf(response: Response): string | undefined {
  if (!(response.datatype & DATATYPE_JSON) || !response.value.length) return undefined
  try {
    const { error } = JSON.parse(response.value.toString())
    return error?.context ?? error?.ref
  } catch {
    return undefined
  }
}
