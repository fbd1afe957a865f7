"""Attacks on a node's memory: by requests, answers and plugins."""

import json
import socket
import struct
import threading
import time
from contextlib import ExitStack

from . import kv
from .harness import BUCKET, PASSWORD, Json, basic, case, eventually

MIB = 1 << 20
TOO_BIG, BUSY = 0x03, 0x85
SUBDOC_MULTI_LOOKUP, RANGE_SCAN_CREATE = 0xD0, 0xDA

# Default memory limit of a node that can use 2 GB: 80 % of it.
SETTING_BYTES = 2048 * MIB * 8 // 10


def metric(node, line):
    """Returns the value of the line of `/metrics` with the given prefix, or 0."""
    for text in node.rest("GET", "/metrics").body.decode().splitlines():
        if text.startswith(line):
            return float(text.split()[-1])
    return 0.0


class Peak:
    """Monitors the resident memory of a node."""

    def __init__(self, node):
        self.node, self.bytes, self.ended = node, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def watch(self):
        while not self.ended.wait(0.05):
            try:
                self.bytes = max(self.bytes, self.node.rss_bytes())
            except (OSError, StopIteration):
                return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        if _[0] is None:
            assert self.node.is_alive(), f"the node ended:\n{self.node.log()[-2000:]}"
            assert self.bytes < SETTING_BYTES, f"the node took {self.bytes // MIB} MiB"

    def __str__(self):
        return f"{self.bytes // MIB} MiB at most"


def at_once(count, work):
    """Runs `work(number)` in `count` threads; returns their results, or the exceptions that ended them."""
    results = [None] * count

    def run(number):
        try:
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - attacks are refused in many ways
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def half_frames(connections):
    """Sends frames of 29 MiB without their last byte."""
    head = kv.frame(kv.SET, b"k", b"", bytes(8), vbucket=kv.vbucket_of(b"k"))
    body_bytes = 29 * MIB
    head = head[:8] + struct.pack(">I", body_bytes) + head[12:]
    piece = bytes(MIB)

    def send(number):
        connection = connections[number]
        connection.send(head)
        left = body_bytes - (len(head) - kv.HEADER.size) - 1
        while left:
            sent = min(left, len(piece))
            connection.send(piece[:sent])
            left -= sent
        return connection

    return at_once(len(connections), send)


def half_frames_do_not_fill_the_memory(node, tls):
    node.add_user("mallory")
    # The passwords are hashed before the flood, which then consists only of frames.
    connections = [node.kv(user="mallory", bucket=None, tls=tls, timeout=60) for _ in range(100)]
    with Peak(node) as peak, node.bystander() as bystander:
        sent = half_frames(connections)
        opened = [one for one in sent if isinstance(one, kv.Connection)]
        assert len(opened) > 50, sent[:3]
        refused = 0
        for connection in opened:
            connection.socket.settimeout(0.2)
            try:
                refused += connection.receive().status == kv.TEMPORARY_FAILURE
            except (TimeoutError, OSError):
                pass
        assert refused > 50, f"{refused} of {len(opened)} were refused"
        with node.kv() as other:
            assert other.set(b"large", bytes(15 * MIB)).status == kv.SUCCESS, "others have memory left"
        # A refused request does not end the connection.
        last = opened[-1]
        last.socket.settimeout(10)
        last.send(b"\0")
        assert last.request(kv.NOOP).status in (kv.SUCCESS, kv.ACCESS_DENIED, kv.TEMPORARY_FAILURE, 0x08)
        for connection in opened:
            connection.close()
    eventually(lambda: metric(node, 'nacre_memory_used_bytes{for="request"') < MIB)
    return f"{peak}, {bystander}"


@case("frames whose last byte does not come do not fill the memory")
def half_frames_on_plain_connections(node):
    return half_frames_do_not_fill_the_memory(node, False)


@case("frames whose last byte does not come do not fill the memory with TLS", heavy=True)
def half_frames_with_tls(node):
    return half_frames_do_not_fill_the_memory(node, True)


@case("a frame that does not go on ends its connection", heavy=True)
def half_frames_end(node):
    with node.kv() as small, node.kv() as large, node.kv() as idle:
        frame = kv.frame(kv.SET, b"k", bytes(5 * MIB), bytes(8))
        small.send(frame[:100])
        large.send(frame[: 3 * MIB])
        assert small.is_closed(within=45) and large.is_closed(within=45)
        assert idle.request(kv.NOOP).status == kv.SUCCESS, "a connection without half a frame may be idle"


