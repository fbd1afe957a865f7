# ruff: noqa: B023
"""Transactions: what they see, what they leave, and who is first."""

import asyncio
import random
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import nacre
from nacre import exceptions as e
from nacre import sync
from nacre._client import KvClient, Operation
from nacre._frame import Response
from nacre._records import record_key, see
from nacre.sync import transactions as sync_transactions
from nacre.transactions import (
    AttemptContext,
    TransactionGetMultiMode,
    TransactionGetMultiSpec,
    TransactionKeyspace,
    TransactionResult,
)
from tests.integration.node import NodeTest, unique

TIMEOUT = timedelta(seconds=20)


class TransactionTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.a, self.b = f"{self.key}-a", f"{self.key}-b"

    async def run_it(self, logic: Any, **options: Any) -> TransactionResult:
        return await self.cluster.transactions.run(logic, **{"timeout": TIMEOUT, **options})

    async def content(self, key: str) -> Any:
        try:
            return (await self.collection.get(key)).content
        except e.DocumentNotFoundException:
            return None

    async def assert_clean(self, *keys: str) -> None:
        """Nothing is staged any more."""
        for key in keys:
            seen = await see(self.collection.place(key), 5)
            self.assertIsNone(seen and seen.txn, key)

    async def test_documents_are_read_from_copies_in_the_server_group(self) -> None:
        for group in ("Group 1", "nowhere"):
            options = self.cluster_options()
            options.preferred_server_group = group
            cluster = await nacre.Cluster.connect(self.node.url, options)
            near = (await self.enterAsyncContext(cluster)).bucket(self.node.bucket)
            documents = near.default_collection()
            await documents.upsert(self.a, {"n": 1})

            async def logic(ctx: AttemptContext) -> None:
                with self.assertRaises(e.DocumentUnretrievableException):
                    await ctx.get_replica_from_preferred_server_group(documents, self.b)
                found = await ctx.get_replica_from_preferred_server_group(documents, self.a)
                self.assertEqual(found.content, {"n": 1})
                await ctx.replace(found, {"n": 2})
                # The change of the transaction itself is seen.
                found = await ctx.get_replica_from_preferred_server_group(documents, self.a)
                self.assertEqual(found.content, {"n": 2})
                specs = [TransactionGetMultiSpec(documents, key) for key in (self.a, self.b)]
                several = await ctx.get_multi_replicas_from_preferred_server_group(specs)
                self.assertEqual(several.content_as[dict](0), {"n": 2})
                self.assertFalse(several.exists(1))

            await cluster.transactions.run(logic)
            self.assertEqual((await documents.get(self.a)).content, {"n": 2})

            async def late(ctx: AttemptContext) -> None:
                await ctx.query("SELECT 1")
                await ctx.get_replica_from_preferred_server_group(documents, self.a)

            with self.assertRaises(e.TransactionFailed) as caught:
                await cluster.transactions.run(late)
            self.assertIsInstance(caught.exception.__cause__, e.FeatureUnavailableException)

    async def test_documents_are_inserted_replaced_and_removed_together(self) -> None:
        await self.collection.upsert(self.a, {"n": 1})
        await self.collection.upsert(self.b, {"n": 2})
        c = f"{self.key}-c"

        async def logic(ctx: AttemptContext) -> None:
            a = await ctx.get(self.collection, self.a)
            self.assertEqual(a.content_as[dict], {"n": 1})
            a = await ctx.replace(a, {"n": 10})
            a = await ctx.replace(a, {"n": 11})
            self.assertEqual((await ctx.get(self.collection, self.a)).content, {"n": 11})
            await ctx.remove(await ctx.get(self.collection, self.b))
            with self.assertRaises(e.DocumentNotFoundException):
                await ctx.get(self.collection, self.b)
            await ctx.insert(self.collection, c, {"n": 3})
            with self.assertRaises(e.DocumentExistsException):
                await ctx.insert(self.collection, c, {})
            # Nobody else sees any of it yet.
            found = [await self.content(key) for key in (self.a, self.b, c)]
            self.assertEqual(found, [{"n": 1}, {"n": 2}, None])

        result = await self.run_it(logic)
        self.assertTrue(result.unstaging_complete and result.transaction_id)
        found = [await self.content(key) for key in (self.a, self.b, c)]
        self.assertEqual(found, [{"n": 11}, None, {"n": 3}])
        await self.assert_clean(self.a, self.b, c)

    async def test_a_function_that_fails_changes_nothing(self) -> None:
        await self.collection.upsert(self.a, 1)

        async def logic(ctx: AttemptContext) -> None:
            await ctx.replace(await ctx.get(self.collection, self.a), 2)
            await ctx.insert(self.collection, self.b, 3)
            raise ValueError("enough")

        with self.assertRaises(e.TransactionFailed) as caught:
            await self.run_it(logic)
        self.assertIsInstance(caught.exception.__cause__, ValueError)
        self.assertEqual([await self.content(key) for key in (self.a, self.b)], [1, None])
        await self.assert_clean(self.a, self.b)

        async def missing(ctx: AttemptContext) -> None:
            await ctx.get(self.collection, "no-such")

        with self.assertRaises(e.TransactionFailed) as caught:
            await self.run_it(missing)
        self.assertIsInstance(caught.exception.__cause__, e.DocumentNotFoundException)

    async def test_changes_of_changes_count_once(self) -> None:
        await self.collection.upsert(self.a, {"n": 1})

        async def logic(ctx: AttemptContext) -> None:
            inserted = await ctx.insert(self.collection, self.b, 1)
            await ctx.remove(inserted)
            again = await ctx.insert(self.collection, self.b, 2)
            await ctx.replace(again, 3)
            await ctx.remove(await ctx.get(self.collection, self.a))
            await ctx.insert(self.collection, self.a, {"n": 2})

        await self.run_it(logic)
        self.assertEqual([await self.content(key) for key in (self.a, self.b)], [{"n": 2}, 3])
        await self.assert_clean(self.a, self.b)

    async def test_a_removed_document_can_be_inserted_again(self) -> None:
        await self.collection.upsert(self.a, 1)
        await self.collection.remove(self.a)

        async def logic(ctx: AttemptContext) -> None:
            await ctx.insert(self.collection, self.a, 2)

        await self.run_it(logic)
        self.assertEqual(await self.content(self.a), 2)
        with self.assertRaises(e.TransactionFailed) as caught:
            await self.run_it(logic)
        self.assertIsInstance(caught.exception.__cause__, e.DocumentExistsException)

    async def test_transactions_at_the_same_documents_keep_the_sum(self) -> None:
        keys = [f"{self.key}-{number}" for number in range(4)]
        await self.collection.upsert_multi({key: {"sum": 100} for key in keys})

        async def move(seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(4):
                source, target = chance.sample(keys, 2)

                async def logic(
                    ctx: AttemptContext, source: str = source, target: str = target
                ) -> None:
                    a = await ctx.get(self.collection, source)
                    b = await ctx.get(self.collection, target)
                    await ctx.replace(a, {"sum": a.content["sum"] - 1})
                    await ctx.replace(b, {"sum": b.content["sum"] + 1})

                await self.run_it(logic, timeout=timedelta(seconds=60))

        await asyncio.gather(*(move(seed) for seed in range(4)))
        found = [(await self.content(key))["sum"] for key in keys]
        self.assertEqual(sum(found), 400)
        await self.assert_clean(*keys)

    async def test_readers_see_what_is_committed_and_not_yet_written_out(self) -> None:
        await self.collection.upsert(self.a, 1)

        async def logic(ctx: AttemptContext) -> None:
            await ctx.replace(await ctx.get(self.collection, self.a), 2)
            await ctx.insert(self.collection, self.b, 3)

        async def read(ctx: AttemptContext) -> None:
            found = [(await ctx.get(self.collection, key)).content for key in (self.a, self.b)]
            self.assertEqual(found, [2, 3])

        with patch("nacre.transactions.settle", side_effect=e.TemporaryFailException()):
            result = await self.run_it(logic)
        self.assertFalse(result.unstaging_complete)
        self.assertEqual([await self.content(key) for key in (self.a, self.b)], [1, None])
        await self.run_it(read)

    async def test_what_a_client_leaves_is_finished_by_another(self) -> None:
        for state, expected in (("pending", [1, None]), ("committed", [2, 3])):
            await self.collection.upsert(self.a, 1)
            keys = [self.a, f"{self.b}-{state}"]

            async def logic(ctx: AttemptContext, keys: list[str] = keys) -> None:
                await ctx.replace(await ctx.get(self.collection, keys[0]), 2)
                await ctx.insert(self.collection, keys[1], 3)
                if state == "pending":
                    raise asyncio.CancelledError

            with (
                patch("nacre.transactions.settle", side_effect=e.TemporaryFailException()),
                patch.object(AttemptContext, "rollback"),
            ):
                try:
                    await self.run_it(logic, timeout=timedelta(seconds=0.5))
                except asyncio.CancelledError:
                    self.assertEqual(state, "pending")
            place = TransactionKeyspace(self.node.bucket)
            async with asyncio.timeout(30):
                while not await self.cluster.transactions.cleanup(place):
                    await asyncio.sleep(0.2)
            self.assertEqual([await self.content(key) for key in keys], expected)

            async def write(ctx: AttemptContext) -> None:
                await ctx.replace(await ctx.get(self.collection, keys[0]), 9)

            await self.run_it(write)
            self.assertEqual(await self.content(keys[0]), 9)
            await self.collection.remove(keys[0])

    async def test_an_answer_that_is_lost_at_any_step_leaves_all_or_nothing(self) -> None:
        step = 0
        while True:
            step += 1
            keys = [f"{self.key}-{step}-{name}" for name in "abc"]
            await self.collection.upsert(keys[0], 1)
            await self.collection.upsert(keys[1], 1)

            async def logic(ctx: AttemptContext, keys: list[str] = keys) -> None:
                await ctx.replace(await ctx.get(self.collection, keys[0]), 2)
                await ctx.remove(await ctx.get(self.collection, keys[1]))
                await ctx.insert(self.collection, keys[2], 2)

            count = 0
            real = KvClient.execute

            async def lossy(client: KvClient, operation: Operation, timeout: float) -> Response:
                nonlocal count
                answer = await real(client, operation, timeout)
                count += not operation.reads
                if count == step and not operation.reads:
                    raise e.RequestCanceledException("the answer is lost")
                return answer

            with patch.object(KvClient, "execute", lossy):
                await self.run_it(logic)
            self.assertEqual([await self.content(key) for key in keys], [2, None, 2], step)
            await self.assert_clean(*keys)
            if count < step:
                break
        self.assertGreater(step, 8)

    async def test_several_documents_are_read_at_once(self) -> None:
        keys = [self.a, self.b, f"{self.key}-c", f"{self.key}-none"]
        for key in keys[:2]:
            await self.collection.upsert(key, 0)
        specs = [TransactionGetMultiSpec(self.collection, key) for key in keys]

        async def logic(ctx: AttemptContext) -> None:
            await ctx.replace(await ctx.get(self.collection, self.a), 1)
            await ctx.remove(await ctx.get(self.collection, self.b))
            await ctx.insert(self.collection, keys[2], 3)
            found = await ctx.get_multi(specs)
            self.assertEqual([found.exists(n) for n in range(4)], [True, False, True, False])
            self.assertEqual([found.content_as[int](n) for n in (0, 2)], [1, 3])
            with self.assertRaises(e.DocumentNotFoundException):
                found.content_as[int](1)
            with self.assertRaises(e.InvalidIndexException):
                found.exists(4)
            with self.assertRaises(e.InvalidArgumentException):
                await ctx.get_multi([])
            await ctx.query("SELECT 1")
            found = await ctx.get_multi(specs)
            self.assertEqual([found.exists(n) for n in range(4)], [True, False, True, False])

        await self.run_it(logic)

    async def test_others_are_read_as_a_whole(self) -> None:
        keys = [f"{self.key}-{name}" for name in "abc"]
        for key in keys:
            await self.collection.upsert(key, 0)
        specs = [TransactionGetMultiSpec(self.collection, key) for key in keys]
        done = asyncio.Event()

        async def write() -> None:
            # Somebody sets all of them to the same number, again and again.
            n = 0
            while not done.is_set():
                n += 1

                async def logic(ctx: AttemptContext, n: int = n) -> None:
                    for key in keys:
                        await ctx.replace(await ctx.get(self.collection, key), n)

                await self.run_it(logic, timeout=timedelta(seconds=60))

        async def read(ctx: AttemptContext) -> None:
            mode = TransactionGetMultiMode.PRIORITISE_READ_SKEW_DETECTION
            found = await ctx.get_multi(specs, mode=mode)
            numbers = [found.content_as[int](n) for n in range(len(keys))]
            # One that began and ended between two reads is not seen by them.
            self.assertLessEqual(max(numbers) - min(numbers), 1)

        writing = asyncio.create_task(write())
        try:
            for _ in range(30):
                await self.run_it(read, timeout=timedelta(seconds=60))
        finally:
            done.set()
            await writing

    async def test_time_that_runs_out_changes_nothing(self) -> None:
        await self.collection.upsert(self.a, 1)

        async def slow(ctx: AttemptContext) -> None:
            await ctx.replace(await ctx.get(self.collection, self.a), 2)
            await asyncio.sleep(0.4)
            await ctx.insert(self.collection, self.b, 1)

        with self.assertRaises(e.TransactionExpired):
            await self.run_it(slow, timeout=timedelta(seconds=0.3))
        self.assertEqual([await self.content(key) for key in (self.a, self.b)], [1, None])
        await self.assert_clean(self.a, self.b)

    async def test_queries_are_part_of_the_transaction(self) -> None:
        keyspace = f"`{self.node.bucket}`"
        await self.collection.upsert(self.a, {"n": 1})

        async def logic(ctx: AttemptContext) -> None:
            await ctx.replace(await ctx.get(self.collection, self.a), {"n": 2})
            rows = await ctx.query(
                f"SELECT RAW n FROM {keyspace} USE KEYS $1", positional_parameters=[self.a]
            )
            self.assertEqual(rows.rows(), [2])
            await ctx.query(f"UPDATE {keyspace} USE KEYS '{self.a}' SET n = n + 1")
            found = await ctx.get(self.collection, self.a)
            self.assertEqual(found.content, {"n": 3})
            await ctx.replace(found, {"n": 4})
            inserted = await ctx.insert(self.collection, self.b, {"n": 5})
            await ctx.replace(inserted, {"n": 6})
            with self.assertRaises(e.DocumentNotFoundException):
                await ctx.get(self.collection, unique("none"))

        await self.run_it(logic)
        self.assertEqual(
            [await self.content(key) for key in (self.a, self.b)], [{"n": 4}, {"n": 6}]
        )
        await self.assert_clean(self.a, self.b)

        async def fail(ctx: AttemptContext) -> None:
            await ctx.query(f"UPDATE {keyspace} USE KEYS '{self.a}' SET n = 100")
            await ctx.remove(await ctx.get(self.collection, self.b))
            raise ValueError

        with self.assertRaises(e.TransactionFailed):
            await self.run_it(fail)
        self.assertEqual(
            [await self.content(key) for key in (self.a, self.b)], [{"n": 4}, {"n": 6}]
        )

    async def test_a_conflict_with_a_query_is_tried_again(self) -> None:
        await self.collection.upsert(self.a, {"n": 1})
        attempts = 0

        async def logic(ctx: AttemptContext) -> None:
            nonlocal attempts
            attempts += 1
            await ctx.query(f"UPDATE `{self.node.bucket}` USE KEYS '{self.a}' SET n = n + 1")
            if attempts == 1:
                await self.collection.upsert(self.a, {"n": 10})

        await self.run_it(logic)
        self.assertEqual((attempts, await self.content(self.a)), (2, {"n": 11}))

    async def test_blocking_transactions_run_in_threads(self) -> None:
        def work() -> Any:
            with sync.connect(self.node.url, self.node.user, self.node.password) as cluster:
                collection = cluster.bucket(self.node.bucket).default_collection()

                def logic(ctx: sync.AttemptContext) -> None:
                    found = ctx.insert(collection, self.a, {"n": 1})
                    ctx.replace(found, {"n": 2})
                    self.assertEqual(ctx.get(collection, self.a).content_as[dict], {"n": 2})
                    specs = [sync_transactions.TransactionGetMultiSpec(collection, self.a)]
                    self.assertEqual(ctx.get_multi(specs).content_as[dict](0), {"n": 2})
                    near = ctx.get_replica_from_preferred_server_group(collection, self.a)
                    self.assertEqual(near.content, {"n": 2})
                    several = ctx.get_multi_replicas_from_preferred_server_group(specs)
                    self.assertEqual(several.content_as[dict](0), {"n": 2})

                cluster.transactions.run(logic)
                return collection.get(self.a).content

        self.assertEqual(await asyncio.to_thread(work), {"n": 2})

    async def test_records_have_the_names_that_other_clients_know(self) -> None:
        known = {0: "_txn:atr-0-#14", 9: "_txn:atr-9-#0", 22: "_txn:atr-22-#59e8"}
        self.assertEqual({number: record_key(number) for number in known}, known)
