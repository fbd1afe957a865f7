"""An authenticated TCP connection, which pipelines requests.

The connection sends requests as they come, and matches responses to them by opaque. A closed
connection is never reopened: `_client.KvClient` opens a new one.
"""

import asyncio
import json
import os
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import cast

from ._connstr import Address
from ._frame import FrameReader, Request, Response
from ._instruments import OrphanReporter
from ._opcodes import Feature, Opcode, Status, operation_name, status_name
from ._scram import Scram
from ._security import PLAIN, SCRAM_DIGESTS, Security
from ._statuses import detail_of, exception_of, retry_reason
from .exceptions import (
    AuthenticationException,
    BucketNotFoundException,
    CouchbaseException,
    ErrorContext,
)

AGENT = "nacre-py/0.1.0"
_OPEN_SECONDS_MAX = 5.0
"""How long a node may take to let a client in before the next one is tried."""


_MAP_CHANGED = 0x01
"""Operation of a server: its map is another one."""


class ConnectionLost(Exception):
    """The connection ended before the response. Callers see it as the cause of a timeout."""

_UNAWAITED = frozenset({Opcode.RANGE_SCAN_CONTINUE, Opcode.RANGE_SCAN_CANCEL})
"""Requests whose answers may come when a scan was left, which is no fault."""


class BucketNotReady(ConnectionLost):
    """The node does not have the bucket yet."""