@case("HTTP bodies whose end does not come do not fill the memory")
def half_bodies(node):
    node.add_user("mallory")

    def send(_):
        client = node.socket()
        head = f"POST /pools/default HTTP/1.1\r\nHost: localhost\r\nContent-Length: {32 * MIB}\r\n"
        client.sendall((head + f"Authorization: {basic('mallory', PASSWORD)}\r\n\r\n").encode())
        piece = bytes(MIB)
        try:
            for _ in range(31):
                client.sendall(piece)
        except OSError:
            pass
        return client

    with Peak(node) as peak, node.bystander() as bystander:
        clients = [client for client in at_once(100, send) if isinstance(client, socket.socket)]
        answers = []
        for client in clients:
            client.settimeout(0.2)
            try:
                answers.append(client.recv(4096))
            except OSError:
                pass
        refused = [answer for answer in answers if b" 503 " in answer and b"retry-after" in answer.lower()]
        assert refused, answers[:3]
        assert node.rest("GET", "/pools/default").status == 200
        assert node.rest("GET", "/pools/default", user="mallory").status in (200, 403), "small requests are served"
        for client in clients:
            client.close()
    eventually(lambda: metric(node, 'nacre_memory_used_bytes{for="request"') < MIB)
    return f"{peak}, {bystander}"


HEAVY = (
    "SELECT RAW COUNT(*) FROM (SELECT a, REPEAT('x', 100000) AS s FROM ARRAY_RANGE(0, 3500) AS a ORDER BY s) AS t"
)


@case("queries that need much memory end with an error, and give it back")
def heavy_queries(node):
    node.add_user("mallory")
    # The first statement loads the component.
    node.query("SELECT 1", timeout=120)
    with Peak(node) as peak, node.bystander() as bystander:
        answers = at_once(20, lambda _: node.query(HEAVY, user="mallory", timeout=170))
        for answer in answers:
            assert isinstance(answer, dict), answer
            errors = {error["code"] for error in answer.get("errors", [])}
            assert errors <= {5600, 5500, 1080}, answer
        assert any(error["code"] == 5600 for answer in answers for error in answer.get("errors", [])), answers[:2]
        assert node.query("SELECT RAW 1")["results"] == [1], "others go on"
    eventually(lambda: metric(node, 'nacre_memory_used_bytes{for="instance"') == 0)
    idle = metric(node, 'nacre_memory_used_bytes{for="idle"')
    assert idle < 128 * MIB, f"{idle // MIB} MiB of idle instances"
    eventually(lambda: node.rss_bytes() < 700 * MIB)
    return f"{peak}, {bystander}"


def lookup(connection, key, count):
    """Sends one multi-lookup that reads the whole value `count` times; does not read the answer."""
    path = b"v"
    spec = struct.pack(">BBH", 0xC5, 0, len(path)) + path
    connection.send(kv.frame(SUBDOC_MULTI_LOOKUP, key, spec * count, vbucket=kv.vbucket_of(key)))


@case("a lookup of one large value many times is refused")
def lookups_are_bounded(node):
    key = b"large"
    with node.kv() as connection:
        assert connection.set(key, b'{"v":"' + b"x" * (19 * MIB) + b'"}').status == kv.SUCCESS
        lookup(connection, key, 1)
        assert connection.receive().status == kv.SUCCESS
        lookup(connection, key, 16)
        reply = connection.receive()
        assert (reply.status, reply.value) == (TOO_BIG, b""), (reply.status, len(reply.value))
    with Peak(node) as peak, node.bystander() as bystander, ExitStack() as stack:
        for _ in range(60):
            unread = stack.enter_context(node.kv())
            lookup(unread, key, 1)
            lookup(unread, key, 16)
        time.sleep(2)
        refused = metric(node, 'nacre_memory_used_bytes{for="answer"')
        assert refused < 400 * MIB, f"{refused // MIB} MiB of answers that nobody reads"
    return f"{peak}, {bystander}"


@case("large documents that nobody reads do not fill the memory")
def unread_documents(node):
    node.add_user("mallory", f"data_reader[{BUCKET}]")
    key = b"large"
    with Peak(node) as peak, node.bystander() as bystander, ExitStack() as stack:
        writer = stack.enter_context(node.kv())
        for number in range(150):
            eventually(lambda: writer.set(key, bytes([65 + number % 26]) * (18 * MIB)).status == kv.SUCCESS)
            reader = stack.enter_context(node.kv(user="mallory"))
            # The version in the answer is soon replaced: it stays in memory only for this connection.
            reader.send(kv.frame(kv.GET, key, vbucket=kv.vbucket_of(key)) * 2)
            time.sleep(0.01)
        with node.kv(user="mallory") as reader:
            assert reader.get(key).status == kv.TEMPORARY_FAILURE, "the user holds his share"
            assert reader.get(b"bystander").status == kv.SUCCESS, "small answers are given"
        assert writer.get(key).status == kv.SUCCESS, "others have memory left"
    return f"{peak}, {bystander}"


