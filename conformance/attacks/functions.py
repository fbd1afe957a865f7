"""Functions that try to leak secrets, access what the node can, repeat work, or outlive the rights of their owner."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .harness import BUCKET, Json, basic, case, eventually

DOCUMENTS = 50
SENDS = "function OnUpdate(doc, meta) { curl('POST', out, {body: {id: meta.id}}); }"
TRIES = """function OnUpdate(doc, meta) {
    if (!doc.url) return;
    let told;
    try { told = curl('GET', out).status; } catch (error) { told = String(error.message || error); }
    log('told', meta.id, told);
}"""


class Hook:
    """A loopback server that records what it receives: the values of `Authorization`, in order."""

    def __init__(self):
        hook, self.calls = self, []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                hook.calls.append(self.headers.get("Authorization"))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def hook():
    """Yields a `Hook` that ends with the block."""
    own = Hook()
    try:
        yield own
    finally:
        own.server.shutdown()
        own.server.server_close()


def collections(node):
    """Creates the collections `s.src` and `s.meta`."""
    scopes = f"/pools/default/buckets/{BUCKET}/scopes"
    assert node.rest("POST", scopes, {"name": "s"}).status == 200
    for name in ("src", "meta"):
        assert node.rest("POST", f"{scopes}/s/collections", {"name": name}).status == 200


def definition(code, url, **auth):
    """Returns a function `f` that listens to `s.src` and can access `url` as `out`."""
    curl = {"hostname": url, "value": "out", "auth_type": "no-auth", "validate_ssl_certificate": True, **auth}
    source = {"source_bucket": BUCKET, "source_scope": "s", "source_collection": "src"}
    metadata = {"metadata_bucket": BUCKET, "metadata_scope": "s", "metadata_collection": "meta"}
    return {
        "appname": "f", "appcode": code, "settings": {},
        "depcfg": {**source, **metadata, "curl": [curl], "buckets": [], "constants": []},
    }


def ask(node, method, path, value=None, user="Administrator", scope="?bucket=default&scope=s"):
    """Sends a request about functions of the scope."""
    data = None if value is None else Json(value)
    return node.rest(method, f"/api/v1/{path}{scope}", data, user=user, port="eventing")


def status(node):
    """Returns the status of the function."""
    return ask(node, "GET", "status/f").json()["app"]


def deploy(node, defined, user="Administrator"):
    """Defines the function and waits until it runs."""
    collections(node)
    answer = ask(node, "POST", "functions/f", defined, user)
    assert answer.status == 200, answer.body
    answer = ask(node, "POST", "functions/f/deploy", user=user)
    assert answer.status == 200, answer.body
    eventually(lambda: status(node)["composite_status"] == "deployed", within=60)


def write(node, keys, value="{}"):
    """Writes documents to `s.src`."""
    for key in keys:
        answer = node.query(f"UPSERT INTO default:`default`.s.src (KEY, VALUE) VALUES ('{key}', {value})")
        assert answer["status"] == "success", answer


def author(node, name="ann"):
    """Creates a user who may define functions in the scope and read the documents that they listen to."""
    roles = f"eventing_manage_functions[{BUCKET}:s],data_dcp_reader[{BUCKET}:s:src]"
    node.add_user(name, roles)


@case("a stored password is not sent to another host", arguments=("--allow-outgoing", "127.0.0.0/8"))
def stored_passwords_stay(node):
    with hook() as own, hook() as evil:
        collections(node)
        author(node)
        basic_auth = {"auth_type": "basic", "username": "svc", "password": "TOPSECRET"}
        assert ask(node, "POST", "functions/f", definition(SENDS, own.url, **basic_auth)).status == 200
        stolen = ask(node, "GET", "functions/f", user="ann").json()
        assert stolen["depcfg"]["curl"][0]["password"] == ""
        stolen["depcfg"]["curl"][0]["hostname"] = evil.url
        for path, value in (("functions/f", stolen), ("functions/f/config", stolen["depcfg"])):
            answer = ask(node, "POST", path, value, "ann")
            assert answer.status == 400 and b"again" in answer.body, answer.body
        stolen["depcfg"]["curl"][0]["hostname"] = own.url + "/other"
        assert ask(node, "POST", "functions/f", stolen, "ann").status == 200, "the same server"
        assert ask(node, "POST", "functions/f/deploy", user="ann").status == 200
        write(node, ["d"])
        eventually(lambda: own.calls, within=60)
        assert own.calls == [basic("svc", "TOPSECRET")] and not evil.calls


@case("functions reach neither the node nor its machine unless an operator allows it")
def functions_stay_outside(node):
    collections(node)
    author(node)
    port = node.port("mgmt")
    urls = [f"http://{host}:{port}/pools" for host in
            ("127.0.0.1", "localhost", "0.0.0.0", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]")]
    urls += ["http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/", "http://100.100.100.200/"]

    def told(number, url):
        defined = definition(TRIES, url)
        assert ask(node, "POST", "functions/f", defined, "ann").status == 200, url
        assert ask(node, "POST", "functions/f/deploy", user="ann").status == 200
        write(node, [f"d{number}"], '{"url": true}')

        def line():
            log = node.rest("GET", "/getAppLog?name=f&bucket=default&scope=s", port="eventing").body.decode()
            return next((part for part in log.splitlines() if f"d{number}" in part and "told" in part), None)

        found = eventually(line, within=60)
        assert ask(node, "POST", "functions/f/undeploy", user="ann").status == 200
        eventually(lambda: status(node)["composite_status"] == "undeployed", within=60)
        return found

    for number, url in enumerate(urls):
        line = told(number, url)
        assert "outgoingHttp" in line, f"{url}: {line}"
    with hook() as own:
        assert node.rest("POST", "/settings/outgoingHttp", {"allow": "127.0.0.0/8"}, user="ann").status == 403
        assert node.rest("POST", "/settings/outgoingHttp", {"allow": "10.0.0.0/33"}).status == 400
        assert node.rest("POST", "/settings/outgoingHttp", {"allow": "127.0.0.0/8"}).status == 200
        assert told(100, own.url).endswith(" 200"), "what an operator allows is reached"
        assert "outgoingHttp" in told(101, urls[0]), "the cluster's own ports need an entry of their own"


def send_all(node, own):
    """Lets a function send each document once, and stops the node cleanly."""
    deploy(node, definition(SENDS, own.url))
    write(node, (f"d{number}" for number in range(DOCUMENTS)))
    eventually(lambda: len(own.calls) >= DOCUMENTS, within=60)
    node.stop()
    assert len(own.calls) == DOCUMENTS


def flip(path):
    """Damages 64 bytes in the middle of a file."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    for at in range(middle, min(middle + 64, len(data))):
        data[at] ^= 0xFF
    path.write_bytes(data)


