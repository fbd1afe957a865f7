"""Serves the sessions of an embedded database on a port of this machine, and its views on another: ``serve.py FOLDER``.

The conformance cases reach the database through this program, on the way that sdk-py takes. It prints both ports, and ends when
its standard input ends. Needs libnacre (NACRE_LIBRARY).
"""

import asyncio
import sys

from nacre._embedded import Carrier, Place


class Session(asyncio.Protocol):
    """Passes the responses of a session to its client."""

    def __init__(self, client):
        self.client = client
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.client.write(data)

    def connection_lost(self, error):
        self.client.close()


class Client(asyncio.Protocol):
    """Passes the requests of a client to its session."""

    def __init__(self, carrier):
        self.carrier = carrier
        self.session = None

    def connection_made(self, transport):
        self.session = Session(transport)
        self.carrier.connect(self.session)

    def data_received(self, data):
        self.session.transport.write(data)

    def connection_lost(self, error):
        self.session.transport.close()


HEAD_BYTES_MAX = 1 << 20


async def respond(carrier, reader, writer):
    """Answers one HTTP request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    fields = (line.partition(":") for line in head[1:])
    headers = {name.lower(): value.strip() for name, _, value in fields}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    status, answer = await carrier.manage_later(method, target, body)
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n"
        "Connection: close\r\n\r\n".encode() + answer
    )
    await writer.drain()
    writer.close()


async def main():
    carrier = Carrier(Place.of(sys.argv[1], {}))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(carrier), "127.0.0.1", 0)
    views = await asyncio.start_server(
        lambda reader, writer: respond(carrier, reader, writer), "127.0.0.1", 0, limit=HEAD_BYTES_MAX
    )
    print(*(one.sockets[0].getsockname()[1] for one in (server, views)), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()
    views.close()
    carrier.close()


asyncio.run(main())
