"""Common parts of the requests and responses of services that run statements."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

from ._record import dataclass
from .exceptions import ErrorContext, InvalidArgumentException

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}


def duration(text: object) -> timedelta:
    """Parses a duration in Go's format: ``1m2.5s``, ``1.2ms``."""
    seconds = 0.0
    number = unit = ""
    for char in f"{text or ''}0":
        if char.isdigit() or char == ".":
            if unit:
                seconds += float(number) * _UNITS.get(unit, 0.0)
                number = unit = ""
            number += char
        else:
            unit += char
    return timedelta(seconds=seconds)


def flag(value: Any) -> bool:
    """Converts an option to a boolean."""
    return bool(value)


def text(value: Any) -> str:
    """Converts an option to a string."""
    return str(value)


def member_of(kind: type[Enum]) -> Callable[[Any], Any]:
    """Returns a converter from members of an enumeration to their values.

    The converter raises `InvalidArgumentException` for anything else.
    """

    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            raise InvalidArgumentException(f"{value!r} is no {kind.__name__}")
        return value.value

    return convert


def arguments(value: Any) -> list[Any]:
    """Returns positional parameters.

    Raises:
        InvalidArgumentException: if they are not a list.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidArgumentException("positional_parameters are a list")
    return list(value)


def quoted(name: object) -> str:
    """Quotes a name for statements.

    Raises:
        InvalidArgumentException: if it is not a string, or empty.
    """
    if not isinstance(name, str) or not name:
        raise InvalidArgumentException(f"{name!r} is not a name")
    return "`" + name.replace("`", "``") + "`"


def first_error(errors: object, context: ErrorContext) -> tuple[int, str, Mapping[str, Any]]:
    """Returns code, message and members of the first error in a response, and adds all errors to
    the context.
    """
    found: Sequence[Any] = errors if isinstance(errors, list) else [errors]
    first: Mapping[str, Any] = found[0] if isinstance(found[0], dict) else {"msg": str(found[0])}
    code = first.get("code", 0)
    code = code if isinstance(code, int) else 0
    message = str(first.get("msg", ""))
    context.first_error_code, context.first_error_message = code, message
    context.errors = tuple(one for one in found if isinstance(one, dict))
    return code, message, first


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or warning of a service."""

    raw: Mapping[str, Any]

    def code(self) -> int:
        """Returns the error code."""
        return int(self.raw.get("code", 0))

    def message(self) -> str:
        """Returns the message of the server."""
        return str(self.raw.get("msg", ""))


@dataclass(frozen=True, slots=True)
class Metrics:
    """Metrics of a statement. Missing numbers are 0."""

    raw: Mapping[str, Any]

    def elapsed_time(self) -> timedelta:
        """Returns the time from the request to the end of the response."""
        return duration(self.raw.get("elapsedTime"))

    def execution_time(self) -> timedelta:
        """Returns the execution time."""
        return duration(self.raw.get("executionTime"))

    def result_count(self) -> int:
        """Returns the number of rows."""
        return int(self.raw.get("resultCount", 0))

    def result_size(self) -> int:
        """Returns the size of the rows in bytes."""
        return int(self.raw.get("resultSize", 0))

    def error_count(self) -> int:
        """Returns the number of errors."""
        return int(self.raw.get("errorCount", 0))

    def warning_count(self) -> int:
        """Returns the number of warnings."""
        return int(self.raw.get("warningCount", 0))


@dataclass(frozen=True, slots=True)
class MetaData:
    """Metadata of a result."""

    raw: Mapping[str, Any]

    def request_id(self) -> str:
        """Returns the server's ID of the request."""
        return str(self.raw.get("requestID", ""))

    def client_context_id(self) -> str:
        """Returns the client's ID of the request."""
        return str(self.raw.get("clientContextID", ""))

    def signature(self) -> Any:
        """Returns the types of the rows."""
        return self.raw.get("signature")
