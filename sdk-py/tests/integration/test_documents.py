"""Whole documents: storing, reading, versions, expiry, locks."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import nacre
from nacre import RawBinaryTranscoder, RawStringTranscoder
from nacre import exceptions as e
from nacre import subdocument as sd
from nacre.options import GetOptions, UpsertOptions
from tests.integration.node import NodeTest

HOUR = timedelta(hours=1)
SHORT = timedelta(milliseconds=900)


class DocumentTest(NodeTest):
    async def test_what_is_stored_is_read(self) -> None:
        document = {"text": "é", "list": [1, 2.5, None, True], "nested": {"a": {}}}
        stored = await self.collection.upsert(self.key, document)
        found = await self.collection.get(self.key)
        self.assertEqual((found.content, found.cas), (document, stored.cas))
        self.assertEqual(found.content_as[dict], document)
        with self.assertRaises(e.InvalidArgumentException):
            found.content_as[list]

    async def test_mutations_say_where_they_are(self) -> None:
        first = (await self.collection.upsert(self.key, 1)).mutation_token()
        second = (await self.collection.upsert(self.key, 2)).mutation_token()
        assert first is not None and second is not None
        self.assertEqual(first.bucket_name, self.node.bucket)
        self.assertEqual(first.partition_uuid, second.partition_uuid)
        self.assertGreater(second.sequence_number, first.sequence_number)

    async def test_a_missing_document_is_not_found(self) -> None:
        for operation in (
            self.collection.get(self.key),
            self.collection.replace(self.key, 1),
            self.collection.remove(self.key),
            self.collection.touch(self.key, HOUR),
            self.collection.get_and_touch(self.key, HOUR),
            self.collection.get_and_lock(self.key, timedelta(seconds=1)),
        ):
            with self.assertRaises(e.DocumentNotFoundException) as caught:
                await operation
            context = caught.exception.context
            self.assertEqual((context.key, context.status), (self.key, 1))
        self.assertFalse((await self.collection.exists(self.key)).exists)

    async def test_insert_refuses_a_document_that_exists(self) -> None:
        await self.collection.insert(self.key, 1)
        with self.assertRaises(e.DocumentExistsException):
            await self.collection.insert(self.key, 2)

    async def test_a_stale_cas_is_refused(self) -> None:
        stale = (await self.collection.insert(self.key, 1)).cas
        fresh = (await self.collection.replace(self.key, 2, cas=stale)).cas
        with self.assertRaises(e.CASMismatchException):
            await self.collection.replace(self.key, 3, cas=stale)
        with self.assertRaises(e.CASMismatchException):
            await self.collection.remove(self.key, cas=stale)
        await self.collection.remove(self.key, cas=fresh)
        self.assertFalse((await self.collection.exists(self.key)).exists)

    async def test_exists_gives_the_cas(self) -> None:
        cas = (await self.collection.upsert(self.key, 1)).cas
        result = await self.collection.exists(self.key)
        self.assertEqual((result.exists, result.cas), (True, cas))

    async def test_documents_need_not_be_json(self) -> None:
        for transcoder, value in ((RawBinaryTranscoder(), b"\xff\0"), (RawStringTranscoder(), "é")):
            with self.subTest(value=value):
                await self.collection.upsert(self.key, value, transcoder=transcoder)
                found = await self.collection.get(self.key, transcoder=transcoder)
                self.assertEqual(found.content, value)
                with self.assertRaises(e.ValueFormatException):
                    await self.collection.get(self.key)

    async def test_a_document_that_is_too_large_is_refused(self) -> None:
        with self.assertRaises(e.ValueTooLargeException):
            await self.collection.upsert(self.key, "x" * (21 << 20))

    async def test_megabytes_pass(self) -> None:
        document = {"text": "x" * (5 << 20)}
        await self.collection.upsert(self.key, document)
        self.assertEqual((await self.collection.get(self.key)).content, document)


class ExpiryTest(NodeTest):
    async def expiry(self) -> datetime | None:
        return (await self.collection.get(self.key, with_expiry=True)).expiry_time

    def assert_about(self, when: datetime | None, duration: timedelta) -> None:
        assert when is not None
        off = abs((when - datetime.now(UTC) - duration).total_seconds())
        self.assertLess(off, 5)

    async def test_expiries_are_stored_and_read(self) -> None:
        await self.collection.upsert(self.key, {"a": 1}, UpsertOptions(expiry=HOUR))
        found = await self.collection.get(self.key, GetOptions(with_expiry=True))
        self.assertEqual(found.content, {"a": 1})
        self.assert_about(found.expiry_time, HOUR)
        await self.collection.upsert(self.key, 1, expiry=40 * 24 * HOUR)
        self.assert_about(await self.expiry(), 40 * 24 * HOUR)

    async def test_writes_clear_the_expiry_unless_told_to_preserve_it(self) -> None:
        await self.collection.upsert(self.key, 1, expiry=HOUR)
        await self.collection.upsert(self.key, 2, preserve_expiry=True)
        self.assert_about(await self.expiry(), HOUR)
        await self.collection.replace(self.key, 3, preserve_expiry=True)
        self.assert_about(await self.expiry(), HOUR)
        await self.collection.upsert(self.key, 4)
        self.assertIsNone(await self.expiry())

    async def test_touching_sets_the_expiry(self) -> None:
        await self.collection.upsert(self.key, "v")
        await self.collection.touch(self.key, HOUR)
        self.assert_about(await self.expiry(), HOUR)
        touched = await self.collection.get_and_touch(self.key, timedelta(0))
        self.assertEqual(touched.content, "v")
        self.assertIsNone(await self.expiry())

    async def test_expired_documents_are_gone(self) -> None:
        await self.collection.upsert(self.key, 1, expiry=timedelta(seconds=1))
        async with asyncio.timeout(5):
            while (await self.collection.exists(self.key)).exists:
                await asyncio.sleep(0.05)


class DurabilityTest(NodeTest):
    async def test_the_server_takes_every_level(self) -> None:
        for level in nacre.DurabilityLevel:
            durability = nacre.ServerDurability(level)
            with self.subTest(level):
                await self.collection.upsert(self.key, {"n": 1}, durability=durability)
                await self.collection.mutate_in(
                    self.key, [sd.upsert("n", level.value)], durability=durability
                )
                found = await self.collection.get(self.key)
                self.assertEqual(found.content, {"n": level.value})
                await self.collection.remove(self.key, durability=durability)

    async def test_a_level_that_is_none_is_refused(self) -> None:
        wrong: Any = 1
        with self.assertRaises(e.InvalidArgumentException):
            await self.collection.upsert(self.key, 1, durability=wrong)


class LockTest(NodeTest):
    async def test_a_locked_document_can_be_changed_with_the_cas_of_the_lock_only(self) -> None:
        await self.collection.upsert(self.key, 1)
        locked = await self.collection.get_and_lock(self.key, timedelta(seconds=15))
        self.assertEqual(locked.content, 1)
        with self.assertRaises(e.DocumentLockedException) as caught:
            await self.collection.upsert(self.key, 2, timeout=SHORT)
        self.assertEqual(caught.exception.context.retry_reasons, ("KV_LOCKED",))
        with self.assertRaises(e.DocumentLockedException):
            await self.collection.get_and_lock(self.key, timedelta(seconds=1), timeout=SHORT)
        await self.collection.replace(self.key, 3, cas=locked.cas)
        await self.collection.upsert(self.key, 4)

    async def test_a_waiting_write_goes_on_when_the_lock_is_given_back(self) -> None:
        await self.collection.upsert(self.key, 1)
        locked = await self.collection.get_and_lock(self.key, timedelta(seconds=15))
        write = asyncio.create_task(self.collection.upsert(self.key, 2))
        await asyncio.sleep(0.05)
        await self.collection.unlock(self.key, locked.cas)
        await write

    async def test_unlocking_needs_the_cas_of_the_lock(self) -> None:
        cas = (await self.collection.upsert(self.key, 1)).cas
        with self.assertRaises(e.DocumentNotLockedException):
            await self.collection.unlock(self.key, cas)
        locked = await self.collection.get_and_lock(self.key, timedelta(seconds=15))
        with self.assertRaises(e.CASMismatchException):
            await self.collection.unlock(self.key, locked.cas + 1)
        await self.collection.unlock(self.key, locked.cas)

    async def test_locks_hold_one_to_thirty_seconds(self) -> None:
        for seconds in (0, 31):
            with self.assertRaises(e.InvalidArgumentException):
                await self.collection.get_and_lock(self.key, timedelta(seconds=seconds))
