"""HTTP connections of strangers who wait, send headers slowly, or never finish a TLS handshake."""

import socket
import time

from .harness import PASSWORD, USER, basic, case, eventually

# With 1,024 descriptors: 256 connections without a login, half of that from one address.
STRANGERS, PER_ADDRESS = 256, 128


def idle(node, port, tls, source, count, first=b""):
    """Opens connections that send the beginning of a request, and nothing more."""
    clients = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", node.port(port, tls)), 10, source_address=(source, 0))
        if first:
            try:
                client.sendall(first)
            except OSError:
                pass
        clients.append(client)
    return clients


def is_open(client):
    """Returns True if the node has left a connection open."""
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


@case("idle connections over HTTP keep nobody out, and no more than the limit of them stay")
def idle_strangers(node):
    known = node.http(timeout=20)
    login = {"Authorization": basic(USER, PASSWORD)}
    known.request("GET", "/whoami", headers=login)
    assert known.getresponse().read() and known.sock
    own = known.sock
    clients = []
    try:
        for port, tls, first in (
            ("mgmt", False, b""),
            ("views", False, b"GET / HTTP/1.1\r\nHost: loc"),
            ("query", False, b""),
            ("eventing", True, b"\x16\x03\x01"),
        ):
            clients += idle(node, port, tls, "127.0.0.2", 2 * PER_ADDRESS, first)
            for service in ("mgmt", "views", "query", "eventing"):
                begun = time.monotonic()
                assert node.rest("GET", "/", port=service, timeout=5).status in (200, 404), service
                assert time.monotonic() - begun < 1, service
                assert node.rest("GET", "/", port=service, source="127.0.0.2", timeout=5).status in (200, 404), service
            eventually(lambda: sum(map(is_open, clients)) <= PER_ADDRESS)
        for host in range(3, 8):
            clients += idle(node, "mgmt", False, f"127.0.0.{host}", PER_ADDRESS)
        eventually(lambda: sum(map(is_open, clients)) <= STRANGERS)
        assert node.rest("GET", "/whoami", timeout=5).status == 200
        # An authenticated client keeps its connection.
        known.request("GET", "/whoami", headers=login)
        assert known.getresponse().status == 200 and known.sock is own
    finally:
        for client in clients:
            client.close()
        known.close()


@case("wrong passwords over HTTP do not make a connection one of a user")
def wrong_passwords(node):
    clients = []
    request = f"GET /whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic(USER, 'wrong')}\r\n\r\n".encode()
    try:
        for _ in range(PER_ADDRESS + 20):
            clients += idle(node, "mgmt", False, "127.0.0.2", 1, request)
            clients[-1].recv(1000)
        eventually(lambda: sum(map(is_open, clients)) <= PER_ADDRESS)
    finally:
        for client in clients:
            client.close()
