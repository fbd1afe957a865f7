"""Results of operations."""

from collections.abc import Callable
from dataclasses import field
from datetime import datetime
from typing import Any, Generic, TypeVar

from ._record import dataclass
from .exceptions import CouchbaseException, InvalidArgumentException, PathNotFoundException

R = TypeVar("R")
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

    def as_tuple(self) -> tuple[int, int, int, str]:
        """Returns number and UUID of the vBucket, seqno and name of the bucket."""
        return self.partition_id, self.partition_uuid, self.sequence_number, self.bucket_name

    def as_dict(self) -> dict[str, int | str]:
        """Returns the parts of the token by their names."""
        return {
            "partition_id": self.partition_id,
            "partition_uuid": self.partition_uuid,
            "sequence_number": self.sequence_number,
            "bucket_name": self.bucket_name,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """Base class of results."""

    cas: int
    """Version of the document: pass it on to change exactly this version."""
    key: str | None = field(default=None, kw_only=True)
    """Key of the document."""
    flags: int | None = field(default=None, kw_only=True)
    """Flags of the document, which say what its bytes are; None where they were not read."""

    @property
    def success(self) -> bool:
        """Returns True: a failed operation raises an exception."""
        return True


@dataclass(frozen=True, slots=True)
class GetResult(Result):
    """A document."""

    content: Any
    expiry_time: datetime | None = None
    """When it expires, in UTC; None if never, or if ``with_expiry`` was not asked for."""

    @property
    def expiryTime(self) -> datetime | None:
        """Equivalent to ``expiry_time``."""
        return self.expiry_time

    @property
    def value(self) -> Any:
        """Equivalent to ``content``."""
        return self.content

    @property
    def content_as(self) -> "ContentAs":
        """``content_as[dict]`` is the content, with a check of its type."""
        return ContentAs(self.content)


@dataclass(frozen=True, slots=True)
class GetReplicaResult(GetResult):
    """A copy of a document."""

    is_replica: bool = field(default=False, kw_only=True)
    """Whether it was read from a replica, which may be behind the active copy."""

    @property
    def is_active(self) -> bool:
        """Returns True if it was read from the active copy."""
        return not self.is_replica


@dataclass(frozen=True, slots=True)
class ExistsResult(Result):
    """Reports whether a document exists."""

    exists: bool


@dataclass(frozen=True, slots=True)
class MutationResult(Result):
    """Outcome of a change."""

    token: MutationToken | None = field(repr=False)

    def mutation_token(self) -> MutationToken | None:
        """Returns the position of the change in the bucket's history, or None if it is unknown."""
        return self.token


@dataclass(frozen=True, slots=True)
class CounterResult(MutationResult):
    """A counter after the change."""

    content: int

    @property
    def value(self) -> int:
        """Equivalent to ``content``."""
        return self.content


@dataclass(frozen=True, slots=True)
class Entry:
    """The result of one spec."""

    path: str
    exists: bool
    content: Any = None
    error: CouchbaseException | None = None


@dataclass(frozen=True, slots=True)
class LookupInResult(Result):
    """Parts of a document, in the order of the specs."""

    entries: tuple[Entry, ...] = field(repr=False)

    def exists(self, index: int) -> bool:
        """Returns True if the path of this spec exists.

        Raises:
            CouchbaseException: if the path cannot be looked up, for instance in a document that is
                not JSON.
        """
        entry = _at(self.entries, index)
        if entry.error is not None and not isinstance(entry.error, PathNotFoundException):
            raise entry.error
        return entry.exists

    @property
    def content_as(self) -> "ContentAt":
        """``content_as[str](0)`` is the result of the first spec, with a check of its type."""
        return ContentAt(self.entries)

    @property
    def value(self) -> list[dict[str, Any]]:
        """Returns everything found, with its path."""
        return [{"path": e.path, "exists": e.exists, "value": e.content} for e in self.entries]


@dataclass(frozen=True, slots=True)
class LookupInReplicaResult(LookupInResult):
    """Parts of a copy of a document."""

    is_replica: bool = field(default=False, kw_only=True)
    """Whether it was read from a replica, which may be behind the active copy."""


@dataclass(frozen=True, slots=True)
class MutateInResult(MutationResult):
    """Outcome of a change of parts, with the values of counters, in the order of the specs."""

    entries: tuple[Entry, ...] = field(repr=False)

    @property
    def content_as(self) -> "ContentAt":
        """``content_as[int](1)`` is the counter that the second spec changed."""
        return ContentAt(self.entries)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A document in a scan, or only its key."""

    id: str
    """Key of the document."""
    ids_only: bool
    """Whether the scan was asked for keys alone."""
    cas: int | None = None
    """Version of the document."""
    expiry_time: datetime | None = None
    """When the document expires, in UTC; None if never."""
    flags: int | None = None
    """Flags of the document, which say what its bytes are."""
    content: Any = None

    @property
    def success(self) -> bool:
        """Returns True: a failed scan raises an exception."""
        return True

    @property
    def key(self) -> str:
        """Equivalent to ``id``."""
        return self.id

    @property
    def value(self) -> Any:
        """Equivalent to ``content``."""
        return self.content

    @property
    def content_as(self) -> "ContentAs":
        """``content_as[dict]`` is the content, with a check of its type.

        Raises:
            InvalidArgumentException: if the scan returns keys only.
        """
        if self.ids_only:
            raise InvalidArgumentException("the scan was asked for keys alone")
        return ContentAs(self.content)


@dataclass(frozen=True, slots=True)
class MultiResult(Generic[R]):
    """The results of an operation on several documents, by key."""

    outcomes: dict[str, R | CouchbaseException] = field(repr=False)

    @property
    def results(self) -> dict[str, R]:
        """Returns the results of the documents without an error."""
        return {
            key: outcome
            for key, outcome in self.outcomes.items()
            if not isinstance(outcome, CouchbaseException)
        }

    @property
    def exceptions(self) -> dict[str, CouchbaseException]:
        """Returns the errors of the other documents."""
        return {
            key: outcome
            for key, outcome in self.outcomes.items()
            if isinstance(outcome, CouchbaseException)
        }

    @property
    def all_ok(self) -> bool:
        """Returns True if there was no error."""
        return not self.exceptions


class MultiGetResult(MultiResult[GetResult]):
    """Documents by key."""


class MultiGetReplicaResult(MultiResult[R]):
    """Copies of documents by key."""


class MultiExistsResult(MultiResult[ExistsResult]):
    """Existence of documents, by key."""


class MultiMutationResult(MultiResult[MutationResult]):
    """Results of changes, by key."""


class MultiCounterResult(MultiResult[CounterResult]):
    """Counters after the change, by key."""


@dataclass(frozen=True, slots=True)
class ContentAs:
    """Indexed by a type, returns content of this type."""

    content: Any

    def __getitem__(self, kind: type[T]) -> T:
        return _checked(self.content, kind)


@dataclass(frozen=True, slots=True)
class ContentAt:
    """Indexed by a type, returns a function from a spec's number to content of this type."""

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
