"""A minimal HTTP/1.1 client for the HTTP services.

The nodes of a service take turns. The client skips a node to which it cannot connect, because it
has sent nothing. It also skips a node whose connection breaks during a request that changes
nothing. A connection whose response was read to the end is kept for a moment, for the next request
to the node.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from ._client import Attempt, KvClient
from ._connstr import Address
from ._instruments import CURRENT, Dispatch, Instruments
from ._record import dataclass
from ._security import Security
from .exceptions import (
    AuthenticationException,
    DecodingFailureException,
    ErrorContext,
    RequestCanceledException,
)
from .observability.tracing import RequestSpan

if TYPE_CHECKING:
    from ._embedded import Carrier

_CONNECT_SECONDS_MAX = 5.0
"""How long a node may take to be connected to before the next one is tried."""
_IDLE_SECONDS_MAX = 4.0
"""How long a connection is kept that nobody uses. Servers keep it for longer."""
_IDLE_CONNECTIONS_MAX = 16
"""How many such connections are kept for a node."""

BODY_BYTES_MAX = 256 * 1024 * 1024
"""Largest answer that is read, where it is kept in memory."""
_PART_BYTES = 64 * 1024
_IN_PROCESS = ("mgmt", "capi", "n1ql")
"""The services that a database in this process has."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    reads: bool = False
    """It changes nothing, so it may be sent twice."""
    accept: str = "application/json"
    span: RequestSpan | None = None
    """Span that the request's is a child of; that of the operation that runs if not given."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response with its whole body."""

    status: int
    body: bytes
    context: ErrorContext

    @property
    def text(self) -> str:
        """Returns the body as text, for messages."""
        return self.body.decode(errors="replace")


@dataclass(slots=True)
class _Socket:
    """A connection to a node."""

    address: Address
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0

    def end(self) -> None:
        # Aborted rather than closed, because closing waits until the peer has read all data.
        # Without its loop, a transport ends with its last reference.
        with suppress(RuntimeError):
            self.writer.transport.abort()

    def is_usable(self, now: float) -> bool:
        """Returns True if another request may be sent."""
        young = now - self.idle_since < _IDLE_SECONDS_MAX
        return young and not self.reader.at_eof() and not self.writer.is_closing()


@dataclass(slots=True)
class HttpStream:
    """A response whose body is streamed."""

    status: int
    context: ErrorContext
    reader: asyncio.StreamReader
    headers: dict[str, str]
    deadline: float
    client: "HttpClient"
    socket: _Socket | None = None
    """The connection; None for an answer of this process."""
    reads: bool = False
    """The request changes nothing."""
    is_complete: bool = False
    """The body was read to its end."""

    async def parts(self, limit: int | None = None) -> AsyncGenerator[bytes, None]:
        """Yields the body in pieces; ``limit`` is its maximum size in bytes.

        Raises:
            TimeoutException: if no more data arrives in time.
            RequestCanceledException: if the connection breaks, or the cluster is closed.
            DecodingFailureException: if it is not HTTP, or too large.
        """
        try:
            async with aclosing(body_parts(self.reader, self.headers, limit)) as body:
                while True:
                    async with asyncio.timeout_at(self.deadline):
                        part = await anext(body, None)
                    if part is None:
                        break
                    yield part
        except TimeoutError:
            self.client.check_open(self.context)
            raise Attempt(self.context, in_flight=True).expired(self.reads) from None
        except (OSError, EOFError) as error:
            self.client.check_open(self.context)
            raise RequestCanceledException(
                f"the connection failed: {error}", self.context
            ) from None
        self.is_complete = True

    async def body(self) -> bytes:
        """Returns the whole body."""
        collected = bytearray()
        async for part in self.parts(BODY_BYTES_MAX):
            collected += part
        return bytes(collected)


