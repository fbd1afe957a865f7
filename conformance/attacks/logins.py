"""Wrong passwords in bulk, and their effects on others: time, log lines, hints about which users exist."""

import base64
import socket
import statistics
import threading
import time

from . import kv
from .harness import PASSWORD, USER, basic, case, eventually

PLAIN = kv.frame(kv.SASL_AUTH, b"PLAIN", b"\0nobody\0guess")
FLOOD_S = 4.0


class Flood:
    """Runs `attack` in several threads until the block ends; `attack` returns True to continue."""

    def __init__(self, attack, threads):
        self.attack, self.stop = attack, threading.Event()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def _run(self):
        while not self.stop.is_set():
            try:
                self.attack()
            except OSError:
                time.sleep(0.005)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(20)


def pipelined(node, count, **options):
    """Sends `count` wrong passwords at once; returns the statuses of the answers until the connection ends."""
    statuses = []
    with node.stranger(**options) as connection:
        try:
            connection.send(PLAIN * count)
            while True:
                statuses.append(connection.receive().status)
        except OSError:
            return statuses


@case("wrong passwords over the key-value port do not stop the keys")
def pipelined_passwords(node):
    with node.bystander(gap_s=0.5) as seen, Flood(lambda: pipelined(node, 800), 8):
        time.sleep(FLOOD_S)
    assert not seen.failed, seen
    return str(seen)


@case("wrong passwords over TLS do not stop the keys")
def pipelined_passwords_over_tls(node):
    slowest, deadline = 0.0, time.monotonic() + FLOOD_S
    with node.bystander(gap_s=0.5) as seen, node.kv(tls=True) as client:
        with Flood(lambda: pipelined(node, 800, tls=True), 4):
            while time.monotonic() < deadline:
                begun = time.monotonic()
                assert client.request(kv.NOOP).status == kv.SUCCESS
                slowest = max(slowest, time.monotonic() - begun)
                time.sleep(0.005)
    assert not seen.failed and slowest < 0.5, f"{seen}, over TLS at most {slowest:.2f} s"
    return f"{seen}, over TLS at most {slowest:.3f} s"


@case("a connection is closed after a few wrong passwords")
def closed_after_a_few(node):
    statuses = pipelined(node, 100, source="127.0.0.2")
    assert statuses == [kv.AUTH_ERROR] * 5, statuses


@case("guesses from one address become slow, and logins from others stay fast")
def slowed_per_address(node):
    for _ in range(4):
        pipelined(node, 5, source="127.0.0.2")
    begun = time.monotonic()
    wrong = node.rest("GET", "/pools/default", password="guess", source="127.0.0.2")
    slow = time.monotonic() - begun
    assert wrong.status == 401 and 0.5 < slow < 3, f"the key-value port and HTTP count together: {slow:.2f} s"
    for source in ("127.0.0.2", "127.0.0.3"):
        begun = time.monotonic()
        node.kv(source=source).close()
        assert node.rest("GET", "/pools/default", source=source).status == 200
        fast = time.monotonic() - begun
        assert fast < 1, f"whoever knows the password does not wait: {fast:.2f} s at {source}"
    begun = time.monotonic()
    assert node.rest("GET", "/pools/default", password="guess", source="127.0.0.3").status == 401
    assert time.monotonic() - begun < 0.5, "another address has no delay"


@case("wrong passwords over HTTP hold up neither administration nor logins")
def http_flood(node):
    def attack():
        node.rest("GET", "/pools/default", user="nobody", password="guess", source="127.0.0.2", timeout=10)

    slowest = 0.0
    with node.bystander() as seen, Flood(attack, 100):
        deadline = time.monotonic() + FLOOD_S
        for number in range(1000):
            begun = time.monotonic()
            assert node.rest("GET", "/pools/default").status == 200
            answer = node.rest("PATCH", f"/settings/rbac/users/local/{USER}", {"name": f"name {number}"})
            assert answer.status == 200, answer
            slowest = max(slowest, time.monotonic() - begun)
            if time.monotonic() > deadline:
                break
        begun = time.monotonic()
        node.add_user("ann")
        assert node.rest("GET", "/whoami", user="ann").status == 200
        new = time.monotonic() - begun
    assert slowest < 1.5 and new < 1.5, f"administration took {slowest:.2f} s, a new user {new:.2f} s"
    return f"{seen}, administration at most {slowest:.2f} s, a new user {new:.2f} s"


@case("a flood of failed logins writes few lines, and a name writes none of its own")
def log_lines(node):
    before = len(node.log())
    forged = "x\n2026-01-01T00:00:00Z  INFO FORGED"
    for source in range(2, 12):
        node.rest("GET", "/pools", user=forged, password="guess", source=f"127.0.0.{source}")
    with Flood(lambda: pipelined(node, 5, source="127.0.0.2"), 20):
        time.sleep(FLOOD_S)
    log = node.log()[before:]
    lines = [line for line in log.splitlines() if "failed logins" in line]
    assert 1 <= len(lines) <= 12 and len(log) < 4096, log
    assert not any(line.startswith("2026-01-01") for line in log.splitlines()), log
    assert any("127.0.0.2" in line for line in lines), log


def challenge(node, name, mechanism=b"SCRAM-SHA512"):
    """Returns the salt and the number of rounds that SCRAM sends to a client that names a user."""
    with node.stranger() as connection:
        reply = connection.request(kv.SASL_AUTH, mechanism, b"n,,n=" + name.encode() + b",r=abcdefgh")
        assert reply.status == kv.AUTH_CONTINUE, hex(reply.status)
        fields = dict(field.split("=", 1) for field in reply.value.decode().split(","))
        return fields["s"], int(fields["i"])


@case("neither salts nor rounds tell users from names that do not exist, restarts included")
def salts(node):
    node.add_user("ann")
    names = [USER, "ann", "bob", "carl"]
    before = {name: challenge(node, name) for name in names}
    assert node.stop() == 0
    node.start()
    for name in names:
        assert challenge(node, name) == before[name], name
        assert len(base64.b64decode(before[name][0])) == len(base64.b64decode(before[USER][0]))
    assert {rounds for _, rounds in before.values()} == {before[USER][1]}
    assert before[USER][1] >= 10_000, before


@case("the time of a login does not tell users from names that do not exist")
def timing(node):
    samples = {USER: [], "nobody": []}
    for number in range(60):
        for name, times in samples.items():
            # Few enough from one address that no answer is delayed.
            with node.stranger(source=f"127.0.1.{number + 1}") as connection:
                begun = time.monotonic()
                assert connection.login(name, "guess").status == kv.AUTH_ERROR
                times.append((time.monotonic() - begun) * 1000)
    known, unknown = (statistics.median(times) for times in samples.values())
    assert abs(known - unknown) < max(2.0, 0.4 * known), f"{known:.2f} ms and {unknown:.2f} ms"
    return f"{known:.2f} ms and {unknown:.2f} ms"


@case("half a login holds nothing up, and clients that leave in the middle leave nothing behind")
def abandoned_logins(node):
    for _ in range(300):
        with node.stranger(source="127.0.0.2") as connection:
            connection.send(PLAIN)
    for _ in range(100):
        with node.socket(source="127.0.0.3") as connection:
            login = basic(USER, "guess")
            connection.sendall(f"GET /pools HTTP/1.1\r\nHost: x\r\nAuthorization: {login}\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_RDWR)
    node.kv().close()
    eventually(lambda: node.rest("GET", "/whoami", user=USER, password=PASSWORD).status == 200)
