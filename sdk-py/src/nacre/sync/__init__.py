"""The same API without ``await``, for programs that do not use asyncio.

    with nacre.sync.connect("couchbase://127.0.0.1", "Administrator", "password") as cluster:
        collection = cluster.bucket("default").default_collection()
        collection.upsert("greeting", {"text": "hello"})

Modules have the names of the official blocking package: to port code, import from ``nacre.sync``
instead of ``couchbase``.

A cluster has one thread, which runs the event loop. Any number of threads may call. If one of them
closes the cluster, the waiting calls of others raise `RequestCanceledException`.
"""

import asyncio
import contextlib
import threading
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from .. import binary as _binary
from .. import bucket as _bucket
from .. import changes as _changes
from .. import cluster as _cluster
from .. import collection as _collection
from .. import datastructures as _structures
from .. import kv_range_scan as _scan
from .. import live as _live
from .. import n1ql as _n1ql
from .. import result as _result
from .. import search as _searching
from .. import transactions as _transactions
from .. import views as _views
from .._record import dataclass
from ..auth import CertificateAuthenticator, PasswordAuthenticator, TokenAuthenticator
from ..exceptions import RequestCanceledException
from ..management import buckets as _buckets
from ..management import collections as _collections
from ..management import eventing as _eventing
from ..management import queries as _queries
from ..management import search as _search
from ..management import users as _users
from ..options import (
    AnalyticsOptions,
    ClusterOptions,
    ClusterTimeoutOptions,
    LiveOptions,
    QueryOptions,
    ScanOptions,
    SearchOptions,
    analytics_options_of,
    options_of,
    query_options_of,
)
from ..transcoder import Transcoder
from ._older import OlderStructures

if TYPE_CHECKING:
    from .analytics import AnalyticsResult
    from .management.analytics import AnalyticsIndexManager

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")
Q_co = TypeVar("Q_co", covariant=True)
T = TypeVar("T")


