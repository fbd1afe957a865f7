"""Nothing is left of clusters that were closed, whatever their servers did."""

import asyncio
import gc
import os
import struct
import unittest
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import nacre
from nacre.exceptions import CouchbaseException
from tests.unit.fake_node import Answer, Asked, FakeNode

GET, UPSERT = 0x00, 0x01
FOUND = (0, bytes.fromhex("02000000"), b'"v"')
STORED = (0, b"", b"")
OUTSTANDING = 100_000
LARGE_BYTES = 20 * 1024 * 1024


def sockets() -> int:
    """How many sockets the process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            continue
    return count


def half_a_frame(node: FakeNode) -> Answer:
    node.send(bytes([0x81, GET]) + bytes(9))
    return None


def garbage(node: FakeNode) -> Answer:
    node.send(b"garbage, and more of it than a header has")
    return None


def boundless(node: FakeNode) -> Answer:
    node.send(struct.pack(">BBHBBHIIQ", 0x81, GET, 0, 0, 0, 0, 0xFFFFFFF0, 0, 0))
    return None


def end(node: FakeNode) -> Answer:
    node.drop()
    return None


def end_in_a_frame(node: FakeNode) -> Answer:
    half_a_frame(node)
    return end(node)


BROKEN: dict[str, Callable[[FakeNode], Answer]] = {
    "garbage": garbage,
    "silence": lambda _: None,
    "half a frame": half_a_frame,
    "half a frame, and the end": end_in_a_frame,
    "a length beyond any limit": boundless,
    "an end": end,
    "flags that are missing": lambda _: (0, b"", b"1"),
    "a value that is no JSON": lambda _: (0, FOUND[1], b"{"),
    "a status that nobody knows": lambda _: (0x7777, b"", b""),
}
"""What servers do that are broken."""


async def name_of(work: Awaitable[object]) -> str:
    """Name of the exception that some work raises, or ``done``."""
    try:
        await work
    except (CouchbaseException, asyncio.CancelledError) as error:
        return type(error).__name__
    return "done"


class LeftoversTest(unittest.IsolatedAsyncioTestCase):
    async def leaves_nothing(self, body: Callable[[FakeNode], Awaitable[None]]) -> None:
        """Runs with a node; tasks and sockets are afterwards those of before."""
        unhandled: list[object] = []
        loop = asyncio.get_running_loop()
        # Thousands of tasks take minutes when each of them is watched.
        loop.set_debug(False)
        loop.set_exception_handler(lambda _, context: unhandled.append(context))
        before = (len(asyncio.all_tasks()), sockets())
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            async with FakeNode() as node:
                await body(node)
            for _ in range(1000):
                if (len(asyncio.all_tasks()), sockets()) == before:
                    break
                await asyncio.sleep(0)
            gc.collect()
        self.assertEqual((len(asyncio.all_tasks()), sockets()), before)
        self.assertEqual(unhandled, [])

    async def test_broken_servers(self) -> None:
        for name, answer in BROKEN.items():

            async def body(node: FakeNode, answer: Callable[[FakeNode], Answer] = answer) -> None:
                node.on[GET] = lambda _: answer(node)
                async with await nacre.connect(node.url, "user", "password") as cluster:
                    collection = cluster.bucket("b").default_collection()
                    timeout = timedelta(seconds=0.3)
                    asked = [name_of(collection.get(f"k{n}", timeout=timeout)) for n in range(10)]
                    for outcome in set(await asyncio.gather(*asked)):
                        self.assertRegex(outcome, r"^\w+Exception$")

            with self.subTest(name):
                await self.leaves_nothing(body)

    async def test_thousands_at_a_time_of_which_half_are_cancelled(self) -> None:
        async def body(node: FakeNode) -> None:
            node.on[GET] = lambda _: FOUND
            async with await nacre.connect(node.url, "user", "password") as cluster:
                collection = cluster.bucket("b").default_collection()
                await collection.get("first")
                timeout = timedelta(minutes=10)
                tasks = [
                    asyncio.create_task(name_of(collection.get(f"k{n % 100}", timeout=timeout)))
                    for n in range(OUTSTANDING)
                ]
                await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                counts = Counter(await asyncio.gather(*tasks))
                half = OUTSTANDING // 2
                self.assertEqual(counts, {"done": half, "CancelledError": half})

        await self.leaves_nothing(body)

    async def test_a_document_of_20_mib_goes_there_and_back(self) -> None:
        kept: list[bytes] = []

        def keep(asked: Asked) -> Answer:
            kept.append(asked.value)
            return STORED

        async def body(node: FakeNode) -> None:
            node.on[UPSERT] = keep
            node.on[GET] = lambda _: (0, FOUND[1], kept[0])
            async with await nacre.connect(node.url, "user", "password") as cluster:
                collection = cluster.bucket("b").default_collection()
                text, timeout = "x" * (LARGE_BYTES - 2), timedelta(minutes=1)
                await collection.upsert("k", text, timeout=timeout)
                self.assertEqual(len(kept[0]), LARGE_BYTES)
                self.assertEqual((await collection.get("k", timeout=timeout)).value, text)

        await self.leaves_nothing(body)

    async def test_a_task_may_be_cancelled_at_any_await(self) -> None:
        async def work(url: str) -> None:
            async with await nacre.connect(url, "user", "password") as cluster:
                collection = cluster.bucket("b").default_collection()
                await collection.upsert("k", 1)
                await collection.get("k")

        async def body(node: FakeNode) -> None:
            node.on |= {GET: lambda _: FOUND, UPSERT: lambda _: STORED}
            for turns in range(10_000):
                task = asyncio.create_task(work(node.url))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                if await name_of(task) == "done":
                    return
            self.fail("the work has no end")

        await self.leaves_nothing(body)
