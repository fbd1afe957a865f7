"""Documents as lists, maps, sets and queues. A missing one is empty, and a change creates it.

Every operation is one request for a part of the document, except those that search all of it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from . import subdocument as sd
from .exceptions import (
    CASMismatchException,
    DocumentExistsException,
    DocumentNotFoundException,
    InvalidArgumentException,
    PathExistsException,
    PathNotFoundException,
    QueueEmpty,
)
from .options import StoreSemantics, seconds_of

if TYPE_CHECKING:
    from .collection import Collection

_TURNS_TIMEOUT = timedelta(seconds=10)
"""How long a change may be tried again that others come before."""


class _Structure:
    _EMPTY: ClassVar[Any] = []

    def __init__(self, collection: "Collection", key: str) -> None:
        self._collection = collection
        self._key = key

    async def size(self) -> int:
        """Returns the number of elements."""
        try:
            counted = await self._collection.lookup_in(self._key, [sd.count("")])
        except DocumentNotFoundException:
            return 0
        return counted.content_as[int](0)

    async def clear(self) -> None:
        """Removes all elements, and the document."""
        try:
            await self._collection.remove(self._key)
        except DocumentNotFoundException:
            return

    async def _all(self) -> Any:
        try:
            found = await self._collection.get(self._key)
        except DocumentNotFoundException:
            return type(self._EMPTY)()
        return found.content_as[type(self._EMPTY)]

    async def _change(self, spec: sd.MutationSpec) -> None:
        while True:
            try:
                await self._collection.mutate_in(self._key, [spec])
                return
            except DocumentNotFoundException:
                pass
            try:
                await self._collection.insert(self._key, self._EMPTY)
            except DocumentExistsException:
                continue

    async def _part(self, spec: sd.LookupSpec) -> Any:
        found = await self._collection.lookup_in(self._key, [spec])
        return found.content_as[object](0)


class CouchbaseList(_Structure):
    """A list. ``async for`` goes over its elements."""

    async def append(self, value: Any) -> None:
        """Appends an element."""
        await self._change(sd.array_append("", value))

    async def prepend(self, value: Any) -> None:
        """Prepends an element."""
        await self._change(sd.array_prepend("", value))

    async def set_at(self, index: int, value: Any) -> None:
        """Replaces an element; -1 is the last.

        Raises:
            DocumentNotFoundException: if the list does not exist.
            InvalidArgumentException: if the element does not exist.
        """
        spec = sd.replace(_path(index), value)
        try:
            await self._collection.mutate_in(self._key, [spec])
        except PathNotFoundException:
            raise _no_element(index) from None

    async def get_at(self, index: int) -> Any:
        """Returns an element; -1 is the last.

        Raises:
            DocumentNotFoundException: if the list does not exist.
            InvalidArgumentException: if the element does not exist.
        """
        try:
            return await self._part(sd.get(_path(index)))
        except PathNotFoundException:
            raise _no_element(index) from None

    async def remove_at(self, index: int) -> None:
        """Removes an element; -1 is the last.

        Raises:
            DocumentNotFoundException: if the list does not exist.
            InvalidArgumentException: if the element does not exist.
        """
        try:
            await self._collection.mutate_in(self._key, [sd.remove(_path(index))])
        except PathNotFoundException:
            raise _no_element(index) from None

    async def index_of(self, value: Any) -> int:
        """Returns the index of the first element that equals a value, or -1."""
        elements = await self.get_all()
        return elements.index(value) if value in elements else -1

    async def get_all(self) -> list[Any]:
        """Returns all elements."""
        elements: list[Any] = await self._all()
        return elements

    async def __aiter__(self) -> AsyncIterator[Any]:
        for element in await self.get_all():
            yield element


class CouchbaseMap(_Structure):
    """A map from strings to values."""

    _EMPTY: ClassVar[Any] = {}

    async def add(self, mapkey: str, value: Any) -> None:
        """Sets the value of a key."""
        await self._change(sd.upsert(_member(mapkey), value))

    async def get(self, mapkey: str) -> Any:
        """Returns the value of a key.

        Raises:
            DocumentNotFoundException: if the map does not exist.
            PathNotFoundException: if the key does not exist.
        """
        return await self._part(sd.get(_member(mapkey)))

    async def remove(self, mapkey: str) -> None:
        """Removes a key.

        Raises:
            DocumentNotFoundException: if the map does not exist.
            InvalidArgumentException: if the key does not exist.
        """
        try:
            await self._collection.mutate_in(self._key, [sd.remove(_member(mapkey))])
        except PathNotFoundException:
            raise InvalidArgumentException(f"the map has no key {mapkey!r}") from None

    async def exists(self, key: str) -> bool:
        """Reports whether a key exists."""
        try:
            found = await self._collection.lookup_in(self._key, [sd.exists(_member(key))])
        except DocumentNotFoundException:
            return False
        return found.exists(0)

    async def keys(self) -> list[str]:
        """Returns all keys."""
        return list(await self.get_all())

    async def values(self) -> list[Any]:
        """Returns all values."""
        return list((await self.get_all()).values())

    async def items(self) -> Iterable[tuple[str, Any]]:
        """Returns all keys with their values."""
        return (await self.get_all()).items()

    async def get_all(self) -> dict[str, Any]:
        """Returns the whole map."""
        members: dict[str, Any] = await self._all()
        return members


class CouchbaseSet(_Structure):
    """A set of strings, numbers, booleans and nulls."""

    async def add(self, value: Any) -> bool:
        """Adds a value. Returns False if the set contains it already."""
        try:
            await self._change(sd.array_addunique("", value))
        except PathExistsException:
            return False
        return True

    async def remove(self, value: Any, timeout: timedelta | None = None) -> None:
        """Removes a value, if the set contains it.

        Raises:
            DocumentNotFoundException: if the set does not exist.
            CASMismatchException: if others kept changing the set until the timeout.
        """
        async for _ in _turns(timeout):
            found = await self._collection.get(self._key)
            elements = found.content_as[list]
            if value not in elements:
                return
            spec = sd.remove(_path(elements.index(value)))
            try:
                await self._collection.mutate_in(self._key, [spec], cas=found.cas)
                return
            except CASMismatchException:
                continue
        raise CASMismatchException("others changed the set again and again")

    async def contains(self, value: Any) -> bool:
        """Reports whether the set contains a value."""
        return value in await self.values()

    async def values(self) -> list[Any]:
        """Returns all values."""
        elements: list[Any] = await self._all()
        return elements


class CouchbaseQueue(_Structure):
    """A queue: first in, first out."""

    async def push(self, value: Any) -> None:
        """Adds an element."""
        await self._change(sd.array_prepend("", value))

    async def pop(self, timeout: timedelta | None = None) -> Any:
        """Removes the oldest element, and returns it.

        Raises:
            DocumentNotFoundException: if the queue does not exist.
            QueueEmpty: if it has no element.
            CASMismatchException: if others kept changing the queue until the timeout.
        """
        async for _ in _turns(timeout):
            found = await self._collection.lookup_in(self._key, [sd.get("[-1]")])
            try:
                value = found.content_as[object](0)
            except PathNotFoundException:
                raise QueueEmpty("the queue has no element") from None
            try:
                await self._collection.mutate_in(
                    self._key,
                    [sd.remove("[-1]")],
                    cas=found.cas,
                    store_semantics=StoreSemantics.REPLACE,
                )
                return value
            except CASMismatchException:
                continue
        raise CASMismatchException("others changed the queue again and again")

    async def __aiter__(self) -> AsyncIterator[Any]:
        for element in reversed(await self._all()):
            yield element


async def _turns(timeout: timedelta | None) -> AsyncIterator[None]:
    """Yields attempts until the time is over, with a pause before all except the first."""
    clock = asyncio.get_running_loop()
    deadline = clock.time() + seconds_of(timeout, _TURNS_TIMEOUT)
    pause = 0.001
    yield
    while clock.time() + pause < deadline:
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.1)
        yield


def _path(index: int) -> str:
    if not isinstance(index, int) or index < -1:
        raise InvalidArgumentException("the number of an element counts from 0; -1 is the last")
    return f"[{index}]"


def _member(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _no_element(index: int) -> InvalidArgumentException:
    return InvalidArgumentException(f"the list has no element {index}")