class _Loop:
    """An event loop in a separate thread, which ends with the program at the latest."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        """Held while work is handed over, so that none comes after the last."""
        self._end: Future[None] | None = None
        """The last work, once `stop` was called."""
        self._thread = threading.Thread(target=self._serve, name="nacre", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Waits for the result of the work. Interrupting the wait cancels the work.

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
        """Yields the items of the source, waiting for each. Closes the source at the end or when
        the caller leaves.
        """
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
        """Runs the last work, cancels all other work, and ends the thread. A second call waits for
        that.
        """
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


class _Facade(Generic[W_co]):
    """Wraps an object of the asynchronous API."""

    def __init__(self, loop: _Loop, wrapped: W_co) -> None:
        self._loop = loop
        self._wrapped = wrapped


def _blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_Facade[W], P], R]:
    """Returns the blocking variant of a method."""

    def call(facade: _Facade[W], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return facade._loop.run(method(facade._wrapped, *args, **kwargs))

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    return call


class BinaryCollection(_Facade[_binary.BinaryCollection]):
    """Operations on counters and on binary documents."""

    increment = _blocking(_binary.BinaryCollection.increment)
    decrement = _blocking(_binary.BinaryCollection.decrement)
    append = _blocking(_binary.BinaryCollection.append)
    prepend = _blocking(_binary.BinaryCollection.prepend)
    increment_multi = _blocking(_binary.BinaryCollection.increment_multi)
    decrement_multi = _blocking(_binary.BinaryCollection.decrement_multi)
    append_multi = _blocking(_binary.BinaryCollection.append_multi)
    prepend_multi = _blocking(_binary.BinaryCollection.prepend_multi)


class CouchbaseList(_Facade[_structures.CouchbaseList]):
    """A list that is stored in a document."""

    size = _blocking(_structures.CouchbaseList.size)
    clear = _blocking(_structures.CouchbaseList.clear)
    append = _blocking(_structures.CouchbaseList.append)
    prepend = _blocking(_structures.CouchbaseList.prepend)
    set_at = _blocking(_structures.CouchbaseList.set_at)
    get_at = _blocking(_structures.CouchbaseList.get_at)
    remove_at = _blocking(_structures.CouchbaseList.remove_at)
    index_of = _blocking(_structures.CouchbaseList.index_of)
    get_all = _blocking(_structures.CouchbaseList.get_all)

    def __iter__(self) -> Iterator[Any]:
        return self._loop.iterate(self._wrapped)


class CouchbaseMap(_Facade[_structures.CouchbaseMap]):
    """A map that is stored in a document."""

    size = _blocking(_structures.CouchbaseMap.size)
    clear = _blocking(_structures.CouchbaseMap.clear)
    add = _blocking(_structures.CouchbaseMap.add)
    get = _blocking(_structures.CouchbaseMap.get)
    remove = _blocking(_structures.CouchbaseMap.remove)
    exists = _blocking(_structures.CouchbaseMap.exists)
    keys = _blocking(_structures.CouchbaseMap.keys)
    values = _blocking(_structures.CouchbaseMap.values)
    items = _blocking(_structures.CouchbaseMap.items)
    get_all = _blocking(_structures.CouchbaseMap.get_all)


class CouchbaseSet(_Facade[_structures.CouchbaseSet]):
    """A set that is stored in a document."""

    size = _blocking(_structures.CouchbaseSet.size)
    clear = _blocking(_structures.CouchbaseSet.clear)
    add = _blocking(_structures.CouchbaseSet.add)
    remove = _blocking(_structures.CouchbaseSet.remove)
    contains = _blocking(_structures.CouchbaseSet.contains)
    values = _blocking(_structures.CouchbaseSet.values)


class CouchbaseQueue(_Facade[_structures.CouchbaseQueue]):
    """A queue that is stored in a document."""

    size = _blocking(_structures.CouchbaseQueue.size)
    clear = _blocking(_structures.CouchbaseQueue.clear)
    push = _blocking(_structures.CouchbaseQueue.push)
    pop = _blocking(_structures.CouchbaseQueue.pop)

    def __iter__(self) -> Iterator[Any]:
        return self._loop.iterate(self._wrapped)


class ViewIndexManager(_Facade[_views.ViewIndexManager]):
    """Manages the design documents of a bucket."""

    get_design_document = _blocking(_views.ViewIndexManager.get_design_document)
    get_all_design_documents = _blocking(_views.ViewIndexManager.get_all_design_documents)
    publish_design_document = _blocking(_views.ViewIndexManager.publish_design_document)
    upsert_design_document = _blocking(_views.ViewIndexManager.upsert_design_document)
    drop_design_document = _blocking(_views.ViewIndexManager.drop_design_document)


class CollectionManager(_Facade[_collections.CollectionManager]):
    """Manages the scopes and collections of a bucket."""

    create_scope = _blocking(_collections.CollectionManager.create_scope)
    drop_scope = _blocking(_collections.CollectionManager.drop_scope)
    get_all_scopes = _blocking(_collections.CollectionManager.get_all_scopes)
    create_collection = _blocking(_collections.CollectionManager.create_collection)
    update_collection = _blocking(_collections.CollectionManager.update_collection)
    drop_collection = _blocking(_collections.CollectionManager.drop_collection)


class BucketManager(_Facade[_buckets.BucketManager]):
    """Manages the buckets of a cluster."""

    create_bucket = _blocking(_buckets.BucketManager.create_bucket)
    update_bucket = _blocking(_buckets.BucketManager.update_bucket)
    drop_bucket = _blocking(_buckets.BucketManager.drop_bucket)
    flush_bucket = _blocking(_buckets.BucketManager.flush_bucket)
    get_bucket = _blocking(_buckets.BucketManager.get_bucket)
    get_all_buckets = _blocking(_buckets.BucketManager.get_all_buckets)
    bucket_describe = _blocking(_buckets.BucketManager.bucket_describe)


class UserManager(_Facade[_users.UserManager]):
    """Manages the users and groups of a cluster."""

    get_user = _blocking(_users.UserManager.get_user)
    get_all_users = _blocking(_users.UserManager.get_all_users)
    upsert_user = _blocking(_users.UserManager.upsert_user)
    drop_user = _blocking(_users.UserManager.drop_user)
    change_password = _blocking(_users.UserManager.change_password)
    get_roles = _blocking(_users.UserManager.get_roles)
    get_group = _blocking(_users.UserManager.get_group)
    get_all_groups = _blocking(_users.UserManager.get_all_groups)
    upsert_group = _blocking(_users.UserManager.upsert_group)
    drop_group = _blocking(_users.UserManager.drop_group)


class QueryIndexManager(_Facade[_queries.QueryIndexManager]):
    """Manages the query indexes of a cluster."""

    create_index = _blocking(_queries.QueryIndexManager.create_index)
    create_primary_index = _blocking(_queries.QueryIndexManager.create_primary_index)
    drop_index = _blocking(_queries.QueryIndexManager.drop_index)
    drop_primary_index = _blocking(_queries.QueryIndexManager.drop_primary_index)
    get_all_indexes = _blocking(_queries.QueryIndexManager.get_all_indexes)
    build_deferred_indexes = _blocking(_queries.QueryIndexManager.build_deferred_indexes)
    watch_indexes = _blocking(_queries.QueryIndexManager.watch_indexes)


class CollectionQueryIndexManager(_Facade[_queries.CollectionQueryIndexManager]):
    """Manages the query indexes of a collection."""

    create_index = _blocking(_queries.CollectionQueryIndexManager.create_index)
    create_primary_index = _blocking(_queries.CollectionQueryIndexManager.create_primary_index)
    drop_index = _blocking(_queries.CollectionQueryIndexManager.drop_index)
    drop_primary_index = _blocking(_queries.CollectionQueryIndexManager.drop_primary_index)
    get_all_indexes = _blocking(_queries.CollectionQueryIndexManager.get_all_indexes)
    build_deferred_indexes = _blocking(_queries.CollectionQueryIndexManager.build_deferred_indexes)
    watch_indexes = _blocking(_queries.CollectionQueryIndexManager.watch_indexes)


class EventingFunctionManager(_Facade[_eventing.EventingFunctionManager]):
    """Manages the eventing functions of a cluster or scope."""

    upsert_function = _blocking(_eventing.EventingFunctionManager.upsert_function)
    drop_function = _blocking(_eventing.EventingFunctionManager.drop_function)
    deploy_function = _blocking(_eventing.EventingFunctionManager.deploy_function)
    undeploy_function = _blocking(_eventing.EventingFunctionManager.undeploy_function)
    pause_function = _blocking(_eventing.EventingFunctionManager.pause_function)
    resume_function = _blocking(_eventing.EventingFunctionManager.resume_function)
    get_function = _blocking(_eventing.EventingFunctionManager.get_function)
    get_all_functions = _blocking(_eventing.EventingFunctionManager.get_all_functions)
    functions_status = _blocking(_eventing.EventingFunctionManager.functions_status)


class SearchIndexManager(_Facade[_search.SearchIndexManager]):
    """Manages the search indexes of a cluster or scope."""

    get_index = _blocking(_search.SearchIndexManager.get_index)
    get_all_indexes = _blocking(_search.SearchIndexManager.get_all_indexes)
    upsert_index = _blocking(_search.SearchIndexManager.upsert_index)
    drop_index = _blocking(_search.SearchIndexManager.drop_index)
    get_indexed_documents_count = _blocking(_search.SearchIndexManager.get_indexed_documents_count)
    get_index_stats = _blocking(_search.SearchIndexManager.get_index_stats)
    get_all_index_stats = _blocking(_search.SearchIndexManager.get_all_index_stats)
    analyze_document = _blocking(_search.SearchIndexManager.analyze_document)
    pause_ingest = _blocking(_search.SearchIndexManager.pause_ingest)
    resume_ingest = _blocking(_search.SearchIndexManager.resume_ingest)
    allow_querying = _blocking(_search.SearchIndexManager.allow_querying)
    disallow_querying = _blocking(_search.SearchIndexManager.disallow_querying)
    freeze_plan = _blocking(_search.SearchIndexManager.freeze_plan)
    unfreeze_plan = _blocking(_search.SearchIndexManager.unfreeze_plan)


ScopeEventingFunctionManager = EventingFunctionManager
ScopeSearchIndexManager = SearchIndexManager


class _Rows(_Facade[Q_co], Generic[Q_co, T]):
    """Rows of a request, which is sent when they are first requested."""

    def rows(self) -> Iterator[T]:
        """Yields the rows as they arrive."""
        return iter(self)

    def execute(self) -> list[T]:
        """Returns all rows."""
        return list(self)

    def __iter__(self) -> Iterator[T]:
        return self._loop.iterate(cast(AsyncIterable[T], self._wrapped))


class ViewResult(_Rows[_views.ViewResult, _views.ViewRow]):
    """The rows of a view."""

    def metadata(self) -> _views.ViewMetaData:
        """Returns the metadata, once all rows were read."""
        return self._wrapped.metadata()


class QueryResult(_Rows[_n1ql.QueryResult, Any]):
    """The rows of a query."""

    def metadata(self) -> _n1ql.QueryMetaData:
        """Returns the metadata, once all rows were read."""
        return self._wrapped.metadata()


class SearchResult(_Rows[_searching.SearchResult, _searching.SearchRow]):
    """The hits of a search."""

    def metadata(self) -> _searching.SearchMetaData:
        """Returns the metadata, once all rows were read."""
        return self._wrapped.metadata()

    def facets(self) -> dict[str, _searching.SearchFacetResult]:
        """Returns the results of the facets, once all rows were read."""
        return self._wrapped.facets()


class ScanResultIterable(_Facade[_scan.ScanResultIterable]):
    """The documents of a scan."""

    def rows(self) -> Iterator[_result.ScanResult]:
        """The documents."""
        return iter(self)

    def cancel_scan(self) -> None:
        """Ends the scan."""
        self._wrapped.cancel_scan()

    def __iter__(self) -> Iterator[_result.ScanResult]:
        return self._loop.iterate(self._wrapped)


class Changes(_Facade[_changes.Changes]):
    """Changes of a collection."""

    mark = _blocking(_changes.Changes.mark)

    @property
    def token(self) -> str:
        """Returns the token of the reader's position: everything before it was returned."""
        return self._wrapped.token

    def __iter__(self) -> Iterator[_changes.Change]:
        return self._loop.iterate(self._wrapped)


