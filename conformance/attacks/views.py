"""Views with wrong code: their cost, and the errors that report them."""

import time
import urllib.parse

from .harness import Json, case, eventually

DESIGN = "/default/_design/"


def put(node, name, body):
    return node.rest("PUT", DESIGN + name, Json(body), port="views")


def query(node, name, view, **parameters):
    text = urllib.parse.urlencode(parameters)
    return node.rest("GET", f"{DESIGN}{name}/_view/{view}?{text}", port="views")


def fill(node, count):
    assert node.query(
        f"UPSERT INTO default (KEY k, VALUE {{'n': n}}) SELECT 'd' || TO_STRING(n) AS k, n "
        f"FROM ARRAY_RANGE(0, {count}) AS n"
    )["status"] == "success"


def lines_about(node, text):
    return [line for line in node.log().splitlines() if text in line]


@case("a view that fails on every document says so in its answer, and in few lines of the log")
def a_failing_view_says_so(node):
    fill(node, 3000)
    assert put(node, "d", {"views": {"v": {"map": "function (doc) { emt(doc.n) }"}}}).status == 201
    answer = query(node, "d", "v", stale="false")
    assert answer.status == 200 and answer.json()["rows"] == [], answer.body
    assert "errors" not in answer.json(), "official SDKs raise for that"
    told = answer.json()["debug_info"]
    assert told["document_errors"] >= 3000 and "emt" in told["last_error"]["reason"], told
    assert len(lines_about(node, "emt")) <= 4, node.log()[-3000:]


@case("a view that loops is a time-out with its name, and few lines of the log")
def a_looping_view_is_named(node):
    fill(node, 2000)
    assert put(node, "d", {"views": {"v": {"map": "function () { while (true) {} }"}}}).status == 201
    begun = time.monotonic()
    answer = query(node, "d", "v", stale="false", connection_timeout=3000)
    assert time.monotonic() - begun < 10
    assert answer.status == 504 and answer.json()["error"] == "timeout", answer.body
    reason = answer.json()["reason"]
    assert '"v"' in reason and '"d"' in reason and "loop" in reason, reason
    assert len(lines_about(node, "loop")) <= 4, node.log()[-3000:]
    with node.bystander(gap_s=2):
        time.sleep(2)


@case("misspelt members of a design document are refused by their names")
def misspelt_members_are_refused(node):
    view = {"map": "function (doc) { emit(1) }"}
    for body, name in (
        ({"colection": "a.b", "views": {"v": view}}, "colection"),
        ({"view": {"v": view}}, "view"),
        ({"views": {"v": view | {"redcue": "_count"}}}, "redcue"),
    ):
        answer = put(node, "d", body)
        assert answer.status == 400 and f'\\"{name}\\"' in answer.body.decode(), answer.body
    assert query(node, "d", "v").status == 404


@case("a wrong login is told from a missing one, and neither says which users there are")
def wrong_logins_are_told_apart(node):
    missing = node.rest("GET", "/pools/default", user=None)
    wrong = node.rest("GET", "/pools/default", password="wrong")
    unknown = node.rest("GET", "/pools/default", user="nobody-here", password="wrong")
    assert missing.status == wrong.status == unknown.status == 401
    assert b"log in" in missing.body and b"is wrong" in wrong.body
    assert wrong.body == unknown.body
    eventually(lambda: node.rest("GET", "/pools/default").status == 200)
