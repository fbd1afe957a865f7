"""Buckets and scopes: access to collections, and view queries."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack
from urllib.parse import quote

from ._client import KvClient
from ._http import HttpRequest, HttpResponse, HttpStream
from .collection import Collection
from .exceptions import InvalidArgumentException
from .options import (
    AnalyticsOptions,
    ClusterTimeoutOptions,
    LiveOptions,
    PingOptions,
    QueryOptions,
    SearchOptions,
    WaitUntilReadyOptions,
    analytics_options_of,
    options_of,
    query_options_of,
    seconds_of,
)
from .transcoder import Transcoder

if TYPE_CHECKING:
    from .analytics import AnalyticsResult
    from .cluster import Cluster
    from .diagnostics import PingResult
    from .live import Live
    from .management.collections import CollectionManager
    from .management.eventing import ScopeEventingFunctionManager
    from .management.queries import CollectionQueryIndexManager
    from .management.search import ScopeSearchIndexManager
    from .n1ql import QueryResult
    from .search import SearchQuery, SearchRequest, SearchResult
    from .views import ViewIndexManager, ViewOptions, ViewResult


class Bucket:
    """A bucket. The client connects to it on first use; `on_connect` connects immediately."""

    name: str

    def __init__(self, cluster: "Cluster", name: str, client: KvClient) -> None:
        self.name = name
        self.client = client
        self.transcoder: Transcoder = cluster.transcoder
        """Turns values into bytes where an operation names no other one."""
        self._cluster = cluster

    @property
    def timeouts(self) -> ClusterTimeoutOptions:
        """Returns the default timeouts of operations."""
        return self._cluster.timeouts

    @property
    def preferred_server_group(self) -> str | None:
        """Returns the server group to which reads with a preference are restricted."""
        return self._cluster.preferred_server_group

    async def on_connect(self) -> None:
        """Connects, and returns when the bucket is ready.

        Raises:
            BucketNotFoundException: if the bucket does not exist.
            UnAmbiguousTimeoutException: if no node answers in time.
        """
        await self.client.bootstrap(self.timeouts.connecting.total_seconds())

    async def ping(
        self, options: PingOptions | None = None, **kwargs: Unpack[PingOptions]
    ) -> "PingResult":
        """Pings each node once for each of its services."""
        from .diagnostics import ping

        merged = options_of("ping", PingOptions, options, kwargs)
        timeout = seconds_of(merged.get("timeout"), self.timeouts.connect_timeout)
        return await ping(self.client, self._cluster.http, merged, timeout)

    async def wait_until_ready(
        self,
        timeout: timedelta,
        options: WaitUntilReadyOptions | None = None,
        **kwargs: Unpack[WaitUntilReadyOptions],
    ) -> None:
        """Returns when the bucket's nodes answer; see `Cluster.wait_until_ready`."""
        from .diagnostics import wait_until_ready

        merged = options_of("wait_until_ready", WaitUntilReadyOptions, options, kwargs)
        await wait_until_ready(self.client, self._cluster.http, timeout, merged)

    def scope(self, name: str) -> "Scope":
        """Returns a scope. The client looks it up when it uses a document in it."""
        return Scope(self, name)

    def default_scope(self) -> "Scope":
        """Returns the default scope, which every bucket has."""
        return Scope(self, "_default")

    def collection(self, name: str) -> Collection:
        """Returns a collection of the default scope."""
        return self.default_scope().collection(name)

    def default_collection(self) -> Collection:
        """Returns the default collection, which every bucket has."""
        return self.collection("_default")

    def collections(self) -> "CollectionManager":
        """Creates, drops and lists scopes and collections."""
        from .management.collections import CollectionManager

        return CollectionManager(self._cluster, self.name)

    def view_indexes(self) -> "ViewIndexManager":
        """Reads, writes and drops design documents."""
        from .views import ViewIndexManager

        return ViewIndexManager(self)

    def view_query(
        self,
        design_doc: str,
        view_name: str,
        options: "ViewOptions | None" = None,
        **kwargs: "Unpack[ViewOptions]",
    ) -> "ViewResult":
        """Queries a view: ``async for row in bucket.view_query("shop", "by_price", limit=10)``."""
        from .views import ViewOptions, ViewResult

        merged = options_of("view_query", ViewOptions, options, kwargs)
        return ViewResult(self, design_doc, view_name, merged)

    async def close(self) -> None:
        """Closes the bucket's connections. Requests in progress fail."""
        self._cluster.forget(self)
        self.client.close()

    def query_indexes(self, scope: str, collection: str) -> "CollectionQueryIndexManager":
        """Manages the indexes of a collection."""
        from .management.queries import CollectionQueryIndexManager

        return CollectionQueryIndexManager(self._cluster, self.name, scope, collection)

    def eventing_functions(self, scope: str) -> "ScopeEventingFunctionManager":
        """Manages the eventing functions of a scope."""
        from .management.eventing import ScopeEventingFunctionManager

        return ScopeEventingFunctionManager(self._cluster, self.name, scope)

    def search_indexes(self, scope: str) -> "ScopeSearchIndexManager":
        """Manages the search indexes of a scope."""
        from .management.search import ScopeSearchIndexManager

        return ScopeSearchIndexManager(self._cluster, self.name, scope)

    def search(self, path: str, request: "SearchRequest", options: SearchOptions) -> "SearchResult":
        """Searches an index, given by its path."""
        return self._cluster.search_at(path, request, options)

    def live(
        self,
        ask: "Callable[[str, QueryOptions], QueryResult]",
        statement: str,
        options: LiveOptions,
    ) -> "Live":
        """Executes a query in a context and keeps its result up to date."""
        from .live import Live

        return Live(self._cluster, ask, statement, options)

    def query(self, statement: str, options: QueryOptions) -> "QueryResult":
        """Executes a query with unchanged options."""
        return self._cluster.query(statement, options)

    def analytics_query(self, statement: str, options: AnalyticsOptions) -> "AnalyticsResult":
        """Executes a statement of the analytics service with unchanged options."""
        return self._cluster.analytics_query(statement, options)

    def http_stream(
        self, service: str, request: HttpRequest, timeout: float
    ) -> AbstractAsyncContextManager[HttpStream]:
        """Returns the streamed response of a service."""
        return self._cluster.http.stream(self.client, service, request, timeout)

    async def http_ddocs(self, timeout: float) -> HttpResponse:
        """Returns the list of the bucket's design documents."""
        path = f"/pools/default/buckets/{quote(self.name, safe='')}/ddocs"
        return await self._cluster.http_management(HttpRequest("GET", path, reads=True), timeout)

    async def http_capi(self, request: HttpRequest, timeout: float) -> HttpResponse:
        """Returns the response of the view service."""
        return await self._cluster.http.send(self.client, "capi", request, timeout)


