"""A database in this process: opened, shared, closed, refused. Needs libnacre (NACRE_LIBRARY)."""

import asyncio
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta
from pathlib import Path

import nacre
from nacre import exceptions as e
from nacre._embedded import DatabaseInUseException, DatabaseKeyException
from nacre.n1ql import QueryScanConsistency
from nacre.views import DesignDocument, View

OTHER = """
import asyncio, sys
import nacre
from nacre._embedded import DatabaseInUseException

async def main():
    try:
        async with await nacre.connect(sys.argv[1]) as cluster:
            await cluster.bucket("default").default_collection().upsert("other", 1)
            print("open")
    except DatabaseInUseException as error:
        print(error)

asyncio.run(main())
"""


class FolderTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())) / "db"
        self.url = f"nacre://{self.folder}"

    async def test_what_is_written_is_there_when_the_folder_is_opened_again(self) -> None:
        async with await nacre.connect(f"{self.url}?store=log&vbuckets=4&quota_mib=8") as cluster:
            bucket = cluster.bucket("default")
            await bucket.collections().create_scope("shop")
            await bucket.collections().create_collection("shop", "orders")
            with self.assertRaises(e.CollectionAlreadyExistsException):
                await bucket.collections().create_collection("shop", "orders")
            with self.assertRaises(e.ScopeNotFoundException):
                await bucket.collections().drop_scope("none")
            await bucket.scope("shop").collection("orders").upsert("o", {"n": 1})
        async with await nacre.connect(f"{self.url}?create=false") as cluster:
            bucket = cluster.bucket("default")
            scopes = await bucket.collections().get_all_scopes()
            self.assertEqual([scope.name for scope in scopes], ["_default", "shop"])
            found = await bucket.scope("shop").collection("orders").get("o")
            self.assertEqual(found.content_as[dict], {"n": 1})

    async def test_clusters_of_one_process_share_a_folder_and_others_are_refused(self) -> None:
        async with await nacre.connect(self.url) as one, await nacre.connect(self.url) as other:
            await one.bucket("default").default_collection().upsert("k", 1)
            found = await other.bucket("default").default_collection().get("k")
            self.assertEqual(found.content_as[int], 1)
            self.assertIn("in use by process", await self.in_another_process())
        self.assertEqual(await self.in_another_process(), "open")

    async def in_another_process(self) -> str:
        command = [sys.executable, "-c", OTHER, self.url]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    async def test_other_tasks_run_while_requests_are_answered_at_once(self) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with await nacre.connect(self.url) as cluster:
            collection = cluster.bucket("default").default_collection()
            await collection.upsert("k", 1)
            counting = asyncio.create_task(count())
            for _ in range(1000):
                await collection.get("k")
            self.assertGreaterEqual(turns, 10)
            # And not one turn for each request.
            self.assertLess(turns, 500)
            counting.cancel()

    async def test_many_requests_at_once_pass(self) -> None:
        async with await nacre.connect(f"{self.url}?sync=always") as cluster:
            bucket = cluster.bucket("default")
            # Connected before, as the loop of a test is slow with so many tasks.
            await bucket.on_connect()
            docs = bucket.default_collection()
            # In debug mode the loop is slow, and a machine that does much else slower.
            patient = {"timeout": timedelta(minutes=2)}
            keys = [f"k{n}" for n in range(1000)]
            await asyncio.gather(*(docs.upsert(key, n, **patient) for n, key in enumerate(keys)))
            found = await asyncio.gather(*(docs.get(key, **patient) for key in keys))
            self.assertEqual([one.content_as[int] for one in found], list(range(1000)))

    async def test_each_memory_is_its_own(self) -> None:
        memory = "nacre://:memory:"
        async with await nacre.connect(memory) as one, await nacre.connect(memory) as other:
            await one.bucket("default").default_collection().upsert("k", 1)
            exists = await other.bucket("default").default_collection().exists("k")
            self.assertFalse(exists.exists)

    async def test_views_follow_the_documents(self) -> None:
        async with await nacre.connect(self.url) as cluster:
            bucket = cluster.bucket("default")
            docs = bucket.default_collection()
            manager = bucket.view_indexes()
            with self.assertRaises(e.DesignDocumentNotFoundException):
                await manager.get_design_document("orders")
            total = View("function (doc, meta) { emit(doc.customer, doc.total); }", "_sum")
            words = View(
                "function (doc, meta) { doc.customer.split('').forEach("
                "function (c) { emit(c, null); }); }"
            )
            design = DesignDocument("orders", {"total": total, "letters": words})
            await manager.upsert_design_document(design)
            for number, customer in enumerate(["ann", "bob", "ann"]):
                await docs.upsert(f"o{number}", {"customer": customer, "total": number + 1})
            rows = [row async for row in bucket.view_query("orders", "total", group=True)]
            self.assertEqual([(row.key, row.value) for row in rows], [("ann", 4), ("bob", 2)])
            of_bob = bucket.view_query("orders", "total", keys=["bob"], reduce=False)
            self.assertEqual([(row.id, row.value) async for row in of_bob], [("o1", 2)])
            self.assertEqual(of_bob.metadata().total_rows, 3)
            many = [bucket.view_query("orders", "letters", key="n") for _ in range(4)]
            found = await asyncio.gather(*(query.execute() for query in many))
            self.assertEqual([len(rows) for rows in found], [4] * 4)
            with self.assertRaises(e.ViewNotFoundException):
                await bucket.view_query("orders", "none").execute()
            with self.assertRaises(e.ViewEngineException):
                await bucket.view_query("orders", "letters", reduce=True).execute()
            with self.assertRaises(e.CouchbaseException):
                broken = DesignDocument("broken", {"v": View("function (")})
                await manager.upsert_design_document(broken)
        # Definitions are part of the folder.
        async with await nacre.connect(self.url) as cluster:
            bucket = cluster.bucket("default")
            manager = bucket.view_indexes()
            names = [one.name for one in await manager.get_all_design_documents()]
            self.assertEqual(names, ["orders"])
            rows = await bucket.view_query("orders", "total").execute()
            self.assertEqual([row.value for row in rows], [6])
            await manager.drop_design_document("orders")
            with self.assertRaises(e.ViewNotFoundException):
                await bucket.view_query("orders", "total").execute()

    async def test_statements_read_and_change_the_documents(self) -> None:
        async with await nacre.connect(self.url) as cluster:
            bucket = cluster.bucket("default")
            await bucket.collections().create_scope("shop")
            await bucket.collections().create_collection("shop", "orders")
            scope = bucket.scope("shop")
            orders = scope.collection("orders")
            for number, customer in enumerate(["ann", "bob", "ann"]):
                await orders.upsert(f"o{number}", {"customer": customer, "total": number + 1})
            by_key = "SELECT RAW o.total FROM `default`.shop.orders o USE KEYS ['o2', 'none', 'o0']"
            self.assertEqual(sorted([row async for row in cluster.query(by_key)]), [1, 3])
            of_ann = "SELECT META(o).id FROM orders o WHERE o.customer = $who AND o.total > $1"
            result = scope.query(
                of_ann,
                positional_parameters=[1],
                named_parameters={"who": "ann"},
                scan_consistency=QueryScanConsistency.REQUEST_PLUS,
                read_only=True,
                metrics=True,
            )
            self.assertEqual(await result.execute(), [{"id": "o2"}])
            metrics = result.metadata().metrics()
            self.assertEqual(metrics.result_count() if metrics else None, 1)
            update = "UPDATE orders o SET o.paid = TRUE WHERE o.customer = 'bob' RETURNING o.paid"
            for adhoc in (True, False, False):
                rows = await scope.query(update, adhoc=adhoc).execute()
                self.assertEqual(rows, [{"paid": True}])
            self.assertTrue((await orders.get("o1")).content_as[dict]["paid"])

    async def test_statements_that_fail_raise_as_with_a_server(self) -> None:
        async with await nacre.connect(self.url) as cluster:
            docs = cluster.bucket("default").default_collection()
            scope = cluster.bucket("default").scope("_default")
            await docs.upsert("k", 1)
            insert = "INSERT INTO `default` (KEY, VALUE) VALUES ('k', 2)"
            for kind, query in (
                (e.ParsingFailedException, cluster.query("SELECT FROM")),
                (e.KeyspaceNotFoundException, scope.query("SELECT * FROM nothing")),
                (e.DocumentExistsException, cluster.query(insert)),
                (e.QueryException, cluster.query("DELETE FROM `default`", read_only=True)),
            ):
                with self.subTest(kind), self.assertRaises(kind):
                    await query.execute()
            self.assertEqual((await docs.get("k")).content_as[int], 1)

    async def test_other_services_are_not_there(self) -> None:
        async with await nacre.connect(self.url) as cluster:
            with self.assertRaises(e.ServiceUnavailableException):
                await cluster.analytics_query("SELECT 1").execute()
            with self.assertRaises(e.BucketNotFoundException):
                await cluster.bucket("other").default_collection().get("k")
            with self.assertRaises(e.CouchbaseException):
                await cluster.users().get_all_users()

    async def test_a_folder_opens_with_its_key_only(self) -> None:
        for name, key, other in (
            ("bytes", b"k" * 32, b"o" * 32),
            ("passphrase", "open sesame", "open"),
        ):
            url = f"{self.url}-{name}"
            async with await nacre.connect(url, key=key) as cluster:
                await cluster.bucket("default").default_collection().upsert("k", "secret value")
            for wrong in (other, None):
                with self.subTest(name, wrong=wrong), self.assertRaises(DatabaseKeyException):
                    await nacre.connect(url, key=wrong)
            async with await nacre.connect(url, key=key) as cluster:
                found = await cluster.bucket("default").default_collection().get("k")
                self.assertEqual(found.content_as[str], "secret value")
                # A folder that is open with its key opens with no other one.
                with self.assertRaises(DatabaseInUseException):
                    await nacre.connect(url, key=other)
            files = Path(f"{self.folder}-{name}").rglob("*")
            stored = b"".join(file.read_bytes() for file in files if file.is_file())
            self.assertNotIn(b"secret value", stored)
        async with await nacre.connect(self.url):
            pass
        with self.assertRaises(DatabaseKeyException):
            await nacre.connect(self.url, key="superfluous")

    async def test_a_new_key_replaces_the_old_one(self) -> None:
        async with await nacre.connect(self.url, key=b"k" * 32) as cluster:
            await cluster.bucket("default").default_collection().upsert("k", 1)
            await cluster.rekey("open sesame")
            async with await nacre.connect(self.url, key="open sesame") as other:
                found = await other.bucket("default").default_collection().get("k")
                self.assertEqual(found.content_as[int], 1)
            for wrong in (b"short", ""):
                with self.subTest(wrong), self.assertRaises(e.InvalidArgumentException):
                    await cluster.rekey(wrong)
        with self.assertRaises(DatabaseKeyException):
            await nacre.connect(self.url, key=b"k" * 32)
        async with await nacre.connect(self.url, key="open sesame") as cluster:
            found = await cluster.bucket("default").default_collection().get("k")
            self.assertEqual(found.content_as[int], 1)
        async with await nacre.connect(f"{self.url}-plain") as cluster:
            with self.assertRaises(DatabaseKeyException):
                await cluster.rekey("open sesame")

    async def test_what_is_no_key_is_refused_by_name(self) -> None:
        for wrong in (b"short", "", 32):
            with self.subTest(wrong), self.assertRaises(e.InvalidArgumentException):
                await nacre.connect(self.url, key=wrong)  # type: ignore[arg-type]
        with self.assertRaises(e.InvalidArgumentException):
            await nacre.connect("couchbase://127.0.0.1:1", "user", "password", key="p")
        self.assertFalse(self.folder.exists())

    async def test_what_is_no_database_is_refused_by_name(self) -> None:
        for wrong in ("nacre://relative", "nacre:///x?sync=often", "nacre:///x?speed=1"):
            with self.subTest(wrong), self.assertRaises(e.InvalidArgumentException):
                await nacre.connect(wrong)
        with self.assertRaises(e.CouchbaseException):
            await nacre.connect(f"{self.url}?create=false")
        self.assertFalse(self.folder.exists())
        self.assertTrue(issubclass(DatabaseInUseException, e.CouchbaseException))


class SyncTest(unittest.TestCase):
    def test_the_classes_without_await_open_a_folder_too(self) -> None:
        from datetime import timedelta

        from nacre.sync import Cluster, ClusterOptions, PasswordAuthenticator

        with tempfile.TemporaryDirectory() as folder:
            options = ClusterOptions(PasswordAuthenticator("", ""))
            cluster = Cluster(f"nacre://{folder}/db", options)
            cluster.wait_until_ready(timedelta(seconds=5))
            docs = cluster.bucket("default").default_collection()
            docs.upsert("k", {"n": 1})
            self.assertEqual(docs.get("k").content_as[dict], {"n": 1})
            cluster.close()