class Live(_Facade[_live.Live]):
    """Updates of a query."""

    def __iter__(self) -> Iterator[_live.LiveUpdate]:
        return self._loop.iterate(self._wrapped)


class Collection(OlderStructures, _Facade[_collection.Collection]):
    """Access to the documents of a collection by key."""

    def with_schema(
        self, load: Callable[[Any], Any], dump: Callable[[Any], Any] | None = None
    ) -> "Collection":
        """Returns the same collection with a schema for all its documents."""
        return Collection(self._loop, self._wrapped.with_schema(load, dump))

    get_multi = _blocking(_collection.Collection.get_multi)
    get_any_replica_multi = _blocking(_collection.Collection.get_any_replica_multi)
    get_all_replicas_multi = _blocking(_collection.Collection.get_all_replicas_multi)
    get_and_lock_multi = _blocking(_collection.Collection.get_and_lock_multi)
    lock_multi = _blocking(_collection.Collection.lock_multi)
    unlock_multi = _blocking(_collection.Collection.unlock_multi)
    exists_multi = _blocking(_collection.Collection.exists_multi)
    insert_multi = _blocking(_collection.Collection.insert_multi)
    upsert_multi = _blocking(_collection.Collection.upsert_multi)
    replace_multi = _blocking(_collection.Collection.replace_multi)
    remove_multi = _blocking(_collection.Collection.remove_multi)
    touch_multi = _blocking(_collection.Collection.touch_multi)
    get = _blocking(_collection.Collection.get)
    get_any_replica = _blocking(_collection.Collection.get_any_replica)
    get_all_replicas = _blocking(_collection.Collection.get_all_replicas)
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
    lookup_in_any_replica = _blocking(_collection.Collection.lookup_in_any_replica)
    lookup_in_all_replicas = _blocking(_collection.Collection.lookup_in_all_replicas)
    mutate_in = _blocking(_collection.Collection.mutate_in)

    default_name = staticmethod(_collection.Collection.default_name)

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self._wrapped.name

    def binary(self) -> BinaryCollection:
        """Returns the binary operations of the collection, for counters and binary documents."""
        return BinaryCollection(self._loop, self._wrapped.binary())

    def scan(
        self,
        scan_type: _scan.ScanType,
        options: ScanOptions | None = None,
        **kwargs: Unpack[ScanOptions],
    ) -> ScanResultIterable:
        """Scans the collection: ``for found in collection.scan(PrefixScan("order:"))``."""
        merged = options_of("scan", ScanOptions, options, kwargs)
        return ScanResultIterable(self._loop, self._wrapped.scan(scan_type, merged))

    def changes(
        self,
        options: _changes.ChangesOptions | None = None,
        **kwargs: Unpack[_changes.ChangesOptions],
    ) -> Changes:
        """Changes of the collection: ``for change in collection.changes(since=token)``."""
        merged = options_of("changes", _changes.ChangesOptions, options, kwargs)
        return Changes(self._loop, self._wrapped.changes(merged))

    def query_indexes(self) -> CollectionQueryIndexManager:
        """Creates, builds, drops and lists indexes of the collection."""
        return CollectionQueryIndexManager(self._loop, self._wrapped.query_indexes())

    def couchbase_list(self, key: str) -> CouchbaseList:
        """Returns a list that is stored in a document."""
        return CouchbaseList(self._loop, self._wrapped.couchbase_list(key))

    def couchbase_map(self, key: str) -> CouchbaseMap:
        """Returns a map that is stored in a document."""
        return CouchbaseMap(self._loop, self._wrapped.couchbase_map(key))

    def couchbase_set(self, key: str) -> CouchbaseSet:
        """Returns a set that is stored in a document."""
        return CouchbaseSet(self._loop, self._wrapped.couchbase_set(key))

    def couchbase_queue(self, key: str) -> CouchbaseQueue:
        """Returns a queue that is stored in a document."""
        return CouchbaseQueue(self._loop, self._wrapped.couchbase_queue(key))


