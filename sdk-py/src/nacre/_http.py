"""Just enough HTTP/1.1 for the management and view services: one request a connection."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from ._connstr import Address
from .exceptions import (
    AmbiguousTimeoutException,
    AuthenticationException,
    DecodingFailureException,
    ErrorContext,
    RequestCanceledException,
    UnAmbiguousTimeoutException,
)

BODY_BYTES_MAX = 256 * 1024 * 1024
"""Largest answer that is read, as it is kept in memory."""


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
        self,
        address: Address,
        method: str,
        path: str,
        timeout: float,
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> HttpResponse:
        """Answer to a request, whatever its status but 401.

        Raises:
            AuthenticationException: the user or password is wrong (401).
            TimeoutException: there was no complete answer within ``timeout`` seconds.
            RequestCanceledException: the connection failed, or the cluster is closed.
            DecodingFailureException: the answer is no HTTP or too large.
        """
        context = ErrorContext(operation=f"{method} {path}", endpoint=str(address))
        if self._closed:
            raise RequestCanceledException("the cluster is closed", context)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                self._limits.add(limit)
                status, content = await self._exchange(address, method, path, body, content_type)
        except TimeoutError:
            if self._closed:
                raise RequestCanceledException("the cluster is closed", context) from None
            reads = method == "GET"
            kind = UnAmbiguousTimeoutException if reads else AmbiguousTimeoutException
            raise kind(context=context) from None
        except (OSError, EOFError) as error:
            raise RequestCanceledException(f"the connection failed: {error}", context) from None
        finally:
            self._limits.discard(limit)
        context.status = status
        if status == 401:
            raise AuthenticationException(context=context)
        return HttpResponse(status, content, context)

    async def _exchange(
        self, address: Address, method: str, path: str, body: bytes, content_type: str
    ) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
                f"Authorization: Basic {self._authorization}\r\nAccept: application/json\r\n"
                f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
            return await read_response(reader)
        finally:
            # Not closed, which would wait until the peer has read a request that was given up.
            writer.transport.abort()


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
