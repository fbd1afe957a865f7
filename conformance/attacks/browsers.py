"""Attacks by web pages in the browser of a node's administrator.

The headers are those recorded from Chromium 156; `browser.py` runs a real one. Each attack is tried with the login that a browser
would add, so that only the headers that the page cannot change protect the node.
"""

import json
import urllib.parse

from .harness import BUCKET, PASSWORD, USER, Json, basic, case, eventually

AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"
FORM = "application/x-www-form-urlencoded"

# Chromium sends Sec-Fetch-* to addresses, to localhost and with TLS.
COMMON = {"User-Agent": AGENT, "Accept-Language": "en-US,en;q=0.9", "Accept": "*/*"}
LINK = {**COMMON, "Upgrade-Insecure-Requests": "1", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document", "Referer": "http://evil.example/"}
PAGE_FORM = {**LINK, "Origin": "http://evil.example", "Content-Type": FORM}
FETCH = {**COMMON, "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors",
         "Sec-Fetch-Dest": "empty", "Referer": "http://evil.example/", "Content-Type": FORM}
# A page on another port of the same host.
NEIGHBOUR = {**FETCH, "Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site", "Referer": "http://127.0.0.1:3000/"}
# Browsers that do not send Sec-Fetch-*.
OLD_FETCH = {**COMMON, "Origin": "http://evil.example", "Content-Type": FORM}
# A frame without an origin.
NULL_FETCH = {**COMMON, "Origin": "null", "Content-Type": FORM}
IMAGE = {**COMMON, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAME = {**LINK, "Sec-Fetch-Dest": "iframe"}
TYPED = {**COMMON, "Upgrade-Insecure-Requests": "1", "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate",
         "Sec-Fetch-User": "?1", "Sec-Fetch-Dest": "document"}

FOREIGN = [PAGE_FORM, FETCH, NEIGHBOUR, OLD_FETCH, NULL_FETCH]
PORTS = ["mgmt", "views", "query", "search", "analytics", "eventing", "backup"]


def own_page(node, port="mgmt"):
    """Returns the headers of a request from a page of the node itself."""
    origin = f"http://127.0.0.1:{node.port(port)}"
    return {**COMMON, "Origin": origin, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}


@case("a web page does not become administrator of an unclaimed node", start=False)
def unclaimed(node):
    node.start("--unclaimed", password=None)
    claim = {"username": "evil", "password": "owned123", "port": "SAME"}
    for headers in FOREIGN:
        assert node.rest("POST", "/settings/web", claim, user=None, headers=headers).status == 403, headers
        assert node.rest("POST", "/clusterInit", claim, user=None, headers=headers).status == 403, headers
    assert node.rest("GET", "/whoami", user="evil", password="owned123").status == 401
    claim = {"username": USER, "password": PASSWORD, "port": "SAME"}
    assert node.rest("POST", "/settings/web", claim, user=None).status == 200


@case("an unclaimed node is claimed from another machine with its token only", start=False)
def claim_token(node):
    node.start("--unclaimed", "--host", "0.0.0.0", password=None)
    token = node.log().split("nacre-claim-token: ")[1].split('"')[0]
    claim = {"username": USER, "password": PASSWORD, "port": "SAME"}
    # A request through a proxy on this machine represents another machine.
    elsewhere = {"X-Forwarded-For": "192.0.2.1"}
    assert node.rest("POST", "/settings/web", claim, user=None, headers=elsewhere).status == 401
    assert node.rest("POST", "/settings/web", claim, user="claim", password="wrong", headers=elsewhere).status == 401
    wrong = {**elsewhere, "Nacre-Claim-Token": token[:-1]}
    assert node.rest("POST", "/settings/web", claim, user=None, headers=wrong).status == 401
    assert node.rest("GET", "/pools", user=None, headers=elsewhere).status == 200
    answer = node.rest("POST", "/node/controller/rename", {"hostname": "127.0.0.1"}, user=None,
                       headers={**elsewhere, "Nacre-Claim-Token": token})
    assert answer.status == 200, answer
    assert node.rest("POST", "/settings/web", claim, user="claim", password=token, headers=elsewhere).status == 200
    # The code was valid for one administrator only.
    again = {**claim, "username": "second"}
    assert node.rest("POST", "/settings/web", again, user="claim", password=token, headers=elsewhere).status == 401


@case("a form of a web page changes no password, whatever login it brings")
def password_form(node):
    for headers in FOREIGN:
        answer = node.rest("POST", "/controller/changePassword", {"password": "owned123"}, headers=headers)
        assert answer.status == 403, (headers, answer)
    assert node.rest("GET", "/whoami").status == 200


@case("a link writes nothing through the query service")
def query_link(node):
    for statement in (
        f"UPSERT INTO {BUCKET} (KEY, VALUE) VALUES ('k', 1)",
        f"DELETE FROM {BUCKET}",
        f"CREATE COLLECTION {BUCKET}._default.c",
        "PREPARE report AS SELECT 1",
        "BEGIN WORK",
    ):
        path = "/query/service?" + urllib.parse.urlencode({"statement": statement})
        for headers in (LINK, TYPED, None):
            answer = node.rest("GET", path, port="query", headers=headers)
            assert answer.status == 403 and answer.json()["errors"][0]["code"] == 1000, (statement, answer)
        answer = node.rest("GET", path + "&readonly=false", port="query")
        assert answer.json()["errors"][0]["code"] == 1000, answer
        for headers in FOREIGN:
            form = {"statement": statement}
            assert node.rest("POST", "/query/service", form, port="query", headers=headers).status == 403, headers
    implicit = {"statement": "EXECUTE __insert", "tximplicit": "true", "args": json.dumps([f"default:{BUCKET}._default._default", "k", 1])}
    answer = node.rest("GET", "/query/service?" + urllib.parse.urlencode(implicit), port="query", headers=LINK)
    assert answer.json()["errors"][0]["code"] == 1000, answer
    assert node.rest("GET", "/query/service?statement=SELECT+1", port="query", headers=LINK).status == 200
    rows = node.query(f"SELECT RAW COUNT(*) FROM {BUCKET}", scan_consistency="request_plus")
    assert rows["results"] == [0], rows


@case("a web page reads nothing, and is given no permission to")
def reading(node):
    for port in PORTS:
        for headers in (FETCH, NEIGHBOUR, OLD_FETCH, NULL_FETCH, IMAGE, FRAME):
            answer = node.rest("GET", "/", port=port, headers={**headers})
            assert answer.status == 403, (port, headers, answer)
        asks = {**FETCH, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
        answer = node.rest("OPTIONS", "/", port=port, user=None, headers=asks)
        assert answer.status == 204, answer
        assert not [name for name in answer.headers if name.startswith("access-control-")], answer.headers


@case("a link resets no statistics")
def statistics_link(node):
    assert node.rest("GET", "/resetStatsCounters?name=f", port="eventing", headers=LINK).status == 403


@case("a page whose name was made to resolve to the node is not served")
def rebinding(node):
    # Chromium sends no Sec-Fetch-* to a name without TLS, and no Origin with GET; the page has removed Referer.
    for host in ("rebind.example", "localhost.rebind.example", "127.0.0.1.rebind.example", "localhostx", "0x7f.1", "a@localhost"):
        for port in PORTS:
            named = {**COMMON, "Host": f"{host}:{node.port(port)}"}
            assert node.rest("GET", "/", port=port, headers=named).status == 421, (host, port)
            assert node.rest("GET", "/", port=port, headers={**named, "Accept-Language": "*"}).status == 421
            of_page = {**named, "Origin": f"http://{host}:{node.port(port)}"}
            assert node.rest("POST", "/", port=port, headers=of_page).status == 421, (host, port)
    answer = node.rest("GET", "/pools/default", headers={**COMMON, "Host": "rebind.example"})
    assert b"--allow-hosts" in answer.body, answer


@case("a browser reaches the node by its addresses and names", arguments=("--allow-hosts", "db.example,Other.Example."))
def names(node):
    hosts = ["127.0.0.1", "[::1]", "10.1.2.3", "localhost", "LOCALHOST.", "a.localhost", "db.example", "DB.EXAMPLE.", "other.example"]
    for host in hosts:
        for headers in (TYPED, COMMON):
            answer = node.rest("GET", "/pools", headers={**headers, "Host": f"{host}:{node.port('mgmt')}"})
            assert answer.status == 200, (host, answer)
    assert node.rest("GET", "/pools", headers={**COMMON, "Host": "elsewhere.example"}).status == 421
    external = "/node/controller/setupAlternateAddresses/external"
    assert node.rest("PUT", external, {"hostname": "elsewhere.example"}).status == 200
    assert node.rest("GET", "/pools", headers={**COMMON, "Host": "elsewhere.example"}).status == 200
    assert node.rest("DELETE", external).status == 200
    assert node.rest("GET", "/pools", headers={**COMMON, "Host": "elsewhere.example"}).status == 421


@case("clients that are not browsers may name the node as they like")
def other_clients(node):
    statement = f"UPSERT INTO {BUCKET} (KEY, VALUE) VALUES ('k', 1)"
    agents = [
        {},
        {"User-Agent": "curl/8.5.0", "Accept": "*/*"},
        {"User-Agent": "python-requests/2.32.0", "Accept": "*/*", "Connection": "keep-alive"},
        {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"},
        {"User-Agent": "couchbase-cli 7.6.4"},
        {"User-Agent": "Java-http-client/21"},
        # The headers of fetch in Node.js.
        {"User-Agent": "node", "Accept": "*/*", "Accept-Language": "*", "Sec-Fetch-Mode": "cors"},
    ]
    for agent in agents:
        for host in ("nacre.invalid", "db", "couchbase.default.svc.cluster.local:8091"):
            headers = {**agent, "Host": host}
            assert node.rest("GET", "/pools/default", headers=headers).status == 200, headers
            form = {"statement": statement}
            assert node.rest("POST", "/query/service", form, port="query", headers=headers).json()["status"] == "success"
            # As curl -X PUT -d sends it.
            design = json.dumps({"views": {"all": {"map": "function (doc) {}"}}})
            as_form = {**headers, "Content-Type": FORM}
            assert node.rest("PUT", f"/{BUCKET}/_design/d", design, port="views", headers=as_form).status == 201
    with node.socket() as client:
        client.sendall(b"GET /pools HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 200"), "a client of HTTP/1.0 names no host"


@case("JSON of a page is taken only when it is declared as such")
def json_types(node):
    design = json.dumps({"views": {"all": {"map": "function (doc) {}"}}})
    for kind, status in (("text/plain;charset=UTF-8", 415), (FORM, 415), (None, 415), ("application/json", 201),
                         ("Application/JSON; charset=utf-8", 201)):
        headers = own_page(node, "views") | ({"Content-Type": kind} if kind else {})
        answer = node.rest("PUT", f"/{BUCKET}/_design/d", design, port="views", headers=headers)
        assert answer.status == status, (kind, answer)
    plain = {"Content-Type": "text/plain"}
    for port, method, path in (
        ("eventing", "POST", "/api/v1/functions/f"),
        ("eventing", "POST", "/api/v1/import"),
        ("eventing", "POST", "/api/v1/config"),
        ("mgmt", "PUT", "/deployments/d"),
        ("mgmt", "PUT", "/pools/default/serverGroups"),
        ("mgmt", "POST", "/settings/clientCertAuth"),
    ):
        answer = node.rest(method, path, "{}", port=port, headers=own_page(node, port) | plain)
        assert answer.status == 415, (path, answer)


@case("answers are not sniffed, framed or used by other sites, on any port and with any status")
def headers_of_answers(node):
    asked = [(port, "GET", path, user) for port in PORTS for path in ("/", "/nothing", "/pools") for user in (USER, None)]
    asked += [("mgmt", "GET", "/pools/default/certificate", None), ("mgmt", "POST", "/nothing", USER)]
    asked += [("mgmt", "GET", "/_nacre/link", None), ("query", "GET", "/query/service?statement=SELECT+1", USER)]
    for port, method, path, user in asked:
        headers = node.rest(method, path, user=user, port=port).headers
        assert headers["x-content-type-options"] == "nosniff", (path, headers)
        assert headers["x-frame-options"] == "DENY", (path, headers)
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'", (path, headers)
        assert headers["cross-origin-resource-policy"] == "same-origin", (path, headers)