class Scope(_Facade[_bucket.Scope]):
    """A scope of a bucket."""

    default_name = staticmethod(_bucket.Scope.default_name)

    @property
    def name(self) -> str:
        """Name of the scope."""
        return self._wrapped.name

    @property
    def bucket_name(self) -> str:
        """Returns the name of the bucket."""
        return self._wrapped.bucket_name

    def collection(self, name: str) -> Collection:
        """A collection of the scope."""
        return Collection(self._loop, self._wrapped.collection(name))

    def query(
        self,
        statement: str,
        *options: QueryOptions | None,
        **kwargs: Unpack[QueryOptions],
    ) -> QueryResult:
        """Executes a SQL++ query. An unqualified keyspace is a collection of this scope."""
        merged = query_options_of(options, kwargs)
        return QueryResult(self._loop, self._wrapped.query(statement, merged))

    def analytics_query(
        self,
        statement: str,
        *options: AnalyticsOptions | None,
        **kwargs: Unpack[AnalyticsOptions],
    ) -> "AnalyticsResult":
        """Executes a statement of the analytics service. An unqualified name is a dataset of this
        scope.
        """
        from .analytics import AnalyticsResult

        merged = analytics_options_of(options, kwargs)
        return AnalyticsResult(self._loop, self._wrapped.analytics_query(statement, merged))

    def search(
        self,
        index: str,
        request: _searching.SearchRequest,
        options: SearchOptions | None = None,
        **kwargs: Unpack[SearchOptions],
    ) -> SearchResult:
        """Searches an index: ``for row in scope.search("hotels", request)``."""
        merged = options_of("search", SearchOptions, options, kwargs)
        return SearchResult(self._loop, self._wrapped.search(index, request, merged))

    def search_query(
        self,
        index: str,
        query: _searching.SearchQuery,
        options: SearchOptions | None = None,
        **kwargs: Unpack[SearchOptions],
    ) -> SearchResult:
        """Searches an index with a single query."""
        merged = options_of("search_query", SearchOptions, options, kwargs)
        return SearchResult(self._loop, self._wrapped.search_query(index, query, merged))

    def live(
        self,
        statement: str,
        options: LiveOptions | None = None,
        **kwargs: Unpack[LiveOptions],
    ) -> Live:
        """Executes a query and keeps its result up to date: ``for update in cluster.live("SELECT
        …")``.
        """
        merged = options_of("live", LiveOptions, options, kwargs)
        return Live(self._loop, self._wrapped.live(statement, merged))

    def eventing_functions(self) -> EventingFunctionManager:
        """Defines, deploys, drops and lists eventing functions of the scope."""
        return EventingFunctionManager(self._loop, self._wrapped.eventing_functions())

    def search_indexes(self) -> SearchIndexManager:
        """Creates, drops and lists search indexes of the scope."""
        return SearchIndexManager(self._loop, self._wrapped.search_indexes())


