"""SQL++ statements and names that users share: nobody runs, replaces or displaces what belongs to another user."""

import http.client
import json

from .harness import basic, case

KEYSPACE = "default:`default`._default._default"


def results(answer):
    """Returns the rows of an answer, or the code of its first error."""
    return answer["results"] if answer["status"] == "success" else answer["errors"][0]["code"]


@case("nobody executes or replaces a statement that another user has prepared")
def prepared_names_belong_to_users(node):
    node.add_user("mallory")
    with node.kv() as connection:
        connection.set(b"d", b"{}")
    node.query(f"PREPARE report AS SELECT RAW COUNT(*) FROM {KEYSPACE}")
    answer = node.query(f"PREPARE FORCE report AS DELETE FROM {KEYSPACE}", user="mallory")
    assert answer["status"] == "success", answer
    node.query("CREATE PRIMARY INDEX ON `default`")
    assert results(node.query("EXECUTE report")) == [1]
    assert results(node.query("EXECUTE report")) == [1], "the document is there"
    automatic = node.query("PREPARE SELECT RAW 7")["results"][0]["name"]
    assert results(node.query(f"EXECUTE `{automatic}`", user="mallory")) == 4040
    replaced = node.query(f"PREPARE FORCE `{automatic}` AS SELECT RAW 8", user="mallory")
    assert replaced["status"] == "success"
    assert results(node.query(f"EXECUTE `{automatic}`")) == [7]
    node.query("DELETE FROM system:prepareds", user="mallory")
    assert results(node.query("EXECUTE report")) == [1], "nobody drops it either"


@case("a user who prepares very many statements displaces only his own", heavy=True)
def prepared_statements_have_a_quota(node):
    node.add_user("mallory")
    node.query("PREPARE mine AS SELECT RAW 1")
    connection = http.client.HTTPConnection("127.0.0.1", node.port("query"), timeout=60)
    headers = {"Authorization": basic("mallory", "password"), "Content-Type": "application/json"}
    for number in range(20_000):
        connection.request("POST", "/query/service", json.dumps({"statement": f"PREPARE p{number} AS SELECT 1"}), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    assert results(node.query("EXECUTE mine")) == [1]
    assert results(node.query("EXECUTE p0", user="mallory")) == 4040
    assert results(node.query("EXECUTE p19999", user="mallory")) == [{"$1": 1}]


@case("users see their own requests and prepared statements, administrators all")
def catalogs_show_ones_own(node):
    node.add_user("ann", "query_select[*]")
    node.query("PREPARE secret AS SELECT 'of the administrator'")
    node.query("PREPARE own AS SELECT 1", user="ann")
    names = "SELECT RAW name FROM system:prepareds ORDER BY name"
    assert results(node.query(names, user="ann")) == ["own"]
    assert results(node.query(names)) == ["own", "secret"]
    users = "SELECT DISTINCT RAW users FROM system:active_requests"
    assert results(node.query(users, user="ann")) == ["ann"]
    admin = node.rest("GET", "/admin/prepareds", user="ann", port="query")
    assert [row["name"] for row in admin.json()] == ["own"]
    for path in ("secret", "Administrator//secret"):
        assert node.rest("DELETE", f"/admin/prepareds/{path}", user="ann", port="query").status == 404
    assert results(node.query("EXECUTE secret")) == [{"$1": "of the administrator"}]


@case("who may see system catalogs reads no documents")
def catalogs_are_no_documents(node):
    with node.kv() as connection:
        connection.set(b"d", b'{"secret": 1}')
    for role in ("query_system_catalog", "query_external_access"):
        node.add_user("sys", role)
        read = node.query(f"SELECT RAW d FROM {KEYSPACE} AS d USE KEYS 'd'", user="sys")
        assert results(read) == 13014, f"{role}: {read}"
    node.add_user("sys", "query_system_catalog")
    names = results(node.query("SELECT RAW name FROM system:keyspaces", user="sys"))
    assert "default" in names, names
