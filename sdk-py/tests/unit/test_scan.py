"""Scans of nodes that lie, fail and move."""

import asyncio
import struct
import unittest
from datetime import timedelta

import nacre
from nacre import exceptions as e
from nacre.kv_range_scan import RangeScan
from tests.unit.fake_node import VBUCKETS, Answer, Asked, FakeNode, encode

CREATE, CONTINUE, CANCEL = 0xDA, 0xDB, 0xDC
NOT_FOUND, TEMPORARY, MORE, COMPLETE, CANCELLED = 0x01, 0x86, 0xA6, 0xA7, 0xA5
UUID = bytes(16)


def document(key: bytes, value: bytes = b"1") -> bytes:
    meta = struct.pack(">IIQQB", 0x02000000, 0, 1, 2, 1)
    return meta + bytes([len(key)]) + key + bytes([len(value)]) + value


class ScanTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.node = await self.enterAsyncContext(FakeNode())
        cluster = await nacre.connect(self.node.url, "user", "password")
        self.cluster = await self.enterAsyncContext(cluster)
        bucket = self.cluster.bucket("b")
        await bucket.on_connect()
        self.collection = bucket.default_collection()
        self.node.on[CREATE] = lambda asked: (NOT_FOUND, b"", b"") if asked.vbid else (0, b"", UUID)
        self.node.on[CANCEL] = lambda _: (0, b"", b"")

    async def found(self, **options: timedelta) -> list[str]:
        return [one.id async for one in self.collection.scan(RangeScan(), **options)]

    async def test_every_vbucket_is_scanned_to_its_end(self) -> None:
        answers = [(MORE, b"", document(b"a")), (COMPLETE, b"", document(b"b"))]
        self.node.on[CONTINUE] = lambda _: answers.pop(0)
        self.assertEqual(await self.found(), ["a", "b"])
        self.assertEqual(self.node.count(CREATE), VBUCKETS)

    async def test_a_scan_that_breaks_off_goes_on_behind_the_last_document(self) -> None:
        answers: list[Answer] = [
            (MORE, b"", document(b"a")),
            (CANCELLED, b"", b""),
            (COMPLETE, b"", document(b"b")),
        ]
        self.node.on[CONTINUE] = lambda _: answers.pop(0)
        self.assertEqual(await self.found(), ["a", "b"])
        asked = [one.value for one in self.node.asked if one.opcode == CREATE and not one.vbid]
        self.assertEqual(len(asked), 2)
        self.assertIn(b'"excl_start": "YQ=="', asked[1])

    async def test_a_busy_node_is_asked_again(self) -> None:
        busy = [TEMPORARY, TEMPORARY]
        create = self.node.on[CREATE]
        self.node.on[CREATE] = lambda asked: (busy.pop(), b"", b"") if busy else create(asked)
        self.node.on[CONTINUE] = lambda _: (COMPLETE, b"", document(b"a"))
        self.assertEqual(await self.found(), ["a"])

    async def test_answers_that_lie_are_named(self) -> None:
        for value in (b"x", document(b"a")[:-1], document(b"a")[:25], b"\xff" * 60):
            self.node.on[CONTINUE] = lambda _, value=value: (COMPLETE, b"", value)
            with self.subTest(value[:30]), self.assertRaises(e.DecodingFailureException):
                await self.found()

    async def test_silence_ends_at_the_time_out_and_the_scan_is_cancelled(self) -> None:
        self.node.on[CONTINUE] = lambda _: None
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await self.found(timeout=timedelta(milliseconds=100))
        async with asyncio.timeout(5):
            while not self.node.count(CANCEL):
                await asyncio.sleep(0)

    async def test_a_node_that_never_ends_a_batch_is_given_up(self) -> None:
        flood = document(b"k", b"1" * 100) * 5000

        def endless(asked: Asked) -> Answer:
            for _ in range(160):
                self.node.send(encode(asked, 0, b"", flood))
            return 0, b"", b""

        self.node.on[CONTINUE] = endless
        with self.assertRaisesRegex(e.DecodingFailureException, "over the limit"):
            await self.found()


if __name__ == "__main__":
    unittest.main()
