"""Operations on several documents, whose requests are sent together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

from ._instruments import SPAN_OPTIONS, Instruments, watched
from .exceptions import CouchbaseException, InvalidArgumentException
from .options import (
    GetMultiOptions,
    InsertMultiOptions,
    ReadMultiOptions,
    RemoveMultiOptions,
    ReplaceMultiOptions,
    ReplicaMultiOptions,
    TimeoutMultiOptions,
    UpsertMultiOptions,
    options_of,
)
from .result import (
    ExistsResult,
    GetReplicaResult,
    GetResult,
    MultiExistsResult,
    MultiGetReplicaResult,
    MultiGetResult,
    MultiMutationResult,
    MutationResult,
)

R = TypeVar("R")
IN_FLIGHT_MAX = 1024
"""Requests of one call that are under way at a time."""


@watched
class MultiOperations:
    """The operations of a collection on several documents."""

    _instruments: Instruments | None

    async def get_multi(
        self,
        keys: Sequence[str],
        options: GetMultiOptions | None = None,
        **kwargs: Unpack[GetMultiOptions],
    ) -> MultiGetResult:
        """Reads documents."""
        get = cast(Callable[..., Awaitable[GetResult]], self._one("get"))
        return MultiGetResult(await each("get_multi", GetMultiOptions, keys, get, options, kwargs))

    async def get_any_replica_multi(
        self,
        keys: Sequence[str],
        options: ReplicaMultiOptions | None = None,
        **kwargs: Unpack[ReplicaMultiOptions],
    ) -> MultiGetReplicaResult[GetReplicaResult]:
        """Reads each document from the copy that answers first."""
        get = cast(Callable[..., Awaitable[GetReplicaResult]], self._one("get_any_replica"))
        return MultiGetReplicaResult(
            await each("get_any_replica_multi", ReplicaMultiOptions, keys, get, options, kwargs)
        )

    async def get_all_replicas_multi(
        self,
        keys: Sequence[str],
        options: ReplicaMultiOptions | None = None,
        **kwargs: Unpack[ReplicaMultiOptions],
    ) -> MultiGetReplicaResult[list[GetReplicaResult]]:
        """Reads all copies of each document."""
        get = cast(Callable[..., Awaitable[list[GetReplicaResult]]], self._one("get_all_replicas"))
        return MultiGetReplicaResult(
            await each("get_all_replicas_multi", ReplicaMultiOptions, keys, get, options, kwargs)
        )

    async def get_and_lock_multi(
        self,
        keys: Sequence[str],
        lock_time: timedelta,
        options: ReadMultiOptions | None = None,
        **kwargs: Unpack[ReadMultiOptions],
    ) -> MultiGetResult:
        """Reads documents and locks them."""
        lock = cast(Callable[..., Awaitable[GetResult]], self._one("get_and_lock"))
        return MultiGetResult(
            await each(
                "get_and_lock_multi",
                ReadMultiOptions,
                keys,
                lambda key, **rest: lock(key, lock_time, **rest),
                options,
                kwargs,
            )
        )

    async def lock_multi(
        self,
        keys: Sequence[str],
        lock_time: timedelta,
        options: ReadMultiOptions | None = None,
        **kwargs: Unpack[ReadMultiOptions],
    ) -> MultiGetResult:
        """Equivalent to `get_and_lock_multi`."""
        merged = options_of("lock_multi", ReadMultiOptions, options, kwargs)
        return await self.get_and_lock_multi(keys, lock_time, merged)

    async def unlock_multi(
        self,
        keys: Mapping[str, int] | MultiGetResult,
        options: TimeoutMultiOptions | None = None,
        **kwargs: Unpack[TimeoutMultiOptions],
    ) -> dict[str, CouchbaseException | None]:
        """Unlocks documents with the CAS of each, or with the result of `get_and_lock_multi`."""
        if isinstance(keys, MultiGetResult):
            versions: Mapping[str, int] = {key: got.cas for key, got in keys.results.items()}
        else:
            versions = keys
        unlock = cast(Callable[..., Awaitable[None]], self._one("unlock"))
        return await each(
            "unlock_multi",
            TimeoutMultiOptions,
            versions,
            lambda key, **rest: unlock(key, versions[key], **rest),
            options,
            kwargs,
        )

    async def exists_multi(
        self,
        keys: Sequence[str],
        options: TimeoutMultiOptions | None = None,
        **kwargs: Unpack[TimeoutMultiOptions],
    ) -> MultiExistsResult:
        """Reports which documents exist."""
        exists = cast(Callable[..., Awaitable[ExistsResult]], self._one("exists"))
        return MultiExistsResult(
            await each("exists_multi", TimeoutMultiOptions, keys, exists, options, kwargs)
        )

    async def insert_multi(
        self,
        keys_and_docs: Mapping[str, Any],
        options: InsertMultiOptions | None = None,
        **kwargs: Unpack[InsertMultiOptions],
    ) -> MultiMutationResult:
        """Stores documents that must not exist yet."""
        return await self._write("insert", InsertMultiOptions, keys_and_docs, options, kwargs)

    async def upsert_multi(
        self,
        keys_and_docs: Mapping[str, Any],
        options: UpsertMultiOptions | None = None,
        **kwargs: Unpack[UpsertMultiOptions],
    ) -> MultiMutationResult:
        """Stores documents, whether they exist or not."""
        return await self._write("upsert", UpsertMultiOptions, keys_and_docs, options, kwargs)

    async def replace_multi(
        self,
        keys_and_docs: Mapping[str, Any],
        options: ReplaceMultiOptions | None = None,
        **kwargs: Unpack[ReplaceMultiOptions],
    ) -> MultiMutationResult:
        """Stores documents that must exist."""
        return await self._write("replace", ReplaceMultiOptions, keys_and_docs, options, kwargs)

    async def remove_multi(
        self,
        keys: Sequence[str],
        options: RemoveMultiOptions | None = None,
        **kwargs: Unpack[RemoveMultiOptions],
    ) -> MultiMutationResult:
        """Removes documents."""
        remove = cast(Callable[..., Awaitable[MutationResult]], self._one("remove"))
        return MultiMutationResult(
            await each("remove_multi", RemoveMultiOptions, keys, remove, options, kwargs)
        )

    async def touch_multi(
        self,
        keys: Sequence[str],
        expiry: timedelta,
        options: TimeoutMultiOptions | None = None,
        **kwargs: Unpack[TimeoutMultiOptions],
    ) -> MultiMutationResult:
        """Sets the expiry of documents."""
        touch = cast(Callable[..., Awaitable[MutationResult]], self._one("touch"))
        return MultiMutationResult(
            await each(
                "touch_multi",
                TimeoutMultiOptions,
                keys,
                lambda key, **rest: touch(key, expiry, **rest),
                options,
                kwargs,
            )
        )

    async def _write(
        self,
        name: str,
        kind: type,
        documents: Mapping[str, Any],
        *given: Mapping[str, Any] | None,
    ) -> MultiMutationResult:
        if not isinstance(documents, Mapping):
            raise InvalidArgumentException("documents are a dictionary, by key")
        store = cast(Callable[..., Awaitable[MutationResult]], self._one(name))
        return MultiMutationResult(
            await each(
                f"{name}_multi",
                kind,
                documents,
                lambda key, **rest: store(key, documents[key], **rest),
                *given,
            )
        )

    def _one(self, name: str) -> Any:
        """Runs the operation on one document."""
        return getattr(self, name)


async def each(
    name: str,
    kind: type,
    keys: Iterable[str],
    operation: Callable[..., Awaitable[R]],
    *given: Mapping[str, Any] | None,
) -> dict[str, R | CouchbaseException]:
    """Runs an operation on all documents concurrently, and collects the results.

    Raises:
        CouchbaseException: if an operation fails and ``return_exceptions`` is False.
    """
    if isinstance(keys, str):
        raise InvalidArgumentException("keys are a list of strings")
    shared: dict[str, Any] = dict(options_of(name, kind, *given))
    for option in SPAN_OPTIONS:
        # It is the parent of the whole operation's span, whose children are the spans of the
        # documents.
        shared.pop(option, None)
    own = shared.pop("per_key_options", None) or {}
    keeps_errors = shared.pop("return_exceptions", True)
    outcomes: dict[str, R | CouchbaseException] = {}
    wanted = list(dict.fromkeys(keys))
    rest = iter(wanted)

    async def work() -> None:
        for key in rest:
            try:
                outcomes[key] = await operation(key, **{**shared, **own.get(key, {})})
            except CouchbaseException as error:
                if not keeps_errors:
                    raise
                outcomes[key] = error

    workers = [asyncio.create_task(work()) for _ in range(min(len(wanted), IN_FLIGHT_MAX))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return {key: outcomes[key] for key in wanted}