class Connection(asyncio.Protocol):
    """A connection, which may be `lost`."""

    def __init__(
        self,
        address: Address,
        on_map: Callable[[Response, Address], None] | None = None,
        orphans: OrphanReporter | None = None,
    ) -> None:
        self.address = address
        self._on_map = on_map
        self._orphans = orphans
        self.features: frozenset[int] = frozenset()
        self.lost = False
        self.id = os.urandom(8).hex()
        self.local: str | None = None
        """The client's address."""
        self._end_reason = "the node closed the connection"
        self._closes_when_idle = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.last_activity = self._loop.time()
        self._reader = FrameReader()
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._streams: dict[int, asyncio.Queue[Response | None]] = {}
        self._unwritten: list[bytes] = []
        """Frames of this turn of the loop."""
        self._has_collections = False
        self._opaque = 0
        self._writable = asyncio.Event()

    @classmethod
    async def open(
        cls,
        address: Address,
        security: Security,
        bucket: str | None,
        on_map: Callable[[Response, Address], None] | None = None,
        orphans: OrphanReporter | None = None,
    ) -> "Connection":
        """Connects, negotiates features, logs in and selects the bucket.

        ``on_map`` receives the maps that the node pushes. ``orphans`` receives orphan responses.

        Raises:
            OSError, ConnectionLost: if the node does not answer, or the bucket is not ready.
            AuthenticationException: if the user or password is wrong, or the node's certificate.
            BucketNotFoundException: if the bucket does not exist.
        """
        connection = cls(address, on_map, orphans)
        try:
            async with asyncio.timeout(_OPEN_SECONDS_MAX):
                if security.carrier is not None:
                    security.carrier.connect(connection)
                else:
                    await asyncio.get_running_loop().create_connection(
                        lambda: connection,
                        address.host,
                        address.port,
                        ssl=security.tls,
                        server_hostname=address.host if security.tls else None,
                    )
                await connection._log_in(security)
                if bucket is not None:
                    await connection._select(bucket)
        except TimeoutError:
            connection.close()
            raise ConnectionLost(
                f"the node did not complete the login within {_OPEN_SECONDS_MAX} s"
            ) from None
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationException(
                f"the node's certificate is not trusted: {error.verify_message}",
                ErrorContext(endpoint=str(address)),
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def send(self, request: Request) -> "asyncio.Future[Response]":
        """Sends a request and returns the future of its response. Waits while the socket is full.

        Both the method and the future raise `ConnectionLost` if the connection is closed first.
        """
        await self._ready()
        return self.send_now(request)

    @property
    def takes_documents(self) -> bool:
        """Returns True if `send_now` may be called with a request for a document of any collection.
        """
        return self._has_collections and self._writable.is_set() and self._is_open()

    def send_now(self, request: Request) -> "asyncio.Future[Response]":
        """Like `send`, if the socket is not full."""
        opaque = self._next_opaque()
        answer = self._loop.create_future()
        self._waiting[opaque] = answer
        self._write(request, opaque)
        # An embedded database has responded by now, unless it waits for the disk or for a writer.
        if not answer.done():
            answer.add_done_callback(partial(self._settled, opaque))
        return answer

    def _is_open(self) -> bool:
        # A closing transport drops written data.
        transport = self._transport
        return not self.lost and transport is not None and not transport.is_closing()

    async def _ready(self) -> None:
        await self._writable.wait()
        if not self._is_open():
            raise ConnectionLost(self._end_reason)

    def _next_opaque(self) -> int:
        self._opaque = self._opaque + 1 & 0xFFFFFFFF
        return self._opaque

    def _write(self, request: Request, opaque: int) -> None:
        """Writes a single request immediately, and combines the requests of one turn of the event
        loop.
        """
        assert self._transport is not None
        frame = request.encode(opaque)
        if self._unwritten:
            self._unwritten.append(frame)
        elif len(self._waiting) <= 1:
            self._transport.write(frame)
        else:
            self._unwritten.append(frame)
            self._loop.call_soon(self._write_rest)

    def _write_rest(self) -> None:
        frames, self._unwritten = self._unwritten, []
        # If the connection was closed in the meantime, the waiting callers have received their
        # error.
        if frames and self._transport is not None and not self.lost:
            self._transport.write(b"".join(frames))

    async def ask(self, request: Request) -> Response:
        """Sends a request and waits for the response."""
        return await (await self.send(request))

    def post(self, request: Request) -> None:
        """Sends a request if the connection is open, without waiting for a response."""
        if self._is_open():
            self._write(request, self._next_opaque())

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """Sends a request with several responses, and yields them until the caller stops.

        Raises:
            ConnectionLost: if the connection is closed first.
        """
        answers: asyncio.Queue[Response | None] = asyncio.Queue()
        await self._ready()
        opaque = self._next_opaque()
        self._streams[opaque] = answers
        try:
            self._write(request, opaque)
            while (answer := await answers.get()) is not None:
                yield answer
            raise ConnectionLost(self._end_reason)
        finally:
            del self._streams[opaque]
            self._close_if_idle()

    def close(self) -> None:
        """Closes the connection. Outstanding responses are lost."""
        if self._loop.is_closed():
            # Nobody waits any more. Without its loop, a transport ends with its last reference.
            self.lost, self._transport = True, None
            self._waiting.clear()
            return
        self._end()
        if self._transport is not None:
            # Aborted rather than closed, because closing waits until the peer has read all data.
            self._transport.abort()

    def close_when_idle(self) -> None:
        """Closes the connection once no response is outstanding."""
        self._closes_when_idle = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closes_when_idle and not self._waiting and not self._streams:
            self.close()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes over the socket."""
        self._transport = cast(asyncio.Transport, transport)
        # An embedded database has no socket.
        if carrier := transport.get_extra_info("socket"):
            carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # None if the peer has already closed the connection.
        if name := transport.get_extra_info("sockname"):
            self.local = str(Address(*name[:2]))
        self._writable.set()

    def pause_writing(self) -> None:
        """Applies back-pressure to senders: the peer reads more slowly than they write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Resumes senders."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Delivers the responses in ``data``."""
        self.last_activity = self._loop.time()
        try:
            for response in self._reader.feed(data):
                if response.is_push:
                    self._pushed(response)
                    continue
                answer = self._waiting.pop(response.opaque, None)
                if answer is not None:
                    if not answer.done():
                        answer.set_result(response)
                elif (stream := self._streams.get(response.opaque)) is not None:
                    stream.put_nowait(response)
                elif self._orphans is not None and response.opcode not in _UNAWAITED:
                    name = operation_name(response.opcode)
                    self._orphans.take(name, response.opaque, self.address, self.local)
        except CouchbaseException as error:
            # The stream has lost its framing: all further bytes are unreliable.
            self._end_reason = f"the answer cannot be read: {error}"
            if not self.features:
                self._end_reason += " (this may not be a key-value port, as 11210 is)"
            self.close()
        self._close_if_idle()

    def _pushed(self, push: Response) -> None:
        if push.opcode == _MAP_CHANGED and push.value and self._on_map is not None:
            self._on_map(push, self.address)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails all outstanding requests."""
        if exc is not None and not self.lost:
            self._end_reason = str(exc)
        self._end()

    def _settled(self, opaque: int, answer: "asyncio.Future[Response]") -> None:
        # An orphan response is dropped when it arrives, and so is its error.
        self._waiting.pop(opaque, None)
        if not answer.cancelled():
            answer.exception()
        self._close_if_idle()

    def _end(self) -> None:
        self.lost = True
        self._writable.set()
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(ConnectionLost(self._end_reason))
        for stream in self._streams.values():
            stream.put_nowait(None)

    # The handshake.

    async def _log_in(self, security: Security) -> None:
        # The client sends all requests at once, because the server responds in order.
        hello = await self.send(_hello())
        if security.has_certificate or security.carrier is not None:
            return self._agree(await hello)
        login = _Login(security, security.mechanisms[0])
        mechanisms = await self.send(Request(Opcode.SASL_LIST_MECHS))
        challenge = await self.send(login.first())
        self._agree(await hello)
        offered = (await mechanisms).value.decode(errors="replace").split()
        response = await challenge
        usable = [mechanism for mechanism in security.mechanisms if mechanism in offered]
        if not usable:
            raise AuthenticationException(
                f"the server offers {offered}, and not {' or '.join(security.mechanisms)}"
            )
        if usable[0] != login.mechanism:
            login = _Login(security, usable[0])
            response = await self.ask(login.first())
        if response.status == Status.AUTH_CONTINUE and login.scram is not None:
            # It is slow on purpose, so it does not run in the thread of the event loop.
            proof = await asyncio.to_thread(login.scram.final, response.value)
            request = Request(Opcode.SASL_STEP, key=login.mechanism.encode(), value=proof)
            response = await self.ask(request)
        elif login.scram is not None:
            raise self._refusal(response, "the user or password is wrong")
        if response.status != Status.SUCCESS:
            raise self._refusal(response, "the user or password is wrong")
        if login.scram is not None:
            login.scram.verify(response.value)

    def _agree(self, hello: Response) -> None:
        agreed = hello.value
        self.features = frozenset(
            code for (code,) in struct.iter_unpack(">H", agreed[: len(agreed) // 2 * 2])
        )
        self._has_collections = Feature.COLLECTIONS in self.features

    async def _select(self, bucket: str) -> None:
        response = await self.ask(Request(Opcode.SELECT_BUCKET, key=bucket.encode()))
        reason = retry_reason(response.status, response.opcode)
        if reason or response.status == Status.KEY_NOT_FOUND:
            # The node knows that the bucket exists: otherwise it would refuse access.
            raise BucketNotReady
        if response.status == Status.ACCESS:
            # Servers may not distinguish a missing bucket from one that the user may not see.
            raise BucketNotFoundException(
                "there is no such bucket, or none that the user may use", self._context(response)
            )
        if response.status != Status.SUCCESS:
            raise exception_of(response.status, response.opcode, self._context(response))

    def _refusal(self, response: Response, message: str) -> AuthenticationException:
        return AuthenticationException(
            f"{message}: {status_name(response.status)}", self._context(response)
        )

    def _context(self, response: Response) -> ErrorContext:
        return ErrorContext(
            operation=operation_name(response.opcode),
            status=response.status,
            opaque=response.opaque,
            endpoint=str(self.address),
            detail=detail_of(response),
        )


class _Login:
    """A login attempt with one mechanism."""

    def __init__(self, security: Security, mechanism: str) -> None:
        self.mechanism = mechanism
        self.scram: Scram | None = None
        user, password = security.username, security.password
        if mechanism == PLAIN:
            self._value = f"\0{user}\0{password}".encode()
        else:
            nonce = os.urandom(24).hex()
            self.scram = Scram(user, password, nonce, SCRAM_DIGESTS[mechanism])
            self._value = self.scram.first()

    def first(self) -> Request:
        """Returns the first message."""
        return Request(Opcode.SASL_AUTH, key=self.mechanism.encode(), value=self._value)


def _hello() -> Request:
    agent = json.dumps({"a": AGENT, "i": f"{os.urandom(8).hex()}/{os.urandom(8).hex()}"})
    return Request(
        Opcode.HELLO, key=agent.encode(), value=b"".join(struct.pack(">H", f) for f in Feature)
    )
