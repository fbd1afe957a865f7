"""Names that users share: of buckets, scopes and collections, and of DCP connections."""

import struct

from . import kv
from .harness import BUCKET, case
from .statements import results

UNKNOWN_SCOPE, UNKNOWN_COLLECTION = 0x8C, 0x88
PRODUCER = 1


def collections(node):
    """Creates `s1.c1`, `s1.c2` and `s2.c3`, and a user with a part in the first."""
    scopes = f"/pools/default/buckets/{BUCKET}/scopes"
    for scope, names in (("s1", ("c1", "c2")), ("s2", ("c3",))):
        assert node.rest("POST", scopes, {"name": scope}).status == 200
        for name in names:
            assert node.rest("POST", f"{scopes}/{scope}/collections", {"name": name}).status == 200
    node.add_user("ann", f"data_reader[{BUCKET}:s1:c1],query_select[{BUCKET}:s1:c1]")
    node.add_user("bob", f"data_reader[{BUCKET}]")


@case("a user learns only the names of scopes and collections that he has a part in")
def names_are_filtered(node):
    collections(node)
    assert node.rest("POST", "/pools/default/buckets", {"name": "other", "ramQuota": 100}).status == 202

    def manifest(user):
        with node.kv(user) as connection:
            connection.hello("collections", "json")
            import json
            found = json.loads(connection.request(kv.GET_MANIFEST).value)
            return {scope["name"]: [c["name"] for c in scope["collections"]] for scope in found["scopes"]}

    everything = {"_default": ["_default"], "s1": ["c1", "c2"], "s2": ["c3"]}
    assert {name: found for name, found in manifest("Administrator").items() if name != "_system"} == everything
    assert {name: found for name, found in manifest("bob").items() if name != "_system"} == everything
    assert manifest("ann") == {"s1": ["c1"]}
    with node.kv("ann") as connection:
        connection.hello("collections")
        status = {path: connection.request(kv.GET_COLLECTION_ID, b"", path).status for path in (b"s1.c1", b"s1.c2", b"s2.c3", b"s1.no", b"no.c1")}
    assert status == {
        b"s1.c1": kv.SUCCESS, b"s1.c2": UNKNOWN_COLLECTION, b"s2.c3": UNKNOWN_SCOPE,
        b"s1.no": UNKNOWN_COLLECTION, b"no.c1": UNKNOWN_SCOPE,
    }, status
    node.add_user("nobody")
    for catalog, field in (("buckets", "name"), ("scopes", "name"), ("all_scopes", "name"), ("keyspaces", "name")):
        rows = f"SELECT DISTINCT RAW {field} FROM system:{catalog} ORDER BY {field}"
        assert results(node.query(rows, user="nobody")) == [], catalog
    assert results(node.query("SELECT RAW name FROM system:buckets", user="ann")) == [BUCKET]
    assert results(node.query("SELECT RAW name FROM system:scopes", user="ann")) == ["s1"]
    assert results(node.query("SELECT RAW name FROM system:keyspaces", user="ann")) == ["c1"]


@case("nobody closes the DCP connection of another user by its name")
def dcp_names_belong_to_users(node):
    collections(node)
    node.add_user("mallory", f"data_dcp_reader[{BUCKET}:s1:c1]")

    def open_dcp(user):
        connection = node.kv(user)
        connection.hello("collections")
        assert connection.request(kv.DCP_OPEN, b"backup", b"", struct.pack(">II", 0, PRODUCER)).status == kv.SUCCESS
        return connection

    backup, other = open_dcp("Administrator"), open_dcp("mallory")
    assert backup.request(kv.NOOP).status == kv.SUCCESS and other.request(kv.NOOP).status == kv.SUCCESS
    again = open_dcp("Administrator")
    assert backup.is_closed() and again.request(kv.NOOP).status == kv.SUCCESS, "one's own comes back"
    assert other.request(kv.NOOP).status == kv.SUCCESS
