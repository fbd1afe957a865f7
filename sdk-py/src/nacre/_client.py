"""Routes a bucket's requests to the nodes that serve them, and tries again what may succeed later.

A request goes round this loop until it has a final answer or its time is up:

    connection to the node of its vBucket -> id of its collection -> send -> answer
    not my vBucket: take the newer map    | temporary failure, lock: wait, twice as long each time
    unknown collection: forget its id     | connection lost: again, unless it may have taken effect
    node or bucket not there: take the map of another node, which may be newer

There is one connection a node. It is opened when first needed, and again once lost, after a pause
that grows. A node that refuses the client, as one without the bucket does, is like one that is down
while others may know better: there is no bucket once all nodes say so. The connection to a node
that has left the cluster ends with the last answer on it.

`_http.HttpClient` learns here which nodes run the other services.
"""

import asyncio
import random
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field

from ._connection import BucketNotReady, Connection, ConnectionLost
from ._connstr import Address
from ._frame import Request, Response
from ._instruments import CURRENT, Dispatch, Instruments
from ._keys import check_key, leb128, vbucket_of
from ._map import ClusterMap, Network
from ._opcodes import Feature, Opcode, Status, operation_name
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
    """What a request needs besides its bytes. Its frame carries neither key nor vBucket yet.

    Nothing changes one once it was made.
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
    """What is known of a request so far, for the error at the deadline."""

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
        """Notes why it is tried again."""
        self.context.retry_attempts += 1
        self.context.retry_reasons = (*dict.fromkeys(self.context.retry_reasons + reasons),)

    async def pause(self) -> None:
        """Waits, longer each time."""
        if self.pauses is None:
            self.pauses = _pauses()
        await asyncio.sleep(next(self.pauses))

    async def again(self, *reasons: str) -> None:
        """Notes why it is tried again, and waits until then."""
        self.failed(*reasons)
        await self.pause()

    def expired(self, reads: bool) -> CouchbaseException:
        """The error of a request that found no end in time."""
        if self.in_flight and not reads:
            return AmbiguousTimeoutException(context=self.context)
        # An answer that was had says more than the one that is missing.
        return self.refusal or self.timed_out()

    def timed_out(self) -> UnAmbiguousTimeoutException:
        """The error of a request that was not sent, with the nodes that could not be reached."""
        nodes = [f"{address} ({error})" for address, error in self.unreachable.items()]
        if not nodes:
            return UnAmbiguousTimeoutException(context=self.context)
        self.context.endpoint = str(next(iter(self.unreachable)))
        summary = "Time ran out, and the request changed nothing."
        message = f"{summary} No connection to {', '.join(nodes)}"
        return UnAmbiguousTimeoutException(message, self.context)

    @property
    def cause(self) -> Exception | None:
        """What the first node that cannot be connected to failed with."""
        return next(iter(self.unreachable.values()), None)


class KvClient:
    """Connections and map of a bucket, or of the cluster as a whole if ``bucket`` is None."""

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
        """The map, fetched from the first seed that has one.

        Raises:
            UnAmbiguousTimeoutException: no node answered in time.
            AuthenticationException, BucketNotFoundException: a node says so, and no other gives a
                map. That is not tried again.
        """
        self._check_open()
        attempt = Attempt(ErrorContext(bucket=self.bucket, operation="connect"))
        try:
            async with asyncio.timeout(timeout):
                return await self._map(attempt)
        except TimeoutError:
            raise attempt.timed_out() from attempt.cause

    def require_documents(self) -> None:
        """Raises where there is no key-value; here there is."""

    async def execute(self, operation: Operation, timeout: float) -> Response:
        """Answer to a request for a document, after as many attempts as fit in ``timeout`` seconds.

        Raises:
            CouchbaseException: of the kind that the answer's status asks for.
            TimeoutException: there was no answer.
        """
        key = check_key(operation.key, self._is_default(operation))
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
        """Answer about a vBucket from the node of one of its copies (0 is the active one).

        For requests that only read. Waits until the node can be asked; the caller limits the time.
        """
        attempt = Attempt(ErrorContext(bucket=self.bucket))
        while True:
            try:
                connection = await self._connection_for(request.vbid, attempt, copy)
                return await connection.ask(request)
            except ConnectionLost:
                await attempt.again("SOCKET_CLOSED_WHILE_IN_FLIGHT")

    async def copies(self, key: str, group: str | None, timeout: float) -> list[int]:
        """Numbers of the copies of a document that nodes have; 0 is the active one.

        With a group, those on nodes of that server group.
        """
        cluster_map = self.map or await self.bootstrap(timeout)
        vbid = vbucket_of(key.encode(), len(cluster_map.vbuckets))
        return cluster_map.copies(vbid, group)

    async def place(self, op: Operation, vbid: int, attempt: Attempt) -> tuple[Connection, int]:
        """A connection to the node of a vBucket, and the id of the collection.

        Tries until both are there; the caller limits the time.
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
        """Takes a newer map, if there is one, and waits before the next attempt."""
        await self._ask_for_map(attempt)
        await attempt.again("KV_NOT_MY_VBUCKET")

    async def nodes(self, service: str, attempt: Attempt) -> tuple[Address, ...]:
        """Nodes that run a service besides key-value, each time beginning with the next one.

        Raises:
            ServiceUnavailableException: there are none.
        """
        cluster_map = self.map or await self._map(attempt)
        if self.map_due <= asyncio.get_running_loop().time() or not cluster_map.nodes(service):
            # Where none gives one, there is still the old one.
            await self._ask_for_map(attempt)
            cluster_map = self.map or cluster_map
        nodes = cluster_map.nodes(service)
        if not nodes:
            raise ServiceUnavailableException(f"no node runs {service}", attempt.context)
        first = self._turn % len(nodes)
        self._turn += 1
        return nodes[first:] + nodes[:first]

    async def refresh(self, timeout: float) -> ClusterMap:
        """The map, as new as a node has it."""
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
        """The connection to a node."""
        return await self._connection(address, Attempt(ErrorContext(bucket=self.bucket)))

    def connections(self) -> list[tuple[Address, Connection | None]]:
        """Nodes that are connected to, and those that are being connected to, with None."""
        opening = [(address, None) for address in self._opening]
        return [*self._connections.items(), *opening]

    def close(self) -> None:
        """Ends all connections. Requests under way fail with `RequestCanceledException`."""
        self.closed = True
        for task in self._opening.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()

    def _check_open(self) -> None:
        if self.closed:
            raise RequestCanceledException("the cluster is closed")

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
        """Sends a request if all that it needs is there, as it nearly always is; else None."""
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
        """Sends a request once all that it needs is there; None to start over."""
        cluster_map = self.map or await self._map(attempt)
        vbid = vbucket_of(key, len(cluster_map.vbuckets))
        connection = await self._connection_for(vbid, attempt, operation.copy)
        request = await self._addressed(operation, key, vbid, connection, attempt)
        if request is None:
            return None
        return connection, await connection.send(request)

    async def _watched(self, answer: Awaitable[Response], connection: Connection) -> Response:
        """The answer, with a span for the request."""
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
        """The request with vBucket and key; None to start over, as the collection is unknown."""
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
        """The id of a collection; None to start over, as it is unknown."""
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
        """Prepares another attempt, or raises."""
        attempt.context.status = response.status
        attempt.context.opaque = response.opaque
        attempt.context.endpoint = str(connection.address)
        attempt.context.detail = detail_of(response)
        error = exception_of(response.status, response.opcode, attempt.context, op.adds)
        reason = retry_reason(response.status, response.opcode)
        if reason is None:
            raise error
        if response.status == Status.NO_BUCKET:
            # Of one node; whether there is none at all is for the others to say.
            await self._ask_for_map(attempt, connection.address)
            return await attempt.again(reason)
        attempt.refusal = error
        if response.status == Status.NOT_MY_VBUCKET:
            await self._moved(response, connection.address, attempt)
        elif response.status in (Status.UNKNOWN_COLLECTION, Status.UNKNOWN_SCOPE):
            self._collection_ids.pop((op.scope, op.collection), None)
        await attempt.again(reason)

    async def _moved(self, response: Response, address: Address, attempt: Attempt) -> None:
        """Takes the newer map, from the refusal itself or by asking."""
        found = self._map_in(response, address) if response.value else None
        if found is None or not self._take(found):
            # Who refused knows of the move, but has no map to give once it has left the cluster.
            await self._ask_for_map(attempt, address)

    def _map_in(self, response: Response, address: Address) -> ClusterMap | None:
        """The map that a node gave; None if it is that of the cluster and lacks the bucket."""
        found = ClusterMap.parse(response.value, address.host, self._network)
        return found if self.bucket is None or found.vbuckets else None

    def _pushed(self, push: Response, address: Address) -> None:
        """Takes a map that a node sent of its own accord."""
        if push.key.decode(errors="replace") not in ("", self.bucket):
            return
        try:
            found = self._map_in(push, address)
        except DecodingFailureException:
            return
        if found is not None:
            self._take(found)

    def _take(self, found: ClusterMap) -> bool:
        """Takes a map if it is newer. False if it is older, as of a node that left the cluster."""
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
        """Nodes to ask for the map. Those that the client is connected to answer soonest."""
        nodes = (*first, *(self.map.members if self.map else ()), *self._seeds)
        return sorted(dict.fromkeys(nodes), key=lambda node: not self._is_connected(node))

    def _is_connected(self, address: Address) -> bool:
        connection = self._connections.get(address)
        return connection is not None and not connection.lost

    async def _ask_for_map(self, attempt: Attempt, *first: Address) -> list[str]:
        """Takes the map of the first node that gives one; if none does, says why.

        Raises:
            AuthenticationException, BucketNotFoundException: all say so. Where there was a map, one
                that cannot be asked might know better.
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
                # The node may have left: ask others for a newer map, but keep what there is.
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
        # Shielded: the attempt goes on for the others when one of those who wait gives up.
        try:
            connection = await asyncio.shield(task)
            attempt.unreachable.pop(address, None)
            return connection
        except (OSError, ConnectionLost) as error:
            if str(error):
                attempt.unreachable[address] = error
            raise
        except asyncio.CancelledError:
            if task.cancelled():
                raise RequestCanceledException("the cluster is closed") from None
            raise

    def _check_pause(self, address: Address, attempt: Attempt) -> None:
        """Leaves a node in peace that others have just failed to connect to."""
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
    """The answer, if it is there already and says that all went well."""
    if not answer.done() or answer.cancelled() or answer.exception() is not None:
        return None
    response = answer.result()
    return response if response.status == _SUCCESS else None


def _reason(error: Exception) -> str:
    """Why a node cannot be asked: the reason's official name."""
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
