"""The same kinds of attacks against newer services: search, analytics, backups, replication between clusters."""

import json
import os
import re
import shutil
import tempfile
import threading
import time
import urllib.parse
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .browsers import LINK, TYPED
from .files import open_to_others
from .functions import hook
from .harness import BUCKET, PASSWORD, Json, basic, case, eventually

REMOTES = "/pools/default/remoteClusters"
REPOSITORIES = "/api/v1/cluster/self/repository"
# The list of all endpoints. The server's own test compares it with its tables.
ENDPOINTS = Path(__file__).parents[2] / "docs" / "reference" / "rest.md"
PORT_OF = {8091: "mgmt", 8092: "views", 8093: "query", 8094: "search", 8095: "analytics", 8096: "eventing", 8097: "backup"}
# Public by design: the kind of server, and whether it is ready.
PUBLIC = {"/", "/pools"}


def endpoints():
    """Yields port, method, path and right of every endpoint, with values for the parameters of paths."""
    port, seen = None, set()
    for line in ENDPOINTS.read_text().splitlines():
        if heading := re.match(r"## .*port (\d+)", line):
            port = PORT_OF[int(heading[1])]
        elif row := re.match(r"\| `(/.*)` \| (\w+|\*) \| (.*) \|", line):
            path, method, right = row.groups()
            path = re.sub(r"\{(\w+)(\.\.\.)?\}", lambda name: {"bucket": BUCKET, "scope": "_default"}.get(name[1], "x1"), path)
            if (port, method, path) not in seen:
                seen.add((port, method, path))
                yield port, "POST" if method == "*" else method, path, right


@case("every endpoint refuses strangers")
def strangers(node):
    refused = 0
    for port, method, path, _ in endpoints():
        if path in PUBLIC and method == "GET":
            continue
        answer = node.rest(method, path, None if method in ("GET", "HEAD") else "{}", user=None, port=port)
        assert answer.status == 401, (port, method, path, answer)
        refused += 1
    assert refused > 300, refused
    return f"{refused} endpoints"


@case("every endpoint with a right of its own refuses users without roles")
def no_roles(node):
    node.add_user("nobody")
    refused = 0
    for port, method, path, right in endpoints():
        if right in ("any login", "depends on the request"):
            continue
        status = node.rest(method, path, None if method in ("GET", "HEAD") else "{}", user="nobody", port=port).status
        assert status in (403, 404) and (status == 403 or "bucket" in right), (port, method, path, status)
        refused += 1
    assert refused > 150, refused
    return f"{refused} endpoints"


def state_of(node):
    """Returns the administrator's settings, without values that change by themselves."""
    paths = [
        ("mgmt", "/settings/rbac/users"), ("mgmt", "/settings/rbac/groups"), ("mgmt", f"/pools/default/buckets/{BUCKET}/scopes"),
        ("mgmt", "/deployments"), ("mgmt", "/plugins"), ("mgmt", REMOTES), ("mgmt", "/settings/querySettings"), ("mgmt", "/settings/security"),
        ("mgmt", "/settings/outgoingHttp"), ("mgmt", "/settings/autoFailover"), ("mgmt", "/settings/audit"), ("mgmt", "/api/v1/tokens"),
        ("mgmt", "/settings/passwordPolicy"), ("mgmt", "/settings/replications"), ("mgmt", "/settings/indexes"), ("mgmt", "/settings/stats"),
        ("eventing", "/api/v1/export"), ("views", f"/{BUCKET}/_design/dd"), ("search", "/api/index"), ("backup", "/api/v1/plan"),
        ("backup", "/api/v1/config"), ("backup", REPOSITORIES + "/active"),
    ]
    found = {path: node.rest("GET", path, port=port) for port, path in paths}
    buckets = node.rest("GET", "/pools/default/buckets").json()
    return {
        "buckets": [(bucket["name"], bucket["uuid"]) for bucket in buckets],
        "statements": node.query("SELECT COUNT(*) AS n FROM system:prepareds")["results"],
        **{path: (answer.status, answer.body) for path, answer in found.items()},
    }


