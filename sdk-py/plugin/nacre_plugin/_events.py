"""Decodes changed documents, which the host passes in one buffer per batch."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

MAGIC = b"NEB1"
"""The first four bytes of an event buffer."""
DATATYPE_JSON = 1
"""Datatype bit: the body is JSON."""

_HEADER = struct.Struct("<4sIQII8x")
_EVENT = struct.Struct("<QQQIIIIIIIHHBBI2x")
_PREVIOUS = struct.Struct("<QQQIIIIBB6x")


class DecodeError(ValueError):
    """Why a buffer is no batch of events."""


class EventKind(IntEnum):
    """What happened to a document."""

    UPSERT = 1
    DELETE = 2
    EXPIRE = 3


class Previous(NamedTuple):
    """A replaced version of a document."""

    seqno: int
    """Position in the history of the vBucket."""
    cas: int
    """The version."""
    rev: int
    """How often the key had been changed."""
    flags: int
    """Opaque to the server."""
    expiry: int
    """Unix second of expiry, 0 for never; of deletion for a tombstone."""
    kind: EventKind
    """What had happened: after a deletion there was no document."""
    datatype: int
    """JSON, snappy and extended-attribute bits."""
    xattrs: bytes
    """The extended-attribute section."""
    body: bytes
    """The document body; empty for a deletion."""

    @property
    def is_json(self) -> bool:
        """True if the body is JSON."""
        return bool(self.datatype & DATATYPE_JSON)

    def json(self) -> Any:
        """Returns the parsed body.

        Raises:
            ValueError: if it is not JSON.
        """
        return json.loads(self.body)


class Event(NamedTuple):
    """One change of one document."""

    seqno: int
    """Position in the history of the vBucket."""
    cas: int
    """The version of the document."""
    rev: int
    """How often the key was changed."""
    flags: int
    """Opaque to the server."""
    expiry: int
    """Unix second of expiry, 0 for never; of deletion for a tombstone."""
    collection: int
    """The number of the collection."""
    vb: int
    """The vBucket of the document."""
    kind: EventKind
    """What happened."""
    datatype: int
    """JSON, snappy and extended-attribute bits."""
    key: bytes
    """The key as the application knows it."""
    xattrs: bytes
    """The extended-attribute section, its length word included; empty when there is none."""
    body: bytes
    """The document body; empty for a deletion."""
    now_us: int
    """When the batch was made, in microseconds since the Unix epoch: the only clock a plugin has.
    """
    previous: Previous | None = None
    """The version that this one took the place of, if `[events] old = true` asks for it and it is
    kept.
    """

    @property
    def id(self) -> str:
        """Returns the key as text.

        Raises:
            UnicodeDecodeError: if it is not UTF-8.
        """
        return self.key.decode()

    @property
    def is_json(self) -> bool:
        """True if the body is JSON."""
        return bool(self.datatype & DATATYPE_JSON)

    def json(self) -> Any:
        """Returns the parsed body.

        Raises:
            ValueError: if it is not JSON.
        """
        return json.loads(self.body)


class Events(Sequence[Event]):
    """A decoded buffer: the events of a batch, in history order within each vBucket. JSON is not
    parsed.

    The documentation of the plugin ABI describes its layout. Every offset is checked once, so that
    reading an event cannot fail.
    """

    def __init__(self, buffer: bytes) -> None:
        """Decodes and validates a buffer.

        Raises:
            DecodeError: for the first error in the buffer.
        """
        if buffer[:4] != MAGIC:
            raise DecodeError("not an event buffer: the magic number is missing")
        wrong = DecodeError(f"the header of the event buffer does not fit its {len(buffer)} bytes")
        if len(buffer) < _HEADER.size:
            raise wrong
        _, count, self.now_us, arena, total = _HEADER.unpack_from(buffer)
        end = _HEADER.size + count * _EVENT.size
        if total != len(buffer) or not end <= arena <= total:
            raise wrong
        self._buffer, self._arena = buffer, arena
        self._records = list(_EVENT.iter_unpack(memoryview(buffer)[_HEADER.size : end]))
        arena_bytes = total - arena
        for index, record in enumerate(self._records):
            key, value, value_bytes, xattr_bytes, _, key_bytes, kind, _, before = record[6:]
            inside = max(key + key_bytes, value + value_bytes) <= arena_bytes
            known = xattr_bytes <= value_bytes and kind in (1, 2, 3)
            if not inside or not known or not self._has_previous(before, arena_bytes):
                raise DecodeError(f"event {index} of the event buffer is malformed")

    def _has_previous(self, start: int, arena_bytes: int) -> bool:
        """Returns True if there is a previous version at `start`; 0 means none."""
        if start == 0:
            return True
        if start + _PREVIOUS.size > arena_bytes:
            return False
        record = _PREVIOUS.unpack_from(self._buffer, self._arena + start)
        value_bytes, xattr_bytes, kind = record[5:8]
        end = start + _PREVIOUS.size + value_bytes
        return end <= arena_bytes and xattr_bytes <= value_bytes and kind in (1, 2, 3)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Event]:
        return map(self._event, self._records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._event(record) for record in self._records[index]]
        return self._event(self._records[index])

    def _event(self, record: tuple[int, ...]) -> Event:
        seqno, cas, rev, flags, expiry, collection, key, value, value_bytes = record[:9]
        xattr_bytes, vb, key_bytes, kind, datatype, before = record[9:]
        key, value = self._arena + key, self._arena + value
        body = value + xattr_bytes
        return Event(
            seqno=seqno,
            cas=cas,
            rev=rev,
            flags=flags,
            expiry=expiry,
            collection=collection,
            vb=vb,
            kind=EventKind(kind),
            datatype=datatype,
            key=self._buffer[key : key + key_bytes],
            xattrs=self._buffer[value:body],
            body=self._buffer[body : value + value_bytes],
            now_us=self.now_us,
            previous=self._previous(before) if before else None,
        )

    def _previous(self, start: int) -> Previous:
        at = self._arena + start
        record = _PREVIOUS.unpack_from(self._buffer, at)
        seqno, cas, rev, flags, expiry, value_bytes, xattr_bytes, kind, datatype = record
        value = at + _PREVIOUS.size
        body = value + xattr_bytes
        return Previous(
            seqno=seqno,
            cas=cas,
            rev=rev,
            flags=flags,
            expiry=expiry,
            kind=EventKind(kind),
            datatype=datatype,
            xattrs=self._buffer[value:body],
            body=self._buffer[body : value + value_bytes],
        )


@dataclass(frozen=True)
class DocumentError:
    """A document that could not be processed. The feed continues."""

    index: int
    """Position of the event within the batch, from 0."""
    message: str
    """What went wrong, for the author of the code that failed."""
