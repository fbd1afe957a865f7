"""Which nodes are asked over HTTP, and what happens when one is down, breaks or has left."""

import asyncio
import unittest
from collections.abc import Awaitable
from datetime import timedelta
from unittest.mock import patch

import nacre
from nacre import exceptions as e
from tests.unit.fake_node import Answer, Asked, FakeNode, FakeService

CONFIG = 0xB5
TEMPORARY: Answer = (0x86, b"", b"")
SHORT = timedelta(milliseconds=400)


class ServicesTest(unittest.IsolatedAsyncioTestCase):
    """A cluster of a node that holds documents, and two that have the other services."""

    async def asyncSetUp(self) -> None:
        self.node = await self.enterAsyncContext(FakeNode())
        self.one = await self.enterAsyncContext(FakeService())
        self.two = await self.enterAsyncContext(FakeService())
        async with FakeService() as gone:
            self.down = gone.port
        await self.connect_to(self.one.port, self.two.port)

    async def connect_to(self, *ports: int) -> None:
        """Connects where the services are there."""
        self.serve_at(*ports)
        cluster = await nacre.connect(self.node.url, "user", "password")
        self.bucket = (await self.enterAsyncContext(cluster)).bucket("b")
        for service in (self.one, self.two):
            service.asked.clear()

    def serve_at(self, *ports: int) -> None:
        """Another map, in which the services are there."""
        self.node.rev += 1
        self.node.neighbours = [{"mgmt": port, "capi": port} for port in ports]

    async def query(self) -> None:
        await self.bucket.view_query("d", "v").execute()

    async def query_keys(self) -> None:
        await self.bucket.view_query("d", "v", keys=[1]).execute()

    async def list_scopes(self) -> None:
        await self.bucket.collections().get_all_scopes()

    async def create_scope(self) -> None:
        await self.bucket.collections().create_scope("s")

    async def drop_design_document(self) -> None:
        await self.bucket.view_indexes().drop_design_document("d")

    async def test_the_nodes_of_a_service_take_turns(self) -> None:
        for request in (self.query, self.create_scope):
            await self.connect_to(self.one.port, self.two.port)
            for _ in range(4):
                await request()
            self.assertEqual((len(self.one.asked), len(self.two.asked)), (2, 2))

    async def test_a_node_that_is_down_is_passed_over(self) -> None:
        for request in (self.query, self.query_keys, self.create_scope, self.drop_design_document):
            with self.subTest(request=request.__name__):
                await self.connect_to(self.down, self.two.port)
                await request()
                await request()
                self.assertEqual(len(self.two.asked), 2)

    async def test_the_map_is_fetched_again_when_a_node_is_down(self) -> None:
        for request in (self.query, self.create_scope):
            with self.subTest(request=request.__name__):
                await self.connect_to(self.down)
                await self.bucket.on_connect()
                self.serve_at(self.one.port, self.two.port)
                await request()
                await request()
                self.assertEqual((len(self.one.asked), len(self.two.asked)), (1, 1))

    async def test_the_map_is_fetched_again_when_no_node_has_the_service(self) -> None:
        self.serve_at()
        await self.bucket.on_connect()
        with self.assertRaises(e.ServiceUnavailableException):
            await self.query()
        self.serve_at(self.one.port)
        await self.query()

    async def test_all_nodes_of_the_cluster_are_asked_for_the_map(self) -> None:
        async with FakeNode() as seed:
            seed.neighbours = [{"kv": self.node.port}, {"mgmt": self.down}]
            cluster = await nacre.connect(seed.url, "user", "password")
        async with cluster:
            await cluster.buckets().drop_bucket("b")
        self.assertEqual(self.one.asked + self.two.asked, ["DELETE /pools/default/buckets/b"])

    async def test_others_are_asked_when_a_node_does_not_give_its_map(self) -> None:
        async with FakeNode() as silent:
            silent.neighbours = [{"kv": self.node.port}, {"mgmt": self.down}]
            async with await nacre.connect(silent.url, "user", "password") as cluster:
                silent.on[CONFIG] = lambda _: None
                with patch("nacre._client._MAP_WAIT_SECONDS_MAX", 0.1):
                    await cluster.buckets().drop_bucket("b")

    async def test_others_are_asked_when_a_node_that_has_left_gives_its_own_map(self) -> None:
        async with FakeNode() as left:
            left.neighbours = [{"kv": self.node.port}, {"mgmt": self.down}]
            async with await nacre.connect(left.url, "user", "password") as cluster:
                left.rev, left.neighbours = 0, []
                await cluster.buckets().drop_bucket("b")

    async def test_a_node_that_has_left_is_not_asked_for_long(self) -> None:
        with patch("nacre._client._MAP_AGE_SECONDS_MAX", 0):
            for request in (self.query, self.create_scope):
                await self.connect_to(self.one.port)
                await self.bucket.on_connect()
                self.serve_at(self.two.port)
                await request()
                self.assertEqual(self.one.asked, [])

    async def test_what_reads_is_repeated_when_its_connection_breaks(self) -> None:
        self.one.on_request = lambda writer: writer.close()
        for request in (self.query, self.query_keys, self.list_scopes):
            self.two.asked.clear()
            await request()
            await request()
            self.assertEqual(len(self.two.asked), 2)

    async def test_what_changes_is_not_repeated_when_its_connection_breaks(self) -> None:
        for service in (self.one, self.two):
            service.on_request = lambda writer: writer.close()
        for request in (self.create_scope, self.drop_design_document):
            with self.assertRaises(e.RequestCanceledException):
                await request()
        self.assertEqual(len(self.one.asked + self.two.asked), 2)

    async def test_nodes_that_stay_down_are_named_at_the_time_out(self) -> None:
        await self.connect_to(self.down)
        requests: list[Awaitable[object]] = [
            self.bucket.view_query("d", "v", timeout=SHORT).execute(),
            self.bucket.collections().create_scope("s", timeout=SHORT),
        ]
        for request in requests:
            # Nothing was sent, so nothing changed.
            with self.assertRaises(e.UnAmbiguousTimeoutException) as caught:
                await request
            self.assertEqual(caught.exception.context.retry_reasons, ("NODE_NOT_AVAILABLE",))
            self.assertEqual(caught.exception.context.endpoint, f"127.0.0.1:{self.down}")

    async def test_fetching_the_map_and_the_request_share_one_time_out(self) -> None:
        clock = asyncio.get_running_loop()
        begun, seconds = clock.time(), SHORT.total_seconds()

        def late(_: Asked) -> Answer:
            return (0, b"", self.node.config()) if clock.time() > begun + seconds / 2 else TEMPORARY

        self.node.on[CONFIG] = late
        self.one.on_request = self.two.on_request = lambda writer: None
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await self.bucket.view_query("d", "v", timeout=SHORT).execute()
        self.assertEqual(len(self.one.asked + self.two.asked), 1)
        self.assertLess(clock.time() - begun, seconds * 1.4)
