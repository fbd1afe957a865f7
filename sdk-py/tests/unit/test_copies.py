"""Reads of copies within transactions."""

import json
import struct
import unittest

import nacre
from nacre import exceptions as e
from nacre.transactions import AttemptContext, TransactionGetMultiSpec
from tests.unit.fake_node import Answer, Asked, FakeNode

MULTI_LOOKUP = 0xD0
ACTIVE, REPLICA = b"\x04", b"\x24"
MISSING: Answer = (0x01, b"", b"")


def found(content: object) -> Answer:
    """A document without a staged change: attribute, flags, body."""
    parts = ((0xC0, b""), (0, b"33554432"), (0, json.dumps(content).encode()))
    value = b"".join(struct.pack(">HI", status, len(text)) + text for status, text in parts)
    return 0xCC, b"", value


class CopiesTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.node = await self.enterAsyncContext(FakeNode())
        self.node.replicas = [0]
        self.flags: list[bytes] = []
        options = nacre.ClusterOptions(
            nacre.PasswordAuthenticator("user", "password"), preferred_server_group="east"
        )
        cluster = await nacre.Cluster.connect(self.node.url, options)
        self.cluster = await self.enterAsyncContext(cluster)
        self.collection = self.cluster.bucket("b").default_collection()

    def answers(self, active: Answer, replica: Answer) -> None:
        def answer(asked: Asked) -> Answer:
            self.flags.append(asked.extras)
            return replica if asked.extras == REPLICA else active

        self.node.on[MULTI_LOOKUP] = answer

    async def test_the_copy_that_answers_first_is_read(self) -> None:
        # The active copy is silent, and the server group has none.
        self.answers(None, found({"n": 1}))

        async def read(ctx: AttemptContext) -> None:
            one = await ctx.get_replica_from_preferred_server_group(self.collection, "k")
            self.assertEqual(one.content, {"n": 1})
            specs = [TransactionGetMultiSpec(self.collection, "k")]
            several = await ctx.get_multi_replicas_from_preferred_server_group(specs)
            self.assertEqual(several.content_as[dict](0), {"n": 1})

        await self.cluster.transactions.run(read)
        self.assertEqual(sorted(self.flags), [ACTIVE, ACTIVE, REPLICA, REPLICA])

    async def test_a_copy_without_the_document_is_passed_over(self) -> None:
        self.answers(MISSING, found([2]))

        async def read(ctx: AttemptContext) -> None:
            one = await ctx.get_replica_from_preferred_server_group(self.collection, "k")
            self.assertEqual(one.content, [2])

        await self.cluster.transactions.run(read)

    async def test_what_no_copy_has_may_be_handled(self) -> None:
        self.answers(MISSING, MISSING)

        async def read(ctx: AttemptContext) -> None:
            with self.assertRaises(e.DocumentUnretrievableException):
                await ctx.get_replica_from_preferred_server_group(self.collection, "k")
            specs = [TransactionGetMultiSpec(self.collection, "k")]
            several = await ctx.get_multi_replicas_from_preferred_server_group(specs)
            self.assertFalse(several.exists(0))

        await self.cluster.transactions.run(read)
