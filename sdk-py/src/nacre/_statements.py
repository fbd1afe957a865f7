"""Common parts of the requests and responses of services that run statements."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

from .exceptions import InvalidArgumentException

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
