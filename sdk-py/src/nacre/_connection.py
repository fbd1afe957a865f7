"""One TCP connection that is logged in; requests do not wait for each other.

Requests go out as they come, and answers are matched to them by opaque.
A connection ends once and for all; `_client.KvClient` opens the next one.
"""

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable
from typing import cast

from ._connstr import Address
from ._frame import FrameReader, Request, Response
from ._opcodes import Feature, Opcode, Status, operation_name, status_name
from ._scram import MECHANISM, Scram
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


class ConnectionLost(Exception):
    """The connection ended before the answer came. Callers see it as the cause of a time-out."""


class BucketNotReady(ConnectionLost):
    """The node is about to have the bucket."""


class Connection(asyncio.Protocol):
    """A connection, from `open` until `lost`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.features: frozenset[int] = frozenset()
        self.lost = False
        self._end_reason = "the node closed the connection"
        self._closes_when_idle = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._streams: dict[int, asyncio.Queue[Response | None]] = {}
        self._opaque = 0
        self._writable = asyncio.Event()

    @classmethod
    async def open(
        cls, address: Address, username: str, password: str, bucket: str | None
    ) -> "Connection":
        """Connects, agrees on features, logs in and selects the bucket.

        Raises:
            OSError, ConnectionLost: nobody answers there, or the bucket is not ready.
            AuthenticationException: the user or password is wrong.
            BucketNotFoundException: there is no such bucket.
        """
        connection = cls(address)
        try:
            async with asyncio.timeout(_OPEN_SECONDS_MAX):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, address.host, address.port
                )
                await connection._log_in(username, password)
                if bucket is not None:
                    await connection._select(bucket)
        except TimeoutError:
            connection.close()
            raise ConnectionLost(
                f"the node did not complete the login within {_OPEN_SECONDS_MAX} s"
            ) from None
        except BaseException:
            connection.close()
            raise
        return connection

    async def send(self, request: Request) -> Awaitable[Response]:
        """Sends and gives the answer to wait for. Waits itself while the socket takes no more.

        The answer raises `ConnectionLost` when the connection ends first; so does this.
        """
        await self._ready()
        opaque = self._next_opaque()
        answer = self._loop.create_future()
        self._waiting[opaque] = answer
        answer.add_done_callback(lambda done: self._settled(opaque, done))
        self._write(request, opaque)
        return answer

    async def _ready(self) -> None:
        await self._writable.wait()
        # A transport that is closing drops what is written to it.
        if self.lost or self._transport is None or self._transport.is_closing():
            raise ConnectionLost(self._end_reason)

    def _next_opaque(self) -> int:
        self._opaque = self._opaque + 1 & 0xFFFFFFFF
        return self._opaque

    def _write(self, request: Request, opaque: int) -> None:
        assert self._transport is not None
        self._transport.write(request.encode(opaque))

    async def ask(self, request: Request) -> Response:
        """Sends and waits for the answer."""
        return await (await self.send(request))

    def post(self, request: Request) -> None:
        """Sends, if the connection still can, without waiting for an answer."""
        if not self.lost and self._transport is not None and not self._transport.is_closing():
            self._write(request, self._next_opaque())

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """Sends and gives the answers, of which a request has several, until it is left.

        Raises:
            ConnectionLost: the connection ended before that.
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
        """Ends the connection; answers not yet received are lost."""
        self._end()
        if self._transport is not None:
            # Not closed, which would wait until the peer has read what was written.
            self._transport.abort()

    def close_when_idle(self) -> None:
        """Ends the connection once no answer is waited for."""
        self._closes_when_idle = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closes_when_idle and not self._waiting and not self._streams:
            self.close()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes over the socket."""
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writable.set()

    def pause_writing(self) -> None:
        """Holds senders back: the peer reads more slowly than they write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Lets senders go on."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Hands out the answers in ``data``."""
        try:
            for response in self._reader.feed(data):
                answer = self._waiting.get(response.opaque)
                if answer is not None:
                    if not answer.done():
                        answer.set_result(response)
                elif (stream := self._streams.get(response.opaque)) is not None:
                    stream.put_nowait(response)
        except CouchbaseException as error:
            # The stream has lost its framing: nothing after this can be trusted.
            self._end_reason = f"the answer cannot be read: {error}"
            if not self.features:
                self._end_reason += " (this may not be a key-value port, as 11210 is)"
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells all who wait."""
        if exc is not None and not self.lost:
            self._end_reason = str(exc)
        self._end()

    def _settled(self, opaque: int, answer: "asyncio.Future[Response]") -> None:
        # An answer nobody waits for any more is dropped when it comes, and so is its error.
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

    async def _log_in(self, username: str, password: str) -> None:
        scram = Scram(username, password, nonce=os.urandom(24).hex())
        # In one burst: the server answers in order and need not be waited for.
        hello = await self.send(_hello())
        mechanisms = await self.send(Request(Opcode.SASL_LIST_MECHS))
        challenge = await self.send(
            Request(Opcode.SASL_AUTH, key=MECHANISM.encode(), value=scram.first())
        )
        agreed = (await hello).value
        self.features = frozenset(
            code for (code,) in struct.iter_unpack(">H", agreed[: len(agreed) // 2 * 2])
        )
        offered = (await mechanisms).value.decode(errors="replace").split()
        response = await challenge
        if MECHANISM not in offered:
            raise AuthenticationException(f"the server offers {offered}, not {MECHANISM}")
        if response.status != Status.AUTH_CONTINUE:
            raise self._refusal(response, "the user or password is wrong")
        proof = await asyncio.to_thread(scram.final, response.value)
        response = await self.ask(Request(Opcode.SASL_STEP, key=MECHANISM.encode(), value=proof))
        if response.status != Status.SUCCESS:
            raise self._refusal(response, "the user or password is wrong")
        scram.verify(response.value)

    async def _select(self, bucket: str) -> None:
        response = await self.ask(Request(Opcode.SELECT_BUCKET, key=bucket.encode()))
        reason = retry_reason(response.status, response.opcode)
        if reason or response.status == Status.KEY_NOT_FOUND:
            # The node knows that there is one, or it would refuse access.
            raise BucketNotReady
        if response.status == Status.ACCESS:
            # Servers need not tell a missing bucket from one that the user may not see.
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


def _hello() -> Request:
    agent = json.dumps({"a": AGENT, "i": f"{os.urandom(8).hex()}/{os.urandom(8).hex()}"})
    return Request(
        Opcode.HELLO, key=agent.encode(), value=b"".join(struct.pack(">H", f) for f in Feature)
    )