@case("no link changes anything, whatever its path and parameters")
def links(node):
    node.give_service("backup")
    node.query("SELECT 1")
    changing = {
        "roles": "admin", "password": "owned123", "name": "x1", "ramQuotaMB": "100", "bucketType": "couchbase", "allow": "127.0.0.0/8",
        "statement": f"CREATE COLLECTION {BUCKET}._default.owned", "hostname": "127.0.0.1", "username": "evil", "enabled": "false",
        "timeout": "300", "minLength": "0", "method": "DELETE", "_method": "DELETE", "X-HTTP-Method-Override": "DELETE",
    }
    query = "?" + urllib.parse.urlencode(changing)
    before = state_of(node)
    asked = 0
    for port, method, path, _ in endpoints():
        streams = "treaming" in path or "/bs/" in path or path.endswith("/stream") or "_changes" in path or "_sync" in path
        if streams or method == "HEAD":
            continue
        # Endpoints that change something by POST, PUT or DELETE are requested with GET as well.
        status = node.rest("GET", path + query, port=port, headers=LINK, timeout=60).status
        assert status != 500, (port, path)
        asked += 1
    after = state_of(node)
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, [(before[name], after[name]) for name in changed]
    assert node.rest("GET", "/whoami", headers=TYPED).status == 200
    return f"{asked} paths"


@case("a stored password of a replication is not sent to another host")
def stored_passwords(node):
    own = f"127.0.0.1:{node.port('mgmt')}"
    node.add_user("target", "replication_target[*]", "TOPSECRET1")
    made = {"name": "b", "hostname": own, "username": "target", "password": "TOPSECRET1"}
    assert node.rest("POST", REMOTES, made).status == 200
    node.add_user("mallory", "replication_admin")
    with hook() as evil:
        host = evil.url.removeprefix("http://")
        for form in (
            {"hostname": host}, {"hostname": host, "password": ""}, {"name": "b", "hostname": host, "username": "target"},
            {"secureType": "half"}, {"hostname": host, "secureType": "none", "network_type": "external"},
        ):
            for query in ("", "?just_validate=1"):
                answer = node.rest("POST", f"{REMOTES}/b{query}", form, user="mallory")
                assert answer.status == 400 and b"again" in answer.body, (form, answer)
        assert not evil.calls, evil.calls
        renamed = node.rest("POST", f"{REMOTES}/b", {"name": "c"}, user="mallory")
        assert renamed.status == 200, "what goes to the same server keeps the password"
        given = {"hostname": host, "password": "another1"}
        node.rest("POST", f"{REMOTES}/c", given, user="mallory")
        assert set(evil.calls) == {basic("target", "another1")}, evil.calls


def repository(archive, **place):
    """Returns a request to import a repository."""
    return Json({"id": "r", "repo": "r", "archive": archive, **place})


# Without them the store's client first looks for credentials on the machine.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


@case("a backup reaches neither the node nor its machine unless an operator allows it", environment=CREDENTIALS)
def object_stores(node):
    node.give_service("backup")
    node.add_user("mallory", "backup_admin")
    plan = {"tasks": [{"name": "b", "task_type": "BACKUP", "schedule": {"job_type": "BACKUP", "frequency": 200, "period": "WEEKS"}}]}
    assert node.rest("POST", "/api/v1/plan/p", Json(plan), port="backup").status == 200
    with hook() as evil:
        port = evil.url.rpartition(":")[2]
        hosts = ("127.0.0.1", "localhost", "0.0.0.0", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]")
        urls = [f"http://{host}:{port}" for host in hosts] + [f"https://127.0.0.1:{node.port('mgmt', tls=True)}"]
        urls += ["http://169.254.169.254", "http://100.100.100.200/", "http://good@127.0.0.1", "file:///etc", f"http://127.0.0.1:{port}#"]
        for url in urls:
            place = {"archive": "s3://b/p", "cloud_region": "eu", "cloud_endpoint": url}
            answer = node.rest("POST", f"{REPOSITORIES}/import", repository(**place), user="mallory", port="backup", timeout=120)
            assert answer.status == 400 and b"endpoint" in answer.body, (url, answer)
            answer = node.rest("POST", f"{REPOSITORIES}/active/a", Json({"plan": "p", **place}), user="mallory", port="backup")
            assert answer.status == 400 and b"endpoint" in answer.body, (url, answer)
        assert not evil.calls
        assert node.rest("POST", "/settings/outgoingHttp", {"allow": f"127.0.0.1:{port}"}).status == 200
        place = {"archive": "s3://b/p", "cloud_region": "eu", "cloud_endpoint": f"http://127.0.0.1:{port}"}
        answer = node.rest("POST", f"{REPOSITORIES}/active/a", Json({"plan": "p", **place}), user="mallory", port="backup")
        assert answer.status == 200, answer
        # The endpoint is checked for each backup, not only when the repository is created.
        assert node.rest("POST", "/settings/outgoingHttp", {"allow": ""}).status == 200
        answer = node.rest("POST", f"{REPOSITORIES}/active/a/backup", Json({}), user="mallory", port="backup")
        assert answer.status == 500 and b"outgoingHttp" in answer.body, answer
        assert not evil.calls