class Bucket(_Facade[_bucket.Bucket]):
    """A bucket."""

    on_connect = _blocking(_bucket.Bucket.on_connect)
    close = _blocking(_bucket.Bucket.close)
    ping = _blocking(_bucket.Bucket.ping)
    wait_until_ready = _blocking(_bucket.Bucket.wait_until_ready)

    @property
    def name(self) -> str:
        """Returns the name of the bucket."""
        return self._wrapped.name

    def scope(self, name: str) -> Scope:
        """A scope."""
        return Scope(self._loop, self._wrapped.scope(name))

    def default_scope(self) -> Scope:
        """Returns the default scope, which every bucket has."""
        return Scope(self._loop, self._wrapped.default_scope())

    def collection(self, name: str) -> Collection:
        """Returns a collection of the default scope."""
        return Collection(self._loop, self._wrapped.collection(name))

    def default_collection(self) -> Collection:
        """Returns the default collection, which every bucket has."""
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
        merged = options_of("view_query", _views.ViewOptions, options, kwargs)
        return ViewResult(self._loop, self._wrapped.view_query(design_doc, view_name, merged))


@dataclass(frozen=True, slots=True)
class TransactionGetMultiSpec:
    """A document that a transaction reads."""

    collection: Collection
    id: str
    transcoder: Transcoder | None = None