def damage_is_told(node, own):
    """Checks that a function with a damaged state is paused and reports it."""
    node.start()
    told = eventually(lambda: (found := status(node)).get("reason") and found, within=60)
    assert told["composite_status"] == "paused" and "damaged state" in told["reason"], told
    assert "eventing:default/s/f" in node.log() and "damaged state" in node.log()
    assert 'nacre_plugin_damaged{deployment="eventing:default/s/f"} 1' in node.rest("GET", "/metrics").body.decode()
    answer = ask(node, "POST", "functions/f/resume")
    assert answer.status == 422 and b"from=now" in answer.body, answer.body
    write(node, ["later"])
    assert len(own.calls) == DOCUMENTS, "nothing is sent meanwhile"


@case("a function with a damaged state waits for the operator", arguments=("--allow-outgoing", "127.0.0.0/8"))
def damaged_state_is_told(node):
    with hook() as own:
        send_all(node, own)
        for path in (node.data_dir / "states").glob("*.space"):
            flip(path)
        damage_is_told(node, own)
        node.stop()
        damage_is_told(node, own)
        answer = ask(node, "POST", "functions/f/resume", scope="?bucket=default&scope=s&from=now")
        assert answer.status == 200, answer.body
        eventually(lambda: status(node)["composite_status"] == "deployed", within=60)
        write(node, ["new"])
        eventually(lambda: len(own.calls) > DOCUMENTS, within=60)
        assert len(own.calls) == DOCUMENTS + 1, "from now on"
        node.stop()
        node.start()
        eventually(lambda: status(node)["composite_status"] == "deployed", within=60)
        assert len(own.calls) == DOCUMENTS + 1, "and whole again"


@case("a function whose state was removed waits for the operator", arguments=("--allow-outgoing", "127.0.0.0/8"))
def removed_state_is_told(node):
    with hook() as own:
        send_all(node, own)
        for path in (node.data_dir / "states").glob("*.space"):
            path.unlink()
        damage_is_told(node, own)
        answer = ask(node, "POST", "functions/f/resume", scope="?bucket=default&scope=s&from=everything")
        assert answer.status == 200, answer.body
        eventually(lambda: len(own.calls) >= 2 * DOCUMENTS + 1, within=60)


@case("functions of a user who is gone or has lost a role are paused", arguments=("--allow-outgoing", "127.0.0.0/8"))
def functions_end_with_their_owner(node):
    with hook() as own:
        collections(node)
        author(node)
        assert ask(node, "POST", "functions/f", definition(SENDS, own.url), "ann").status == 200
        assert ask(node, "POST", "functions/f/deploy", user="ann").status == 200
        write(node, ["a"])
        eventually(lambda: len(own.calls) == 1, within=60)

        def held(why):
            return lambda: (told := status(node))["composite_status"] == "paused" and why in told.get("reason", "")

        node.add_user("ann", f"eventing_manage_functions[{BUCKET}:s]")
        eventually(held("data_reader[default:s:src]"), within=30)
        write(node, ["b"])
        author(node)
        eventually(lambda: len(own.calls) == 2, within=30)
        assert node.rest("DELETE", "/settings/rbac/users/local/ann").status == 200
        eventually(held("not a user"), within=30)
        write(node, ["c"])
        node.stop()
        node.start()
        eventually(held("not a user"), within=60)
        assert len(own.calls) == 2, "nobody sends it"
        author(node, "bob")
        node.add_user("eve", f"eventing_manage_functions[{BUCKET}:s]")
        assert ask(node, "POST", "functions/f/resume", user="eve").status == 403
        assert ask(node, "POST", "functions/f/resume", user="bob").status == 200
        eventually(lambda: len(own.calls) == 3, within=30)
