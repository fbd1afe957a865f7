"""Collections whose documents fit a schema."""

import asyncio
import unittest
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any

import nacre
from nacre import exceptions as e
from nacre import sync
from nacre.transcoder import RawJSONTranscoder
from tests.unit.fake_node import FakeNode

GET, UPSERT, INSERT = 0x00, 0x01, 0x02
JSON = b"\x02\x00\x00\x00"


@dataclass(frozen=True)
class Order:
    total: int

    @classmethod
    def load(cls, value: Any) -> "Order":
        if not isinstance(value["total"], int):
            raise ValueError("total is no integer")
        return cls(value["total"])


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FakeNode, nacre.Collection]]:
    async with FakeNode() as node:
        node.on[UPSERT] = node.on[INSERT] = lambda asked: (0, b"", b"")
        node.on[GET] = lambda asked: (0, JSON, b'{"total":1}')
        async with await nacre.connect(node.url, "user", "password") as cluster:
            yield node, cluster.bucket("b").default_collection()


class SchemaTest(unittest.IsolatedAsyncioTestCase):
    async def test_documents_that_fit_are_stored_and_read(self) -> None:
        async with connected() as (node, collection):
            orders = collection.with_schema(Order.load, asdict)
            await orders.upsert("k", Order(1))
            (stored,) = [asked for asked in node.asked if asked.opcode == UPSERT]
            self.assertEqual(stored.value, b'{"total":1}')
            self.assertEqual((await orders.get("k")).content_as[Order], Order(1))
            # A transcoder of an operation takes the place of the schema.
            raw = await orders.get("k", transcoder=RawJSONTranscoder())
            self.assertEqual(raw.content, b'{"total":1}')

    async def test_documents_that_do_not_fit_are_refused(self) -> None:
        async with connected() as (node, collection):
            node.on[GET] = lambda asked: (0, JSON, b'{"total":"x"}')
            orders = collection.with_schema(Order.load)
            with self.assertRaisesRegex(e.ValidationException, "no integer") as caught:
                await orders.get("k")
            self.assertIsInstance(caught.exception.__cause__, ValueError)
            # Before anything is sent.
            for wrong in ({"total": "x"}, {}, None):
                with self.assertRaises(e.ValidationException):
                    await orders.insert("k", wrong)
            self.assertNotIn(INSERT, [asked.opcode for asked in node.asked])
            # What is stored is what will be read.
            wrong_dump = collection.with_schema(Order.load, lambda order: {"total": "x"})
            with self.assertRaises(e.ValidationException):
                await wrong_dump.insert("k", Order(1))
            # The collection itself takes anything.
            await collection.insert("k", {"total": "x"})

    async def test_blocking_collections_have_schemas_too(self) -> None:
        async with connected() as (node, _):

            def work() -> Order:
                with sync.connect(node.url, "user", "password") as cluster:
                    collection = cluster.bucket("b").default_collection()
                    return collection.with_schema(Order.load).get("k").content_as[Order]

            self.assertEqual(await asyncio.to_thread(work), Order(1))
