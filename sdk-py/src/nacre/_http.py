"""Just enough HTTP/1.1 for the management and view services: one request a connection.

The nodes of a service take turns. One that cannot be connected to is passed over, as nothing was
sent; so is one whose connection breaks under a request that changes nothing.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from ._client import Attempt, KvClient
from ._connstr import Address
from .exceptions import (
    AuthenticationException,
    DecodingFailureException,
    ErrorContext,
    RequestCanceledException,
)

_CONNECT_SECONDS_MAX = 5.0
"""How long a node may take to be connected to before the next one is tried."""

BODY_BYTES_MAX = 256 * 1024 * 1024
"""Largest answer that is read, as it is kept in memory."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What to ask for."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"
    reads: bool = False
    """It changes nothing, so it may be sent twice."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer with its whole body."""

    status: int
    body: bytes
    context: ErrorContext

    @property
    def text(self) -> str:
        """The body as text, for messages."""
        return self.body.decode(errors="replace")


class HttpClient:
    """Sends requests in the name of one user, until it is closed."""

    def __init__(self, username: str, password: str) -> None:
        self._authorization = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._limits: set[asyncio.Timeout] = set()
        """Of the requests under way."""
        self._closed = False

    def close(self) -> None:
        """Ends the requests under way, with `RequestCanceledException`, and refuses more."""
        self._closed = True
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(0)

    async def send(
        self, client: KvClient, service: str, request: HttpRequest, timeout: float
    ) -> HttpResponse:
        """Answer of a node that runs the service, whatever its status but 401.

        Raises:
            AuthenticationException: the user or password is wrong (401).
            ServiceUnavailableException: no node runs the service.
            TimeoutException: there was no complete answer within ``timeout`` seconds.
            RequestCanceledException: the connection broke, or the cluster is closed.
            DecodingFailureException: the answer is no HTTP or too large.
        """
        attempt = Attempt(
            ErrorContext(bucket=client.bucket, operation=f"{request.method} {request.path}")
        )
        if self._closed:
            raise RequestCanceledException("the cluster is closed", attempt.context)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                self._limits.add(limit)
                return await self._attempts(client, service, request, attempt)
        except TimeoutError:
            if self._closed:
                raise RequestCanceledException("the cluster is closed", attempt.context) from None
            raise attempt.expired(request.reads) from attempt.cause
        finally:
            self._limits.discard(limit)

    async def _attempts(
        self, client: KvClient, service: str, request: HttpRequest, attempt: Attempt
    ) -> HttpResponse:
        context = attempt.context
        while True:
            for address in await client.nodes(service, attempt):
                context.endpoint = str(address)
                try:
                    reader, writer = await _connect(address)
                except OSError:
                    # It may have left the cluster.
                    client.map_due = 0
                    attempt.failed("NODE_NOT_AVAILABLE")
                    continue
                attempt.in_flight = True
                try:
                    writer.write(self._head(address, request) + request.body)
                    await writer.drain()
                    status, body = await read_response(reader)
                except (OSError, EOFError) as error:
                    if not request.reads:
                        raise RequestCanceledException(
                            f"the connection failed: {error}", context
                        ) from None
                    attempt.in_flight = False
                    attempt.failed("SOCKET_CLOSED_WHILE_IN_FLIGHT")
                    continue
                finally:
                    # Not closed, which would wait until the peer has read what was given up.
                    writer.transport.abort()
                context.status = status
                if status == 401:
                    raise AuthenticationException(context=context)
                return HttpResponse(status, body, context)
            await attempt.pause()

    def _head(self, address: Address, request: HttpRequest) -> bytes:
        return (
            f"{request.method} {request.path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
            f"Authorization: Basic {self._authorization}\r\nAccept: application/json\r\n"
            f"Content-Type: {request.content_type}\r\n"
            f"Content-Length: {len(request.body)}\r\n\r\n"
        ).encode()


async def _connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(_CONNECT_SECONDS_MAX):
        return await asyncio.open_connection(address.host, address.port)


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of an answer.

    Raises:
        DecodingFailureException: it is no HTTP, or too large.
        EOFError: it is cut off.
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
    return int(rest[:3]), await _read_body(reader, headers)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    length = headers.get("content-length")
    if length is None:
        return await _read_to_end(reader)
    if not length.isdecimal():
        raise DecodingFailureException(f"{length!r} is no length of an HTTP answer")
    if int(length) > BODY_BYTES_MAX:
        raise DecodingFailureException(f"an HTTP answer of {length} bytes is over the limit")
    return await reader.readexactly(int(length))


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        try:
            line = (await reader.readuntil(b"\n")).split(b";")[0].strip()
        except asyncio.LimitOverrunError:
            raise DecodingFailureException("the head of a chunk is too long") from None
        try:
            size = int(line, 16)
        except ValueError:
            raise DecodingFailureException(f"no chunk has a size of {line[:20]!r}") from None
        if size < 0 or len(body) + size > BODY_BYTES_MAX:
            raise DecodingFailureException("the HTTP answer is over the limit")
        if size == 0:
            return bytes(body)
        body += await reader.readexactly(size)
        await reader.readexactly(2)


async def _read_to_end(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while part := await reader.read(1 << 16):
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise DecodingFailureException("the HTTP answer is over the limit")
    return bytes(body)


def form(fields: Mapping[str, object]) -> bytes:
    """Fields as an HTML form; None is left out, booleans are 0 and 1."""
    return urlencode(
        {
            name: int(value) if isinstance(value, bool) else value
            for name, value in fields.items()
            if value is not None
        }
    ).encode()
