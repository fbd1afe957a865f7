"""The same API without ``await``, for programs that do not use asyncio.

    with nacre.sync.connect("couchbase://127.0.0.1", "Administrator", "password") as cluster:
        collection = cluster.bucket("default").default_collection()
        collection.upsert("greeting", {"text": "hello"})

A cluster has one thread that runs the event loop; any number of threads may call. What they wait
for when one of them closes the cluster ends with `RequestCanceledException`.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from . import binary as _binary
from . import bucket as _bucket
from . import cluster as _cluster
from . import collection as _collection
from . import management as _management
from . import n1ql as _n1ql
from . import views as _views
from .auth import PasswordAuthenticator
from .exceptions import RequestCanceledException
from .options import ClusterOptions, ClusterTimeoutOptions

W = TypeVar("W")
P = ParamSpec("P")
R = TypeVar("R")
Q = TypeVar("Q")
T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own, which ends with the program at the latest."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        """Held while work is handed over, so that none comes after the last."""
        self._end: Future[None] | None = None
        """The last work, once `stop` was called."""
        self._thread = threading.Thread(target=self._serve, name="nacre", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Result of the work, waited for; interrupting the wait cancels it.

        Raises:
            RequestCanceledException: the cluster is closed, or was closed before the work was done.
        """
        with self._lock:
            if self._end is not None:
                work.close()
                raise RequestCanceledException("the cluster is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RequestCanceledException("the cluster was closed meanwhile") from None
        finally:
            future.cancel()

    def iterate(self, source: AsyncIterable[R]) -> Iterator[R]:
        """What the source gives, each waited for; it is closed at the end or when it is left."""
        iterator = aiter(source)
        try:
            while (item := self.run(_next(iterator))) is not _END:
                yield cast(R, item)
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                with contextlib.suppress(RequestCanceledException):
                    self.run(close())

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Does the last work, gives up all other and ends the thread; called again, it waits."""
        with self._lock:
            if self._end is None:
                self._end = asyncio.run_coroutine_threadsafe(_finish(last), self._loop)
                self._end.add_done_callback(
                    lambda _: self._loop.call_soon_threadsafe(self._loop.stop)
                )
        try:
            self._end.result()
        finally:
            self._thread.join()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()


class _Facade(Generic[W]):
    """Wraps an object of the asynchronous API."""

    def __init__(self, loop: _Loop, wrapped: W) -> None:
        self._loop = loop
        self._wrapped = wrapped


def _blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Facade[W], P], R]:
    """The method, waited for."""

    def call(facade: _Facade[W], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return facade._loop.run(method(facade._wrapped, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class BinaryCollection(_Facade[_binary.BinaryCollection]):
    """Counters, and documents that are plain bytes."""

    increment = _blocking(_binary.BinaryCollection.increment)
    decrement = _blocking(_binary.BinaryCollection.decrement)
    append = _blocking(_binary.BinaryCollection.append)
    prepend = _blocking(_binary.BinaryCollection.prepend)


class Collection(_Facade[_collection.Collection]):
    """Documents of one collection, by key."""

    get = _blocking(_collection.Collection.get)
    get_and_touch = _blocking(_collection.Collection.get_and_touch)
    get_and_lock = _blocking(_collection.Collection.get_and_lock)
    unlock = _blocking(_collection.Collection.unlock)
    exists = _blocking(_collection.Collection.exists)
    touch = _blocking(_collection.Collection.touch)
    insert = _blocking(_collection.Collection.insert)
    upsert = _blocking(_collection.Collection.upsert)
    replace = _blocking(_collection.Collection.replace)
    remove = _blocking(_collection.Collection.remove)
    lookup_in = _blocking(_collection.Collection.lookup_in)
    mutate_in = _blocking(_collection.Collection.mutate_in)

    def binary(self) -> BinaryCollection:
        """The same collection, for counters and plain bytes."""
        return BinaryCollection(self._loop, self._wrapped.binary())


class ViewIndexManager(_Facade[_views.ViewIndexManager]):
    """Design documents of a bucket."""

    get_design_document = _blocking(_views.ViewIndexManager.get_design_document)
    upsert_design_document = _blocking(_views.ViewIndexManager.upsert_design_document)
    drop_design_document = _blocking(_views.ViewIndexManager.drop_design_document)


class CollectionManager(_Facade[_management.CollectionManager]):
    """Scopes and collections of a bucket."""

    create_scope = _blocking(_management.CollectionManager.create_scope)
    drop_scope = _blocking(_management.CollectionManager.drop_scope)
    get_all_scopes = _blocking(_management.CollectionManager.get_all_scopes)
    create_collection = _blocking(_management.CollectionManager.create_collection)
    drop_collection = _blocking(_management.CollectionManager.drop_collection)


class BucketManager(_Facade[_management.BucketManager]):
    """Buckets of a cluster."""

    create_bucket = _blocking(_management.BucketManager.create_bucket)
    drop_bucket = _blocking(_management.BucketManager.drop_bucket)
    get_bucket = _blocking(_management.BucketManager.get_bucket)
    get_all_buckets = _blocking(_management.BucketManager.get_all_buckets)


class _Rows(_Facade[Q], Generic[Q, T]):
    """Rows of a request, which is sent when they are first asked for."""

    def rows(self) -> Iterator[T]:
        """The rows, as they come."""
        return iter(self)

    def execute(self) -> list[T]:
        """All rows at once."""
        return list(self)

    def __iter__(self) -> Iterator[T]:
        return self._loop.iterate(cast(AsyncIterable[T], self._wrapped))


class ViewResult(_Rows[_views.ViewResult, _views.ViewRow]):
    """Rows of a view."""

    def metadata(self) -> _views.ViewMetaData:
        """What the server says about the result, once all rows were read."""
        return self._wrapped.metadata()


class QueryResult(_Rows[_n1ql.QueryResult, Any]):
    """Rows of a query."""

    def metadata(self) -> _n1ql.QueryMetaData:
        """What the server says about the query, once all rows were read."""
        return self._wrapped.metadata()


class Scope(_Facade[_bucket.Scope]):
    """A scope of a bucket."""

    def collection(self, name: str) -> Collection:
        """A collection of the scope."""
        return Collection(self._loop, self._wrapped.collection(name))


class Bucket(_Facade[_bucket.Bucket]):
    """A bucket."""

    on_connect = _blocking(_bucket.Bucket.on_connect)

    def scope(self, name: str) -> Scope:
        """A scope."""
        return Scope(self._loop, self._wrapped.scope(name))

    def collection(self, name: str) -> Collection:
        """A collection of the default scope."""
        return Collection(self._loop, self._wrapped.collection(name))

    def default_collection(self) -> Collection:
        """The collection that every bucket has."""
        return Collection(self._loop, self._wrapped.default_collection())

    def collections(self) -> CollectionManager:
        """Creates, drops and lists scopes and collections."""
        return CollectionManager(self._loop, self._wrapped.collections())

    def view_indexes(self) -> ViewIndexManager:
        """Reads, writes and drops design documents."""
        return ViewIndexManager(self._loop, self._wrapped.view_indexes())

    def view_query(
        self,
        design_doc: str,
        view_name: str,
        options: _views.ViewOptions | None = None,
        **kwargs: Unpack[_views.ViewOptions],
    ) -> ViewResult:
        """Queries a view: ``for row in bucket.view_query("shop", "by_price", limit=10)``."""
        merged: _views.ViewOptions = {**(options or {}), **kwargs}
        return ViewResult(self._loop, self._wrapped.view_query(design_doc, view_name, merged))


class Cluster(_Facade[_cluster.Cluster]):
    """A cluster and a user of it. ``with`` closes it at the end."""

    @classmethod
    def connect(cls, connection_string: str, options: ClusterOptions) -> Self:
        """Connects and logs in."""
        loop = _Loop()
        try:
            return cls(loop, loop.run(_cluster.Cluster.connect(connection_string, options)))
        except BaseException:
            loop.stop()
            raise

    def bucket(self, name: str) -> Bucket:
        """A bucket; the same connections for the same name."""
        return Bucket(self._loop, self._loop.run(_bucket_of(self._wrapped, name)))

    def buckets(self) -> BucketManager:
        """Creates, drops and lists buckets."""
        return BucketManager(self._loop, self._wrapped.buckets())

    def close(self) -> None:
        """Ends all connections and the thread; requests of other threads fail."""
        self._loop.stop(self._wrapped.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    connection_string: str,
    username: str,
    password: str,
    *,
    timeouts: ClusterTimeoutOptions | None = None,
) -> Cluster:
    """Connects to ``couchbase://host[:port]`` and logs in."""
    authenticator = PasswordAuthenticator(username, password)
    options = ClusterOptions(authenticator, timeouts or ClusterTimeoutOptions())
    return Cluster.connect(connection_string, options)


async def _finish(last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    try:
        if last is not None:
            await last()
    finally:
        # Whoever waits for another task would never hear of it once the loop has stopped.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _bucket_of(cluster: _cluster.Cluster, name: str) -> _bucket.Bucket:
    # In the thread of the loop, where the cluster's buckets are closed.
    return cluster.bucket(name)


_END = object()


async def _next(rows: AsyncIterator[object]) -> object:
    return await anext(rows, _END)
