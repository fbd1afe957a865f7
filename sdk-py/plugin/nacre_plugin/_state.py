"""Capability `state`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from ._outside import bytes_of, outside

_SCAN_ENTRIES = 256


def successor(prefix: bytes) -> bytes:
    """Returns the smallest byte string above all that start with ``prefix``; empty (no bound) if
    there is none.
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""


class State:
    """Capability `state`: the plugin's own ordered key space. Keys are compared as bytes and must
    not be empty.

    A key is bytes or text. A value of bytes or text is stored unchanged, everything else as JSON.
    Writes become visible to others when the host's call ends successfully.
    """

    def __init__(self) -> None:
        self._before: dict[bytes, bytes | None] | None = None

    def get(self, key: bytes | str) -> bytes | None:
        """Returns the value at ``key``, or None if it is missing."""
        value: bytes | None = outside["state"].get(bytes_of(key))
        return value

    def get_text(self, key: bytes | str) -> str | None:
        """Returns the value at ``key`` as text, or None if it is missing."""
        value = self.get(key)
        return None if value is None else value.decode()

    def get_json(self, key: bytes | str, default: Any = None) -> Any:
        """Returns the parsed value at ``key``, or ``default`` if it is missing."""
        value = self.get(key)
        return default if value is None else json.loads(value)

    def put(self, key: bytes | str, value: Any) -> None:
        """Stores ``value`` at ``key``, and replaces any previous value."""
        encoded = bytes_of(key)
        self._remember(encoded)
        outside["state"].put(encoded, bytes_of(value))

    def delete(self, key: bytes | str) -> None:
        """Removes the entry at ``key``, if it exists."""
        encoded = bytes_of(key)
        self._remember(encoded)
        outside["state"].delete(encoded)

    def scan(
        self,
        start: bytes | str,
        end: bytes | str = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yields up to ``limit`` entries with ``start <= key < end`` (an empty ``end`` means no
        bound).

        The order is ascending or, with ``reverse``, descending from the end of the range. Entries
        are fetched on demand: a concurrent write is visible if it lies ahead.
        """
        first, last = bytes_of(start), bytes_of(end)
        left = sys.maxsize if limit is None else limit
        while left > 0:
            page = outside["state"].scan(first, last, min(left, _SCAN_ENTRIES), reverse)
            if not page:
                return
            for entry in page:
                yield entry.key, entry.value
            left -= len(page)
            if reverse:
                last = page[-1].key
            else:
                first = page[-1].key + b"\0"

    def scan_prefix(
        self, prefix: bytes | str, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yields the entries whose keys start with ``prefix``, like `scan`."""
        start = bytes_of(prefix)
        return self.scan(start, successor(start), limit, reverse)

    def _remember(self, key: bytes) -> None:
        if self._before is not None and key not in self._before:
            self._before[key] = self.get(key)

    def _hold(self) -> None:
        self._before = {}

    def _settle(self, keep: bool) -> None:
        before, self._before = self._before or {}, None
        for key, value in () if keep else before.items():
            if value is None:
                outside["state"].delete(key)
            else:
                outside["state"].put(key, value)


state = State()