class AttemptContext(_Facade[_transactions.AttemptContext]):
    """The argument of a transaction's function, which reads and changes documents."""

    query = _blocking(_transactions.AttemptContext.query)
    replace = _blocking(_transactions.AttemptContext.replace)
    remove = _blocking(_transactions.AttemptContext.remove)

    def get(
        self,
        collection: Collection,
        key: str,
        options: _transactions.TransactionGetOptions | None = None,
        **kwargs: Unpack[_transactions.TransactionGetOptions],
    ) -> _transactions.TransactionGetResult:
        """Reads a document, including the changes of this transaction."""
        return self._loop.run(self._wrapped.get(collection._wrapped, key, options, **kwargs))

    def get_multi(
        self,
        specs: Sequence[TransactionGetMultiSpec],
        options: _transactions.TransactionGetMultiOptions | None = None,
        **kwargs: Unpack[_transactions.TransactionGetMultiOptions],
    ) -> _transactions.TransactionGetMultiResult:
        """Reads documents so that they show other transactions atomically."""
        return self._loop.run(self._wrapped.get_multi(_inner(specs), options, **kwargs))

    def get_replica_from_preferred_server_group(
        self,
        collection: Collection,
        key: str,
        options: _transactions.TransactionGetOptions | None = None,
        **kwargs: Unpack[_transactions.TransactionGetOptions],
    ) -> _transactions.TransactionGetResult:
        """Reads a document from a copy in the preferred server group."""
        read = self._wrapped.get_replica_from_preferred_server_group
        return self._loop.run(read(collection._wrapped, key, options, **kwargs))

    def get_multi_replicas_from_preferred_server_group(
        self,
        specs: Sequence[TransactionGetMultiSpec],
        options: _transactions.TransactionGetMultiOptions | None = None,
        **kwargs: Unpack[_transactions.TransactionGetMultiOptions],
    ) -> _transactions.TransactionGetMultiResult:
        """Reads documents like `get_multi`, from copies in the preferred server group."""
        read = self._wrapped.get_multi_replicas_from_preferred_server_group
        return self._loop.run(read(_inner(specs), options, **kwargs))

    def insert(
        self,
        collection: Collection,
        key: str,
        value: Any,
        options: _transactions.TransactionInsertOptions | None = None,
        **kwargs: Unpack[_transactions.TransactionInsertOptions],
    ) -> _transactions.TransactionGetResult:
        """Stores a document that must not exist."""
        return self._loop.run(
            self._wrapped.insert(collection._wrapped, key, value, options, **kwargs)
        )