@dataclass(slots=True, eq=False)
class HttpClient:
    """Sends requests as one user, until it is closed."""

    security: Security
    instruments: Instruments | None = None
    """What watches operations; None if nothing does."""
    _limits: set[asyncio.Timeout] = field(default_factory=set)
    """Of the requests under way."""
    _sockets: dict[int, _Socket] = field(default_factory=dict)
    """Connections in use, by identity."""
    _idle: dict[Address, list[_Socket]] = field(default_factory=dict)
    _closed: bool = False

    def close(self) -> None:
        """Cancels the requests in progress with `RequestCanceledException`, and refuses further
        ones.
        """
        self._closed = True
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(0)
        for socket in self._sockets.values():
            socket.end()
        for kept in self._idle.values():
            for socket in kept:
                socket.end()
        self._idle.clear()

    def check_open(self, context: ErrorContext) -> None:
        """Raises if the cluster is closed.

        Raises:
            RequestCanceledException: if it is closed.
        """
        if self._closed:
            raise RequestCanceledException("the cluster is closed", context)

    async def send(
        self, client: KvClient, service: str, request: HttpRequest, timeout: float
    ) -> HttpResponse:
        """Returns the response of a node with the service, with any status except 401.

        Raises:
            AuthenticationException: if the user or password is wrong (401).
            ServiceUnavailableException: if no node runs the service.
            TimeoutException: if there is no complete response within ``timeout`` seconds.
            RequestCanceledException: if the connection breaks, or the cluster is closed.
            DecodingFailureException: if the response is not HTTP, or too large.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout
        attempt: Attempt | None = None
        while True:
            try:
                async with self.stream(
                    client, service, request, deadline - clock.time(), attempt
                ) as stream:
                    return HttpResponse(stream.status, await stream.body(), stream.context)
            except RequestCanceledException as error:
                if not request.reads or self._closed:
                    raise
                # The connection broke within the body.
                attempt = attempt or Attempt(error.context)
                attempt.failed("SOCKET_CLOSED_WHILE_IN_FLIGHT")

    @asynccontextmanager
    async def stream(
        self,
        client: KvClient,
        service: str,
        request: HttpRequest,
        timeout: float,
        attempt: Attempt | None = None,
        node: Address | None = None,
        once: bool = False,
    ) -> AsyncIterator[HttpStream]:
        """Like `send`, but streams the body; ``timeout`` covers the whole body.

        ``node`` restricts the request to this node; ``once`` means a single attempt.

        Raises:
            OSError: if the single attempt finds no connection.
        """
        if attempt is None:
            attempt = Attempt(
                ErrorContext(bucket=client.bucket, operation=f"{request.method} {request.path}")
            )
        self.check_open(attempt.context)
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout
        limit = asyncio.timeout(max(timeout, 0))
        try:
            async with limit:
                self._limits.add(limit)
                if (carrier := self.security.carrier) is not None and service in _IN_PROCESS:
                    stream = await self._answered(carrier, service, request, attempt, deadline)
                else:
                    stream = await self._attempts(
                        client, service, request, attempt, deadline, node, once
                    )
        except TimeoutError:
            self.check_open(attempt.context)
            raise attempt.expired(request.reads) from attempt.cause
        finally:
            self._limits.discard(limit)
        try:
            yield stream
        finally:
            if stream.socket is not None:
                is_reusable = stream.is_complete and _keeps_alive(stream.headers)
                self._release(stream.socket, is_reusable)

    async def _attempts(
        self,
        client: KvClient,
        service: str,
        request: HttpRequest,
        attempt: Attempt,
        deadline: float,
        node: Address | None,
        once: bool,
    ) -> HttpStream:
        context = attempt.context
        while True:
            for address in (node,) if node else await client.nodes(service, attempt):
                context.endpoint = str(address)
                try:
                    socket = await self._socket(address)
                except ssl.SSLCertVerificationError as error:
                    raise AuthenticationException(
                        f"the node's certificate is not trusted: {error.verify_message}", context
                    ) from error
                except OSError:
                    if once:
                        raise
                    # The node may have left the cluster.
                    client.map_due = 0
                    attempt.failed("NODE_NOT_AVAILABLE")
                    continue
                attempt.in_flight = True
                dispatch = Dispatch(self.instruments, address, parent=request.span)
                try:
                    socket.writer.write(self._head(address, request) + request.body)
                    await socket.writer.drain()
                    status, headers = await read_head(socket.reader)
                except (OSError, EOFError) as error:
                    self._release(socket, False)
                    if once or not request.reads:
                        raise RequestCanceledException(
                            f"the connection failed: {error}", context
                        ) from None
                    attempt.in_flight = False
                    attempt.failed("SOCKET_CLOSED_WHILE_IN_FLIGHT")
                    continue
                except BaseException:
                    self._release(socket, False)
                    raise
                finally:
                    dispatch.end()
                context.status = status
                if (span := request.span or CURRENT.get()) is not None and self.instruments:
                    span.set_attribute("couchbase.retries", context.retry_attempts)
                if status == 401:
                    self._release(socket, False)
                    raise AuthenticationException(context=context)
                return HttpStream(
                    status,
                    context,
                    socket.reader,
                    headers,
                    deadline,
                    self,
                    socket,
                    reads=request.reads,
                )
            await attempt.pause()

    async def _answered(
        self,
        carrier: "Carrier",
        service: str,
        request: HttpRequest,
        attempt: Attempt,
        deadline: float,
    ) -> HttpStream:
        """Returns the answer of a database in this process."""
        if service == "mgmt":
            status, body = carrier.manage(request.method, request.path, request.body)
        else:
            # Views and statements read many documents, which takes longer than a turn of the loop.
            attempt.in_flight = True
            status, body = await carrier.manage_later(request.method, request.path, request.body)
        attempt.context.status = status
        reader = asyncio.StreamReader()
        reader.feed_data(body)
        reader.feed_eof()
        headers = {"content-length": str(len(body))}
        return HttpStream(
            status, attempt.context, reader, headers, deadline, self, reads=request.reads
        )

    def _head(self, address: Address, request: HttpRequest) -> bytes:
        authorization = self.security.http_authorization
        login = f"Authorization: {authorization}\r\n" if authorization else ""
        more = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        return (
            f"{request.method} {request.path} HTTP/1.1\r\nHost: {address}\r\n"
            f"{login}Accept: {request.accept}\r\n"
            f"Content-Type: {request.content_type}\r\n"
            f"{more}Content-Length: {len(request.body)}\r\n\r\n"
        ).encode()

    async def _socket(self, address: Address) -> _Socket:
        now = asyncio.get_running_loop().time()
        kept = self._idle.get(address, [])
        while kept:
            socket = kept.pop()
            if socket.is_usable(now):
                self._sockets[id(socket)] = socket
                return socket
            socket.end()
        tls = self.security.tls
        async with asyncio.timeout(_CONNECT_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(
                address.host,
                address.port,
                ssl=tls,
                server_hostname=address.host if tls else None,
            )
        socket = _Socket(address, reader, writer)
        self._sockets[id(socket)] = socket
        return socket

    def _release(self, socket: _Socket, is_reusable: bool) -> None:
        self._sockets.pop(id(socket), None)
        now = asyncio.get_running_loop().time()
        for address, others in list(self._idle.items()):
            for old in [other for other in others if not other.is_usable(now)]:
                others.remove(old)
                old.end()
            if not others:
                del self._idle[address]
        kept = self._idle.get(socket.address, [])
        if not is_reusable or self._closed or len(kept) >= _IDLE_CONNECTIONS_MAX:
            socket.end()
            return
        socket.idle_since = now
        self._idle.setdefault(socket.address, kept).append(socket)


def _keeps_alive(headers: Mapping[str, str]) -> bool:
    has_end = "content-length" in headers or "transfer-encoding" in headers
    return has_end and headers.get("connection", "").lower() != "close"


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Reads the status and headers of a response.

    Raises:
        DecodingFailureException: if it is not HTTP, or too large.
        EOFError: if it is truncated.
    """
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.LimitOverrunError:
        raise DecodingFailureException("the head of the HTTP answer is too long") from None
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
        raise DecodingFailureException(f"no HTTP answer starts with {lines[0][:40]!r}")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:] if line)
    }
    return int(rest[:3]), headers


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Reads the status and body of a response.

    Raises:
        DecodingFailureException: if it is not HTTP, or too large.
        EOFError: if it is truncated.
    """
    status, headers = await read_head(reader)
    body = bytearray()
    async for part in body_parts(reader, headers, BODY_BYTES_MAX):
        body += part
    return status, bytes(body)


async def body_parts(
    reader: asyncio.StreamReader, headers: Mapping[str, str], limit: int | None
) -> AsyncGenerator[bytes, None]:
    """Yields the body of a response in pieces; ``limit`` is its maximum size in bytes.

    Raises:
        DecodingFailureException: if it is not HTTP, or too large.
        EOFError: if it is truncated.
    """
    if headers.get("transfer-encoding", "").lower() == "chunked":
        async for part in _chunks(reader, limit):
            yield part
        return
    length = headers.get("content-length")
    if length is None:
        count = 0
        while part := await reader.read(_PART_BYTES):
            count += len(part)
            _check_size(count, limit)
            yield part
        return
    if not length.isdecimal():
        raise DecodingFailureException(f"{length!r} is no length of an HTTP answer")
    _check_size(int(length), limit)
    async for part in _exactly(reader, int(length)):
        yield part


async def _chunks(reader: asyncio.StreamReader, limit: int | None) -> AsyncGenerator[bytes, None]:
    count = 0
    while True:
        try:
            line = (await reader.readuntil(b"\n")).split(b";")[0].strip()
        except asyncio.LimitOverrunError:
            raise DecodingFailureException("the head of a chunk is too long") from None
        try:
            size = int(line, 16)
        except ValueError:
            raise DecodingFailureException(f"no chunk has a size of {line[:20]!r}") from None
        if size < 0:
            raise DecodingFailureException("a chunk has a negative size")
        count += size
        _check_size(count, limit)
        async for part in _exactly(reader, size):
            yield part
        await reader.readexactly(2)
        if size == 0:
            return


async def _exactly(reader: asyncio.StreamReader, count: int) -> AsyncGenerator[bytes, None]:
    while count:
        part = await reader.read(min(count, _PART_BYTES))
        if not part:
            raise EOFError("the answer is cut off")
        count -= len(part)
        yield part


def _check_size(count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise DecodingFailureException(f"an HTTP answer of {count} bytes is over the limit")


def form(fields: Mapping[str, object]) -> bytes:
    """Encodes fields as an HTML form. None is omitted; booleans become 0 and 1."""
    return urlencode(
        {
            name: int(value) if isinstance(value, bool) else value
            for name, value in fields.items()
            if value is not None
        }
    ).encode()
