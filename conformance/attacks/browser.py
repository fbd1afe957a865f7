"""Attacks by web pages in a real Chromium (Debian: `apt-get install chromium`).

The pages are of `evil.example`, which Chromium resolves to 127.0.0.1. It is controlled over the pipe of its DevTools protocol:
JSON messages, each followed by a zero byte.
"""

import http.server
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

from .harness import BUCKET, PASSWORD, USER, basic, case, eventually

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-pipe"
).split()
RULES = "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP rebind.example 127.0.0.1"
ABSENT = "not tried: Chromium is not installed"


def program():
    """Returns the path of Chromium, or None."""
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A Chromium with a separate profile and one tab."""

    def __init__(self, path):
        self.folder = tempfile.mkdtemp(prefix="nacre-chromium-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        def pipes():
            # The protocol requires the descriptors 3 and 4; the copies are above them, so that neither is overwritten.
            read, write = os.dup(to_browser), os.dup(from_browser)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [path, *ARGUMENTS, RULES, f"--user-data-dir={self.folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=pipes, start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.buffer = 0, b""
        self.answers, self.addresses = [], {}
        targets = self.call("Target.getTargets")["targetInfos"]
        tab = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Network", "Page", "Runtime"):
            self.call(f"{domain}.enable")

    session = None

    def call(self, method, **parameters):
        """Sends a message and waits for its answer; keeps the events that arrive meanwhile."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            received = self.receive(30)
            assert received is not None, f"Chromium does not answer {method}"
            if received.get("id") == self.number:
                assert "error" not in received, (method, received)
                return received["result"]

    def receive(self, within):
        """Returns the next message, or None."""
        deadline = time.monotonic() + within
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if select.select([self.into], [], [], left)[0]:
                self.buffer += os.read(self.into, 1 << 20)
        text, self.buffer = self.buffer.split(b"\0", 1)
        received = json.loads(text)
        parameters = received.get("params", {})
        if received.get("method") == "Network.requestWillBeSent":
            self.addresses[parameters["requestId"]] = parameters["request"]["url"]
        # This event also comes for answers that the page cannot see.
        elif received.get("method") == "Network.responseReceivedExtraInfo":
            self.answers.append((parameters["requestId"], parameters["statusCode"]))
        return received

    def settle(self, seconds=1.0):
        """Receives events until none has come for some time."""
        while self.receive(seconds) is not None:
            pass

    def open(self, url):
        """Opens an address as if the user had typed it."""
        self.call("Page.navigate", url=url)
        self.settle()

    def evaluate(self, script):
        """Runs a script in the page, as if the user had clicked; returns its value, or its error as text."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            return f"error: {answer['exceptionDetails'].get('text')}"
        return answer["result"].get("value")

    def act(self, script):
        """Runs a script that may leave the page, and waits for its effects."""
        self.call("Runtime.evaluate", expression=script, userGesture=True)
        self.settle()

    def statuses(self, part):
        """Returns the statuses of the answers to requests whose address contains `part`."""
        return [status for request, status in self.answers if part in self.addresses.get(request, "")]

    def seen(self):
        """Returns the requests and the statuses of their answers, for the message of a failure."""
        return [(self.addresses.get(request), status) for request, status in self.answers]

    def close(self):
        """Ends Chromium and removes its profile."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)


class Blank(http.server.BaseHTTPRequestHandler):
    """A site with one empty page, in which the scripts of an attack run."""

    def do_GET(self):
        """Answers every address with the page."""
        body = b"<!doctype html><title>evil</title><body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Logs nothing."""


@contextmanager
def browsing():
    """Returns a browser and the address of a page of another site; None without Chromium."""
    path = program()
    if path is None:
        yield None, None
        return
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    browser = Browser(path)
    try:
        yield browser, f"http://evil.example:{site.server_port}/"
    finally:
        browser.close()
        site.shutdown()
        site.server_close()


def form(url, fields):
    """Returns a script that replaces the page by a form and submits it."""
    return f"""{{
        const form = document.createElement('form');
        form.action = {json.dumps(url)}; form.method = 'POST'; form.target = '_top';
        for (const [name, value] of Object.entries({json.dumps(fields)})) {{
            const field = document.createElement('input'); field.name = name; field.value = value; form.append(field);
        }}
        document.body.append(form); form.submit();
    }}"""


