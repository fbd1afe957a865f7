"""A cluster: the way in."""

from types import TracebackType
from typing import Self

from ._client import KvClient
from ._connstr import ConnectionString
from ._http import HttpClient, HttpRequest, HttpResponse
from .auth import PasswordAuthenticator
from .bucket import Bucket
from .exceptions import InvalidArgumentException, RequestCanceledException
from .management import BucketManager
from .options import ClusterOptions, ClusterTimeoutOptions


class Cluster:
    """A cluster and a user of it. ``async with`` closes it at the end."""

    def __init__(self, connection_string: str, options: ClusterOptions) -> None:
        user = options.authenticator
        parsed = ConnectionString.parse(connection_string)
        self.timeouts = options.timeout_options
        self.preferred_server_group = options.preferred_server_group
        self.http = HttpClient(user.username, user.password)
        self._seeds = parsed.seeds
        self._user = user
        self._client = KvClient(parsed.seeds, user.username, user.password, None)
        self._buckets: dict[str, Bucket] = {}
        self._closed = False

    @classmethod
    async def connect(cls, connection_string: str, options: ClusterOptions) -> Self:
        """Connects and logs in.

        Raises:
            AuthenticationException: the user or password is wrong.
            UnAmbiguousTimeoutException: no node answered in time.
        """
        cluster = cls(connection_string, options)
        try:
            await cluster._client.bootstrap(cluster.timeouts.connect_timeout.total_seconds())
        except BaseException:
            await cluster.close()
            raise
        return cluster

    def bucket(self, name: str) -> Bucket:
        """A bucket; the same object for the same name, with one connection a node."""
        if self._closed:
            raise RequestCanceledException("the cluster is closed")
        if not name:
            raise InvalidArgumentException("a bucket has a name")
        bucket = self._buckets.get(name)
        if bucket is None:
            client = KvClient(self._seeds, self._user.username, self._user.password, name)
            bucket = self._buckets[name] = Bucket(self, name, client)
        return bucket

    def buckets(self) -> BucketManager:
        """Creates, drops and lists buckets."""
        return BucketManager(self)

    async def close(self) -> None:
        """Ends all connections; requests under way fail."""
        self._closed = True
        self.http.close()
        self._client.close()
        for bucket in self._buckets.values():
            bucket.client.close()

    async def http_management(self, request: HttpRequest, timeout: float) -> HttpResponse:
        """Answer of the management service."""
        return await self.http.send(self._client, "mgmt", request, timeout)

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
    username: str,
    password: str,
    *,
    timeouts: ClusterTimeoutOptions | None = None,
) -> Cluster:
    """Connects to ``couchbase://host[:port]`` and logs in.

    Raises:
        AuthenticationException: the user or password is wrong.
        UnAmbiguousTimeoutException: no node answered in time.
    """
    authenticator = PasswordAuthenticator(username, password)
    options = ClusterOptions(authenticator, timeouts or ClusterTimeoutOptions())
    return await Cluster.connect(connection_string, options)
