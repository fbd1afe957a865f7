"""The entry point: clusters."""

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from ._client import KvClient
from ._connstr import ConnectionString
from ._http import HttpClient, HttpRequest, HttpResponse
from ._security import Security
from .auth import CertificateAuthenticator, PasswordAuthenticator, TokenAuthenticator
from .bucket import Bucket
from .exceptions import InvalidArgumentException, RequestCanceledException
from .options import (
    AnalyticsOptions,
    ClusterOptions,
    ClusterTimeoutOptions,
    DiagnosticsOptions,
    LiveOptions,
    PingOptions,
    QueryOptions,
    SearchOptions,
    TLSVerifyMode,
    WaitUntilReadyOptions,
    analytics_options_of,
    options_of,
    query_options_of,
    seconds_of,
)
from .transcoder import DEFAULT_TRANSCODER

if TYPE_CHECKING:
    from .analytics import AnalyticsResult
    from .diagnostics import ClusterInfoResult, DiagnosticsResult, PingResult
    from .live import Live
    from .management.analytics import AnalyticsIndexManager
    from .management.buckets import BucketManager
    from .management.eventing import EventingFunctionManager
    from .management.queries import QueryIndexManager
    from .management.search import SearchIndexManager
    from .management.users import UserManager
    from .n1ql import PreparedStatements, QueryResult
    from .search import SearchQuery, SearchRequest, SearchResult
    from .transactions import Transactions


