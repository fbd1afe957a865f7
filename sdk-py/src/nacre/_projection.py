"""Assembles a document from parts and their paths."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from .exceptions import InvalidArgumentException

_MISSING = object()


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """Inserts a value at its path into a document. An element of an array is appended to the new
    array.

    Raises:
        InvalidArgumentException: if the path is malformed.
    """
    steps = list(_steps(path))
    place: Any = document
    for step, following in pairwise(steps):
        fresh: Any = [] if isinstance(following, int) else {}
        if isinstance(place, dict):
            place = place.setdefault(step, fresh)
        else:
            place.append(fresh)
            place = fresh
    if isinstance(place, dict):
        place[steps[-1]] = value
    elif isinstance(place, list):
        place.append(value)


def of_document(document: Any, paths: Sequence[str]) -> dict[str, Any]:
    """Returns the parts of a document at the paths. Missing parts are omitted.

    Raises:
        InvalidArgumentException: if a path is malformed.
    """
    found: dict[str, Any] = {}
    for path in paths:
        value = document
        for step in _steps(path):
            value = _child(value, step)
        if value is not _MISSING:
            put(found, path, value)
    return found


def _child(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
    if isinstance(value, list) and -1 <= step < len(value) and value:
        return value[step]
    return _MISSING


def _steps(path: str) -> Iterator[str | int]:
    """Returns the members and elements of a path: ``a.`b.c`[0]`` yields a, b.c and 0."""
    at, expects_name = 0, True
    while at < len(path):
        if path[at] == "[":
            end = path.find("]", at)
            try:
                number = int(path[at + 1 : end])
            except ValueError:
                number = -2
            if end < 0 or number < -1:
                raise InvalidArgumentException(f"the path {path!r} has no number in brackets")
            yield number
            at, expects_name = end + 1, False
        elif path[at] == "." and not expects_name:
            at, expects_name = at + 1, True
        elif expects_name:
            name, at = _name(path, at)
            yield name
            expects_name = False
        else:
            raise InvalidArgumentException(f"the path {path!r} cannot be read at {at}")
    if expects_name:
        raise InvalidArgumentException(f"the path {path!r} does not end with a name")


def _name(path: str, at: int) -> tuple[str, int]:
    """Returns a name and its end. In back-ticks it may contain any characters; back-ticks are
    doubled.
    """
    name = ""
    while at < len(path) and path[at] not in ".[":
        if path[at] != "`":
            name += path[at]
            at += 1
            continue
        while True:
            end = path.find("`", at + 1)
            if end < 0:
                raise InvalidArgumentException(f"the path {path!r} has a back-tick too many")
            name += path[at + 1 : end]
            at = end
            if path[end + 1 : end + 2] != "`":
                break
            name += "`"
            at += 1
        at += 1
    return name, at
