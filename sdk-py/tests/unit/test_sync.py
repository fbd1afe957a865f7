"""What threads that share a cluster see when one of them closes it."""

import asyncio
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar
from unittest.mock import patch

import nacre.analytics
import nacre.management.analytics
import nacre.management.eventing
import nacre.management.queries
import nacre.management.search
import nacre.management.users
import nacre.sync.analytics
import nacre.sync.management.analytics
import nacre.transactions
from nacre import exceptions as e
from nacre import sync
from tests.unit.fake_node import FakeNode

GET = 0x00
SECONDS_MAX = 10.0
"""How long a test waits for a thread before it fails."""

R = TypeVar("R")
INNER: dict[str, set[str]] = {
    "Cluster": {"http_management", "http_service", "on_connect", "forget", "client", "search_at"},
    "Bucket": {"timeouts", "preferred_server_group", "http_capi", "http_ddocs", "http_stream"}
    | {
        "analytics_query",
        "query",
        "query_indexes",
        "eventing_functions",
        "search_indexes",
        "live",
        "search",
    },
    "BinaryCollection": {"name"},
    "Collection": {"place"},
}
"""What the parts of the package use among themselves."""
LATER = {
    nacre.analytics: nacre.sync.analytics,
    nacre.management.analytics: nacre.sync.management.analytics,
}
"""Modules whose facades are not in `nacre.sync` itself, as most programs do without them."""


class FacadeTest(unittest.TestCase):
    def test_everything_is_there_without_await(self) -> None:
        for module, names in (
            (nacre.cluster, ["Cluster"]),
            (nacre.bucket, ["Bucket", "Scope"]),
            (nacre.collection, ["Collection"]),
            (nacre.binary, ["BinaryCollection"]),
            (nacre.datastructures, ["CouchbaseList", "CouchbaseMap"]),
            (nacre.datastructures, ["CouchbaseSet", "CouchbaseQueue"]),
            (nacre.management.users, ["UserManager"]),
            (nacre.management.queries, ["QueryIndexManager", "CollectionQueryIndexManager"]),
            (nacre.management.eventing, ["EventingFunctionManager"]),
            (nacre.management.search, ["SearchIndexManager"]),
            (nacre.management.buckets, ["BucketManager"]),
            (nacre.management.collections, ["CollectionManager"]),
            (nacre.views, ["ViewIndexManager", "ViewResult"]),
            (nacre.n1ql, ["QueryResult"]),
            (nacre.transactions, ["Transactions"]),
            (nacre.analytics, ["AnalyticsResult"]),
            (nacre.management.analytics, ["AnalyticsIndexManager"]),
        ):
            for name in names:
                there = {one for one in dir(getattr(module, name)) if not one.startswith("_")}
                facade = getattr(LATER.get(module, sync), name)
                missing = there - set(dir(facade)) - INNER.get(name, set())
                self.assertEqual(missing, set(), name)


class CloseTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.asked = asyncio.Event()
        silent = await asyncio.start_server(self.stay_silent, "127.0.0.1", 0)
        await self.enterAsyncContext(silent)
        self.node = await self.enterAsyncContext(FakeNode())
        self.node.services["mgmt"] = silent.sockets[0].getsockname()[1]
        self.node.on[GET] = lambda _: (0, bytes(4), b'"v"')
        self.cluster = await in_thread(lambda: sync.connect(self.node.url, "user", "password"))
        self.addAsyncCleanup(lambda: in_thread(self.cluster.close))
        self.collection = self.cluster.bucket("b").default_collection()
        await in_thread(lambda: self.collection.get("k"))

    async def stay_silent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.set()
        await reader.read()
        writer.close()

    async def test_closing_ends_what_other_threads_wait_for(self) -> None:
        self.node.on[GET] = lambda _: self.asked.set()
        get = in_thread(lambda: self.collection.get("k"))
        await self.asked.wait()
        self.asked.clear()
        manage = in_thread(lambda: self.cluster.buckets().get_all_buckets())
        await self.asked.wait()
        await in_thread(self.cluster.close)
        for waiting in (get, manage):
            with self.assertRaises(e.RequestCanceledException):
                await waiting

    async def test_what_comes_while_it_closes_is_refused_and_closing_again_waits(self) -> None:
        closing, going_on = asyncio.Event(), threading.Event()
        test_loop, close = asyncio.get_running_loop(), self.cluster._wrapped.close

        async def close_slowly() -> None:
            test_loop.call_soon_threadsafe(closing.set)
            await asyncio.to_thread(going_on.wait, SECONDS_MAX)
            await close()

        with patch.object(self.cluster._wrapped, "close", side_effect=close_slowly) as closed:
            first = in_thread(self.cluster.close)
            await closing.wait()
            second = in_thread(self.cluster.close)
            for late in (lambda: self.collection.get("k"), lambda: self.cluster.bucket("other")):
                with self.assertRaises(e.RequestCanceledException):
                    await in_thread(late)
            self.assertFalse(second.done())
            going_on.set()
            await asyncio.gather(first, second)
        closed.assert_called_once()


def in_thread(call: Callable[[], R]) -> "asyncio.Future[R]":
    """What a call gives that blocks. One that never ends fails its test, and no more than that."""
    outcome: Future[R] = Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return asyncio.ensure_future(asyncio.wait_for(asyncio.wrap_future(outcome), SECONDS_MAX))
