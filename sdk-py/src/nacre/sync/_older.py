"""Operations on lists, maps, sets and queues in documents, as methods of a collection.

The official SDK keeps them for older programs. `Collection.couchbase_list` and its siblings have
more operations.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from .. import subdocument as sd
from ..exceptions import DocumentExistsException, DocumentNotFoundException, PathExistsException
from ..result import MutateInResult

if TYPE_CHECKING:
    from . import Collection


class OlderStructures:
    """Data structures, given by their key. With ``create``, a change creates a missing document."""

    def list_append(
        self, key: str, value: Any, create: bool = False, **kwargs: Any
    ) -> MutateInResult:
        """Appends an element to a list."""
        return self._change(key, sd.array_append("", value), [] if create else None, kwargs)

    def list_prepend(
        self, key: str, value: Any, create: bool = False, **kwargs: Any
    ) -> MutateInResult:
        """Prepends an element to a list."""
        return self._change(key, sd.array_prepend("", value), [] if create else None, kwargs)

    def list_set(self, key: str, index: int, value: Any, **kwargs: Any) -> MutateInResult:
        """Replaces an element of a list."""
        return self._change(key, sd.replace(f"[{index:d}]", value), None, kwargs)

    def list_get(self, key: str, index: int, **kwargs: Any) -> Any:
        """Returns an element of a list."""
        return self._part(key, sd.get(f"[{index:d}]"), kwargs)

    def list_remove(self, key: str, index: int, **kwargs: Any) -> MutateInResult:
        """Removes an element of a list."""
        return self._change(key, sd.remove(f"[{index:d}]"), None, kwargs)

    def list_size(self, key: str, **kwargs: Any) -> int:
        """Returns the number of elements of a list."""
        return int(self._part(key, sd.count(""), kwargs))

    def map_add(
        self, key: str, mapkey: str, value: Any, create: bool = False, **kwargs: Any
    ) -> MutateInResult:
        """Sets the value of a key of a map."""
        return self._change(key, sd.upsert(_member(mapkey), value), {} if create else None, kwargs)

    def map_get(self, key: str, mapkey: str, **kwargs: Any) -> Any:
        """Returns the value of a key of a map."""
        return self._part(key, sd.get(_member(mapkey)), kwargs)

    def map_remove(self, key: str, mapkey: str, **kwargs: Any) -> MutateInResult:
        """Removes a key of a map."""
        return self._change(key, sd.remove(_member(mapkey)), None, kwargs)

    def map_size(self, key: str, **kwargs: Any) -> int:
        """Returns the number of keys of a map."""
        return int(self._part(key, sd.count(""), kwargs))

    def set_add(
        self, key: str, value: Any, create: bool = False, **kwargs: Any
    ) -> MutateInResult | None:
        """Adds a value to a set. Returns None if the set contains it already."""
        spec = sd.array_addunique("", value)
        try:
            return self._change(key, spec, [] if create else None, kwargs)
        except PathExistsException:
            return None

    def set_remove(self, key: str, value: Any, **kwargs: Any) -> None:
        """Removes a value of a set, if the set contains it."""
        self._collection.couchbase_set(key).remove(value, **kwargs)

    def set_contains(self, key: str, value: Any, **kwargs: Any) -> bool:
        """Reports whether a set contains a value."""
        return value in self._collection.get(key, **kwargs).content_as[list]

    def set_size(self, key: str, **kwargs: Any) -> int:
        """Returns the number of values of a set."""
        return int(self._part(key, sd.count(""), kwargs))

    def queue_push(
        self, key: str, value: Any, create: bool = False, **kwargs: Any
    ) -> MutateInResult:
        """Adds an element to a queue."""
        return self._change(key, sd.array_prepend("", value), [] if create else None, kwargs)

    def queue_pop(self, key: str, **kwargs: Any) -> Any:
        """Removes the oldest element of a queue, and returns it.

        Raises:
            QueueEmpty: if the queue has no element.
        """
        return self._collection.couchbase_queue(key).pop(**kwargs)

    def queue_size(self, key: str, **kwargs: Any) -> int:
        """Returns the number of elements of a queue."""
        return int(self._part(key, sd.count(""), kwargs))

    @property
    def _collection(self) -> "Collection":
        return cast("Collection", self)

    def _change(
        self, key: str, spec: sd.MutationSpec, empty: Any, kwargs: dict[str, Any]
    ) -> MutateInResult:
        """Changes a document, which is created as ``empty`` if it is missing and that is given."""
        try:
            return self._collection.mutate_in(key, [spec], **kwargs)
        except DocumentNotFoundException:
            if empty is None:
                raise
        with suppress(DocumentExistsException):
            self._collection.insert(key, empty)
        return self._collection.mutate_in(key, [spec], **kwargs)

    def _part(self, key: str, spec: sd.LookupSpec, kwargs: dict[str, Any]) -> Any:
        return self._collection.lookup_in(key, [spec], **kwargs).content_as[object](0)


def _member(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
