"""Floods: many clients that use up resources. A well-behaved client must keep working, memory must stay bounded, and nothing
may be lost.
"""

import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

from . import kv
from .harness import BUCKET, MEMORY_MB, PASSWORD, basic, case, eventually
from .memory import metric

# The source address of the flood, unlike that of the well-behaved client.
FROM = "127.0.0.2"
QUIET_S = 2.0
FLOOD_S = 4.0
# Maximum ratio of the 99th percentile of reads during a flood to that without one.
RATIO_MAX = 2.0
ATTEMPTS = 3
# Small enough that the kernel copies it quickly: the copy cannot be interrupted, and must not keep a processor from the node.
CHUNK = bytes(32 << 10)
# Large enough that the node starts new files meanwhile.
VALUE = b'{"text":"' + b"x" * (64 << 10) + b'"}'


def flood(node, attack):
    """Runs a flood with a well-behaved client. Afterwards everything must work without a restart, and acknowledged writes must
    exist.

    Returns a note on what the client observed. Other work on the machine delays a client as a flood does, so a flood with too
    much delay is repeated: one that takes the node's time from others does so each time.
    """
    setting = metric(node, "nacre_memory_limit_bytes")
    assert 0 < setting < MEMORY_MB << 20, setting
    notes = []
    for _ in range(ATTEMPTS):
        quiet_ms = quiet(node)
        written, memory = Writer(node), Peak(node)
        with node.bystander() as met, written, memory, as_from_another_machine():
            begun = time.monotonic()
            attack()
            time.sleep(max(0, begun + FLOOD_S - time.monotonic()))
        assert memory.peak_bytes < setting, f"{memory.peak_bytes >> 20} MB"
        works_again(node)
        written.all_there(node)
        quiet_ms = max(quiet_ms, quiet(node))
        ratio = met.p99_ms / quiet_ms
        notes.append(
            f"p99 {quiet_ms:.2f} to {met.p99_ms:.2f} ms ({ratio:.1f}x), gap {met.gap_s:.2f} s, {memory.peak_bytes >> 20} MB"
        )
        if ratio <= RATIO_MAX:
            break
    else:
        raise AssertionError(f"a well-behaved client was delayed: {notes}")
    node.stop()
    node.start()
    written.all_there(node)
    return ", then ".join(notes)


def quiet(node):
    """Returns the 99th percentile of reads without a flood, in milliseconds."""
    with node.bystander() as met:
        time.sleep(QUIET_S)
    return met.p99_ms


@contextmanager
def as_from_another_machine():
    """Leaves the processors to the node: the calling thread and threads that it starts only use idle time."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        # The system may refuse this to an ordinary user. The client then waits slightly longer.
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


class Meanwhile:
    """A thread that repeats an action until its block is left."""

    def __init__(self, node):
        self.node, self.ends = node, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(30)


class Peak(Meanwhile):
    """Samples the node's memory."""

    peak_bytes = 0

    def run(self):
        """Samples the resident memory twenty times per second."""
        while not self.ends.wait(0.05):
            self.peak_bytes = max(self.peak_bytes, self.node.rss_bytes())


class Writer(Meanwhile):
    """Writes documents, and records which were acknowledged."""

    def __init__(self, node):
        super().__init__(node)
        self.acknowledged = []

    def run(self):
        """Writes one document after another."""
        connection, index = None, 0
        while not self.ends.is_set():
            key = b"written-%d" % index
            with suppress(OSError):
                connection = connection or self.node.kv()
                if connection.set(key, VALUE).status == kv.SUCCESS:
                    self.acknowledged.append(key)
                index += 1
                time.sleep(0.01)
                continue
            connection = None
            time.sleep(0.01)

    def all_there(self, node):
        """Reads every document that was acknowledged."""
        assert self.acknowledged
        with node.kv() as connection:
            missing = [key for key in self.acknowledged if connection.get(key).status != kv.SUCCESS]
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged writes are lost"


def works_again(node):
    """Waits until management, keys, queries and durable writes work."""

    def works():
        with suppress(OSError):
            with node.kv() as connection:
                if connection.set(b"after", b"{}").status != kv.SUCCESS:
                    return False
            query = node.query("SELECT 1", timeout=5)
            return node.rest("GET", "/pools/default", timeout=5).status == 200 and query["status"] == "success"
        return False

    eventually(works, within=10)


def open_many(node, count, begin):
    """Opens up to `count` connections, each started by `begin(socket)`; returns those that the node has accepted."""
    taken = []
    for _ in range(count):
        with suppress(OSError):
            client = socket.create_connection(("127.0.0.1", node.port("kv")), 2, source_address=(FROM, 0))
            client.settimeout(2)
            taken.append(client)
            begin(client)
    return taken