def write_link(node, login=""):
    """Returns the address of a link that writes a document."""
    statement = f"UPSERT INTO {BUCKET} (KEY, VALUE) VALUES ('evil', 1)"
    return f"http://{login}127.0.0.1:{node.port('query')}/query/service?" + urllib.parse.urlencode({"statement": statement})


def is_unchanged(node):
    """Returns True if the administrator's login still works and nobody has written."""
    rows = node.query(f"SELECT RAW COUNT(*) FROM {BUCKET}", scan_consistency="request_plus")
    return node.rest("GET", "/whoami").status == 200 and rows["results"] == [0]


@case("Chromium: a web page does not claim an unclaimed node", heavy=True, start=False)
def claims(node):
    node.start("--unclaimed", password=None)
    with browsing() as (browser, site):
        if browser is None:
            return ABSENT
        address = f"http://127.0.0.1:{node.port('mgmt')}/settings/web"
        fields = {"username": "evil", "password": "owned123", "port": "SAME"}
        browser.open(site)
        fetched = browser.evaluate(
            f"fetch('{address}', {{method: 'POST', mode: 'no-cors', body: new URLSearchParams({json.dumps(fields)})}})"
            ".then(answer => answer.type, error => `${error}`)"
        )
        browser.act(form(address, fields))
        assert browser.statuses("/settings/web") == [403, 403], (fetched, browser.seen())
    assert node.rest("GET", "/whoami", user="evil", password="owned123").status == 401
    answer = node.rest("POST", "/settings/web", {**fields, "username": USER}, user=None)
    assert answer.status == 200, "a script on the machine claims it"


@case("Chromium: a form whose address names the login changes no password", heavy=True)
def form_with_login(node):
    with browsing() as (browser, site):
        if browser is None:
            return ABSENT
        browser.open(site)
        login = f"{USER}:{PASSWORD}@"
        browser.act(form(f"http://{login}127.0.0.1:{node.port('mgmt')}/controller/changePassword", {"password": "owned123"}))
        assert set(browser.statuses("/changePassword")) == {403}, browser.seen()
    assert is_unchanged(node)
    assert node.rest("POST", "/controller/changePassword", {"password": PASSWORD}).status == 200


@case("Chromium: a link whose address names the login writes nothing", heavy=True)
def link_with_login(node):
    with browsing() as (browser, site):
        if browser is None:
            return ABSENT
        browser.open(site)
        browser.act(f"location.href = {json.dumps(write_link(node, f'{USER}:{PASSWORD}@'))}")
        assert 403 in browser.statuses("/query/service"), browser.seen()
        assert 200 not in browser.statuses("/query/service"), browser.seen()
    assert is_unchanged(node)


@case("Chromium: a page acts with a login that the browser remembers in no way", heavy=True)
def remembered_login(node):
    with browsing() as (browser, site):
        if browser is None:
            return ABSENT
        for port in ("mgmt", "query"):
            path = "/pools/default" if port == "mgmt" else "/admin/vitals"
            browser.open(f"http://{USER}:{PASSWORD}@127.0.0.1:{node.port(port)}{path}")
            assert browser.statuses(path)[-1] == 200, "a person reads what is typed"
        # The browser remembers the login: another path needs none.
        browser.open(f"http://127.0.0.1:{node.port('query')}/admin/stats")
        assert browser.statuses("/admin/stats")[-1] == 200, browser.seen()
        browser.open(site)
        browser.act(f"const link = document.createElement('a'); link.href = {json.dumps(write_link(node))}; link.click()")
        assert browser.statuses("/query/service") == [403], browser.seen()
        browser.open(site)
        browser.act(form(f"http://127.0.0.1:{node.port('mgmt')}/controller/changePassword", {"password": "owned123"}))
        assert browser.statuses("/changePassword") == [403], browser.seen()
        browser.open(site)
        read = browser.evaluate(
            f"fetch('http://127.0.0.1:{node.port('mgmt')}/pools/default', {{credentials: 'include'}})"
            ".then(answer => answer.text(), error => `${error}`)"
        )
        assert read.startswith("TypeError"), read
        framed = f"http://127.0.0.1:{node.port('mgmt')}/versions"
        browser.act(f"const frame = document.createElement('iframe'); frame.src = {json.dumps(framed)}; document.body.append(frame)")
        assert browser.statuses("/versions") == [403], browser.seen()
    assert is_unchanged(node)
    node.query(f"UPSERT INTO {BUCKET} (KEY, VALUE) VALUES ('own', 1)")


