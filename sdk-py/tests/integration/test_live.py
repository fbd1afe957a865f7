"""Changes of a collection, and results that stay up to date."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Any

from nacre import RawBinaryTranscoder, sync
from nacre import changes as c
from nacre import exceptions as e
from nacre.changes import Change
from nacre.n1ql import QueryScanConsistency
from tests.integration.node import NodeTest, unique

SECONDS_MAX = 20.0


def in_order(rows: list[Any]) -> list[str]:
    """Rows in an order of their own."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


class ChangesTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.name = unique("c")
        await self.bucket.collections().create_collection("_default", self.name)
        self.collection = self.bucket.collection(self.name)

    async def asyncTearDown(self) -> None:
        await self.bucket.collections().drop_collection("_default", self.name)

    async def all(self, **options: Any) -> tuple[dict[str, Change], str]:
        changes = self.collection.changes(follow=False, **options)
        found = {change.id: change async for change in changes}
        return found, changes.token

    async def test_all_there_is_comes_and_then_what_is_new(self) -> None:
        stored = await self.collection.upsert("a", {"n": 1})
        await self.collection.upsert("b", 2)
        await self.collection.remove("b")
        found, token = await self.all()
        a, b = found["a"], found["b"]
        self.assertEqual(
            (a.content, a.cas, a.revision, a.deleted), ({"n": 1}, stored.cas, 1, False)
        )
        mutation = stored.mutation_token()
        assert mutation is not None
        self.assertEqual((a.vbucket, a.seqno), (mutation.partition_id, mutation.sequence_number))
        self.assertEqual((b.content, b.deleted), (None, True))

        await self.collection.upsert("c", 3)
        found, later = await self.all(since=token)
        self.assertEqual(list(found), ["c"])
        self.assertEqual((await self.all(since=later))[0], {})
        found, _ = await self.all(include_docs=False, doc_ids=["a"])
        self.assertEqual([(one.id, one.content) for one in found.values()], [("a", None)])

    async def test_bytes_come_as_they_are(self) -> None:
        await self.collection.upsert("a", b"\xff\x00", transcoder=RawBinaryTranscoder())
        found, _ = await self.all()
        self.assertEqual(found["a"].content, b"\xff\x00")

    async def test_a_reader_is_told_of_what_happens_from_now_on(self) -> None:
        await self.collection.upsert("before", 1)
        changes = self.collection.changes(since=c.NOW)
        await changes.mark()
        await self.collection.upsert("after", 2)
        async with asyncio.timeout(SECONDS_MAX), aclosing(iterate(changes)) as found:
            self.assertEqual((await anext(found)).id, "after")
            await self.collection.upsert("later", 3)
            self.assertEqual((await anext(found)).id, "later")
        with self.assertRaises(e.AlreadyQueriedException):
            await anext(iterate(changes))

    async def test_nothing_is_missing_when_connections_break(self) -> None:
        count = 300
        seen: dict[str, int] = {}
        changes = self.collection.changes()

        async def read() -> None:
            async for change in changes:
                seen[change.id] = change.content
                if len(seen) == count and all(value == 1 for value in seen.values()):
                    return

        reading = asyncio.create_task(read())
        for value in (0, 1):
            for number in range(count):
                await self.collection.upsert(f"k{number}", value)
                if number % 30 == 0:
                    for socket in list(self.cluster.http._sockets.values()):
                        socket.end()
        async with asyncio.timeout(SECONDS_MAX):
            await reading
        self.assertEqual(len(seen), count)

    async def test_a_token_stays_behind_what_was_given(self) -> None:
        for number in range(50):
            await self.collection.upsert(f"k{number}", number)
        changes = self.collection.changes()
        given: set[str] = set()
        async with asyncio.timeout(SECONDS_MAX):
            async for change in changes:
                given.add(change.id)
                if len(given) == 20:
                    break
        rest, _ = await self.all(since=changes.token)
        self.assertEqual(given | rest.keys(), {f"k{number}" for number in range(50)})

    async def test_what_cannot_be_given_has_a_named_error(self) -> None:
        with self.assertRaises(e.InvalidArgumentException):
            await self.all(since="no token")
        _, token = await self.all()
        missing = self.bucket.collection(unique("none"))
        with self.assertRaises(e.CollectionNotFoundException):
            _ = [change async for change in missing.changes(since=c.NOW)]
        await self.bucket.collections().drop_collection("_default", self.name)
        await self.bucket.collections().create_collection("_default", self.name)
        with self.assertRaises(e.HistoryLostException):
            await self.all(since=token)

    async def test_leaving_and_cancelling_leave_nothing_behind(self) -> None:
        await self.collection.upsert("a", 1)
        tasks = asyncio.all_tasks()
        async with aclosing(iterate(self.collection.changes())) as found:
            await anext(found)
        waiting = asyncio.create_task(anext(iterate(self.collection.changes(since=c.NOW))))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        self.assertEqual(asyncio.all_tasks(), tasks)
        self.assertEqual(self.cluster.http._sockets, {})

    async def test_threads_read_changes_too(self) -> None:
        await self.collection.upsert("a", 1)

        def read() -> list[str]:
            with sync.connect(self.node.url, self.node.user, self.node.password) as cluster:
                collection = cluster.bucket(self.node.bucket).collection(self.name)
                changes = collection.changes(follow=False)
                ids = [change.id for change in changes]
                self.assertEqual(list(collection.changes(since=changes.token, follow=False)), [])
                return ids

        self.assertEqual(await asyncio.to_thread(read), ["a"])


