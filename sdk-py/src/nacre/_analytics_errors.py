"""Exceptions for errors of the analytics service. No other module decides this."""

import json
import re
from typing import Any

from . import exceptions as e
from ._http import HttpResponse
from ._statements import first_error

_TRY_AGAIN = frozenset({23000, 23003, 23007})
"""The service is starting, moves its data, or is full. It has done nothing."""
_EXCEPTIONS: dict[int, type[e.CouchbaseException]] = {
    # The server reports only requests that it has ended.
    21002: e.UnAmbiguousTimeoutException,
    21007: e.RequestCanceledException,
    23000: e.TemporaryFailException,
    23003: e.TemporaryFailException,
    23007: e.JobQueueFullException,
    24006: e.AnalyticsLinkNotFoundException,
    24025: e.DatasetNotFoundException,
    24034: e.DataverseNotFoundException,
    24039: e.DataverseAlreadyExistsException,
    24040: e.DatasetAlreadyExistsException,
    24044: e.DatasetNotFoundException,
    24045: e.DatasetNotFoundException,
    24047: e.QueryIndexNotFoundException,
    24048: e.QueryIndexAlreadyExistsException,
    24055: e.AnalyticsLinkExistsException,
}
_RANGES: dict[int, type[e.CouchbaseException]] = {
    20: e.AuthenticationException,
    21: e.InvalidArgumentException,
    24: e.CompilationFailedException,
    25: e.InternalServerFailureException,
}
"""Exceptions of other codes, by thousands."""
_CODE = re.compile(r"\b2[0-5]\d{3}\b")


class NotNow(Exception):
    """The request may succeed when it is sent again; ``error`` is raised if it does not."""

    def __init__(self, error: e.CouchbaseException) -> None:
        super().__init__(str(error))
        self.error = error


def errors_in(body: bytes) -> list[Any]:
    """Returns the errors in a response that was read as a whole; none if it is another one."""
    try:
        errors = json.loads(body)["errors"]
    except (ValueError, LookupError, TypeError):
        return []
    return errors if isinstance(errors, list) else []


def error_of(errors: object, context: e.ErrorContext) -> e.CouchbaseException | NotNow:
    """Returns the exception for the errors in a response; the first one decides."""
    code, message, first = first_error(errors, context)
    error = _kind(code)(message, context)
    return NotNow(error) if code in _TRY_AGAIN or first.get("retriable") is True else error


def refusal(response: HttpResponse) -> e.CouchbaseException:
    """Returns the exception for a refused request about links, whose body is JSON or plain text."""
    if errors := errors_in(response.body):
        error = error_of(errors, response.context)
        return error.error if isinstance(error, NotNow) else error
    code = _CODE.search(response.text)
    kind = e.HTTPException if code is None else _kind(int(code[0]))
    return kind(response.text, response.context)


def _kind(code: int) -> type[e.CouchbaseException]:
    return _EXCEPTIONS.get(code) or _RANGES.get(code // 1000, e.AnalyticsException)