class Redirects(BaseHTTPRequestHandler):
    """Redirects every request to `target`."""

    target, asked = "", 0

    def do_GET(self):
        Redirects.asked += 1
        self.send_response(307)
        self.send_header("Location", Redirects.target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_PUT = do_POST = do_GET

    def log_message(self, *_):
        pass


@case(
    "an object store does not send a backup elsewhere", environment=CREDENTIALS, arguments=("--allow-outgoing", "127.0.0.0/8")
)
def redirections(node):
    node.give_service("backup")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with hook() as inner:
            Redirects.target = inner.url + "/latest/meta-data"
            place = {"archive": "s3://b/p", "cloud_region": "eu", "cloud_endpoint": f"http://127.0.0.1:{server.server_address[1]}"}
            answer = node.rest("POST", f"{REPOSITORIES}/import", repository(**place), port="backup", timeout=120)
            assert answer.status == 400 and Redirects.asked, answer
            assert not inner.calls
    finally:
        server.shutdown()
        server.server_close()


@case("a backup neither reads nor writes the files of the node")
def archives(node):
    node.give_service("backup")
    node.add_user("mallory", "backup_admin")
    link = node.folder / "link"
    link.symlink_to(node.data_dir)
    for archive in (node.data_dir, node.data_dir / "buckets", node.data_dir / "new" / "one", link, link / "node", node.data_dir / "node" / ".." ):
        answer = node.rest("POST", f"{REPOSITORIES}/import", repository(str(archive)), user="mallory", port="backup")
        assert answer.status == 400 and b"archive" in answer.body, (archive, answer)
    assert not (node.data_dir / "new").exists()


@case("searches that wait keep nobody from administration, and a user has a share of them", heavy=True)
def waiting_searches(node):
    index = {"type": "fulltext-index", "sourceType": "couchbase", "sourceName": BUCKET}
    assert node.rest("PUT", "/api/index/i", Json(index), port="search", timeout=120).status == 200
    ask = {"query": {"match_all": {}}, "ctl": {"timeout": 1000}}
    eventually(lambda: node.rest("POST", "/api/index/i/query", Json(ask), port="search", timeout=60).status == 200, within=60)
    node.add_user("mallory", "data_reader[*],query_select[*],admin")
    # The query waits for a write that never comes.
    late = {"query": {"match_all": {}}, "ctl": {"timeout": 30_000, "consistency": {"level": "at_plus", "vectors": {"i": {"0": 1 << 40}}}}}
    body = json.dumps(late).encode()
    clients = []
    try:
        for number in range(620):
            client = node.socket("search", source=f"127.0.0.{2 + number % 4}")
            head = f"POST /api/index/i/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('mallory', PASSWORD)}\r\n"
            client.sendall(head.encode() + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            clients.append(client)
        answers = {}

        def refused():
            for client in clients:
                client.setblocking(False)
                with suppress(BlockingIOError):
                    if client not in answers:
                        answers[client] = client.recv(12)
            return sum(answer.endswith(b" 503") for answer in answers.values())

        # Once some are refused, all others are waiting.
        eventually(lambda: refused() >= 620 - 256)
        for method, path in (("GET", "/pools/default/buckets"), ("GET", "/settings/rbac/users"), ("DELETE", "/settings/rbac/users/local/mallory")):
            begun = time.monotonic()
            assert node.rest(method, path, timeout=8).status == 200, path
            assert time.monotonic() - begun < 3, path
    finally:
        for client in clients:
            client.close()


@case("requests about repositories run few processes at a time")
def many_commands(node):
    node.give_service("backup")
    node.add_user("mallory", "backup_admin")
    archive = tempfile.mkdtemp(prefix="nacre-attack-archive-")
    try:
        statuses, most = [], 0

        def children():
            threads = Path(f"/proc/{node.process.pid}/task").iterdir()
            return sum(len((thread / "children").read_text().split()) for thread in threads)

        def ask():
            answer = node.rest("POST", f"{REPOSITORIES}/import", repository(archive), user="mallory", port="backup", timeout=120)
            statuses.append((answer.status, b"try again" in answer.body))

        workers = [threading.Thread(target=ask, daemon=True) for _ in range(60)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            # A thread may end while it is examined.
            with suppress(OSError):
                most = max(most, children())
        assert len(statuses) == 60 and most <= 4, (most, statuses)
        assert any(again for _, again in statuses), statuses
        return f"{most} processes at most"
    finally:
        shutil.rmtree(archive, ignore_errors=True)


SECRETS = ("ZQXREMOTE1", "ZQXMAIL1", "ZQXHOOK1", "ZQXLDAP1", "ZQXBEARER1")


@case("no answer, log or file shows a password that was stored")
def stored_secrets(node):
    own = f"127.0.0.1:{node.port('mgmt')}"
    node.add_user("target", "replication_target[*]", SECRETS[0])
    assert node.rest("POST", REMOTES, {"name": "b", "hostname": own, "username": "target", "password": SECRETS[0]}).status == 200
    alerts = {"enabled": "true", "recipients": "a@b.example", "sender": "a@b.example", "emailUser": "u", "emailPass": SECRETS[1], "emailHost": "h"}
    node.rest("POST", "/settings/alerts", alerts)
    node.rest("POST", "/settings/ldap", {"hosts": "h", "bindDN": "cn=a", "bindPass": SECRETS[3]})
    curl = [
        {"hostname": "http://hooks.example", "value": "a", "auth_type": "basic", "username": "u", "password": SECRETS[2]},
        {"hostname": "http://hooks.example", "value": "b", "auth_type": "bearer", "bearer_key": SECRETS[4]},
    ]
    source = {"source_bucket": BUCKET, "source_scope": "_default", "source_collection": "_default"}
    metadata = {"metadata_bucket": BUCKET, "metadata_scope": "_default", "metadata_collection": "m"}
    assert node.rest("POST", f"/pools/default/buckets/{BUCKET}/scopes/_default/collections", {"name": "m"}).status == 200
    function = {"appname": "f", "appcode": "function OnUpdate(doc, meta) {}", "settings": {}, "depcfg": {**source, **metadata, "curl": curl}}
    assert node.rest("POST", "/api/v1/functions/f", Json(function), port="eventing").status == 200
    node.rest("POST", "/controller/startLogsCollection", {"nodes": "*"})
    for port, method, path, _ in endpoints():
        if method != "GET" or "treaming" in path or "/bs/" in path or path.endswith("/stream") or "_changes" in path:
            continue
        for named in {path, path.replace("x1", "f"), path.replace("x1", "b")}:
            body = node.rest("GET", named, port=port, timeout=60).body.decode(errors="replace")
            shown = [secret for secret in SECRETS if secret in body]
            assert not shown, (named, shown)
    for catalog in ("active_requests", "completed_requests", "all_scopes", "functions"):
        assert not [secret for secret in SECRETS if secret in json.dumps(node.query(f"SELECT * FROM system:{catalog}"))], catalog
    node.stop()
    for folder, _, names in os.walk(node.folder):
        for name in names:
            data = Path(folder, name).read_bytes()
            shown = [secret for secret in SECRETS if secret.encode() in data]
            assert not shown, (folder, name, shown)


@case("what services write is for the node's own user alone")
def private_files(node):
    node.give_service("backup")
    index = {"type": "fulltext-index", "sourceType": "couchbase", "sourceName": BUCKET}
    assert node.rest("PUT", "/api/index/i", Json(index), port="search", timeout=120).status == 200
    with node.kv() as connection:
        for number in range(50):
            connection.set(b"k%d" % number, b'{"text": "words"}')
    archive = node.folder / "archive"
    plan = {"tasks": [{"name": "b", "task_type": "BACKUP", "schedule": {"job_type": "BACKUP", "frequency": 200, "period": "WEEKS"}}]}
    assert node.rest("POST", "/api/v1/plan/p", Json(plan), port="backup").status == 200
    made = node.rest("POST", f"{REPOSITORIES}/active/r", Json({"plan": "p", "archive": str(archive)}), port="backup")
    assert made.status == 200, made
    begun = node.rest("POST", f"{REPOSITORIES}/active/r/backup", Json({}), port="backup")
    assert begun.status == 200, begun
    history = f"{REPOSITORIES}/active/r/taskHistory"
    ended = eventually(lambda: [run for run in node.rest("GET", history, port="backup").json() if run["status"] != "running"], within=60)
    assert ended[0]["status"] == "done", ended
    node.rest("POST", "/settings/audit", {"auditdEnabled": "true"})
    node.rest("POST", "/controller/startLogsCollection", {"nodes": "*"})
    eventually(lambda: list(node.data_dir.glob("logs/collection-*")))
    assert any(archive.rglob("*")), "there is a backup"
    for folder in (node.data_dir, archive):
        assert not open_to_others(folder), open_to_others(folder)
