"""Streamed responses with many rows.

A response is a JSON object. One of its members is an array, whose elements are the rows; the parser
keeps the other members until the end.
"""

import codecs
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from ._instruments import Instruments, Labels, Watch, parent_of
from .exceptions import AlreadyQueriedException, DecodingFailureException, InvalidArgumentException
from .observability.tracing import RequestSpan

T = TypeVar("T")
_PENDING_CHARS_MAX = 64 * 1024 * 1024
"""Largest row, or other member, that is read."""
_SPACE = re.compile(r"[ \t\r\n]*")
_IN_NUMBERS = tuple(".eE+-0123456789")
_DECODER = json.JSONDecoder()


class RowParser:
    """Parses a response as its pieces arrive."""

    def __init__(self, rows_member: str) -> None:
        self.members: dict[str, Any] = {}
        """All members but the rows."""
        self._rows_member = rows_member
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._pending = ""
        self._retry_at = 0
        """Length from which on what is pending is looked at again, so that a long row is not read
        anew with each piece."""
        self._step = self._begin
        self._member = ""
        self._ended = False

    def feed(self, data: bytes) -> list[Any]:
        """Returns the rows that a piece completes.

        Raises:
            DecodingFailureException: if it is not such a response.
        """
        rows: list[Any] = []
        try:
            self._pending += self._text.decode(data)
        except UnicodeDecodeError as error:
            raise DecodingFailureException(f"the answer is no UTF-8: {error}") from None
        if len(self._pending) > _PENDING_CHARS_MAX:
            raise DecodingFailureException("a row of the answer is over the limit")
        if len(self._pending) < self._retry_at:
            return rows
        at = 0
        while not self._ended:
            following = self._step(at, rows)
            if following is None:
                break
            at = following
        self._pending = self._pending[at:]
        # The rest is incomplete. The parser tries again once there is much more of it.
        self._retry_at = len(self._pending) * 3 // 2 if len(self._pending) > 1 << 16 else 0
        return rows

    def finish(self) -> tuple[list[Any], dict[str, Any]]:
        """Returns the last rows and the members. Call it after the last piece.

        Raises:
            DecodingFailureException: if the response is not a JSON object, or is truncated.
        """
        self._retry_at = 0
        rows = self.feed(b"")
        if not self._ended:
            begun = self._pending[:40]
            raise DecodingFailureException(f"the answer is cut off or no JSON, at {begun!r}")
        return rows, self.members

    # Steps: each reads a token at ``at`` and returns the start of the next one, or None if data is
    # missing.

    def _begin(self, at: int, rows: list[Any]) -> int | None:
        at = self._skip(at)
        if at == len(self._pending):
            return None
        self._expect(at, "{")
        self._step = self._name
        return at + 1

    def _name(self, at: int, rows: list[Any]) -> int | None:
        at = self._skip(at)
        if self._pending[at : at + 1] == "}":
            self._ended = True
            return at + 1
        found = self._value(at)
        if found is None:
            return None
        name, at = found
        at = self._skip(at)
        if at == len(self._pending):
            return None
        self._expect(at, ":")
        if not isinstance(name, str):
            raise DecodingFailureException("a member of the answer has no name")
        self._member = name
        self._step = self._rows_begin if name == self._rows_member else self._other
        return at + 1

    def _other(self, at: int, rows: list[Any]) -> int | None:
        found = self._element(at)
        if found is None:
            return None
        self.members[self._member], at = found
        return self._separator(at)

    def _rows_begin(self, at: int, rows: list[Any]) -> int | None:
        at = self._skip(at)
        if at == len(self._pending):
            return None
        if self._pending[at] != "[":
            # Null if there are no rows.
            self._step = self._other
            return at
        self._step = self._row_or_end
        return at + 1

    def _row_or_end(self, at: int, rows: list[Any]) -> int | None:
        at = self._skip(at)
        if self._pending[at : at + 1] == "]":
            self._step = self._after_rows
            return at + 1
        return self._row(at, rows)

    def _row(self, at: int, rows: list[Any]) -> int | None:
        found = self._element(at)
        if found is None:
            return None
        row, at = found
        rows.append(row)
        if self._pending[at] == "]":
            self._step = self._after_rows
        else:
            self._expect(at, ",")
            self._step = self._row
        return at + 1

    def _after_rows(self, at: int, rows: list[Any]) -> int | None:
        at = self._skip(at)
        return None if at == len(self._pending) else self._separator(at)

    def _separator(self, at: int) -> int:
        if self._pending[at] == "}":
            self._ended = True
        else:
            self._expect(at, ",")
            self._step = self._name
        return at + 1

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._pending, at)
        assert match is not None
        return match.end()

    def _expect(self, at: int, token: str) -> None:
        if self._pending[at] != token:
            raise DecodingFailureException(
                f"the answer has no {token!r} at {self._pending[at:40]!r}"
            )

    def _element(self, at: int) -> tuple[Any, int] | None:
        """Returns a value and the start of the next token, which must be present because a number
        may continue.
        """
        found = self._value(at)
        if found is None:
            return None
        if self._pending[found[1] : found[1] + 1] in _IN_NUMBERS:
            # For instance the 1 of 1.5, whose rest has not arrived yet.
            return None
        end = self._skip(found[1])
        return None if end == len(self._pending) else (found[0], end)

    def _value(self, at: int) -> tuple[Any, int] | None:
        at = self._skip(at)
        try:
            return _DECODER.raw_decode(self._pending, at)
        except ValueError:
            return None
        except RecursionError:
            raise DecodingFailureException("the answer is nested too deeply") from None


class RowResult(Generic[T]):
    """The rows of a request. It is sent once, when they are first requested."""

    def __init__(self) -> None:
        self._is_sent = False
        self._members: dict[str, Any] | None = None
        self._begin: Callable[[], Watch] | None = None
        self._span: RequestSpan | None = None
        """Span of the request, once it was sent and is watched."""

    def _watch(
        self,
        instruments: Instruments | None,
        name: str,
        labels: Labels,
        options: Mapping[str, Any],
    ) -> None:
        """Instruments the request."""
        if instruments is not None:
            parent = parent_of(options)
            self._begin = lambda: Watch(instruments, name, labels, parent)

    def rows(self) -> AsyncIterator[T]:
        """Yields the rows as they arrive."""
        return self.__aiter__()

    async def execute(self) -> list[T]:
        """Returns all rows."""
        return [row async for row in self]

    async def __aiter__(self) -> AsyncIterator[T]:
        if self._is_sent:
            raise AlreadyQueriedException("the rows were asked for already")
        self._is_sent = True
        if self._begin is None:
            async with aclosing(self._send()) as rows:
                async for row in rows:
                    yield row
            return
        watch = self._begin()
        self._span = watch.span
        try:
            async with aclosing(self._send()) as rows:
                async for row in rows:
                    yield row
        except GeneratorExit:
            # The reader has left the loop.
            watch.end()
            raise
        except BaseException as error:
            watch.end(error)
            raise
        watch.end()

    def _send(self) -> AsyncGenerator[T, None]:
        raise NotImplementedError

    def _ended(self) -> dict[str, Any]:
        """Returns the members of the response except the rows.

        Raises:
            InvalidArgumentException: if some rows have not been read.
        """
        if self._members is None:
            raise InvalidArgumentException("there is nothing to tell before all rows were read")
        return self._members
