"""Counters, plain bytes, and waiting for durability."""

from datetime import timedelta

from nacre import ClientDurability, PersistTo, RawBinaryTranscoder, ReplicateTo
from nacre import exceptions as e
from tests.integration.node import NodeTest

RAW = RawBinaryTranscoder()


class BinaryTest(NodeTest):
    async def test_counters_start_where_told_and_never_fall_below_zero(self) -> None:
        counter = self.collection.binary()
        self.assertEqual((await counter.increment(self.key, initial=5)).content, 5)
        self.assertEqual((await counter.increment(self.key, delta=10)).content, 15)
        self.assertEqual((await counter.decrement(self.key, delta=3)).content, 12)
        self.assertEqual((await counter.decrement(self.key, delta=100)).content, 0)
        self.assertEqual((await self.collection.get(self.key)).content, 0)

    async def test_a_missing_counter_is_created_only_if_wanted(self) -> None:
        with self.assertRaises(e.DocumentNotFoundException):
            await self.collection.binary().increment(self.key, initial=None)
        hour = timedelta(hours=1)
        await self.collection.binary().increment(self.key, initial=1, expiry=hour)
        self.assertIsNotNone((await self.collection.get(self.key, with_expiry=True)).expiry_time)

    async def test_a_document_that_is_no_counter_is_refused(self) -> None:
        await self.collection.upsert(self.key, "text")
        with self.assertRaises(e.DeltaInvalidException):
            await self.collection.binary().increment(self.key)
        with self.assertRaises(e.InvalidArgumentException):
            await self.collection.binary().increment(self.key, delta=-1)

    async def test_bytes_are_added_at_both_ends(self) -> None:
        binary = self.collection.binary()
        with self.assertRaises(e.DocumentNotFoundException):
            await binary.append(self.key, b"x")
        await self.collection.upsert(self.key, b"b", transcoder=RAW)
        await binary.append(self.key, b"c")
        cas = (await binary.prepend(self.key, "a")).cas
        self.assertEqual((await self.collection.get(self.key, transcoder=RAW)).content, b"abc")
        with self.assertRaises(e.CASMismatchException):
            await binary.append(self.key, b"d", cas=cas - 1)


class DurabilityTest(NodeTest):
    async def test_a_mutation_is_waited_for_until_it_is_on_disk(self) -> None:
        durability = ClientDurability(persist_to=PersistTo.ACTIVE)
        stored = await self.collection.upsert(self.key, 1, durability=durability)
        self.assertIsNotNone(stored.mutation_token())
        await self.collection.binary().append(self.key, b"0", durability=durability)
        await self.collection.remove(self.key, durability=durability)

    async def test_what_the_bucket_cannot_give_is_refused_before_writing(self) -> None:
        for durability in (
            ClientDurability(persist_to=PersistTo.FOUR),
            ClientDurability(ReplicateTo.THREE),
        ):
            with self.assertRaises(e.DurabilityImpossibleException):
                await self.collection.upsert(self.key, 1, durability=durability)
        self.assertFalse((await self.collection.exists(self.key)).exists)