@case("1,100 idle strangers stop nobody and lose nothing")
def idle_strangers(node):
    def attack():
        with ExitStack() as stack:
            for port, count in (("kv", 1100), ("mgmt", 200), ("query", 200)):
                with suppress(OSError):
                    for _ in range(count):
                        stack.enter_context(socket.create_connection(("127.0.0.1", node.port(port)), 2, source_address=(FROM, 0)))
            time.sleep(FLOOD_S)

    return flood(node, attack)


@case("clients that withhold the last byte of a large frame do not take the memory", heavy=True)
def half_frames(node):
    node.add_user("nobody")
    login = kv.frame(kv.SASL_AUTH, b"PLAIN", b"\0nobody\0" + PASSWORD.encode())
    head = kv.HEADER.pack(kv.REQUEST, kv.SET, 1, 8, 0, 0, 29 << 20, 0, 0)

    def begin(client):
        client.sendall(login)
        client.recv(4096)
        client.sendall(head)
        for _ in range((28 << 20) // len(CHUNK)):
            client.sendall(CHUNK)

    def attack():
        clients = []
        workers = [threading.Thread(target=lambda: clients.extend(open_many(node, 50, begin))) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for client in clients:
            client.close()

    return flood(node, attack)


@case("bodies that never end do not take the memory", heavy=True)
def half_bodies(node):
    node.add_user("nobody")
    head = (
        f"POST /pools/default/buckets HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('nobody', PASSWORD)}\r\n"
        f"Content-Length: {32 << 20}\r\n\r\n"
    ).encode()
    def send(clients):
        for _ in range(45):
            with suppress(OSError):
                client = socket.create_connection(("127.0.0.1", node.port("mgmt")), 2, source_address=(FROM, 0))
                client.settimeout(2)
                clients.append(client)
                client.sendall(head)
                for _ in range((31 << 20) // len(CHUNK)):
                    client.sendall(CHUNK)

    def attack():
        clients = []
        workers = [threading.Thread(target=send, args=(clients,)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for client in clients:
            client.close()

    return flood(node, attack)


@case("wrong passwords delay nobody else")
def wrong_passwords(node):
    attempt = kv.frame(kv.SASL_AUTH, b"PLAIN", b"\0n\0x")

    def keys(ends):
        while not ends.is_set():
            with suppress(OSError), node.stranger(source=FROM, timeout=2) as stranger:
                stranger.send(attempt * 1600)
                while not ends.is_set():
                    stranger.receive()

    def http(ends):
        while not ends.is_set():
            with suppress(OSError):
                node.rest("GET", "/pools/default", password="wrong", source=FROM, timeout=5)

    def attack():
        ends = threading.Event()
        workers = [threading.Thread(target=work, args=(ends,), daemon=True) for work in (keys, keys, *[http] * 30)]
        for worker in workers:
            worker.start()
        time.sleep(FLOOD_S)
        ends.set()
        for worker in workers:
            worker.join(20)

    return flood(node, attack)


@case("clients that read no answer stop nobody", heavy=True)
def unread_answers(node):
    with node.kv() as connection:
        for index in range(1000):
            connection.set(b"doc-%d" % index, b'{"text":"' + b"x" * 500 + b'"}')
    view = '{"views":{"all":{"map":"function (doc, meta) { emit(meta.id, doc) }"}}}'
    answer = node.rest("PUT", f"/{BUCKET}/_design/dd", view, port="views", headers={"Content-Type": "application/json"})
    assert answer.status == 201, answer.body
    assert node.rest("GET", f"/{BUCKET}/_design/dd/_view/all?stale=false&limit=1", port="views", timeout=60).status == 200
    request = (
        f"GET /{BUCKET}/_design/dd/_view/all?limit=1000 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: {basic('reader', PASSWORD)}\r\n\r\n"
    ).encode()
    def attack():
        node.add_user("reader", f"views_reader[{BUCKET}],data_reader[{BUCKET}],query_select[{BUCKET}]")
        clients = []
        for _ in range(530):
            with suppress(OSError):
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.bind((FROM, 0))
                client.settimeout(2)
                client.connect(("127.0.0.1", node.port("views")))
                client.sendall(request)
                clients.append(client)
        # Meanwhile the administrator can remove the attacker.
        assert node.rest("GET", "/pools/default/buckets", timeout=8).status == 200
        assert node.rest("DELETE", "/settings/rbac/users/local/reader", timeout=8).status == 200
        for client in clients:
            client.close()

    return flood(node, attack)


@case("queries that want all memory are ended, and give it back", heavy=True)
def heavy_queries(node):
    node.add_user("nobody")
    statement = 'SELECT ARRAY_LENGTH((SELECT a, REPEAT("x", 100000) AS s FROM ARRAY_RANGE(0, 3000) AS a ORDER BY s)) AS n'
    rss_before = node.rss_bytes()

    def ask():
        with suppress(OSError, ValueError):
            node.query(statement, user="nobody", timeout=60)

    def attack():
        workers = [threading.Thread(target=ask, daemon=True) for _ in range(30)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(90)
        eventually(lambda: node.rss_bytes() < rss_before + (512 << 20))

    return flood(node, attack)