class Scope:
    """A scope of a bucket."""

    name: str

    @staticmethod
    def default_name() -> str:
        """Returns the name of the default scope, which every bucket has."""
        return "_default"

    def __init__(self, bucket: Bucket, name: str) -> None:
        if not name:
            raise InvalidArgumentException("a scope has a name")
        self.bucket = bucket
        self.name = name

    def collection(self, name: str) -> Collection:
        """Returns a collection. The client looks it up when it uses a document in it."""
        if not name:
            raise InvalidArgumentException("a collection has a name")
        return Collection(self, name)

    @property
    def _query_context(self) -> str:
        bucket, scope = (name.replace("`", "``") for name in (self.bucket.name, self.name))
        return f"default:`{bucket}`.`{scope}`"

    @property
    def bucket_name(self) -> str:
        """Returns the name of the bucket."""
        return self.bucket.name

    def query(
        self,
        statement: str,
        *options: QueryOptions | None,
        **kwargs: Unpack[QueryOptions],
    ) -> "QueryResult":
        """Executes a SQL++ query. An unqualified keyspace is a collection of this scope."""
        merged = query_options_of(options, kwargs)
        merged.setdefault("query_context", self._query_context)
        return self.bucket.query(statement, merged)

    def analytics_query(
        self,
        statement: str,
        *options: AnalyticsOptions | None,
        **kwargs: Unpack[AnalyticsOptions],
    ) -> "AnalyticsResult":
        """Executes a statement of the analytics service. An unqualified name is a dataset of this
        scope.
        """
        merged = analytics_options_of(options, kwargs)
        merged.setdefault("query_context", self._query_context)
        return self.bucket.analytics_query(statement, merged)

    def eventing_functions(self) -> "ScopeEventingFunctionManager":
        """Defines, deploys, drops and lists eventing functions of the scope."""

        return self.bucket.eventing_functions(self.name)

    def search_indexes(self) -> "ScopeSearchIndexManager":
        """Creates, drops and lists search indexes of the scope."""

        return self.bucket.search_indexes(self.name)

    def search(
        self,
        index: str,
        request: "SearchRequest",
        options: SearchOptions | None = None,
        **kwargs: Unpack[SearchOptions],
    ) -> "SearchResult":
        """Searches an index of the scope: ``async for row in scope.search("hotels", request)``.

        Raises `ServiceUnavailableException` if no node runs the service.
        """
        from .search import path_of

        merged = options_of("search", SearchOptions, options, kwargs)
        return self.bucket.search(path_of(index, self.bucket.name, self.name), request, merged)

    def search_query(
        self,
        index: str,
        query: "SearchQuery",
        options: SearchOptions | None = None,
        **kwargs: Unpack[SearchOptions],
    ) -> "SearchResult":
        """Searches an index with a single query."""
        from .search import SearchRequest

        merged = options_of("search_query", SearchOptions, options, kwargs)
        return self.search(index, SearchRequest(query), merged)

    def live(
        self,
        statement: str,
        options: LiveOptions | None = None,
        **kwargs: Unpack[LiveOptions],
    ) -> "Live":
        """Executes a query in the context of this scope and keeps its result up to date."""
        merged = options_of("live", LiveOptions, options, kwargs)
        return self.bucket.live(self.query, statement, merged)
