# ruff: noqa: E501
"""Programs written for the official package run with another import, and nothing else changed."""

import asyncio
import contextlib
import io
import re
import unittest

from tests.integration.node import Node, unique

BLOCKING = {
    "documents": """
from datetime import timedelta
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import CASMismatchException, DocumentNotFoundException
from couchbase.options import ClusterOptions, GetOptions, ReplaceOptions, UpsertOptions
import couchbase.subdocument as SD

cluster = Cluster(URL, ClusterOptions(PasswordAuthenticator(USER, PASSWORD)))
cluster.wait_until_ready(timedelta(seconds=5))
cb = cluster.bucket(BUCKET)
cb_coll = cb.default_collection()
result = cb_coll.upsert(KEY, {"name": "Alice"}, UpsertOptions(
    expiry=timedelta(minutes=1), durability=ServerDurability(Durability.MAJORITY)))
doc = cb_coll.get(KEY, GetOptions(with_expiry=True))
print(doc.content_as[dict]["name"], doc.expiryTime is not None, doc.cas == result.cas)
try:
    cb_coll.replace(KEY, {"name": "Bob"}, ReplaceOptions(cas=doc.cas + 1))
except CASMismatchException as ex:
    print(type(ex).__name__)
cb_coll.mutate_in(KEY, (SD.upsert("name", "Carol"), SD.array_append("tags", "a", create_parents=True),
                        SD.counter("visits", 2), SD.insert("x", SD.MutationMacro.cas(), xattr=True)))
found = cb_coll.lookup_in(KEY, (SD.get("name"), SD.exists("none"), SD.count("tags")))
print(found.content_as[str](0), found.exists(1), found.content_as[int](2))
print(cb_coll.get(KEY, project=["visits"]).content_as[dict])
print(cb_coll.exists(KEY).exists)
cb_coll.remove(KEY)
try:
    cb_coll.get(KEY)
except DocumentNotFoundException as ex:
    print(type(ex).__name__)
cluster.close()
""",
    "batches": """
from datetime import timedelta
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions, GetMultiOptions, IncrementOptions, SignedInt64, DeltaValue

cluster = Cluster.connect(URL, ClusterOptions(PasswordAuthenticator(USER, PASSWORD)))
collection = cluster.bucket(BUCKET).scope("_default").collection("_default")
documents = {f"{KEY}-{n}": {"n": n} for n in range(5)}
print(collection.upsert_multi(documents).all_ok)
got = collection.get_multi(list(documents) + ["no-such"], GetMultiOptions(return_exceptions=True))
print(sorted(r.content_as[dict]["n"] for r in got.results.values()), list(got.exceptions))
print(collection.binary().increment(KEY, IncrementOptions(
    initial=SignedInt64(10), delta=DeltaValue(5))).content)
print(collection.remove_multi(list(documents)).all_ok)
queue = collection.couchbase_queue(KEY + "q")
queue.push("a")
queue.push("b")
print(queue.pop(), queue.size())
values = collection.couchbase_map(KEY + "m")
values.add("a", 1)
print(values.exists("a"), list(values.items()))
cluster.close()
""",
    "queries": """
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import ParsingFailedException
from couchbase.mutation_state import MutationState
from couchbase.n1ql import QueryScanConsistency
from couchbase.options import ClusterOptions, QueryOptions
from couchbase.management.buckets import BucketType, CreateBucketSettings
from couchbase.management.collections import CollectionSpec
from couchbase.management.options import CreatePrimaryQueryIndexOptions

cluster = Cluster(URL, ClusterOptions(PasswordAuthenticator(USER, PASSWORD)))
bucket = cluster.bucket(BUCKET)
stored = bucket.default_collection().upsert(KEY, {"ported": KEY})
cluster.query_indexes().create_primary_index(
    BUCKET, CreatePrimaryQueryIndexOptions(ignore_if_exists=True))
result = cluster.query(
    f"SELECT RAW ported FROM `{BUCKET}` WHERE ported = $key",
    QueryOptions(named_parameters={"key": KEY}, consistent_with=MutationState(stored), metrics=True))
for row in result.rows():
    print(row == KEY)
print(result.metadata().metrics().result_count())
result = cluster.query("SELECT 1 AS one", QueryOptions(scan_consistency=QueryScanConsistency.REQUEST_PLUS))
print(result.execute())
try:
    cluster.query("SELEC 1").execute()
except ParsingFailedException as ex:
    print(type(ex).__name__)
manager = bucket.collections()
manager.create_scope(KEY)
manager.create_collection(CollectionSpec("c", KEY))
print([s.name for s in manager.get_all_scopes() if s.name == KEY])
manager.drop_scope(KEY)
cluster.close()
""",
}
ASYNC = """
from datetime import timedelta
from acouchbase.cluster import Cluster
from couchbase.auth import PasswordAuthenticator
from couchbase.exceptions import DocumentNotFoundException
from couchbase.kv_range_scan import PrefixScan
from couchbase.options import ClusterOptions, ScanOptions

async def main():
    cluster = await Cluster.connect(URL, ClusterOptions(PasswordAuthenticator(USER, PASSWORD)))
    bucket = cluster.bucket(BUCKET)
    await bucket.on_connect()
    collection = bucket.default_collection()
    await collection.upsert(KEY, {"a": 1})
    print((await collection.get_any_replica(KEY)).content_as[dict])
    async for found in collection.scan(PrefixScan(KEY), ScanOptions(ids_only=True, concurrency=8)):
        print(found.id == KEY)
    result = cluster.query("SELECT RAW 2")
    async for row in result.rows():
        print(row)
    print(result.metadata().status().name)
    try:
        await collection.get("no-such")
    except DocumentNotFoundException as ex:
        print(type(ex).__name__)
    await cluster.close()
"""
PRINTED = {
    "documents": [
        "Alice True True",
        "CasMismatchException",
        "Carol False 1",
        "{'visits': 2}",
        "True",
        "DocumentNotFoundException",
    ],
    "batches": [
        "True",
        "[0, 1, 2, 3, 4] ['no-such']",
        "10",
        "True",
        "a 1",
        "True [('a', 1)]",
    ],
    "queries": ["True", "1", "[{'one': 1}]", "ParsingFailedException", "[KEY]"],
}


class PortedTest(unittest.TestCase):
    def run_ported(self, program: str, key: str) -> tuple[list[str], dict[str, object]]:
        node = Node()
        ported = re.sub(r"\bacouchbase\b", "nacre", program)
        ported = re.sub(r"\bcouchbase\b(?!:)", "nacre.sync", ported)
        names: dict[str, object] = {
            "URL": node.url,
            "USER": node.user,
            "PASSWORD": node.password,
            "BUCKET": node.bucket,
            "KEY": key,
        }
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(ported, "ported", "exec"), names)
            if "main" in names:
                asyncio.run(names["main"]())  # type: ignore[operator]
        return printed.getvalue().splitlines(), names

    def test_blocking_programs_run(self) -> None:
        for name, program in BLOCKING.items():
            key = unique("ported")
            with self.subTest(name):
                printed, _ = self.run_ported(program, key)
                expected = [line.replace("KEY", repr(key)) for line in PRINTED[name]]
                self.assertEqual(printed, expected)

    def test_programs_for_asyncio_run(self) -> None:
        printed, _ = self.run_ported(ASYNC, unique("ported"))
        self.assertEqual(printed, ["{'a': 1}", "True", "2", "SUCCESS", "DocumentNotFoundException"])
