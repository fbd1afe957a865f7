"""A node that answers as a test tells it to: for what a healthy node does not do on demand."""

import asyncio
import base64
import hashlib
import hmac
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

VBUCKETS = 16
SALT, ITERATIONS = b"salt", 2


@dataclass
class Asked:
    """A request as it arrived."""

    opcode: int
    vbid: int
    opaque: int
    key: bytes
    extras: bytes
    value: bytes
    framing: bytes = b""


Answer = tuple[int, bytes, bytes] | None
"""Status, extras and value; None to stay silent."""


class Listener:
    """Listens on a port of its own until it is left; what serves connections is a subclass."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class FakeNode(Listener):
    """Logs clients in; ``on`` says what to answer to the requests of a test, by opcode."""

    def __init__(self) -> None:
        self.on: dict[int, Callable[[Asked], Answer]] = {}
        self.asked: list[Asked] = []
        self.connection_count = 0
        self.password = "password"
        self.services: dict[str, int] = {}
        self.neighbours: list[dict[str, int]] = []
        """Services of the other nodes of its cluster."""
        self.rev = 1
        self.replicas: list[int] = []
        """Where each vBucket's replicas are; -1 is nowhere."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None] | None] = set()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.drop()
        await asyncio.gather(*(task for task in self._serving if task))

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"couchbase://127.0.0.1:{self.port}"

    def drop(self) -> None:
        """Breaks all connections."""
        for writer in self._writers:
            writer.close()

    def push(self, value: bytes, key: bytes = b"") -> None:
        """Sends a map to all clients, of its own accord."""
        head = struct.pack(">BBHBBHIIQ", 0x82, 0x01, len(key), 0, 0, 0, len(key + value), 0, 0)
        for writer in self._writers:
            writer.write(head + key + value)

    def send(self, data: bytes) -> None:
        """Sends bytes to all clients."""
        for writer in self._writers:
            writer.write(data)

    def count(self, opcode: int) -> int:
        """How often an operation was asked for."""
        return sum(asked.opcode == opcode for asked in self.asked)

    def config(self, port: int | None = None) -> bytes:
        """A map in which all vBuckets are on one port."""
        server = f"$HOST:{port or self.port}"
        rows = [[0, *self.replicas]] * VBUCKETS
        nodes = [{"kv": port or self.port, **self.services}, *self.neighbours]
        return json.dumps(
            {
                "rev": self.rev,
                "nodesExt": [{"services": services} for services in nodes],
                "vBucketServerMap": {"serverList": [server], "vBucketMap": rows},
            }
        ).encode()

    def config_without_bucket(self) -> bytes:
        """The map that a connection without a bucket is given."""
        return json.dumps({"rev": self.rev, "nodesExt": []}).encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self._serving.add(asyncio.current_task())
        self.connection_count += 1
        login: dict[str, str] = {}
        try:
            while True:
                asked = await _read(reader)
                self.asked.append(asked)
                answer = self._answer(asked, login)
                if answer is not None:
                    writer.write(encode(asked, *answer))
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    def _answer(self, asked: Asked, login: dict[str, str]) -> Answer:
        if asked.opcode in self.on:
            return self.on[asked.opcode](asked)
        match asked.opcode:
            case 0x1F:
                return 0, b"", asked.value
            case 0x20:
                return 0, b"", b"SCRAM-SHA512 PLAIN"
            case 0x21:
                login["first"] = asked.value.decode()[3:]
                nonce = login["first"].split("r=")[1] + "server"
                login["server"] = f"r={nonce},s={base64.b64encode(SALT).decode()},i={ITERATIONS}"
                return 0x21, b"", login["server"].encode()
            case 0x22:
                final = asked.value.decode().rpartition(",p=")[0]
                transcript = f"{login['first']},{login['server']},{final}".encode()
                return 0, b"", self._signature(transcript)
            case 0x89:
                return 0, b"", b""
            case 0xB5:
                return 0, b"", self.config()
        return 0x81, b"", b""

    def _signature(self, transcript: bytes) -> bytes:
        salted = hashlib.pbkdf2_hmac("sha512", self.password.encode(), SALT, ITERATIONS)
        server_key = hmac.digest(salted, b"Server Key", "sha512")
        return b"v=" + base64.b64encode(hmac.digest(server_key, transcript, "sha512"))


class FakeService(Listener):
    """A service over HTTP. It answers all requests alike, unless ``on_request`` does otherwise."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """Method and path of each request."""
        self.on_request: Callable[[asyncio.StreamWriter], None] = answer_nothing

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head.decode().partition(" HTTP/1.1")[0])
        self.on_request(writer)
        await reader.read()
        writer.close()


def answer_nothing(writer: asyncio.StreamWriter) -> None:
    """No buckets, scopes, rows or views."""
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 26\r\n\r\n"
    writer.write(head + b'{"rows": [], "scopes": []}')


def encode(asked: Asked, status: int, extras: bytes, value: bytes) -> bytes:
    """An answer as bytes."""
    body = extras + value
    return struct.pack(
        ">BBHBBHIIQ", 0x81, asked.opcode, 0, len(extras), 0, status, len(body), asked.opaque, 1
    ) + body  # fmt: skip


async def _read(reader: asyncio.StreamReader) -> Asked:
    header = await reader.readexactly(24)
    magic, opcode, key_bytes, extras_bytes, _, vbid, body_bytes, opaque, _ = struct.unpack(
        ">BBHBBHIIQ", header
    )
    body = await reader.readexactly(body_bytes)
    framing_bytes = 0
    if magic == 0x08:
        framing_bytes, key_bytes = key_bytes >> 8, key_bytes & 0xFF
    extras_end = framing_bytes + extras_bytes
    return Asked(
        opcode, vbid, opaque,
        key=body[extras_end : extras_end + key_bytes],
        extras=body[framing_bytes:extras_end],
        value=body[extras_end + key_bytes :],
        framing=body[:framing_bytes],
    )  # fmt: skip