def first_bytes(client):
    """Returns the first bytes of an HTTP answer, with its status; empty if the connection was closed."""
    try:
        return client.recv(12)
    except OSError:
        return b""


def fill(node, count, value_bytes):
    """Writes documents of the given number and size."""
    with node.kv() as connection:
        value = json.dumps({"pad": "x" * value_bytes}).encode()
        for number in range(count):
            while connection.set(b"d%d" % number, value).status != kv.SUCCESS:
                time.sleep(0.1)


def put_view(node, name, code):
    """Puts a design document with the view `v`."""
    answer = node.rest("PUT", f"/{BUCKET}/_design/{name}", Json({"views": {"v": {"map": code}}}), port="views", timeout=120)
    assert answer.status == 201, answer


@case("views that are not read do not fill the memory", heavy=True)
def unread_views(node):
    node.add_user("mallory", f"views_reader[{BUCKET}]")
    fill(node, 2000, 5000)
    put_view(node, "dd", "function (doc, meta) { emit(meta.id, doc.pad); }")
    path = f"/{BUCKET}/_design/dd/_view/v"
    rows = node.rest("GET", path + "?stale=false", port="views", timeout=120).json()["rows"]
    assert len(rows) >= 2000

    def ask(_):
        client = node.socket("views")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('mallory', PASSWORD)}\r\n\r\n".encode()
        )
        return client

    with Peak(node) as peak, node.bystander() as bystander:
        clients = at_once(300, ask)
        time.sleep(10)
        assert node.rest("GET", "/pools/default").status == 200
        for client in clients:
            if isinstance(client, socket.socket):
                client.close()
    eventually(lambda: node.rest("GET", path + "?limit=1", user="mallory", port="views").status == 200, within=60)
    return f"{peak}, {bystander}"


@case("views that emit without an end are stopped, and stay so after a restart", heavy=True)
def runaway_views(node):
    fill(node, 20000, 100)
    code = "function (doc, meta) { for (var i = 0; i < 2000; i++) emit([i, meta.id], doc.pad); }"
    names = ["one", "two", "three"]
    for name in names:
        put_view(node, name, code)

    def stopped(name):
        info = node.rest("GET", f"/{BUCKET}/_design/{name}/_info", port="views", timeout=60)
        return info.status == 200 and info.json().get("state") == "failed" and info.json()["reason"]

    with Peak(node) as peak, node.bystander() as bystander:
        deadline = time.monotonic() + 50
        while time.monotonic() < deadline and not all(stopped(name) for name in names):
            time.sleep(1)
    with Peak(node):
        reasons = [eventually(lambda name=name: stopped(name), within=900, every=2) for name in names]
    assert all("--memory" in reason for reason in reasons), reasons
    assert node.stop() == 0
    node.start()
    with Peak(node):
        for name in names:
            eventually(lambda name=name: stopped(name), within=60)
        with node.kv() as connection:
            assert connection.set(b"after", b"{}").status == kv.SUCCESS
    return f"{peak}, {bystander}"


@case("design documents that take much memory while they are checked are refused")
def greedy_checks(node):
    node.add_user("mallory", f"views_admin[{BUCKET}]")
    code = "(function () { var all = []; for (;;) all.push('x'.repeat(1000) + all.length); })()"

    def put(number):
        document = Json({"views": {"v": {"map": code}}})
        return node.rest("PUT", f"/{BUCKET}/_design/d{number}", document, user="mallory", port="views", timeout=170).status

    put(0)
    with Peak(node) as peak, node.bystander() as bystander:
        statuses = at_once(40, put)
        assert set(statuses) <= {400, 500, 503}, statuses
    eventually(lambda: metric(node, 'nacre_memory_used_bytes{for="instance"') == 0)
    return f"{peak}, {bystander}"


@case("one user leaves transactions to others")
def transactions_are_shared(node):
    node.add_user("mallory")
    node.add_user("ann", "admin")
    node.query("SELECT 1", timeout=120)

    def begin(user):
        return node.query("BEGIN WORK", user=user, txtimeout="3600s")

    begun = at_once(8, lambda _: [begin("mallory") for _ in range(40)])
    refused = [answer for answers in begun for answer in answers if answer["status"] != "success"]
    assert len(refused) == 320 - 256, len(refused)
    assert refused[0]["errors"][0]["code"] == 17006 and "256" in refused[0]["errors"][0]["msg"], refused[0]
    assert begin("ann")["status"] == "success"


