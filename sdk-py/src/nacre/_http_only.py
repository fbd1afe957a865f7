"""A cluster without key-value: its map comes from the management service, with any HTTP login.

Programs with a token, or without access to the key-value port, have queries, views, search, changes
and management. Operations on documents are refused before anything is sent.
"""

from typing import Any, NoReturn

from ._client import Attempt, KvClient, Operation
from ._connection import Connection, ConnectionLost
from ._connstr import Address
from ._frame import Request, Response
from ._http import HttpClient, HttpRequest
from ._map import ClusterMap
from .exceptions import (
    AuthenticationException,
    CouchbaseException,
    FeatureUnavailableException,
)

_PATH = "/pools/default/nodeServices"
_MAP_SECONDS_MAX = 5.0


class HttpOnlyClient(KvClient):
    """The part of `KvClient` that works without key-value: the map and its nodes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._http = HttpClient(self._security)

    def require_documents(self) -> None:
        """Raises, because there is no key-value access.

        Raises:
            FeatureUnavailableException: always.
        """
        self._refuse()

    async def execute(self, operation: Operation, timeout: float) -> Response:
        """Refuses an operation on a document."""
        self._refuse()

    async def ask_copy(self, request: Request, copy: int) -> Response:
        """Refuses a request about a vBucket."""
        self._refuse()

    async def copies(self, key: str, group: str | None, timeout: float) -> list[int]:
        """Refuses to name copies of a document."""
        self._refuse()

    async def place(self, op: Operation, vbid: int, attempt: Attempt) -> tuple[Connection, int]:
        """Refuses a connection to the node of a vBucket."""
        self._refuse()

    async def connection_to(self, address: Address) -> Connection:
        """Refuses a connection."""
        self._refuse()

    def close(self) -> None:
        """Cancels requests for the map."""
        super().close()
        self._http.close()

    def _refuse(self) -> NoReturn:
        raise FeatureUnavailableException(
            "operations on documents need key-value, which http:// does not have: connect to "
            "couchbase:// with user and password, or use queries"
        )

    def _nodes(self, *first: Address) -> list[Address]:
        known = self.map.nodes("mgmt") if self.map else ()
        return [*dict.fromkeys((*first, *known, *self._seeds))]

    async def _fetch_map(self, address: Address, attempt: Attempt) -> None:
        request = HttpRequest("GET", _PATH, reads=True)
        self._check_open()
        try:
            async with self._http.stream(
                self, "mgmt", request, _MAP_SECONDS_MAX, node=address, once=True
            ) as answer:
                body, status = await answer.body(), answer.status
        except AuthenticationException:
            raise
        except (CouchbaseException, OSError) as error:
            attempt.unreachable[address] = error
            raise ConnectionLost(str(error)) from error
        if status != 200:
            raise ConnectionLost(f"the node answers {status}")
        attempt.unreachable.pop(address, None)
        found = ClusterMap.parse(body, address.host, self._network)
        if not self._take(found):
            raise ConnectionLost("the map is older than the one before")
