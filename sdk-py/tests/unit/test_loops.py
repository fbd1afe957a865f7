"""Event loops that end while a cluster is open, and clusters that are used in two of them."""

import asyncio
import gc
import threading
import time
import unittest
import warnings
from collections.abc import Awaitable, Callable
from datetime import timedelta

import nacre
from nacre.exceptions import InvalidArgumentException
from tests.unit.fake_node import FakeNode
from tests.unit.test_leftovers import FOUND, sockets

GET = 0x00
TIMEOUT = timedelta(seconds=20)


class LoopTest(unittest.TestCase):
    def setUp(self) -> None:
        self.node = FakeNode()
        # Silent except about one document, so that requests are under way when a loop ends.
        self.node.on[GET] = lambda asked: FOUND if asked.key.endswith(b"first") else None
        is_ready, self.done = threading.Event(), asyncio.Event()

        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            async with self.node:
                is_ready.set()
                await self.done.wait()

        self.thread = threading.Thread(target=lambda: asyncio.run(serve()))
        self.thread.start()
        is_ready.wait()
        self.before = sockets()

    def tearDown(self) -> None:
        self.loop.call_soon_threadsafe(self.done.set)
        self.thread.join()

    async def open(self) -> nacre.Cluster:
        """Connects, and leaves ten requests under way."""
        cluster = await nacre.connect(self.node.url, "user", "password")
        collection = cluster.bucket("b").default_collection()
        await collection.get("first", timeout=TIMEOUT)
        self.tasks = [
            asyncio.create_task(collection.get(f"k{n}", timeout=TIMEOUT)) for n in range(10)
        ]
        while self.node.count(GET) < 11:
            await asyncio.sleep(0)
        return cluster

    def uses(self, cluster: nacre.Cluster) -> list[Callable[[], Awaitable[object]]]:
        """What programs may do with the cluster."""
        collection = cluster.bucket("b").default_collection()
        return [
            lambda: collection.get("first", timeout=TIMEOUT),
            lambda: collection.upsert("k", 1, timeout=TIMEOUT),
            lambda: cluster.bucket("b").on_connect(),
            lambda: cluster.bucket("b").collections().get_all_scopes(),
            lambda: cluster.query("SELECT 1").execute(),
            lambda: cluster.wait_until_ready(TIMEOUT),
        ]

    async def refuses(self, cluster: nacre.Cluster, reason: str) -> None:
        for number, use in enumerate(self.uses(cluster)):
            with self.subTest(number), self.assertRaisesRegex(InvalidArgumentException, reason):
                await use()

    def no_sockets(self) -> None:
        """Fails if sockets are left when the node has noticed the end of its connections."""
        end = time.monotonic() + 10
        while sockets() > self.before and time.monotonic() < end:
            gc.collect()
        self.assertEqual(sockets(), self.before)

    def leaves_nothing(self, cluster: nacre.Cluster) -> None:
        """Closes a cluster whose loop has ended."""

        async def close() -> None:
            await self.refuses(cluster, "has ended")
            await cluster.close()

        with warnings.catch_warnings():
            # The sockets are closed with their last reference, about which Python warns.
            warnings.simplefilter("ignore", ResourceWarning)
            asyncio.run(close())
            self.no_sockets()

    def test_a_loop_that_ends_in_order(self) -> None:
        cluster = asyncio.run(self.open())
        self.assertEqual([task.cancelled() for task in self.tasks], [True] * 10)
        self.leaves_nothing(cluster)

    def test_a_loop_that_is_closed_under_requests(self) -> None:
        loop = asyncio.new_event_loop()
        cluster = loop.run_until_complete(self.open())
        loop.close()
        for task in self.tasks:
            # Else Python complains that the task was pending.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.leaves_nothing(cluster)

    def test_a_loop_that_ends_while_it_connects(self) -> None:
        self.node.on[0x20] = lambda _: None
        unhandled: list[object] = []

        async def begin() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: unhandled.append(context))
            task = asyncio.create_task(nacre.connect(self.node.url, "user", "password"))
            while not self.node.count(0x20):
                await asyncio.sleep(0)
            self.assertFalse(task.done())

        asyncio.run(begin())
        self.assertEqual(unhandled, [])
        self.no_sockets()

    def test_two_loops_at_a_time(self) -> None:
        async def use() -> None:
            cluster = await self.open()
            other = threading.Thread(
                target=lambda: asyncio.run(self.refuses(cluster, "belongs to another"))
            )
            other.start()
            while other.is_alive():
                await asyncio.sleep(0.001)
            # It goes on where it belongs.
            await cluster.bucket("b").default_collection().get("first", timeout=TIMEOUT)
            await cluster.close()
            await asyncio.gather(*self.tasks, return_exceptions=True)

        asyncio.run(use())
        self.no_sockets()