class Transactions(_Facade[_transactions.Transactions]):
    """The transactions of a cluster."""

    cleanup = _blocking(_transactions.Transactions.cleanup)
    close = _blocking(_transactions.Transactions.close)

    def run(
        self,
        logic: Callable[[AttemptContext], Any],
        options: _transactions.TransactionOptions | None = None,
        **kwargs: Unpack[_transactions.TransactionOptions],
    ) -> _transactions.TransactionResult:
        """Runs a function in a transaction, and repeats it after conflicts with other transactions.
        """
        merged = options_of("run", _transactions.TransactionOptions, options, kwargs)

        async def in_thread(attempt: _transactions.AttemptContext) -> None:
            await asyncio.to_thread(logic, AttemptContext(self._loop, attempt))

        return self._loop.run(self._wrapped.run(in_thread, merged))


class Cluster(_Facade[_cluster.Cluster]):
    """A connection to a cluster as one user. ``with`` closes it at the end of the block."""

    def __init__(self, connection_string: str, options: ClusterOptions) -> None:
        """Connects and logs in.

        Raises:
            AuthenticationException: if the user or password is wrong.
            UnAmbiguousTimeoutException: if no node answers in time.
        """
        loop = _Loop()
        try:
            wrapped = loop.run(_cluster.Cluster.connect(connection_string, options))
        except BaseException:
            loop.stop()
            raise
        super().__init__(loop, wrapped)

    ping = _blocking(_cluster.Cluster.ping)
    diagnostics = _blocking(_cluster.Cluster.diagnostics)
    cluster_info = _blocking(_cluster.Cluster.cluster_info)
    wait_until_ready = _blocking(_cluster.Cluster.wait_until_ready)
    rekey = _blocking(_cluster.Cluster.rekey)

    @classmethod
    def connect(cls, connection_string: str, options: ClusterOptions) -> Self:
        """Connects and logs in."""
        return cls(connection_string, options)

    def bucket(self, name: str) -> Bucket:
        """Returns a bucket. The same name yields the same connections."""
        return Bucket(self._loop, self._loop.run(_bucket_of(self._wrapped, name)))

    def buckets(self) -> BucketManager:
        """Creates, drops and lists buckets."""
        return BucketManager(self._loop, self._wrapped.buckets())

    def users(self) -> UserManager:
        """Creates, drops and lists users and groups."""
        return UserManager(self._loop, self._wrapped.users())

    def query_indexes(self) -> QueryIndexManager:
        """Creates, builds, drops and lists indexes for queries."""
        return QueryIndexManager(self._loop, self._wrapped.query_indexes())

    def search_indexes(self) -> SearchIndexManager:
        """Creates, drops and lists indexes for search."""
        return SearchIndexManager(self._loop, self._wrapped.search_indexes())

    def analytics_indexes(self) -> "AnalyticsIndexManager":
        """Creates, drops and lists dataverses, datasets, indexes and links of analytics."""
        from .management.analytics import AnalyticsIndexManager

        return AnalyticsIndexManager(self._loop, self._wrapped.analytics_indexes())

    def eventing_functions(self) -> EventingFunctionManager:
        """Defines, deploys, drops and lists eventing functions."""
        return EventingFunctionManager(self._loop, self._wrapped.eventing_functions())

    def query(
        self,
        statement: str,
        *options: QueryOptions | None,
        **kwargs: Unpack[QueryOptions],
    ) -> QueryResult:
        """Executes a SQL++ query: ``for row in cluster.query("SELECT …", read_only=True)``."""
        merged = query_options_of(options, kwargs)
        return QueryResult(self._loop, self._wrapped.query(statement, merged))

    def analytics_query(
        self,
        statement: str,
        *options: AnalyticsOptions | None,
        **kwargs: Unpack[AnalyticsOptions],
    ) -> "AnalyticsResult":
        """Executes a statement of the analytics service: ``for row in
        cluster.analytics_query("SELECT …")``.
        """
        from .analytics import AnalyticsResult

        merged = analytics_options_of(options, kwargs)
        return AnalyticsResult(self._loop, self._wrapped.analytics_query(statement, merged))

    def search(
        self,
        index: str,
        request: _searching.SearchRequest,
        options: SearchOptions | None = None,
        **kwargs: Unpack[SearchOptions],
    ) -> SearchResult:
        """Searches an index: ``for row in cluster.search("hotels", request)``."""
        merged = options_of("search", SearchOptions, options, kwargs)
        return SearchResult(self._loop, self._wrapped.search(index, request, merged))

    def search_query(
        self,
        index: str,
        query: _searching.SearchQuery,
        options: SearchOptions | None = None,
        **kwargs: Unpack[SearchOptions],
    ) -> SearchResult:
        """Searches an index with a single query."""
        merged = options_of("search_query", SearchOptions, options, kwargs)
        return SearchResult(self._loop, self._wrapped.search_query(index, query, merged))

    def live(
        self,
        statement: str,
        options: LiveOptions | None = None,
        **kwargs: Unpack[LiveOptions],
    ) -> Live:
        """Executes a query and keeps its result up to date: ``for update in cluster.live("SELECT
        …")``.
        """
        merged = options_of("live", LiveOptions, options, kwargs)
        return Live(self._loop, self._wrapped.live(statement, merged))

    @property
    def transactions(self) -> Transactions:
        """Transactions over documents: ``cluster.transactions.run(logic)``."""
        return Transactions(self._loop, self._wrapped.transactions)

    def set_authenticator(
        self,
        authenticator: PasswordAuthenticator | CertificateAuthenticator | TokenAuthenticator,
    ) -> None:
        """Replaces the user for future connections. Existing connections remain open."""
        self._wrapped.set_authenticator(authenticator)

    def close(self) -> None:
        """Closes all connections and ends the thread. Requests of other threads fail."""
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
    username: str = "",
    password: str = "",
    *,
    token: str | None = None,
    timeouts: ClusterTimeoutOptions | None = None,
    trust_store_path: str | None = None,
    trust_pem: str | None = None,
) -> Cluster:
    """Connects to ``couchbase[s]://host[:port]`` and logs in; see `nacre.connect`."""
    options = ClusterOptions(
        PasswordAuthenticator(username, password) if token is None else TokenAuthenticator(token),
        timeouts or ClusterTimeoutOptions(),
        trust_store_path=trust_store_path,
        trust_pem=trust_pem,
    )
    return Cluster.connect(connection_string, options)


async def _finish(last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    try:
        if last is not None:
            await last()
    finally:
        # Otherwise callers that wait for another task would wait forever once the loop has stopped.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def _inner(
    specs: Sequence[TransactionGetMultiSpec],
) -> list[_transactions.TransactionGetMultiSpec]:
    """Returns the specs of the asynchronous API."""
    return [
        _transactions.TransactionGetMultiSpec(spec.collection._wrapped, spec.id, spec.transcoder)
        for spec in specs
    ]


async def _bucket_of(cluster: _cluster.Cluster, name: str) -> _bucket.Bucket:
    # This runs in the thread of the loop, where the cluster's buckets are closed.
    return cluster.bucket(name)


_END = object()


async def _next(rows: AsyncIterator[object]) -> object:
    return await anext(rows, _END)