@case("one user leaves range scans to others, and they end with their connection")
def scans_are_shared(node):
    node.add_user("mallory", f"data_reader[{BUCKET}]")
    with node.kv() as connection:
        assert connection.set(b"a", b"{}").status == kv.SUCCESS
    vbucket = kv.vbucket_of(b"a")
    options = json.dumps({"range": {"start": "AA==", "end": "/w=="}, "key_only": True}).encode()

    def create(connection):
        return connection.request(RANGE_SCAN_CREATE, b"", options, vbucket=vbucket, datatype=1).status

    def reader(user):
        connection = node.kv(user=user)
        connection.hello("collections", "json")
        return connection

    with reader("mallory") as mallory:
        statuses = [create(mallory) for _ in range(1030)]
        assert statuses.count(kv.SUCCESS) == 1024 and statuses[-1] == BUSY, (statuses.count(kv.SUCCESS), statuses[-1])
        with reader("Administrator") as other:
            assert create(other) == kv.SUCCESS
    with reader("mallory") as again:
        eventually(lambda: create(again) == kv.SUCCESS, within=5)


@case("definitions of one user do not fill the memory", heavy=True)
def many_definitions(node):
    assert node.rest("POST", f"/pools/default/buckets/{BUCKET}/scopes", {"name": "s"}).status == 200
    for name in ("src", "meta"):
        assert node.rest("POST", f"/pools/default/buckets/{BUCKET}/scopes/s/collections", {"name": name}).status == 200
    node.add_user("mallory", f"eventing_manage_functions[{BUCKET}:s],data_dcp_reader[{BUCKET}:s]")
    place = {"source_bucket": BUCKET, "source_scope": "s", "source_collection": "src"}
    place |= {"metadata_bucket": BUCKET, "metadata_scope": "s", "metadata_collection": "meta"}
    scope = f"?bucket={BUCKET}&scope=s"

    def define(number):
        code = "function OnUpdate(doc, meta) {} //" + "x" * 1_000_000
        value = {"appname": f"f{number}", "appcode": code, "settings": {}, "depcfg": {**place, "curl": [], "buckets": [], "constants": []}}
        answer = node.rest("POST", f"/api/v1/functions/f{number}{scope}", Json(value), user="mallory", port="eventing", timeout=120)
        return answer.status, answer.body

    with Peak(node) as peak:
        answers = [define(number) for number in range(60)]
        defined = [status for status, _ in answers].count(200)
        assert defined < 34 and b"32 MiB" in answers[-1][1], (defined, answers[-1])
        begun = time.monotonic()
        node.add_user("ann")
        assert node.rest("POST", "/pools/default/buckets", {"name": "fits", "ramQuotaMB": 100}).status == 202
        took = time.monotonic() - begun
        assert took < 5, f"administration took {took:.1f} s"
        # The administrator frees memory.
        for number in range(4):
            assert node.rest("DELETE", f"/api/v1/functions/f{number}{scope}", port="eventing").status == 200
        assert define(60)[0] == 200
    return f"{defined} MB of functions, {peak}"


@case("changes that nobody reads do not fill the memory")
def unread_changes(node):
    node.add_user("mallory", f"data_reader[{BUCKET}]")
    fill(node, 400, 20000)
    login = basic("mallory", PASSWORD)

    def ask(_):
        client = node.socket("views")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        path = f"/{BUCKET}/_default/_default/_changes?feed=sse&include_docs=true"
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {login}\r\n\r\n".encode())
        return client

    with Peak(node) as peak, node.bystander() as bystander:
        clients = [client for client in at_once(300, ask) if isinstance(client, socket.socket)]
        answers = [first_bytes(client) for client in clients]
        refused = sum(answer.endswith(b" 503") for answer in answers)
        assert 0 < refused < len(answers), f"{refused} of {len(answers)} were refused"
        assert metric(node, 'nacre_memory_used_bytes{for="answer"') > 100 * MIB
        assert node.rest("GET", "/pools/default").status == 200
        for client in clients:
            client.close()
    return f"{peak}, {bystander}"


@case("the memory of a node is shown, and quotas of buckets fit into it", arguments=("--memory", "1GiB"))
def memory_is_a_setting(node):
    assert metric(node, "nacre_memory_limit_bytes") == 1024 * MIB
    assert metric(node, 'nacre_memory_budget_bytes{budget="requests"') == 320 * MIB
    ram = node.rest("GET", "/pools/default").json()["storageTotals"]["ram"]
    assert (ram["total"], ram["quotaTotal"], ram["quotaUsed"]) == (1024 * MIB, 896 * MIB, 256 * MIB), ram
    answer = node.rest("POST", "/pools/default/buckets", {"name": "large", "ramQuotaMB": 700})
    assert (answer.status, "RAM quota specified is too large" in answer.body.decode()) == (400, True), answer
    answer = node.rest("POST", f"/pools/default/buckets/{BUCKET}", {"ramQuotaMB": 900})
    assert answer.status == 400, answer
    answer = node.rest("POST", "/pools/default/buckets", {"name": "fits", "ramQuotaMB": 600})
    assert answer.status == 202, answer
    assert metric(node, 'nacre_memory_budget_bytes{budget="requests"') == 64 * MIB
