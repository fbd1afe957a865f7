"""Routes the requests of a bucket to the right nodes, and retries those that may succeed later.

A request repeats this loop until it has a final response or its time is over:

    connection to the node of its vBucket -> id of its collection -> send -> answer
    not my vBucket: take the newer map    | temporary failure, lock: wait, twice as long each time
    unknown collection: forget its id     | connection lost: again, unless it may have taken effect
    node or bucket not there: take the map of another node, which may be newer

There is one connection per node. The client opens it on first use and reopens it when it is lost,
after a growing pause. A node that refuses the client, for instance because it does not have the
bucket, counts as unavailable as long as other nodes may know better: the bucket does not exist once
all nodes say so. The connection to a node that has left the cluster is closed after the last
outstanding response.

`_http.HttpClient` gets the nodes of the other services from this module.
"""

import asyncio
import random
from collections.abc import Awaitable, Iterator
from dataclasses import field

from ._connection import BucketNotReady, Connection, ConnectionLost
from ._connstr import Address
from ._frame import Request, Response
from ._instruments import CURRENT, Dispatch, Instruments
from ._keys import check_key, leb128, vbucket_of
from ._map import ClusterMap, Network
from ._opcodes import Feature, Opcode, Status, operation_name
from ._record import dataclass
from ._security import Security
from ._statuses import detail_of, exception_of, retry_reason
from .exceptions import (
    AmbiguousTimeoutException,
    AuthenticationException,
    BucketNotFoundException,
    CouchbaseException,
    DecodingFailureException,
    ErrorContext,
    FeatureUnavailableException,
    InvalidArgumentException,
    RequestCanceledException,
    ServiceUnavailableException,
    UnAmbiguousTimeoutException,
)

_SUCCESS = int(Status.SUCCESS)
_PAUSE_FIRST, _PAUSE_MAX = 0.005, 0.5
_MAP_WAIT_SECONDS_MAX = 5.0
"""How long a node may take to give its map before the next one is asked."""
_MAP_AGE_SECONDS_MAX = 2.5
"""How old the map may be for requests over HTTP: a node that has left the cluster but still runs
answers them as a cluster of its own, where it refuses those for documents. As in official SDKs."""
_UNAVAILABLE = (OSError, ConnectionLost, AuthenticationException, BucketNotFoundException)
"""Errors of a node that cannot be asked, though others may be."""


@dataclass(slots=True)
class Operation:
    """A request and its properties. Its frame contains neither key nor vBucket yet.

    An operation is immutable after its creation.
    """

    request: Request
    key: str
    scope: str = "_default"
    collection: str = "_default"
    reads: bool = False
    """It changes nothing, so it may be sent twice."""
    adds: bool = False
    """It insists on a new document."""
    accepted: frozenset[int] = frozenset()
    """Statuses that are answers, not errors, besides success."""
    copy: int = 0
    """Which copy of the vBucket it is for; 0 is the active one."""


@dataclass(slots=True)
class Attempt:
    """The state of a request, from which the error at its deadline is created."""

    context: ErrorContext
    in_flight: bool = False
    """It is on its way to the server, which has not answered."""
    refusal: CouchbaseException | None = None
    """The error of the last answer, if that was one to try again after."""
    unreachable: dict[Address, Exception] = field(default_factory=dict)
    """Why nodes could not be connected to, as far as none of them was since."""
    pauses: Iterator[float] | None = None
    """How long to wait before the next ones."""

    def failed(self, *reasons: str) -> None:
        """Records the reasons for a retry."""
        self.context.retry_attempts += 1
        self.context.retry_reasons = (*dict.fromkeys(self.context.retry_reasons + reasons),)

    async def pause(self) -> None:
        """Waits with increasing back-off."""
        if self.pauses is None:
            self.pauses = _pauses()
        await asyncio.sleep(next(self.pauses))

    async def again(self, *reasons: str) -> None:
        """Records the reasons for a retry, and waits until then."""
        self.failed(*reasons)
        await self.pause()

    def expired(self, reads: bool) -> CouchbaseException:
        """Returns the error of a request whose time is over."""
        if self.in_flight and not reads:
            return AmbiguousTimeoutException(context=self.context)
        # A response that did arrive says more than the missing one.
        return self.refusal or self.timed_out()

    def timed_out(self) -> UnAmbiguousTimeoutException:
        """Returns the error of a request that was not sent, with the unreachable nodes."""
        nodes = [f"{address} ({error})" for address, error in self.unreachable.items()]
        if not nodes:
            return UnAmbiguousTimeoutException(context=self.context)
        self.context.endpoint = str(next(iter(self.unreachable)))
        summary = "Time ran out, and the request changed nothing."
        message = f"{summary} No connection to {', '.join(nodes)}"
        return UnAmbiguousTimeoutException(message, self.context)

    @property
    def cause(self) -> Exception | None:
        """Returns the error of the first unreachable node."""
        return next(iter(self.unreachable.values()), None)


