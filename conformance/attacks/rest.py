"""HTTP requests that are refused from any sender: bad logins, oversized and malformed requests."""

from .harness import BUCKET, PASSWORD, basic, case

PROTECTED = [
    ("GET", "/pools/default"),
    ("GET", "/pools/default/buckets"),
    ("POST", "/pools/default/buckets"),
    ("GET", "/settings/rbac/users"),
    ("PUT", "/settings/rbac/users/local/mallory"),
    ("POST", "/controller/changePassword"),
    ("POST", "/controller/rebalance"),
    ("GET", "/plugins"),
    ("PUT", "/deployments/d"),
    ("GET", "/metrics"),
]


@case("a stranger reads and changes nothing over HTTP")
def strangers_are_refused(node):
    for method, path in PROTECTED:
        assert node.rest(method, path, user=None).status == 401, path
        assert node.rest(method, path, password="wrong").status == 401, path


@case("a user without roles changes nothing")
def a_user_without_roles_is_refused(node):
    node.add_user("nobody")
    for method, path in PROTECTED:
        if method != "GET" and path != "/controller/changePassword":
            status = node.rest(method, path, {"name": "x"}, user="nobody").status
            assert status in (400, 403, 404), (method, path, status)
    assert node.rest("GET", "/settings/rbac/users", user="nobody").status == 403
    assert node.query(f"SELECT * FROM {BUCKET}", user="nobody")["status"] != "success"


@case("a body that is too large is refused before it is read, and unread without a login")
def large_bodies_are_refused(node):
    for user, status in (("Administrator", 413), (None, 401)):
        connection = node.http()
        connection.putrequest("POST", "/pools/default/buckets")
        connection.putheader("Content-Length", str(40 << 20))
        if user:
            connection.putheader("Authorization", basic(user, PASSWORD))
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


@case("a request that says its length twice, or in two ways, is refused")
def ambiguous_lengths_are_refused(node):
    for lines in ("Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5\r\nTransfer-Encoding: chunked"):
        with node.socket() as client:
            client.sendall(f"POST /pools HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\nhello".encode())
            answer = client.recv(4096)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401")), answer[:60]
            client.settimeout(5)
            assert b"HTTP/1.1 200" not in answer


@case("headers that do not end are refused")
def endless_headers_are_refused(node):
    with node.socket() as client:
        client.sendall(b"GET /pools HTTP/1.1\r\n" + b"X-Filler: " + b"x" * (80 << 10) + b"\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 431")
