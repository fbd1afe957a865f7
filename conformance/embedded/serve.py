"""Serves the sessions of an embedded database on a port of this machine: ``serve.py FOLDER``.

The conformance cases reach the database through this program, on the way that sdk-py takes. It prints the port, and ends when
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


async def main():
    carrier = Carrier(Place.of(sys.argv[1], {}))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(carrier), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()
    carrier.close()


asyncio.run(main())