class Cluster:
    """A connection to a cluster as one user. ``async with`` closes it at the end of the block."""

    def __init__(self, connection_string: str, options: ClusterOptions) -> None:
        parsed = ConnectionString.parse(connection_string)
        options.check(parsed.uses_tls)
        if isinstance(options.authenticator, TokenAuthenticator) and not parsed.is_http:
            raise InvalidArgumentException(
                "key-value takes no tokens: connect to http://host:8091, where queries, views and "
                "management take them, or log in with user and password"
            )
        trust = parsed.options.get("trust_certificate") or options.trust_store_path
        verifies = parsed.options.get("tls_verify", "peer") != "none"
        self.security = Security.of(
            options.authenticator,
            parsed.uses_tls,
            trust,
            options.trust_pem,
            verifies and options.tls_verify != TLSVerifyMode.NONE,
        )
        if parsed.place is not None:
            from ._embedded import Carrier

            self.security.carrier = Carrier(parsed.place.with_key(options.key))
        elif options.key is not None:
            raise InvalidArgumentException(
                "a key is for an embedded database: connect to nacre:///path/to/folder"
            )
        self._network = parsed.options.get("network") or options.network
        self.timeouts = options.timeout_options
        self.preferred_server_group = options.preferred_server_group
        self.transcoder = options.transcoder or DEFAULT_TRANSCODER
        self._watching = options.instruments()
        watches = self._watching if self._watching.watches else None
        self.http = HttpClient(self.security, watches)
        self._seeds = parsed.seeds
        self._is_http = parsed.is_http
        self._client = self._kv_client(None)
        self._buckets: dict[str, Bucket] = {}
        self._prepared: PreparedStatements | None = None
        self._transaction_config = options.transaction_config
        self._closed = False

    @classmethod
    async def connect(cls, connection_string: str, options: ClusterOptions) -> Self:
        """Connects and logs in.

        Raises:
            AuthenticationException: if the user or password is wrong.
            UnAmbiguousTimeoutException: if no node answers in time.
        """
        cluster = cls(connection_string, options)
        try:
            await cluster.on_connect()
        except BaseException:
            await cluster.close()
            raise
        return cluster

    def bucket(self, name: str) -> Bucket:
        """Returns a bucket. The same name yields the same object, with one connection per node."""
        if self._closed:
            raise RequestCanceledException("the cluster is closed")
        if not name:
            raise InvalidArgumentException("a bucket has a name")
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(self, name, self._kv_client(name))
        return bucket

    def forget(self, bucket: Bucket) -> None:
        """Forgets a bucket, so that its next use reconnects."""
        if self._buckets.get(bucket.name) is bucket:
            del self._buckets[bucket.name]

    async def cluster_info(self) -> "ClusterInfoResult":
        """Returns the nodes of the cluster, and the version of the server."""
        from .diagnostics import cluster_info

        timeout = self.timeouts.management_timeout.total_seconds()
        request = HttpRequest("GET", "/pools/default", reads=True)
        return cluster_info(await self.http_management(request, timeout))

    def buckets(self) -> "BucketManager":
        """Creates, drops and lists buckets."""
        from .management.buckets import BucketManager

        return BucketManager(self)

    def users(self) -> "UserManager":
        """Creates, drops and lists users and groups."""
        from .management.users import UserManager

        return UserManager(self)

    def query_indexes(self) -> "QueryIndexManager":
        """Creates, builds, drops and lists indexes for queries."""
        from .management.queries import QueryIndexManager

        return QueryIndexManager(self)

    def search_indexes(self) -> "SearchIndexManager":
        """Creates, drops and lists indexes for search."""
        from .management.search import SearchIndexManager

        return SearchIndexManager(self)

    def analytics_indexes(self) -> "AnalyticsIndexManager":
        """Creates, drops and lists dataverses, datasets, indexes and links of analytics."""
        from .management.analytics import AnalyticsIndexManager

        return AnalyticsIndexManager(self)

    def eventing_functions(self) -> "EventingFunctionManager":
        """Defines, deploys, drops and lists eventing functions."""
        from .management.eventing import EventingFunctionManager

        return EventingFunctionManager(self)

    async def on_connect(self) -> None:
        """Connects and logs in, for a cluster that was not created by `connect`."""
        await self._client.bootstrap(self.timeouts.connecting.total_seconds())
        self._watching.start()

    def _kv_client(self, bucket: str | None) -> KvClient:
        kind: type[KvClient] = KvClient
        if self._is_http:
            from ._http_only import HttpOnlyClient

            kind = HttpOnlyClient
        return kind(self._seeds, self.security, bucket, self._network, self._watching)

    def set_authenticator(
        self,
        authenticator: PasswordAuthenticator | CertificateAuthenticator | TokenAuthenticator,
    ) -> None:
        """Replaces the user for future connections. Existing connections remain open.

        Raises:
            InvalidArgumentException: if certificates replace passwords or vice versa, or if tokens
                replace passwords and the cluster has key-value.
        """
        if isinstance(authenticator, TokenAuthenticator) and not self._is_http:
            raise InvalidArgumentException("key-value takes no tokens")
        if self.security.has_certificate or isinstance(authenticator, CertificateAuthenticator):
            raise InvalidArgumentException("only a password can take the place of a password")
        self.security.take(authenticator, self.security.tls is not None)

    async def ping(
        self, options: PingOptions | None = None, **kwargs: Unpack[PingOptions]
    ) -> "PingResult":
        """Pings each node once for each of its services."""
        from .diagnostics import ping

        merged = options_of("ping", PingOptions, options, kwargs)
        timeout = seconds_of(merged.get("timeout"), self.timeouts.connect_timeout)
        return await ping(self._client, self.http, merged, timeout)

    async def diagnostics(
        self, options: DiagnosticsOptions | None = None, **kwargs: Unpack[DiagnosticsOptions]
    ) -> "DiagnosticsResult":
        """Describes the connections to nodes, without sending requests."""
        from .diagnostics import diagnostics

        merged = options_of("diagnostics", DiagnosticsOptions, options, kwargs)
        clients = [self._client, *(bucket.client for bucket in self._buckets.values())]
        return diagnostics(clients, merged)

    async def wait_until_ready(
        self,
        timeout: timedelta,
        options: WaitUntilReadyOptions | None = None,
        **kwargs: Unpack[WaitUntilReadyOptions],
    ) -> None:
        """Returns when all nodes answer, or with ``desired_state`` Degraded one node of each
        service.

        Raises:
            UnAmbiguousTimeoutException: if they do not answer in time.
            AuthenticationException: if the user or password is wrong.
        """
        from .diagnostics import wait_until_ready

        merged = options_of("wait_until_ready", WaitUntilReadyOptions, options, kwargs)
        await wait_until_ready(self._client, self.http, timeout, merged)

    def query(
        self,
        statement: str,
        *options: QueryOptions | None,
        **kwargs: Unpack[QueryOptions],
    ) -> "QueryResult":
        """Executes a SQL++ query: ``async for row in cluster.query("SELECT …", read_only=True)``.

        With ``adhoc=False`` the server prepares the statement once, and the client caches its name.
        """
        from .n1ql import PreparedStatements, QueryResult

        merged = query_options_of(options, kwargs)
        timeout = seconds_of(merged.get("timeout"), self.timeouts.query_timeout)
        if self._prepared is None:
            self._prepared = PreparedStatements()
        return QueryResult(self._client, self.http, self._prepared, statement, merged, timeout)

    def analytics_query(
        self,
        statement: str,
        *options: AnalyticsOptions | None,
        **kwargs: Unpack[AnalyticsOptions],
    ) -> "AnalyticsResult":
        """Executes a statement of the analytics service: ``async for row in
        cluster.analytics_query("SELECT …")``.

        Reading the rows raises `ServiceUnavailableException` if no node runs the service.
        """
        from .analytics import AnalyticsResult

        merged = analytics_options_of(options, kwargs)
        timeout = seconds_of(merged.get("timeout"), self.timeouts.analytics_timeout)
        return AnalyticsResult(self._client, self.http, statement, merged, timeout)

    def search(
        self,
        index: str,
        request: "SearchRequest",
        options: SearchOptions | None = None,
        **kwargs: Unpack[SearchOptions],
    ) -> "SearchResult":
        """Searches an index: ``async for row in cluster.search("hotels", request)``.

        Raises `ServiceUnavailableException` if no node runs the service.
        """
        from .search import path_of

        merged = options_of("search", SearchOptions, options, kwargs)
        return self.search_at(path_of(index), request, merged)

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

    def search_at(
        self, path: str, request: "SearchRequest", options: SearchOptions
    ) -> "SearchResult":
        """Searches an index, given by its path."""
        from .search import SearchResult

        timeout = seconds_of(options.get("timeout"), self.timeouts.search_timeout)
        return SearchResult(self._client, self.http, path, request, options, timeout)

    def live(
        self,
        statement: str,
        options: LiveOptions | None = None,
        **kwargs: Unpack[LiveOptions],
    ) -> "Live":
        """Executes a query and keeps its result up to date:
        ``async for update in cluster.live("SELECT …")``.

        See `nacre.live`.
        """
        from .live import Live

        merged = options_of("live", LiveOptions, options, kwargs)
        return Live(self, self.query, statement, merged)

    @property
    def client(self) -> KvClient:
        """Returns the connections that belong to no bucket."""
        return self._client

    @property
    def transactions(self) -> "Transactions":
        """Transactions over documents: ``await cluster.transactions.run(logic)``."""
        from .transactions import TransactionConfig, Transactions

        return Transactions(self, self._transaction_config or TransactionConfig())

    async def rekey(self, key: bytes | str) -> None:
        """Replaces the key of an encrypted embedded database: 32 bytes, or a passphrase.

        From then on, only the new key opens the folder.

        Raises:
            InvalidArgumentException: if the cluster is not an embedded database, or the key is
                neither 32 bytes nor a passphrase.
            DatabaseKeyException: if the folder is not encrypted.
        """
        carrier = self.security.carrier
        if carrier is None:
            raise InvalidArgumentException(
                "a key is for an embedded database: connect to nacre:///path/to/folder"
            )
        await carrier.rekey(key)

    async def close(self) -> None:
        """Closes all connections. Requests in progress fail."""
        self._closed = True
        self._watching.close()
        self.http.close()
        self._client.close()
        for bucket in self._buckets.values():
            bucket.client.close()
        if self.security.carrier is not None:
            # This persists all changes, which may wait for the disk.
            self.security.carrier.close()

    async def http_management(self, request: HttpRequest, timeout: float) -> HttpResponse:
        """Returns the response of the management service."""
        return await self.http.send(self._client, "mgmt", request, timeout)

    async def http_service(
        self, service: str, request: HttpRequest, timeout: float
    ) -> HttpResponse:
        """Returns the response of another service."""
        return await self.http.send(self._client, service, request, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def connect(
    connection_string: str,
    username: str = "",
    password: str = "",
    *,
    token: str | None = None,
    timeouts: ClusterTimeoutOptions | None = None,
    trust_store_path: str | None = None,
    trust_pem: str | None = None,
    key: bytes | str | None = None,
) -> Cluster:
    """Connects to ``couchbase://host[:port]``, or with TLS to ``couchbases://``, and logs in.

    ``nacre:///path/to/folder`` opens an embedded database, which requires no user; its bucket is
    ``default``. ``nacre://:memory:`` creates an in-memory database. ``key`` encrypts a new folder,
    and opens an encrypted one: 32 bytes, or a passphrase.

    ``http://host[:8091]`` and ``https://host[:18091]`` use HTTP only: queries, views, search,
    changes and management work, also with a ``token`` instead of user and password. Operations on
    documents raise `FeatureUnavailableException`.

    The certificates of nodes must be signed by an authority in the file ``trust_store_path`` or in
    ``trust_pem``; by default, by one that the machine trusts.

    Raises:
        AuthenticationException: if the user or password is wrong, or a certificate is not trusted.
        UnAmbiguousTimeoutException: if no node answers in time.
    """
    options = ClusterOptions(
        PasswordAuthenticator(username, password) if token is None else TokenAuthenticator(token),
        timeouts or ClusterTimeoutOptions(),
        trust_store_path=trust_store_path,
        trust_pem=trust_pem,
        key=key,
    )
    return await Cluster.connect(connection_string, options)
