"""Exceptions for errors of the query service. No other module decides this."""

from collections.abc import Mapping
from typing import Any

from . import exceptions as e
from ._statements import first_error

_STALE_PLAN = frozenset({4040, 4050, 4060, 4070, 4080, 4090})
"""The server has no such prepared statement, or cannot use it any more."""
_RATE_LIMITED = frozenset({1191, 1192, 1193, 1194})
_EXCEPTIONS: dict[int, type[e.CouchbaseException]] = {
    3000: e.ParsingFailedException,
    3230: e.FeatureUnavailableException,
    4300: e.QueryIndexAlreadyExistsException,
    12003: e.KeyspaceNotFoundException,
    12004: e.QueryIndexNotFoundException,
    12016: e.QueryIndexNotFoundException,
    12021: e.ScopeNotFoundException,
    13014: e.AuthenticationException,
}
_OF_DOCUMENTS: dict[int, type[e.CouchbaseException]] = {
    12033: e.CASMismatchException,
    17012: e.DocumentExistsException,
    17014: e.DocumentNotFoundException,
}
"""Reasons of 12009, that a document could not be changed."""


class StalePlan(Exception):
    """The statement may succeed when it is sent again; ``error`` is raised when time is up."""

    def __init__(self, error: e.CouchbaseException) -> None:
        super().__init__(str(error))
        self.error = error


def error_of(errors: object, context: e.ErrorContext, reads: bool) -> Exception:
    """Returns the exception for the errors in a response; the first one decides."""
    code, message, first = first_error(errors, context)
    error = _kind(code, message, first, reads)(message, context)
    if code in _STALE_PLAN or (first.get("retry") is True and code != 12009):
        context.retry_attempts += 1
        return StalePlan(error)
    return error


def _kind(
    code: int, message: str, error: Mapping[str, Any], reads: bool
) -> type[e.CouchbaseException]:
    text = message.lower()
    if code == 1080:
        return e.UnAmbiguousTimeoutException if reads else e.AmbiguousTimeoutException
    if code == 12009:
        reason = error.get("reason")
        inner = reason.get("code") if isinstance(reason, dict) else None
        return _OF_DOCUMENTS.get(inner or 0, e.CouchbaseException)
    if code in _EXCEPTIONS:
        return _EXCEPTIONS[code]
    if code in _RATE_LIMITED:
        return e.RateLimitedException
    if code == 1065:
        known = ("query_context", "preserve_expiry", "use_replica")
        is_feature = any(name in text for name in known)
        return e.FeatureUnavailableException if is_feature else e.InvalidArgumentException
    if code // 1000 == 5:
        if "index" in text and "already exist" in text:
            return e.QueryIndexAlreadyExistsException
        if "index" in text and ("not found" in text or "does not exist" in text):
            return e.QueryIndexNotFoundException
        return e.InternalServerFailureException
    if code // 1000 == 3:
        return e.ParsingFailedException
    if code // 1000 in (12, 14):
        return e.QueryIndexException
    return e.AuthenticationException if code // 1000 == 10 and code < 10100 else e.QueryException
