"""Scans of a collection."""

import asyncio
from datetime import timedelta

from nacre import exceptions as e
from nacre.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from nacre.mutation_state import MutationState
from nacre.result import MutationToken
from tests.integration.node import NodeTest

COUNT = 40


class ScanTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        keys = [f"{self.key}:{number:02}" for number in range(COUNT)]
        stored = await self.collection.upsert_multi({key: {"key": key} for key in keys})
        self.assertTrue(stored.all_ok)
        self.keys = keys
        self.state = MutationState(*stored.results.values())

    async def test_a_prefix_finds_its_documents(self) -> None:
        scan = self.collection.scan(
            PrefixScan(f"{self.key}:"), consistent_with=self.state, concurrency=8
        )
        found = {document.id: document async for document in scan}
        self.assertEqual(sorted(found), self.keys)
        one = found[self.keys[3]]
        self.assertEqual(one.content_as[dict], {"key": self.keys[3]})
        self.assertEqual(one.cas, (await self.collection.get(self.keys[3])).cas)
        self.assertIsNone(one.expiry_time)

    async def test_a_range_has_its_ends_or_not(self) -> None:
        low, high = self.keys[10], self.keys[19]
        for exclusive in (False, True):
            scan = self.collection.scan(
                RangeScan(ScanTerm(low, exclusive), ScanTerm(high, exclusive)),
                ids_only=True,
                concurrency=8,
                batch_item_limit=1,
            )
            found = sorted([document.id async for document in scan.rows()])
            self.assertEqual(found, self.keys[11:19] if exclusive else self.keys[10:20])

    async def test_keys_alone_have_no_content(self) -> None:
        scan = self.collection.scan(PrefixScan(self.keys[0]), ids_only=True, concurrency=8)
        (found,) = [document async for document in scan]
        self.assertTrue(found.ids_only)
        with self.assertRaises(e.InvalidArgumentException):
            found.content_as[dict]

    async def test_a_sample_is_no_larger_than_asked(self) -> None:
        scan = self.collection.scan(SamplingScan(5, seed=7), ids_only=True, concurrency=8)
        self.assertEqual(len([document async for document in scan]), 5)
        with self.assertRaises(e.InvalidArgumentException):
            self.collection.scan(SamplingScan(0))

    async def test_a_scan_that_is_left_leaves_nothing_behind(self) -> None:
        before = asyncio.all_tasks()
        scan = self.collection.scan(PrefixScan(f"{self.key}:"), concurrency=8)
        rows = scan.rows()
        await anext(rows)
        await rows.aclose()  # type: ignore[attr-defined]
        self.assertEqual(asyncio.all_tasks(), before)
        scan = self.collection.scan(PrefixScan(f"{self.key}:"), concurrency=8)
        count = 0
        async for _ in scan:
            count += 1
            scan.cancel_scan()
        self.assertEqual(count, 1)

    async def test_a_history_that_is_no_more_is_told(self) -> None:
        token = next(iter(self.state))
        state = MutationState()
        state.add_mutation_token(
            MutationToken(
                token.partition_id,
                token.partition_uuid + 1,
                token.sequence_number,
                token.bucket_name,
            )
        )
        scan = self.collection.scan(PrefixScan(self.key), consistent_with=state, concurrency=8)
        with self.assertRaises(e.MutationTokenOutdatedException):
            _ = [document async for document in scan]

    async def test_a_missing_collection_is_not_found(self) -> None:
        collection = self.bucket.collection("no-such")
        scan = collection.scan(PrefixScan("a"), timeout=timedelta(seconds=1))
        with self.assertRaises(e.CollectionNotFoundException):
            _ = [document async for document in scan]