def iterate(changes: c.Changes) -> Any:
    iterator: AsyncIterator[Change] = aiter(changes)
    return iterator


class LiveTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.name = unique("c")
        await self.bucket.collections().create_collection("_default", self.name)
        self.collection = self.bucket.collection(self.name)
        self.keyspace = f"`{self.node.bucket}`.`_default`.`{self.name}`"
        await self.collection.query_indexes().create_primary_index()

    async def asyncTearDown(self) -> None:
        await self.bucket.collections().drop_collection("_default", self.name)

    async def test_the_result_after_all_updates_is_that_of_the_query(self) -> None:
        await self.collection.upsert("a", {"n": 1})
        statement = f"SELECT RAW n FROM {self.keyspace} WHERE n < $max ORDER BY n"
        live = self.cluster.live(
            statement, named_parameters={"max": 100}, min_interval=timedelta(milliseconds=1)
        )
        rows: list[int] = []
        async with asyncio.timeout(SECONDS_MAX), aclosing(aiter(live)) as updates:  # type: ignore
            first = await anext(updates)
            self.assertEqual((first.rows, first.added, first.removed), ([1], [1], []))
            rows = list(first.rows)
            await self.collection.upsert("b", {"n": 2})
            await self.collection.upsert("c", {"n": 200})
            await self.collection.upsert("a", {"n": 3})
            await self.collection.remove("b")
            while rows != [3]:
                update = await anext(updates)
                for row in update.removed:
                    rows.remove(row)
                rows = sorted(rows + update.added)
                self.assertEqual(rows, update.rows)

    async def test_the_differences_of_random_steps_make_the_result_of_the_query(self) -> None:
        # As many steps as NACRE_TEST_STEPS says; the chore that takes long has 10,000.
        steps = int(os.environ.get("NACRE_TEST_STEPS", "150"))
        dice = random.Random(steps)
        statement = f"SELECT META(c).id, c.n, c.m FROM {self.keyspace} AS c WHERE c.n < 5"
        live = self.cluster.live(statement, min_interval=timedelta(milliseconds=1))
        known: list[Any] = []
        caught_up = asyncio.Condition()

        async def follow() -> None:
            async with aclosing(aiter(live)) as updates:  # type: ignore
                async for update in updates:
                    async with caught_up:
                        for row in update.removed:
                            known.remove(row)
                        known.extend(update.added)
                        caught_up.notify_all()

        following = asyncio.create_task(follow())
        try:
            for step in range(steps):
                key = f"k{dice.randrange(20)}"
                if dice.random() < 0.3:
                    with suppress(e.DocumentNotFoundException):
                        await self.collection.remove(key)
                else:
                    await self.collection.upsert(key, {"n": dice.randrange(10), "m": step})
                if step % 50 != 49:
                    continue
                options = {"scan_consistency": QueryScanConsistency.REQUEST_PLUS}
                rows = await self.cluster.query(statement, **options).execute()
                async with asyncio.timeout(SECONDS_MAX), caught_up:
                    await caught_up.wait_for(lambda rows=rows: in_order(known) == in_order(rows))
            self.assertFalse(following.done())
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def test_a_scope_is_the_context_and_subqueries_count(self) -> None:
        other = self.bucket.default_collection()
        default = f"`{self.node.bucket}`.`_default`.`_default`"
        await other.upsert(self.key, {"n": 1})
        statement = (
            f"SELECT RAW (SELECT RAW d.n FROM {default} AS d USE KEYS $key)[0] "
            f"FROM `{self.name}` AS c"
        )
        await self.collection.upsert("a", {})
        live = self.bucket.default_scope().live(statement, named_parameters={"key": self.key})
        async with asyncio.timeout(SECONDS_MAX), aclosing(aiter(live)) as updates:  # type: ignore
            self.assertEqual((await anext(updates)).rows, [1])
            await other.upsert(self.key, {"n": 2})
            self.assertEqual((await anext(updates)).rows, [2])

    async def test_a_query_that_reads_nothing_needs_keyspaces(self) -> None:
        with self.assertRaises(e.InvalidArgumentException):
            async for _ in self.cluster.live("SELECT 1"):
                pass
        async for update in self.cluster.live("SELECT RAW 1", keyspaces=[self.node.bucket]):
            self.assertEqual(update.rows, [1])
            break