class KvClient:
    """The connections and the map of a bucket, or of the cluster if ``bucket`` is None."""

    def __init__(
        self,
        seeds: tuple[Address, ...],
        security: Security,
        bucket: str | None,
        network: str = "auto",
        instruments: Instruments | None = None,
    ) -> None:
        self.bucket = bucket
        self.watching = instruments
        self.instruments = instruments if instruments is not None and instruments.watches else None
        """What watches operations; None if nothing does."""
        self.map: ClusterMap | None = None
        self.map_due = 0.0
        """When `nodes` fetches the map again, by the clock of the loop; 0 is at once."""
        self.closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop to which the connections belong."""
        self._turn = 0
        self._seeds = seeds
        self._security = security
        self._network = Network(security.tls is not None, network)
        self._down: dict[Address, tuple[float, float, Exception]] = {}
        """Nodes that could not be connected to: pause, when to try again, and the error."""
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Task[Connection]] = {}
        self._collection_ids: dict[tuple[str, str], int] = {("_default", "_default"): 0}

    async def bootstrap(self, timeout: float) -> ClusterMap:
        """Fetches the map from the first seed that has one.

        Raises:
            UnAmbiguousTimeoutException: if no node answers in time.
            AuthenticationException, BucketNotFoundException: if a node reports this, and no other
                node returns a map. This is not retried.
        """
        self._check_open()
        attempt = Attempt(ErrorContext(bucket=self.bucket, operation="connect"))
        try:
            async with asyncio.timeout(timeout):
                return await self._map(attempt)
        except TimeoutError:
            raise attempt.timed_out() from attempt.cause

    def require_documents(self) -> None:
        """Raises if the client has no key-value access. This client has."""

    async def execute(self, operation: Operation, timeout: float) -> Response:
        """Returns the response to a request for a document, after as many attempts as the timeout
        allows.

        Raises:
            CouchbaseException: of the class for the response's status.
            TimeoutException: if there is no response in time.
        """
        key = check_key(operation.key, self._is_default(operation))
        self.check_loop()
        context = ErrorContext(
            key=operation.key,
            bucket=self.bucket,
            scope=operation.scope,
            collection=operation.collection,
            operation=operation_name(operation.request.opcode),
        )
        attempt = Attempt(context)
        sent = self._send_now(operation, key)
        if sent is not None and self.instruments is None and (at_once := _success(sent[1])):
            return at_once
        try:
            async with asyncio.timeout(timeout):
                return await self._attempts(operation, key, attempt, sent)
        except TimeoutError:
            raise attempt.expired(operation.reads) from attempt.cause
        finally:
            if self.instruments is not None and (span := CURRENT.get()) is not None:
                span.set_attribute("couchbase.retries", context.retry_attempts)

    async def ask_copy(self, request: Request, copy: int) -> Response:
        """Returns the response of the node with a copy of a vBucket. Copy 0 is the active copy.

        For requests that only read. Waits until the node is available; the caller limits the time.
        """
        attempt = Attempt(ErrorContext(bucket=self.bucket))
        while True:
            try:
                connection = await self._connection_for(request.vbid, attempt, copy)
                return await connection.ask(request)
            except ConnectionLost:
                await attempt.again("SOCKET_CLOSED_WHILE_IN_FLIGHT")

    async def copies(self, key: str, group: str | None, timeout: float) -> list[int]:
        """Returns the numbers of the available copies of a document; 0 is the active copy.

        With a group, only copies in that server group.
        """
        cluster_map = self.map or await self.bootstrap(timeout)
        vbid = vbucket_of(key.encode(), len(cluster_map.vbuckets))
        return cluster_map.copies(vbid, group)

    async def place(self, op: Operation, vbid: int, attempt: Attempt) -> tuple[Connection, int]:
        """Returns a connection to the node of a vBucket, and the ID of the collection.

        Retries until both are available; the caller limits the time.
        """
        while True:
            connection = await self._connection_for(vbid, attempt)
            try:
                collection_id = await self._collection_id(op, connection, attempt)
            except ConnectionLost:
                await attempt.again("SOCKET_CLOSED_WHILE_IN_FLIGHT")
                continue
            if collection_id is not None:
                return connection, collection_id

    async def moved(self, attempt: Attempt) -> None:
        """Installs a newer map, if there is one, and waits before the next attempt."""
        await self._ask_for_map(attempt)
        await attempt.again("KV_NOT_MY_VBUCKET")

    async def nodes(self, service: str, attempt: Attempt) -> tuple[Address, ...]:
        """Returns the nodes with a service other than key-value, in round-robin order.

        Raises:
            ServiceUnavailableException: if there are none.
        """
        self.check_loop()
        cluster_map = self.map or await self._map(attempt)
        if self.map_due <= asyncio.get_running_loop().time() or not cluster_map.nodes(service):
            # If no node returns a map, the client uses the old one.
            await self._ask_for_map(attempt)
            cluster_map = self.map or cluster_map
        nodes = cluster_map.nodes(service)
        if not nodes:
            raise ServiceUnavailableException(f"no node runs {service}", attempt.context)
        first = self._turn % len(nodes)
        self._turn += 1
        return nodes[first:] + nodes[:first]

    async def refresh(self, timeout: float) -> ClusterMap:
        """Returns the newest map that a node has."""
        if self.map is None:
            return await self.bootstrap(timeout)
        attempt = Attempt(ErrorContext(bucket=self.bucket, operation="connect"))
        try:
            async with asyncio.timeout(timeout):
                await self._ask_for_map(attempt)
        except TimeoutError:
            raise attempt.timed_out() from attempt.cause
        return self.map

    async def connection_to(self, address: Address) -> Connection:
        """Returns the connection to a node."""
        return await self._connection(address, Attempt(ErrorContext(bucket=self.bucket)))

    def connections(self) -> list[tuple[Address, Connection | None]]:
        """Returns the connected nodes, and with None those to which the client is connecting."""
        opening = [(address, None) for address in self._opening]
        return [*self._connections.items(), *opening]

    def close(self) -> None:
        """Closes all connections. Requests in progress fail with `RequestCanceledException`."""
        self.closed = True
        for task in self._opening.values():
            # The tasks of a loop end with it.
            if not task.get_loop().is_closed():
                task.cancel()
        for connection in self._connections.values():
            connection.close()

    def _check_open(self) -> None:
        if self.closed:
            raise RequestCanceledException("the cluster is closed")
        self.check_loop()

    def check_loop(self) -> None:
        """Raises in another event loop than that of the first call.

        Raises:
            InvalidArgumentException: if this is another loop, or that one has ended.
        """
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            if self._loop.is_closed():
                raise InvalidArgumentException("the event loop of the cluster has ended")
            raise InvalidArgumentException(
                "the cluster belongs to another event loop; that of nacre.sync is for all threads"
            )

    async def _attempts(
        self,
        operation: Operation,
        key: bytes,
        attempt: Attempt,
        sent: "tuple[Connection, asyncio.Future[Response]] | None",
    ) -> Response:
        while True:
            try:
                sent = sent or self._send_now(operation, key)
                sent = sent or await self._send(operation, key, attempt)
                if sent is None:
                    continue
                (connection, answer), sent = sent, None
                attempt.in_flight = True
                if self.instruments is None:
                    response = await answer
                else:
                    response = await self._watched(answer, connection)
            except ConnectionLost:
                if attempt.in_flight and not operation.reads:
                    raise RequestCanceledException(context=attempt.context) from None
                attempt.in_flight = False
                await attempt.again("SOCKET_CLOSED_WHILE_IN_FLIGHT")
                continue
            attempt.in_flight = False
            if response.status == _SUCCESS or response.status in operation.accepted:
                return response
            await self._after_refusal(operation, response, connection, attempt)

    def _send_now(
        self, operation: Operation, key: bytes
    ) -> "tuple[Connection, asyncio.Future[Response]] | None":
        """Sends a request if all prerequisites exist, as is usual; else returns None."""
        cluster_map = self.map
        if cluster_map is None or self.closed:
            return None
        collection_id = self._collection_ids.get((operation.scope, operation.collection))
        vbid = vbucket_of(key, len(cluster_map.vbuckets))
        address = cluster_map.node_of(vbid, operation.copy)
        connection = None if address is None else self._connections.get(address)
        if connection is None or collection_id is None or not connection.takes_documents:
            return None
        request = operation.request.to(leb128(collection_id) + key, vbid)
        return connection, connection.send_now(request)

    async def _send(
        self, operation: Operation, key: bytes, attempt: Attempt
    ) -> "tuple[Connection, asyncio.Future[Response]] | None":
        """Sends a request once all prerequisites exist. Returns None for a retry."""
        cluster_map = self.map or await self._map(attempt)
        vbid = vbucket_of(key, len(cluster_map.vbuckets))
        connection = await self._connection_for(vbid, attempt, operation.copy)
        request = await self._addressed(operation, key, vbid, connection, attempt)
        if request is None:
            return None
        return connection, await connection.send(request)

    async def _watched(self, answer: Awaitable[Response], connection: Connection) -> Response:
        """Returns the response, and traces the request."""
        dispatch = Dispatch(self.instruments, connection.address, connection.local)
        try:
            response = await answer
            dispatch.end(response.opaque)
            return response
        finally:
            dispatch.end()

    async def _addressed(
        self, op: Operation, key: bytes, vbid: int, connection: Connection, attempt: Attempt
    ) -> Request | None:
        """Returns the request with vBucket and key, or None for a retry because the collection is
        unknown.
        """
        if Feature.COLLECTIONS not in connection.features:
            if not self._is_default(op):
                raise FeatureUnavailableException("the server has no collections", attempt.context)
            return op.request.to(key, vbid)
        collection_id = await self._collection_id(op, connection, attempt)
        if collection_id is None:
            return None
        return op.request.to(leb128(collection_id) + key, vbid)

    async def _collection_id(
        self, op: Operation, connection: Connection, attempt: Attempt
    ) -> int | None:
        """Returns the ID of a collection, or None for a retry because it is unknown."""
        collection_id = self._collection_ids.get((op.scope, op.collection))
        if collection_id is None:
            path = f"{op.scope}.{op.collection}".encode()
            response = await connection.ask(Request(Opcode.GET_COLLECTION_ID, value=path))
            if response.status != Status.SUCCESS:
                await self._after_refusal(op, response, connection, attempt)
                return None
            if len(response.extras) < 12:
                raise DecodingFailureException("a collection's id is missing", attempt.context)
            collection_id = int.from_bytes(response.extras[8:12], "big")
            self._collection_ids[op.scope, op.collection] = collection_id
        return collection_id

    async def _after_refusal(
        self, op: Operation, response: Response, connection: Connection, attempt: Attempt
    ) -> None:
        """Prepares a retry, or raises."""
        attempt.context.status = response.status
        attempt.context.opaque = response.opaque
        attempt.context.endpoint = str(connection.address)
        attempt.context.detail = detail_of(response)
        error = exception_of(response.status, response.opcode, attempt.context, op.adds)
        reason = retry_reason(response.status, response.opcode)
        if reason is None:
            raise error
        if response.status == Status.NO_BUCKET:
            # This node does not have the bucket, but another one may.
            await self._ask_for_map(attempt, connection.address)
            return await attempt.again(reason)
        attempt.refusal = error
        if response.status == Status.NOT_MY_VBUCKET:
            await self._moved(response, connection.address, attempt)
        elif response.status in (Status.UNKNOWN_COLLECTION, Status.UNKNOWN_SCOPE):
            self._collection_ids.pop((op.scope, op.collection), None)
        await attempt.again(reason)

    async def _moved(self, response: Response, address: Address, attempt: Attempt) -> None:
        """Installs the newer map, either from the response itself or by a request."""
        found = self._map_in(response, address) if response.value else None
        if found is None or not self._take(found):
            # The node knows about the move, but has no map any more if it has left the cluster.
            await self._ask_for_map(attempt, address)

    def _map_in(self, response: Response, address: Address) -> ClusterMap | None:
        """Returns the map in a response, or None if it is the map of the cluster without the
        bucket.
        """
        found = ClusterMap.parse(response.value, address.host, self._network)
        return found if self.bucket is None or found.vbuckets else None

    def _pushed(self, push: Response, address: Address) -> None:
        """Installs a map that a node has pushed."""
        if push.key.decode(errors="replace") not in ("", self.bucket):
            return
        try:
            found = self._map_in(push, address)
        except DecodingFailureException:
            return
        if found is not None:
            self._take(found)

    def _take(self, found: ClusterMap) -> bool:
        """Installs a map if it is newer. Returns False if it is older, as from a node that has
        left.
        """
        if self.map is not None and found.version <= self.map.version:
            return found.version == self.map.version
        self.map = found
        nodes = set(self._nodes())
        self._down = {address: down for address, down in self._down.items() if address in nodes}
        for address in self._connections.keys() - set(found.members):
            self._connections[address].close_when_idle()
            if self._connections[address].lost:
                del self._connections[address]
        return True

    async def _map(self, attempt: Attempt) -> ClusterMap:
        while self.map is None:
            if reasons := await self._ask_for_map(attempt):
                await attempt.again(*reasons)
        return self.map

    def _nodes(self, *first: Address) -> list[Address]:
        """Returns the nodes for a map request. Connected nodes come first, because they answer
        sooner.
        """
        nodes = (*first, *(self.map.members if self.map else ()), *self._seeds)
        return sorted(dict.fromkeys(nodes), key=lambda node: not self._is_connected(node))

    def _is_connected(self, address: Address) -> bool:
        connection = self._connections.get(address)
        return connection is not None and not connection.lost

    async def _ask_for_map(self, attempt: Attempt, *first: Address) -> list[str]:
        """Installs the map of the first node that returns one. If none does, raises the reason.

        Raises:
            AuthenticationException, BucketNotFoundException: if all nodes report this. If there was
                a map, a node that is unavailable may know better.
        """
        self.map_due = asyncio.get_running_loop().time() + _MAP_AGE_SECONDS_MAX
        errors: list[Exception] = []
        for address in self._nodes(*first):
            try:
                async with asyncio.timeout(_MAP_WAIT_SECONDS_MAX):
                    await self._fetch_map(address, attempt)
                return []
            except _UNAVAILABLE as error:
                errors.append(error)
        refusals = [error for error in errors if isinstance(error, CouchbaseException)]
        if refusals and (self.map is None or len(refusals) == len(errors)):
            raise refusals[0]
        return [_reason(error) for error in errors]

    async def _fetch_map(self, address: Address, attempt: Attempt) -> None:
        connection = await self._connection(address, attempt)
        response = await connection.ask(Request(Opcode.GET_CLUSTER_CONFIG))
        if response.status not in (Status.SUCCESS, Status.NO_BUCKET):
            raise ConnectionLost
        found = self._map_in(response, address) if response.status == Status.SUCCESS else None
        if found is None:
            raise BucketNotFoundException(context=attempt.context)
        if not self._take(found):
            raise ConnectionLost

    async def _connection_for(self, vbid: int, attempt: Attempt, copy: int = 0) -> Connection:
        while True:
            cluster_map = self.map or await self._map(attempt)
            try:
                return await self._connection(cluster_map.node_of(vbid, copy), attempt)
            except _UNAVAILABLE as error:
                # The node may have left: ask other nodes for a newer map, but keep the present one.
                await self._ask_for_map(attempt)
                await attempt.again(_reason(error))

    async def _connection(self, address: Address | None, attempt: Attempt) -> Connection:
        self._check_open()
        if address is None:
            raise ConnectionLost
        if self._is_connected(address):
            return self._connections[address]
        task = self._opening.get(address)
        if task is None:
            self._check_pause(address, attempt)
            task = asyncio.create_task(
                Connection.open(
                    address,
                    self._security,
                    self.bucket,
                    self._pushed,
                    self.watching.orphans if self.watching else None,
                )
            )
            self._opening[address] = task
            task.add_done_callback(lambda done: self._opened(address, done))
        # Shielded: the attempt continues for the others when one waiting task times out.
        try:
            connection = await asyncio.shield(task)
            attempt.unreachable.pop(address, None)
            return connection
        except (OSError, ConnectionLost) as error:
            if str(error):
                attempt.unreachable[address] = error
            raise
        except asyncio.CancelledError:
            current = asyncio.current_task()
            # A loop that ends cancels both tasks.
            if task.cancelled() and not (current and current.cancelling()):
                raise RequestCanceledException("the cluster is closed") from None
            raise

    def _check_pause(self, address: Address, attempt: Attempt) -> None:
        """Delays the connection to a node that has just been unreachable for others."""
        down = self._down.get(address)
        if down is not None and asyncio.get_running_loop().time() < down[1]:
            attempt.unreachable[address] = down[2]
            raise ConnectionLost(str(down[2]))

    def _opened(self, address: Address, task: "asyncio.Task[Connection]") -> None:
        self._opening.pop(address, None)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, OSError | ConnectionLost) and not isinstance(error, BucketNotReady):
            last = self._down.get(address)
            pause = min(last[0] * 2, _PAUSE_MAX) if last else _PAUSE_FIRST
            due = asyncio.get_running_loop().time() + pause * random.uniform(0.5, 1)
            self._down[address] = (pause, due, error)
            return
        self._down.pop(address, None)
        if error is not None:
            return
        if self.closed or address not in self._nodes():
            task.result().close()
        else:
            self._connections[address] = task.result()

    @staticmethod
    def _is_default(operation: Operation) -> bool:
        return (operation.scope, operation.collection) == ("_default", "_default")


def _success(answer: "asyncio.Future[Response]") -> Response | None:
    """Returns the response if it has arrived already and is a success."""
    if not answer.done() or answer.cancelled() or answer.exception() is not None:
        return None
    response = answer.result()
    return response if response.status == _SUCCESS else None


def _reason(error: Exception) -> str:
    """Returns the official name of the reason why a node is unavailable."""
    if isinstance(error, BucketNotFoundException | BucketNotReady):
        return "BUCKET_NOT_AVAILABLE"
    if isinstance(error, AuthenticationException):
        return "AUTHENTICATION_ERROR"
    return "NODE_NOT_AVAILABLE"


def _pauses() -> Iterator[float]:
    pause = _PAUSE_FIRST
    while True:
        yield pause
        pause = min(pause * 2, _PAUSE_MAX)
