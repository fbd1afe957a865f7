"""What operations give back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from .exceptions import CouchbaseException, InvalidArgumentException, PathNotFoundException

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MutationToken:
    """Position of a mutation in the history of its vBucket."""

    partition_id: int
    """Number of the vBucket."""
    partition_uuid: int
    """History the number belongs to; a fail-over starts a new one."""
    sequence_number: int
    bucket_name: str


@dataclass(frozen=True, slots=True)
class Result:
    """Base of results."""

    cas: int
    """Version of the document: pass it on to change exactly this version."""


@dataclass(frozen=True, slots=True)
class GetResult(Result):
    """A document."""

    content: Any
    expiry_time: datetime | None = None
    """When it expires, in UTC; None if never, or if ``with_expiry`` was not asked for."""

    @property
    def value(self) -> Any:
        """The same as ``content``."""
        return self.content

    @property
    def content_as(self) -> "ContentAs":
        """``content_as[dict]`` is the content, checked to be of the type."""
        return ContentAs(self.content)


@dataclass(frozen=True, slots=True)
class ExistsResult(Result):
    """Whether there is a document."""

    exists: bool


@dataclass(frozen=True, slots=True)
class MutationResult(Result):
    """Outcome of a change."""

    mutation_token: MutationToken | None
    """Where in the bucket's history the change is."""


@dataclass(frozen=True, slots=True)
class CounterResult(MutationResult):
    """A counter after the change."""

    content: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What one spec found or did."""

    path: str
    exists: bool
    content: Any = None
    error: CouchbaseException | None = None


@dataclass(frozen=True, slots=True)
class LookupInResult(Result):
    """Parts of a document, in the order of the specs."""

    entries: tuple[Entry, ...] = field(repr=False)

    def exists(self, index: int) -> bool:
        """Whether there is something at the path of this spec.

        Raises:
            CouchbaseException: the document could not be asked, for example as it is not JSON.
        """
        entry = _at(self.entries, index)
        if entry.error is not None and not isinstance(entry.error, PathNotFoundException):
            raise entry.error
        return entry.exists

    @property
    def content_as(self) -> "ContentAt":
        """``content_as[str](0)`` is what the first spec found, checked to be of the type."""
        return ContentAt(self.entries)

    @property
    def value(self) -> list[dict[str, Any]]:
        """Everything found, with its path."""
        return [{"path": e.path, "exists": e.exists, "value": e.content} for e in self.entries]


@dataclass(frozen=True, slots=True)
class MutateInResult(MutationResult):
    """Outcome of a change of parts, with the values of counters, in the order of the specs."""

    entries: tuple[Entry, ...] = field(repr=False)

    @property
    def content_as(self) -> "ContentAt":
        """``content_as[int](1)`` is the counter that the second spec changed."""
        return ContentAt(self.entries)


@dataclass(frozen=True, slots=True)
class ContentAs:
    """Indexed by a type, gives content of this type."""

    content: Any

    def __getitem__(self, kind: type[T]) -> T:
        return _checked(self.content, kind)


@dataclass(frozen=True, slots=True)
class ContentAt:
    """Indexed by a type, gives a function from a spec's number to content of this type."""

    entries: tuple[Entry, ...]

    def __getitem__(self, kind: type[T]) -> Callable[[int], T]:
        def content(index: int) -> T:
            entry = _at(self.entries, index)
            if entry.error is not None:
                raise entry.error
            return _checked(entry.content, kind)

        return content


def _at(entries: tuple[Entry, ...], index: int) -> Entry:
    if not 0 <= index < len(entries):
        raise InvalidArgumentException(f"there are {len(entries)} specs, and none at {index}")
    return entries[index]


def _checked(content: Any, kind: type[T]) -> T:
    if not isinstance(content, kind):
        raise InvalidArgumentException(
            f"the content is {type(content).__name__}, not {kind.__name__}"
        )
    return content
