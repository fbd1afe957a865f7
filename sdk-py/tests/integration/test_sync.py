"""The API without ``await``, and the example of the README."""

import asyncio
import contextlib
import io
import re
import threading
import unittest
from datetime import timedelta
from pathlib import Path

from nacre import exceptions as e
from nacre import subdocument as sd
from nacre import sync
from nacre.management import CreateBucketSettings
from tests.integration.node import Node, unique

README = Path(__file__).parents[2] / "README.md"


class SyncTest(unittest.TestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.cluster = sync.connect(self.node.url, self.node.user, self.node.password)
        self.addCleanup(self.cluster.close)
        self.bucket = self.cluster.bucket(self.node.bucket)
        self.collection = self.bucket.default_collection()
        self.key = unique("key")

    def test_documents_are_stored_and_read(self) -> None:
        self.collection.upsert(self.key, {"n": 1}, expiry=timedelta(hours=1))
        self.collection.mutate_in(self.key, [sd.increment("n")])
        self.assertEqual(self.collection.get(self.key).content, {"n": 2})
        self.assertEqual(self.collection.binary().increment(unique("n"), initial=4).content, 4)
        with self.assertRaises(e.DocumentNotFoundException):
            self.collection.get(unique("none"))

    def test_older_methods_change_lists_maps_sets_and_queues(self) -> None:
        here, key = self.collection, self.key
        with self.assertRaises(e.DocumentNotFoundException):
            here.list_append(key, 1)
        here.list_append(key, "b", create=True)
        here.list_prepend(key, "a")
        here.list_set(key, 1, "c")
        self.assertEqual((here.list_size(key), here.list_get(key, 1)), (2, "c"))
        here.list_remove(key, 0)
        self.assertEqual(here.get(key).content, ["c"])
        members = unique("map")
        here.map_add(members, "a.b", 1, create=True)
        self.assertEqual((here.map_size(members), here.map_get(members, "a.b")), (1, 1))
        here.map_remove(members, "a.b")
        self.assertEqual(here.get(members).content, {})
        values = unique("set")
        self.assertIsNotNone(here.set_add(values, 1, create=True))
        self.assertIsNone(here.set_add(values, 1))
        self.assertEqual((here.set_size(values), here.set_contains(values, 1)), (1, True))
        here.set_remove(values, 1)
        self.assertFalse(here.set_contains(values, 1))
        queue = unique("queue")
        here.queue_push(queue, 1, create=True)
        here.queue_push(queue, 2)
        self.assertEqual((here.queue_size(queue), here.queue_pop(queue)), (2, 1))
        self.assertEqual(here.queue_pop(queue), 2)
        with self.assertRaises(e.QueueEmpty):
            here.queue_pop(queue)

    def test_threads_share_a_cluster(self) -> None:
        def write(number: int) -> None:
            self.collection.upsert(f"{self.key}-{number}", number)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [self.collection.get(f"{self.key}-{number}").content for number in range(8)]
        self.assertEqual(found, list(range(8)))

    def test_managers_and_scopes_are_there_too(self) -> None:
        self.assertIn("_default", [s.name for s in self.bucket.collections().get_all_scopes()])
        with self.assertRaises(e.BucketAlreadyExistsException):
            self.cluster.buckets().create_bucket(CreateBucketSettings(self.node.bucket))
        collection = self.bucket.scope("_default").collection("_default")
        self.assertFalse(collection.exists(self.key).exists)
        with self.assertRaises(e.ViewNotFoundException):
            list(self.bucket.view_query(unique("none"), "none"))

    def test_a_closed_cluster_says_so_and_closes_again(self) -> None:
        self.cluster.close()
        self.cluster.close()
        with self.assertRaises(e.RequestCanceledException):
            self.collection.get(self.key)


class ReadmeTest(unittest.TestCase):
    def test_the_example_runs(self) -> None:
        example = re.search(r"```python\n(.*?)```", README.read_text(), re.S)
        assert example is not None
        node = Node()
        names: dict[str, object] = {"__name__": "example"}
        code = example[1].replace('bucket("default")', f"bucket({node.bucket!r})")
        exec(compile(code, str(README), "exec"), names)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            asyncio.run(names["main"](node.url, node.user, node.password))  # type: ignore[operator]
        self.assertEqual(printed.getvalue(), "new False\n")