@case("Chromium: a page whose name was made to resolve to the node is not served", heavy=True)
def rebinds(node):
    with browsing() as (browser, _):
        if browser is None:
            return ABSENT
        browser.open(f"http://rebind.example:{node.port('mgmt')}/pools")
        assert browser.statuses("/pools") == [421], browser.seen()
        for method, path in (("GET", "/pools/default/buckets"), ("PUT", "/settings/rbac/users/local/evil")):
            body = "'password=owned123&roles=admin'" if method == "PUT" else "undefined"
            got = browser.evaluate(f"""fetch('{path}', {{method: '{method}', body: {body}, referrerPolicy: 'no-referrer', headers: {{
                Authorization: '{basic(USER, PASSWORD)}', 'Content-Type': 'application/x-www-form-urlencoded',
                'Accept-Language': '*', 'User-Agent': 'curl/8.5.0'}}}}).then(answer => answer.status, error => `${{error}}`)""")
            # The policy of the page that the node has answered forbids even to send the request.
            assert got == 421 or str(got).startswith("TypeError"), (path, got)
    assert node.rest("GET", "/settings/rbac/users/local/evil").status == 404
    answer = node.rest("GET", "/pools/default/buckets", headers={"Host": "rebind.example"})
    assert answer.status == 200, "a client that is not a browser"


PAGE = """<!doctype html><title>page</title><p style="color: red">shown</p><script>
document.title = 'script';
fetch('/settings/rbac/users/local/xss', {method: 'PUT', body: new URLSearchParams({password: 'owned123', roles: 'admin'})});
</script><form id="f" action="/controller/changePassword" method="POST"><input name="password" value="owned123"></form>"""


@case("Chromium: the page of a plugin is shown and runs no script", heavy=True)
def plugin_page(node):
    with browsing() as (browser, _):
        if browser is None:
            return ABSENT
        project = Path(node.folder) / "evil"
        login = ["--server", f"http://127.0.0.1:{node.port('mgmt')}", "--user", USER, "--password", PASSWORD]
        cache = {**os.environ, "NACRE_PLUGIN_CACHE": str(node.plugin_cache)}
        binary = str(Path(node.binary).absolute())
        subprocess.run([binary, "plugin", "new", project.name], check=True, capture_output=True, env=cache, cwd=node.folder)
        shutil.rmtree(project / "tests", ignore_errors=True)
        headers = {
            "Content-Type": "text/html", "Content-Security-Policy": "default-src * 'unsafe-inline'", "X-Frame-Options": "ALLOWALL",
            "Set-Cookie": "a=b", "Access-Control-Allow-Origin": "*", "Alt-Svc": 'h2="evil.example:443"', "X-Own": "kept",
        }
        (project / "main.js").write_text(
            f"export function handle() {{ return new Response({json.dumps(PAGE)}, {{headers: {json.dumps(headers)}}}) }}\n"
        )
        deploy = [binary, "plugin", "deploy", str(project), "--bucket", BUCKET, *login]
        done = subprocess.run(deploy, capture_output=True, text=True, env=cache)
        assert done.returncode == 0, done
        path = "/_plugin/evil/"
        eventually(lambda: node.rest("GET", path).status == 200, within=60)
        sent = node.rest("GET", path).headers
        assert sent["content-security-policy"].startswith("sandbox; default-src 'none'"), sent
        assert sent["x-frame-options"] == "DENY" and sent["x-content-type-options"] == "nosniff", sent
        assert sent["cross-origin-opener-policy"] == "same-origin" and sent["x-own"] == "kept", sent
        assert not {"set-cookie", "access-control-allow-origin", "alt-svc"} & sent.keys(), sent
        browser.open(f"http://{USER}:{PASSWORD}@127.0.0.1:{node.port('mgmt')}{path}")
        assert browser.statuses(path)[-1] == 200, browser.seen()
        assert browser.evaluate("document.title + document.querySelector('p').textContent") == "pageshown"
        # As if the user had been tricked into clicking the form's button.
        browser.act("document.getElementById('f').submit()")
        assert not browser.statuses("/settings/rbac/users/local/xss"), browser.seen()
    assert node.rest("GET", "/settings/rbac/users/local/xss").status == 404
    assert is_unchanged(node)
