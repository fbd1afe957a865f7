"""Exceptions and retries by status. No other module decides this."""

import json

from . import exceptions as e
from ._frame import Response
from ._opcodes import DATATYPE_JSON, Opcode, Status

RETRIED = {
    Status.NO_BUCKET: "BUCKET_NOT_AVAILABLE",
    Status.LOCKED: "KV_LOCKED",
    Status.NO_MEMORY: "KV_TEMPORARY_FAILURE",
    Status.BUSY: "KV_TEMPORARY_FAILURE",
    Status.TEMPORARY_FAILURE: "KV_TEMPORARY_FAILURE",
    Status.SYNC_WRITE_IN_PROGRESS: "KV_SYNC_WRITE_IN_PROGRESS",
    Status.SYNC_WRITE_RECOMMIT: "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS",
    Status.NOT_MY_VBUCKET: "KV_NOT_MY_VBUCKET",
    Status.UNKNOWN_COLLECTION: "KV_COLLECTION_OUTDATED",
    Status.UNKNOWN_SCOPE: "KV_SCOPE_OUTDATED",
}
"""Statuses of requests that did nothing and may succeed later, with the reason's official name."""

_EXCEPTIONS: dict[int, type[e.CouchbaseException]] = {
    Status.KEY_NOT_FOUND: e.DocumentNotFoundException,
    Status.KEY_EXISTS: e.CASMismatchException,
    Status.TOO_BIG: e.ValueTooLargeException,
    Status.INVALID: e.InvalidArgumentException,
    Status.NOT_STORED: e.DocumentNotFoundException,
    Status.DELTA_BAD_VALUE: e.DeltaInvalidException,
    Status.NOT_MY_VBUCKET: e.TemporaryFailException,
    Status.NO_BUCKET: e.BucketNotFoundException,
    Status.LOCKED: e.DocumentLockedException,
    Status.NOT_LOCKED: e.DocumentNotLockedException,
    Status.AUTH_STALE: e.AuthenticationException,
    Status.AUTH_ERROR: e.AuthenticationException,
    Status.ACCESS: e.AuthenticationException,
    Status.UNKNOWN_COMMAND: e.FeatureUnavailableException,
    Status.NOT_SUPPORTED: e.FeatureUnavailableException,
    Status.NO_MEMORY: e.TemporaryFailException,
    Status.BUSY: e.TemporaryFailException,
    Status.TEMPORARY_FAILURE: e.TemporaryFailException,
    Status.DURABILITY_INVALID_LEVEL: e.DurabilityInvalidLevelException,
    Status.DURABILITY_IMPOSSIBLE: e.DurabilityImpossibleException,
    Status.SYNC_WRITE_IN_PROGRESS: e.DurabilitySyncWriteInProgressException,
    Status.SYNC_WRITE_AMBIGUOUS: e.DurabilitySyncWriteAmbiguousException,
    Status.SYNC_WRITE_RECOMMIT: e.DurabilitySyncWriteInProgressException,
    Status.XATTR_INVALID: e.XattrInvalidException,
    Status.UNKNOWN_COLLECTION: e.CollectionNotFoundException,
    Status.UNKNOWN_SCOPE: e.ScopeNotFoundException,
    Status.PATH_NOT_FOUND: e.PathNotFoundException,
    Status.PATH_MISMATCH: e.PathMismatchException,
    Status.PATH_INVALID: e.PathInvalidException,
    Status.PATH_TOO_BIG: e.PathTooBigException,
    Status.DOCUMENT_TOO_DEEP: e.PathTooDeepException,
    Status.VALUE_CANNOT_INSERT: e.InvalidValueException,
    Status.DOCUMENT_NOT_JSON: e.DocumentNotJsonException,
    Status.NUMBER_RANGE: e.NumberTooBigException,
    Status.DELTA_INVALID: e.DeltaInvalidException,
    Status.PATH_EXISTS: e.PathExistsException,
    Status.VALUE_TOO_DEEP: e.ValueTooDeepException,
    Status.INVALID_COMBINATION: e.InvalidArgumentException,
    Status.XATTR_UNKNOWN_MACRO: e.XattrInvalidException,
    Status.XATTR_UNKNOWN_VIRTUAL: e.XattrInvalidException,
    Status.XATTR_CANNOT_MODIFY_VIRTUAL: e.XattrInvalidException,
    Status.INVALID_XATTR_ORDER: e.InvalidArgumentException,
}


def exception_of(
    status: int, opcode: int, context: e.ErrorContext, adds: bool = False
) -> e.CouchbaseException:
    """Returns the exception for a status. Some statuses depend on the operation.

    ``adds`` means that the document must not exist.
    """
    kind = _EXCEPTIONS.get(status, e.InternalServerFailureException)
    if adds and status in (Status.KEY_EXISTS, Status.NOT_STORED):
        kind = e.DocumentExistsException
    elif opcode == Opcode.UNLOCK and status == Status.LOCKED:
        kind = e.CASMismatchException
    return kind(context=context)


def retry_reason(status: int, opcode: int) -> str | None:
    """Returns the reason for a retry after this status, or None."""
    if opcode == Opcode.UNLOCK and status == Status.LOCKED:
        return None
    return RETRIED.get(Status(status)) if status in Status._value2member_map_ else None


def detail_of(response: Response) -> str | None:
    """Returns the text of the server about an error, if any."""
    if not response.datatype & DATATYPE_JSON or not response.value:
        return None
    try:
        error = json.loads(response.value)["error"]
        return str(error.get("context") or error.get("ref"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
