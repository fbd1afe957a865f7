"""Reads several documents in a transaction so that they show other transactions atomically.

If another attempt has staged something in one of the documents, its record is read once, so that
the attempt counts as committed for all documents or for none. If the record says that the attempt
has changed a document, but the document shows nothing of it, then that document was read before or
after the others: all documents are reread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, TypedDict

from ._record import dataclass
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
    """How much effort a read makes to see other transactions atomically."""

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
    """The results, in the order of the specs."""

    def __init__(self, entries: Sequence[Found]) -> None:
        self._entries = tuple(entries)

    def exists(self, index: int) -> bool:
        """Returns True if the document of a spec exists.

        Raises:
            InvalidIndexException: if the spec does not exist.
        """
        if not 0 <= index < len(self._entries):
            raise InvalidIndexException(f"there is no spec {index}")
        return self._entries[index].error is None

    @property
    def content_as(self) -> ContentAt:
        """Indexed by a type, returns a function from the number of a spec to the document.

        The function raises `DocumentNotFoundException` if the document does not exist.
        """
        return ContentAt(self._entries)


@dataclass(frozen=True, slots=True)
class Read:
    """A document, and whether its staged change is committed."""

    seen: Seen | None
    is_committed: bool

    async def content(self, place: Place) -> Any:
        """Returns the committed content.

        Raises:
            DocumentNotFoundException: if it does not exist.
        """
        seen = self.seen
        if seen is not None and self.is_committed:
            if seen.kind != "remove" and seen.staged is not None:
                return seen.staged
        elif seen is not None and not seen.deleted and seen.body is not None:
            return decode_json(seen.body)
        raise DocumentNotFoundException(context=place.context("get_multi"))


async def find(spec: TransactionGetMultiSpec, content: Awaitable[Any]) -> Found:
    """The result of ``content`` for a spec, or its absence."""
    try:
        found = await content
    except DocumentNotFoundException as error:
        return Found(spec.id, False, None, error)
    if spec.transcoder is not None:
        found = spec.transcoder.decode_value(encode_json(found), JSON_FLAGS)
    return Found(spec.id, True, found)


def last_read(mode: TransactionGetMultiMode | None, now: float, end: float) -> float:
    """Returns the time of the last read, on the clock of the loop."""
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
    look: Callable[[Place, float], Awaitable[Seen | None]] = see,
) -> list[Read]:
    """Rereads documents until they show other transactions atomically, or until the time ``until``.
    ``look`` reads one.

    Raises:
        FeatureUnavailableException: if a newer client has staged something unknown.
    """
    clock = asyncio.get_running_loop()
    lost: set[str] = set()
    while True:
        seen = await asyncio.gather(*(look(place, left()) for place in places))
        others = {one.attempt: one for one in seen if one is not None and one.attempt is not None}
        others.pop(own_attempt, None)
        entries = {attempt: await find_entry(one) for attempt, one in others.items()}
        if any(entry is not None and entry.is_of_newer for entry in entries.values()):
            raise FeatureUnavailableException("a document is staged by a newer client")
        # Without an entry, the attempt has just ended or was abandoned long ago: the next read
        # shows which.
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
