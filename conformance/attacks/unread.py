"""Clients that request much and read nothing, and readers whose rights are revoked."""

import json
import socket
import threading
import time

from .harness import BUCKET, PASSWORD, Json, basic, case, eventually
from .plugins import deploy, runs, upload

DOCUMENTS, PAD = 2000, "x" * 5000
# 1 MB per answer: larger than one piece, and small for the memory limits.
VIEW = f"/{BUCKET}/_design/dd/_view/all?stale=false&limit=200"
# Maximum number of concurrent answers to one user, or one address: rest/streams.rs.
PLACES = 256


def fill(node):
    """Stores 10 MB, with a view and an index of it."""
    with node.kv() as connection:
        for number in range(DOCUMENTS):
            connection.set(b"d%d" % number, json.dumps({"n": number, "pad": PAD}).encode())
    design = Json({"views": {"all": {"map": "function (doc, meta) { emit(meta.id, doc.pad) }"}}})
    assert node.rest("PUT", f"/{BUCKET}/_design/dd", design, port="views").status == 201
    eventually(lambda: node.rest("GET", VIEW + "&limit=1", port="views").status == 200, within=60)


def unread(node, port, request, user, source="127.0.0.1", body=b""):
    """Sends a request and does not read the answer. With short segments the sockets buffer only about 10 KB of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    client.bind((source, 0))
    client.settimeout(30)
    client.connect(("127.0.0.1", node.port(port)))
    head = f"{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic(user, PASSWORD)}\r\nContent-Length: {len(body)}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return client


def answered_within(node, seconds, *request, **options):
    """Sends a request as the administrator, who must have the answer in time."""
    begun = time.monotonic()
    answer = node.rest(*request, timeout=seconds, **options)
    assert time.monotonic() - begun < seconds
    return answer


def is_closed(client):
    """Returns True if a node has closed a connection, after reading everything that it had sent."""
    client.settimeout(10)
    try:
        while client.recv(1 << 20):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@case("clients that do not read keep nobody else from views, functions and administration", heavy=True)
def unread_views(node):
    fill(node)
    node.add_user("vr", f"views_reader[{BUCKET}]")
    node.add_user("other", f"views_reader[{BUCKET}]")
    clients = [unread(node, "views", f"GET {VIEW}", "vr", f"127.0.0.{2 + number % 3}") for number in range(PLACES + 40)]
    try:
        time.sleep(3)
        assert answered_within(node, 2, "GET", "/pools/default/buckets").status == 200
        assert answered_within(node, 2, "GET", "/whoami", password="wrong").status == 401
        assert answered_within(node, 2, "GET", "/api/v1/status", port="eventing").status == 200
        assert answered_within(node, 5, "GET", VIEW, port="views", user="other").status == 200
        refused = node.rest("GET", VIEW, port="views", user="vr")
        assert refused.status == 503 and refused.headers["retry-after"], refused
        assert answered_within(node, 2, "DELETE", "/settings/rbac/users/local/vr").status == 200
        # A client that reads nothing for a minute is disconnected.
        time.sleep(62)
        assert all(is_closed(client) for client in clients)
    finally:
        for client in clients:
            client.close()


@case("the time limit of a query counts while it waits for its client")
def unread_query(node):
    with node.kv() as connection:
        for number in range(DOCUMENTS):
            connection.set(b"d%d" % number, json.dumps({"pad": PAD}).encode())
    node.query(f"CREATE PRIMARY INDEX ON {BUCKET}")
    statement = f"SELECT a.pad, b.n FROM {BUCKET} a UNNEST ARRAY_RANGE(0, 20) AS b"
    body = json.dumps({"statement": statement, "timeout": "2s", "scan_consistency": "request_plus"}).encode()
    client = unread(node, "query", "POST /query/service", "Administrator", body=body)
    try:
        # The query is no longer listed as active, although its client has read nothing.
        eventually(lambda: active_queries(node) > 0)
        eventually(lambda: active_queries(node) == 0, within=10)
    finally:
        client.close()


def active_queries(node):
    return node.rest("GET", "/admin/stats", port="query").json()["active_requests.count"]


@case("many queries that nobody reads keep nobody from asking another", heavy=True)
def unread_queries(node):
    fill(node)
    node.query(f"CREATE PRIMARY INDEX ON {BUCKET}")
    node.add_user("qr", f"query_select[{BUCKET}],data_reader[{BUCKET}]")
    node.add_user("other", f"query_select[{BUCKET}],data_reader[{BUCKET}]")
    body = json.dumps({"statement": f"SELECT d.* FROM {BUCKET} d"}).encode()
    clients = [unread(node, "query", "POST /query/service", "qr", "127.0.0.2", body) for _ in range(PLACES + 40)]
    try:
        time.sleep(3)
        assert answered_within(node, 5, "GET", "/admin/vitals", port="query").status == 200
        assert node.query("SELECT 1 AS one", user="other", timeout=5)["results"] == [{"one": 1}]
        assert answered_within(node, 2, "DELETE", "/settings/rbac/users/local/qr").status == 200
    finally:
        for client in clients:
            client.close()


def stream(node, port, path, user):
    """Starts to read an answer that does not end by itself."""
    connection = node.http(port, timeout=20)
    connection.request("GET", path, headers={"Authorization": basic(user, PASSWORD)})
    answer = connection.getresponse()
    assert answer.status == 200, (path, answer.status)
    return connection, answer


def ends(answer):
    """Returns True if the answer ends, and the time that this took."""
    begun = time.monotonic()
    try:
        while answer.read1(1 << 16):
            pass
    except TimeoutError:
        return False
    except Exception:  # It is broken off.
        pass
    return time.monotonic() - begun < 5


STREAMS = [
    ("mgmt", "/poolsStreaming/default"),
    ("mgmt", f"/pools/default/bs/{BUCKET}"),
    ("mgmt", f"/pools/default/bucketsStreaming/{BUCKET}"),
    ("mgmt", "/pools/default/nodeServicesStreaming"),
    ("views", f"/{BUCKET}/_default/_default/_changes?feed=sse&since=now"),
    ("views", f"/{BUCKET}/_default/_default/_changes?feed=longpoll&since=now&timeout=20000"),
]


@case("a stream over HTTP ends when its user is deleted")
def streams_of_deleted_users(node):
    for port, path in STREAMS:
        node.add_user("reader", f"data_reader[{BUCKET}]")
        connection, answer = stream(node, port, path, "reader")
        assert node.rest("DELETE", "/settings/rbac/users/local/reader").status == 200
        assert ends(answer), path
        connection.close()


@case("a stream over HTTP ends when its user loses the right, and no other")
def streams_of_users_without_rights(node):
    for port, path in STREAMS:
        if path.endswith("nodeServicesStreaming"):
            continue
        node.add_user("reader", f"data_reader[{BUCKET}]")
        node.add_user("other", f"data_reader[{BUCKET}]")
        connection, answer = stream(node, port, path, "reader")
        others, kept = stream(node, port, path, "other")
        node.add_user("reader", "")
        assert ends(answer), path
        others.sock.settimeout(0.5)
        try:
            while kept.read1(1 << 16):
                pass
            raise AssertionError(f"{path} of another user has ended")
        except TimeoutError:
            pass
        connection.close()
        others.close()


# A plugin that holds its answer, as a plugin with CouchDB's protocol does for `_changes`.
HELD = """
export function onUpdate(doc, meta) { state.put(meta.id, doc); }
export function handle(request) {
    const rest = request.headers['nacre-rest'] ? Number(request.headers['nacre-rest']) : 0;
    const ids = [...state.scan({})].map((row) => JSON.stringify(row));
    return new Response(`round ${rest} ${ids.join(' ')}\\n`, {headers: {'nacre-rest': String(rest + 1), 'nacre-wait': '20000'}});
}
"""


@case("an answer that a plugin holds ends when its user is deleted or loses the right")
def held_answers(node):
    upload(node, "held", HELD)
    assert deploy(node, "held").status == 200
    runs(node, "held")
    path = "/_plugin/held/"
    for takes_away in (
        lambda: node.rest("DELETE", "/settings/rbac/users/local/reader"),
        lambda: node.rest("PATCH", "/settings/rbac/users/local/reader", {"roles": f"data_reader[{BUCKET}]"}),
        lambda: node.rest("PATCH", "/settings/rbac/users/local/reader", {"password": "another1"}),
        lambda: node.rest("PATCH", "/settings/rbac/users/local/reader", {"locked": "true"}),
    ):
        node.add_user("reader", f"plugin_invoke[{BUCKET}]")
        node.add_user("other", f"plugin_invoke[{BUCKET}]")
        connection, answer = stream(node, "mgmt", path, "reader")
        others, kept = stream(node, "mgmt", path, "other")
        assert answer.readline().startswith(b"round 0") and kept.readline().startswith(b"round 0")
        assert takes_away().status == 200
        received = []
        reads = threading.Thread(target=lambda: received.append(whole(answer)))
        reads.start()
        with node.kv() as writer:
            writer.set(b"secret", b'{"secret": true}')
        reads.join(8)
        assert received and b"secret" not in received[0], received
        # The answer of another user continues, with the later writes.
        assert kept.readline().startswith(b"round 1")
        connection.close()
        others.close()


@case("a stream of measurements and events ends when its user is deleted")
def streams_of_administration(node):
    for path in ("/_nacre/stream", "/eventsStreaming"):
        node.add_user("reader", "ro_admin")
        connection, answer = stream(node, "mgmt", path, "reader")
        assert node.rest("DELETE", "/settings/rbac/users/local/reader").status == 200
        assert ends(answer), path
        connection.close()


@case("a long poll delivers nothing to a user who was deleted meanwhile")
def long_poll(node):
    path = f"/{BUCKET}/_default/_default/_changes?feed=longpoll&since=now&include_docs=true&timeout=20000"
    node.add_user("reader", f"data_reader[{BUCKET}]")
    connection, answer = stream(node, "views", path, "reader")
    received = []
    reads = threading.Thread(target=lambda: received.append(whole(answer)))
    reads.start()
    assert node.rest("DELETE", "/settings/rbac/users/local/reader").status == 200
    with node.kv() as writer:
        writer.set(b"secret", b'{"secret": true}')
    reads.join()
    assert b"secret" not in received[0], received
    connection.close()


def whole(answer):
    """Reads the available part of an answer."""
    text = b""
    try:
        while piece := answer.read1(1 << 16):
            text += piece
    except Exception:  # It is broken off.
        pass
    return text


@case("watches of one user are bounded, and places come free when clients leave")
def watches(node):
    node.add_user("reader", f"data_reader[{BUCKET}]")
    path = f"/pools/default/bs/{BUCKET}"
    clients, statuses = [], []
    try:
        for _ in range(560):
            clients.append(unread(node, "mgmt", f"GET {path}", "reader", "127.0.0.2"))
            # A burst of connections without a login would meet another limit.
            statuses.append(clients[-1].recv(12)[-3:])
        assert statuses.count(b"200") == 512 and statuses.count(b"503") == 48, statuses
    finally:
        for client in clients:
            client.close()
    # 512 is the limit of an address.
    eventually(lambda: node_streams(node, path) == 200, within=10)


def node_streams(node, path):
    client = unread(node, "mgmt", f"GET {path}", "reader", "127.0.0.2")
    try:
        return int(client.recv(12)[-3:])
    finally:
        client.close()
