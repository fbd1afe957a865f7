"""Reads of several documents in a transaction that see other transactions as a whole.

Of another attempt that has staged something in one of the documents, the record is read once, so
that it counts as committed for all of them or for none. A document that it has changed, according
to its record, and that shows nothing of it was read before or after the others: then all of them
are read again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypedDict

from ._records import LISTS, Entry, Place, Seen, see
from .collection import Collection
from .exceptions import (
    DocumentNotFoundException,
    FeatureUnavailableException,
    InvalidIndexException,
)
from .result import ContentAt
from .result import Entry as Found
from .transcoder import JSON_FLAGS, Transcoder, decode_json, encode_json

_PAUSE = 0.005
_LATENCY_SECONDS_MAX = 0.1


class TransactionGetMultiMode(Enum):
    """How much is done to see other transactions as a whole."""

    PRIORITISE_LATENCY = "prioritise_latency"
    """The documents are read again for 100 ms at most."""
    DISABLE_READ_SKEW_DETECTION = "disable_read_skew_detection"
    """The documents are read once."""
    PRIORITISE_READ_SKEW_DETECTION = "prioritise_read_skew_detection"
    """The documents are read again until the time of the transaction is over."""


class TransactionGetMultiOptions(TypedDict, total=False):
    """Options of ``get_multi`` in a transaction."""

    mode: TransactionGetMultiMode


@dataclass(frozen=True, slots=True)
class TransactionGetMultiSpec:
    """A document to read."""

    collection: Collection
    id: str
    transcoder: Transcoder | None = None


class TransactionGetMultiResult:
    """What was read, in the order of the specs."""

    def __init__(self, entries: Sequence[Found]) -> None:
        self._entries = tuple(entries)

    def exists(self, index: int) -> bool:
        """Whether the document of a spec was found.

        Raises:
            InvalidIndexException: there is no such spec.
        """
        if not 0 <= index < len(self._entries):
            raise InvalidIndexException(f"there is no spec {index}")
        return self._entries[index].error is None

    @property
    def content_as(self) -> ContentAt:
        """Indexed by a type, gives a function from a spec's number to the document.

        The function raises `DocumentNotFoundException` if the document was not found.
        """
        return ContentAt(self._entries)


@dataclass(frozen=True, slots=True)
class Read:
    """A document, and whether what is staged in it counts."""

    seen: Seen | None
    is_committed: bool

    async def content(self, place: Place) -> Any:
        """The document as it is committed.

        Raises:
            DocumentNotFoundException: there is none.
        """
        seen = self.seen
        if seen is not None and self.is_committed:
            if seen.kind != "remove" and seen.staged is not None:
                return seen.staged
        elif seen is not None and not seen.deleted and seen.body is not None:
            return decode_json(seen.body)
        raise DocumentNotFoundException(context=place.context("get_multi"))


async def find(spec: TransactionGetMultiSpec, content: Awaitable[Any]) -> Found:
    """What ``content`` gives for a spec, or that it has found nothing."""
    try:
        found = await content
    except DocumentNotFoundException as error:
        return Found(spec.id, False, None, error)
    if spec.transcoder is not None:
        found = spec.transcoder.decode_value(encode_json(found), JSON_FLAGS)
    return Found(spec.id, True, found)


def last_read(mode: TransactionGetMultiMode | None, now: float, end: float) -> float:
    """When the documents are read for the last time, on the clock of the loop."""
    if mode is TransactionGetMultiMode.DISABLE_READ_SKEW_DETECTION:
        return 0
    if mode is TransactionGetMultiMode.PRIORITISE_READ_SKEW_DETECTION:
        return end
    return min(end, now + _LATENCY_SECONDS_MAX)


async def read_together(
    places: Sequence[Place],
    own_attempt: str,
    find_entry: Callable[[Seen], Awaitable[Entry | None]],
    left: Callable[[], float],
    until: float,
) -> list[Read]:
    """Reads documents until they show other transactions as a whole, or it is ``until``.

    Raises:
        FeatureUnavailableException: a newer client has staged something that is not known here.
    """
    clock = asyncio.get_running_loop()
    lost: set[str] = set()
    while True:
        seen = await asyncio.gather(*(see(place, left()) for place in places))
        others = {one.attempt: one for one in seen if one is not None and one.attempt is not None}
        others.pop(own_attempt, None)
        entries = {attempt: await find_entry(one) for attempt, one in others.items()}
        if any(entry is not None and entry.is_of_newer for entry in entries.values()):
            raise FeatureUnavailableException("a document is staged by a newer client")
        # Without an entry it has just ended, or was given up long ago: the next read tells.
        gone = {attempt for attempt, entry in entries.items() if entry is None}
        is_whole = gone <= lost and all(
            one is not None and one.attempt == entry.attempt
            for entry in entries.values()
            if entry is not None and _is_committed(entry)
            for one, place in zip(seen, places, strict=True)
            if _is_listed(entry, place)
        )
        lost |= gone
        if is_whole or clock.time() >= until:
            return [
                Read(one, one is not None and _is_committed(entries.get(str(one.attempt))))
                for one in seen
            ]
        await asyncio.sleep(_PAUSE)


def _is_committed(entry: Entry | None) -> bool:
    return entry is not None and entry.state in ("COMMITTED", "COMPLETED")


def _is_listed(entry: Entry, place: Place) -> bool:
    lists = (entry.members.get(name) for name in LISTS.values())
    wanted = place.as_listed().items()
    return any(wanted <= one.items() for listed in lists if listed for one in listed)
