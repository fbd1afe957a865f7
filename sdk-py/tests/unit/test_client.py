"""What the client does when a node is busy, moves, stays silent, breaks or lies."""

import asyncio
import json
import struct
import unittest
from collections.abc import Awaitable, Callable
from datetime import timedelta
from unittest.mock import patch

import nacre
from nacre import exceptions as e
from nacre import subdocument as sd
from nacre._map import ClusterMap
from nacre.options import ReadPreference
from tests.unit.fake_node import Answer, Asked, FakeNode, encode

GET, SET, CONFIG, COLLECTION_ID = 0x00, 0x01, 0xB5, 0xBB
GET_REPLICA, LOOKUP, SASL_LIST = 0x83, 0xD0, 0x20
HELLO, SASL_AUTH, SELECT_BUCKET, OBSERVE_SEQNO = 0x1F, 0x21, 0x89, 0x91
TEMPORARY, NOT_MINE, NO_BUCKET, UNKNOWN_COLLECTION = 0x86, 0x07, 0x08, 0x88
NOT_FOUND, AUTH_ERROR, NO_ACCESS = 0x01, 0x20, 0x24
FOUND: Answer = (0, bytes.fromhex("02000000"), b'"v"')
ON_DISK = nacre.ClientDurability(persist_to=nacre.PersistTo.ACTIVE)
SHORT = timedelta(milliseconds=200)
SECONDS_MAX = 10.0
"""How long a test waits for what should not take long before it fails."""


class ClientTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.node = await self.enterAsyncContext(FakeNode())
        self.node.on[GET] = lambda _: FOUND
        cluster = await nacre.connect(self.node.url, "user", "password")
        self.cluster = await self.enterAsyncContext(cluster)
        self.bucket = self.cluster.bucket("b")
        self.collection = self.bucket.default_collection()
        # Connected before the test begins, whose times are short.
        await self.collection.get("k")
        self.node.asked.clear()

    def answers(self, opcode: int, *answers: Answer) -> None:
        """Gives these answers in turn, and then the last one again."""
        rest = list(answers)
        self.node.on[opcode] = lambda _: rest.pop(0) if len(rest) > 1 else rest[0]

    async def test_a_busy_node_is_asked_again(self) -> None:
        self.answers(GET, (TEMPORARY, b"", b""), (TEMPORARY, b"", b""), FOUND)
        self.assertEqual((await self.collection.get("k")).content, "v")
        self.assertEqual(self.node.count(GET), 3)

    async def test_a_node_that_stays_busy_is_named_in_the_error(self) -> None:
        self.answers(GET, (TEMPORARY, b"", b""))
        with self.assertRaises(e.TemporaryFailException) as caught:
            await self.collection.get("k", timeout=SHORT)
        context = caught.exception.context
        self.assertEqual((context.key, context.status), ("k", TEMPORARY))
        self.assertEqual(context.retry_reasons, ("KV_TEMPORARY_FAILURE",))
        self.assertGreater(context.retry_attempts, 1)
        self.assertIsNotNone(context.opaque)

    async def test_a_durable_write_tells_the_server_its_level_and_time(self) -> None:
        self.node.on[SET] = lambda _: (0, b"", b"")
        majority = nacre.ServerDurability(nacre.DurabilityLevel.MAJORITY)
        await self.collection.upsert("k", 1, durability=majority)
        timeout = timedelta(seconds=1)
        await self.collection.upsert(
            "k", 1, durability=majority, preserve_expiry=True, timeout=timeout
        )
        await self.collection.upsert("k", 1)
        framing = [asked.framing.hex() for asked in self.node.asked if asked.opcode == SET]
        self.assertEqual(framing, ["13012328", "50" + "13010384", ""])

    async def test_what_a_durable_write_came_to_is_told(self) -> None:
        majority = nacre.ServerDurability(nacre.DurabilityLevel.MAJORITY)
        for status, kind in (
            (0xA0, e.DurabilityInvalidLevelException),
            (0xA1, e.DurabilityImpossibleException),
            (0xA2, e.DurabilitySyncWriteInProgressException),
            (0xA3, e.DurabilitySyncWriteAmbiguousException),
        ):
            self.answers(SET, (status, b"", b""))
            # The attempt before the end is then a third of a second old, and not under way on a slow machine.
            timeout = timedelta(seconds=2)
            with self.subTest(kind), self.assertRaises(kind):
                await self.collection.upsert("k", 1, durability=majority, timeout=timeout)

    async def test_silence_is_ambiguous_for_writes_only(self) -> None:
        self.node.on[GET] = self.node.on[SET] = lambda _: None
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await self.collection.get("k", timeout=SHORT)
        with self.assertRaises(e.AmbiguousTimeoutException):
            await self.collection.upsert("k", 1, timeout=SHORT)

    async def test_a_late_answer_does_not_reach_the_next_request(self) -> None:
        late: list[Asked] = []
        self.node.on[GET] = lambda asked: late.append(asked)
        with self.assertRaises(e.TimeoutException):
            await self.collection.get("k", timeout=SHORT)
        self.node.on[GET] = lambda asked: (0, bytes(4), b'"%d"' % asked.opaque)
        self.assertNotEqual((await self.collection.get("k")).content, str(late[0].opaque))

    async def test_answers_that_come_too_late_are_reported(self) -> None:
        options = nacre.ClusterOptions(nacre.PasswordAuthenticator("user", "password"))
        options.enable_orphan_reporting = True
        late: list[Asked] = []
        with self.assertLogs("nacre", "WARNING") as logged:
            async with await nacre.Cluster.connect(self.node.url, options) as cluster:
                collection = cluster.bucket("b").default_collection()
                await collection.get("k")
                self.node.on[GET] = lambda asked: late.append(asked)
                for _ in range(2):
                    with self.assertRaises(e.TimeoutException):
                        await collection.get("k", timeout=SHORT)
                opaques = [asked.opaque for asked in late]
                self.node.on[GET] = lambda _: FOUND
                for asked in late:
                    self.node.send(encode(asked, 0, bytes(4), b"1"))
                await collection.get("k")
        heading, _, text = logged.records[0].getMessage().partition(": ")
        found = json.loads(text)["kv"]
        # The node sends them on the other connection of the cluster as well.
        self.assertEqual(heading, "Orphan responses")
        self.assertIn(found["total_count"], (2, 3, 4))
        seen = {(one["operation_name"], one["operation_id"]) for one in found["top_requests"]}
        self.assertEqual(seen, {("GET", f"{opaque:#x}") for opaque in opaques})
        remote = found["top_requests"][0]["last_remote_socket"]
        self.assertEqual(remote, f"127.0.0.1:{self.node.port}")

    async def test_requests_do_not_wait_for_each_other(self) -> None:
        keys = [f"k{number}" for number in range(100)]
        self.node.on[GET] = lambda asked: (0, bytes(4), b'"' + asked.key[1:] + b'"')
        found = await asyncio.gather(*(self.collection.get(key) for key in keys))
        self.assertEqual([result.content for result in found], keys)
        # One for the cluster, one for the bucket.
        self.assertEqual(self.node.connection_count, 2)

    async def test_a_lost_connection_is_replaced(self) -> None:
        self.node.drop()
        self.assertEqual((await self.collection.get("k")).content, "v")

    async def test_a_read_is_repeated_when_its_connection_is_lost(self) -> None:
        def once(_: Asked) -> Answer:
            self.node.on[GET] = lambda _: FOUND
            self.node.drop()
            return None

        self.node.on[GET] = once
        self.assertEqual((await self.collection.get("k")).content, "v")

    async def test_a_write_is_not_repeated_when_its_connection_is_lost(self) -> None:
        self.node.on[SET] = lambda _: self.node.drop()
        with self.assertRaises(e.RequestCanceledException):
            await self.collection.upsert("k", 1)
        self.assertEqual(self.node.count(SET), 1)

    async def test_a_write_that_was_never_sent_is_repeated(self) -> None:
        self.node.on[SET] = lambda _: (0, b"", b"")
        for connection in self.bucket.client._connections.values():
            assert connection._transport is not None
            # As when a write before it in the same turn of the loop has failed.
            connection._transport.abort()
        await self.collection.upsert("k", 1)

    async def test_a_durable_write_is_not_repeated_and_its_error_says_what_became_of_it(
        self,
    ) -> None:
        # A bucket can ask for durability where the client does not.
        for status, kind in (
            (0xA0, e.DurabilityInvalidLevelException),
            (0xA1, e.DurabilityImpossibleException),
            (0xA3, e.DurabilitySyncWriteAmbiguousException),
        ):
            self.node.asked.clear()
            self.answers(SET, (status, b"", b""))
            with self.subTest(kind=kind), self.assertRaises(kind):
                await self.collection.upsert("k", 1)
            self.assertEqual(self.node.count(SET), 1)

    async def test_a_durable_write_waits_for_no_more_copies_than_it_needs(self) -> None:
        # As with a bucket on fewer nodes than it wants replicas on.
        self.node.replicas = [-1]
        self.answers(SET, (0, struct.pack(">QQ", 1, 7), b""))
        self.answers(OBSERVE_SEQNO, (0, b"", struct.pack(">BHQQQ", 0, 0, 1, 7, 7)))
        collection = self.cluster.bucket("replicated").default_collection()
        await collection.upsert("k", 1, durability=ON_DISK, timeout=SHORT)

    async def test_nothing_is_left_of_a_durable_write_whose_mutation_was_lost(self) -> None:
        self.node.replicas = [-1]
        self.answers(SET, (0, struct.pack(">QQ", 1, 7), b""))
        failed_over = struct.pack(">BHQQQQQ", 1, 0, 2, 5, 5, 1, 6)
        self.answers(OBSERVE_SEQNO, (0, b"", failed_over))
        collection = self.cluster.bucket("replicated").default_collection()
        await collection.get("k")
        tasks = asyncio.all_tasks()
        with self.assertRaises(e.DocumentMutationLostException):
            await collection.upsert("k", 1, durability=ON_DISK)
        self.assertEqual(asyncio.all_tasks() - tasks, set())

    async def test_a_moved_vbucket_is_followed(self) -> None:
        async with FakeNode() as other:
            other.on[GET] = lambda _: (0, bytes(4), b'"moved"')
            self.node.rev = 2
            self.node.on[GET] = lambda _: (NOT_MINE, b"", self.node.config(other.port))
            self.assertEqual((await self.collection.get("k")).content, "moved")
            self.assertEqual((await self.collection.get("k")).content, "moved")
            self.assertEqual(self.node.count(GET), 1)

    async def test_the_connection_to_a_node_that_has_left_ends_with_the_last_answer(self) -> None:
        async with FakeNode() as other:
            other.on[GET] = lambda _: (0, bytes(4), b'"moved"')
            under_way: list[Asked] = []
            self.node.on[GET] = lambda asked: under_way.append(asked)
            late = asyncio.create_task(self.collection.get("k"))
            while not under_way:
                await asyncio.sleep(0)
            self.node.rev = 2
            self.answers(GET, (NOT_MINE, b"", self.node.config(other.port)))
            self.assertEqual((await self.collection.get("k")).content, "moved")
            assert FOUND is not None
            for writer in self.node._writers:
                writer.write(encode(under_way[0], *FOUND))
            self.assertEqual((await late).content, "v")
            await self.one_ended(self.node)

    async def test_closing_ends_requests_to_a_node_that_has_left(self) -> None:
        async with FakeNode() as other:
            other.on[GET] = lambda _: FOUND
            under_way: list[Asked] = []
            self.node.on[SET] = lambda asked: under_way.append(asked)
            write = asyncio.create_task(self.collection.upsert("k", 1))
            while not under_way:
                await asyncio.sleep(0)
            self.node.rev = 2
            self.answers(GET, (NOT_MINE, b"", self.node.config(other.port)))
            await self.collection.get("k")
            await self.cluster.close()
            with self.assertRaises(e.RequestCanceledException):
                await write

    async def test_a_connection_to_a_node_that_leaves_while_it_is_opened_ends(self) -> None:
        async with FakeNode() as other:
            hello: list[Asked] = []
            other.on[HELLO] = lambda asked: hello.append(asked)
            self.node.rev = 2
            self.answers(GET, (NOT_MINE, b"", self.node.config(other.port)), FOUND)
            get = asyncio.create_task(self.collection.get("k"))
            while not hello:
                await asyncio.sleep(0)
            self.node.rev = 3
            self.bucket.client._take(ClusterMap.parse(self.node.config(), "127.0.0.1"))
            for writer in other._writers:
                writer.write(encode(hello[0], 0, b"", b""))
            self.assertEqual((await get).content, "v")
            await self.one_ended(other)

    async def one_ended(self, node: FakeNode) -> None:
        """Waits until a connection to the node has ended."""
        serving = [task for task in node._serving if task]
        ended, _ = await asyncio.wait(
            serving, timeout=SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
        )
        self.assertEqual(len(ended), 1)

    async def test_a_moved_vbucket_without_a_map_makes_the_client_ask_for_it(self) -> None:
        self.answers(GET, (NOT_MINE, b"", b""), FOUND)
        await self.collection.get("k")
        self.assertEqual(self.node.count(CONFIG), 1)

    async def test_a_node_that_has_no_map_to_give_is_asked_again(self) -> None:
        self.answers(GET, (NOT_MINE, b"", b""), (NOT_MINE, b"", b""), FOUND)
        self.answers(CONFIG, (TEMPORARY, b"", b""))
        self.assertEqual((await self.collection.get("k")).content, "v")

    async def test_others_are_asked_for_the_map_when_a_node_has_left(self) -> None:
        async with FakeNode() as other:
            url = f"{self.node.url},127.0.0.1:{other.port}"
            other.rev = 2
            other.on[GET] = lambda _: (0, bytes(4), b'"moved"')
            async with await nacre.connect(url, "user", "password") as cluster:
                collection = cluster.bucket("b").default_collection()
                await collection.get("k")
                self.answers(GET, (NOT_MINE, b"", b""))
                self.answers(CONFIG, (NO_BUCKET, b"", b""))
                self.assertEqual((await collection.get("k")).content, "moved")

    async def test_others_are_asked_when_a_node_comes_back_without_the_bucket(self) -> None:
        async with FakeNode() as other:
            other.on[GET] = lambda _: (0, bytes(4), b'"moved"')
            for opcode, refusal in (
                (SELECT_BUCKET, (NO_ACCESS, b"", b"")),
                (SELECT_BUCKET, (NOT_FOUND, b"", b"")),
                (SASL_AUTH, (AUTH_ERROR, b"", b"")),
                (GET, (NO_BUCKET, b"", b"")),
            ):
                with self.subTest(opcode=opcode, refusal=refusal):
                    self.node.on = {GET: lambda _: FOUND}
                    url = f"{self.node.url},127.0.0.1:{other.port}"
                    async with await nacre.connect(url, "user", "password") as cluster:
                        collection = cluster.bucket("b").default_collection()
                        await collection.get("k")
                        other.rev += 1
                        self.answers(opcode, refusal)
                        # Without the bucket a node has the map of the cluster at most.
                        self.answers(CONFIG, (0, b"", self.node.config_without_bucket()))
                        self.node.drop()
                        self.assertEqual((await collection.get("k")).content, "moved")

    async def test_a_bucket_that_is_nowhere_is_not_waited_for(self) -> None:
        self.answers(SELECT_BUCKET, (NO_ACCESS, b"", b""))
        self.node.drop()
        with self.assertRaises(e.BucketNotFoundException):
            await self.collection.get("k")
        with self.assertRaises(e.BucketNotFoundException):
            await self.cluster.bucket("other").on_connect()
        self.node.on.pop(SELECT_BUCKET)
        self.answers(GET, (NO_BUCKET, b"", b""))
        self.answers(CONFIG, (0, b"", self.node.config_without_bucket()))
        with self.assertRaises(e.BucketNotFoundException):
            await self.collection.get("k")

    async def test_a_bucket_that_may_come_is_waited_for_until_the_time_out_which_says_so(
        self,
    ) -> None:
        async with FakeNode() as other:
            down = other.url.removeprefix("couchbase://")
        async with await nacre.connect(f"{self.node.url},{down}", "user", "password") as cluster:
            two = cluster.bucket("b").default_collection()
            await two.get("k")
            for collection, opcode, refusal in (
                # The node is about to have it.
                (self.collection, SELECT_BUCKET, (NOT_FOUND, b"", b"")),
                # The node has none, but another that cannot be asked may.
                (two, SELECT_BUCKET, (NO_ACCESS, b"", b"")),
                # The node has none to operate on, but its map says that it has.
                (self.collection, GET, (NO_BUCKET, b"", b"")),
            ):
                with self.subTest(opcode=opcode, refusal=refusal):
                    self.node.on = {GET: lambda _: FOUND}
                    self.answers(opcode, refusal)
                    self.node.drop()
                    with self.assertRaises(e.UnAmbiguousTimeoutException) as caught:
                        await collection.get("k", timeout=SHORT)
                    reasons = caught.exception.context.retry_reasons
                    self.assertIn("BUCKET_NOT_AVAILABLE", reasons)
                    self.node.on = {GET: lambda _: FOUND}
                    self.assertEqual((await collection.get("k")).content, "v")

    async def test_a_map_without_the_bucket_is_not_taken(self) -> None:
        self.node.rev = 2
        self.answers(GET, (NOT_MINE, b"", self.node.config_without_bucket()), FOUND)
        self.assertEqual((await self.collection.get("k")).content, "v")

    async def test_an_older_map_is_ignored(self) -> None:
        self.node.rev = 0
        self.answers(GET, (NOT_MINE, b"", self.node.config(port=1)), FOUND)
        self.assertEqual((await self.collection.get("k")).content, "v")

    async def test_a_collection_is_looked_up_once_and_again_when_forgotten(self) -> None:
        collection = self.bucket.scope("s").collection("c")
        self.answers(COLLECTION_ID, (0, bytes(11) + b"\x08", b""), (0, bytes(11) + b"\x09", b""))
        await collection.get("k")
        await collection.get("k")
        self.assertEqual(self.node.count(COLLECTION_ID), 1)
        self.answers(GET, (UNKNOWN_COLLECTION, b"", b""), FOUND)
        await collection.get("k")
        self.assertEqual(self.node.asked[-1].key, b"\x09k")

    async def test_a_broken_stream_is_given_up(self) -> None:
        def garbage(_: Asked) -> Answer:
            self.node.on[GET] = lambda _: FOUND
            for writer in self.node._writers:
                writer.write(b"garbage, and enough of it")
            return None

        self.node.on[GET] = garbage
        self.assertEqual((await self.collection.get("k")).content, "v")

    async def test_answers_that_are_cut_off_are_errors(self) -> None:
        self.node.on[GET] = lambda _: (0, b"", b"1")
        with self.assertRaises(e.DecodingFailureException):
            await self.collection.get("k")

    async def test_closing_ends_requests_and_forbids_more(self) -> None:
        self.node.on[SET] = lambda _: None
        write = asyncio.create_task(self.collection.upsert("k", 1))
        await asyncio.sleep(0.02)
        await self.cluster.close()
        with self.assertRaises(e.RequestCanceledException):
            await write
        with self.assertRaises(e.RequestCanceledException):
            await self.collection.get("k")
        with self.assertRaises(e.RequestCanceledException):
            await self.bucket.on_connect()
        with self.assertRaises(e.RequestCanceledException):
            self.cluster.bucket("other")

    async def test_closing_ends_requests_over_http_and_forbids_more(self) -> None:
        asked, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.release()
            await reader.read()
            writer.close()
            ended.release()

        async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as silent:
            port = silent.sockets[0].getsockname()[1]
            self.node.services.update(mgmt=port, capi=port)
            cluster = await nacre.connect(self.node.url, "user", "password")
            bucket = cluster.bucket("b")
            requests: list[Callable[[], Awaitable[object]]] = [
                lambda: cluster.buckets().get_all_buckets(),
                lambda: bucket.collections().create_scope("s"),
                lambda: bucket.view_query("d", "v").execute(),
                lambda: bucket.view_indexes().drop_design_document("d"),
            ]
            waiting = [asyncio.ensure_future(request()) for request in requests]
            for _ in requests:
                await asked.acquire()
            await cluster.close()
            for request in [*waiting, *(request() for request in requests)]:
                with self.assertRaisesRegex(e.RequestCanceledException, "the cluster is closed"):
                    await asyncio.wait_for(request, SECONDS_MAX)
            for _ in requests:
                await ended.acquire()
            self.assertTrue(asked.locked())

    async def test_closing_does_not_wait_for_a_node_that_reads_no_more(self) -> None:
        for writer in self.node._writers:
            writer.transport.pause_reading()
        # More than the sockets between hold.
        write = asyncio.create_task(self.collection.upsert("k", "v" * 20_000_000))
        while not any(c._waiting for c in self.bucket.client._connections.values()):
            await asyncio.sleep(0)
        await self.cluster.close()
        with self.assertRaises(e.RequestCanceledException):
            await write
        for writer in self.node._writers:
            writer.transport.resume_reading()
        await asyncio.gather(*(task for task in self.node._serving if task))
        self.assertEqual(self.node.count(SET), 0)


class ConnectionTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.node = await self.enterAsyncContext(FakeNode())
        self.node.on[GET] = lambda _: FOUND

    async def connect(self) -> nacre.Cluster:
        cluster = await nacre.connect(self.node.url, "user", "password")
        return await self.enterAsyncContext(cluster)

    async def test_a_map_that_is_pushed_is_taken(self) -> None:
        bucket = (await self.connect()).bucket("b")
        await bucket.on_connect()
        async with FakeNode() as other:
            other.on[GET] = lambda _: FOUND
            self.node.rev += 1
            for value in (b"no map", self.node.config(other.port)):
                self.node.push(value, b"b")
            self.node.push(self.node.config(1), b"another bucket")
            async with asyncio.timeout(SECONDS_MAX):
                while bucket.client.map is None or bucket.client.map.version[1] < self.node.rev:
                    await asyncio.sleep(0)
            await bucket.default_collection().get("k")
            self.assertEqual((self.node.count(GET), other.count(GET)), (0, 1))

    async def test_the_best_mechanism_that_the_server_offers_is_used(self) -> None:
        self.node.on[SASL_LIST] = lambda _: (0, b"", b"SCRAM-SHA1 PLAIN")
        asked: list[bytes] = []

        def refuse(request: Asked) -> Answer:
            asked.append(request.key)
            return AUTH_ERROR, b"", b""

        self.node.on[SASL_AUTH] = refuse
        with self.assertRaises(e.AuthenticationException):
            await nacre.connect(self.node.url, "user", "password")
        self.assertEqual(asked, [b"SCRAM-SHA512", b"SCRAM-SHA1"])

    async def test_a_password_is_not_sent_in_the_clear_unless_chosen(self) -> None:
        self.node.on[SASL_LIST] = lambda _: (0, b"", b"PLAIN")
        with self.assertRaisesRegex(e.AuthenticationException, "offers"):
            await nacre.connect(self.node.url, "user", "password")
        self.assertNotIn(b"password", b"".join(asked.value for asked in self.node.asked))
        self.node.on[SASL_AUTH] = lambda asked: (
            (0, b"", b"") if asked.value == b"\0user\0password" else (AUTH_ERROR, b"", b"")
        )
        chosen = nacre.PasswordAuthenticator.ldap_compatible("user", "password")
        options = nacre.ClusterOptions(chosen)
        async with await nacre.Cluster.connect(self.node.url, options) as cluster:
            await cluster.bucket("b").on_connect()

    async def test_a_profile_sets_the_time_outs_of_a_wide_network(self) -> None:
        options = nacre.ClusterOptions(nacre.PasswordAuthenticator("user", "password"))
        options.apply_profile("wan_development")
        async with await nacre.Cluster.connect(self.node.url, options) as cluster:
            self.assertEqual(cluster.timeouts.kv_timeout, timedelta(seconds=20))
        fresh = nacre.ClusterOptions(nacre.PasswordAuthenticator("user", "password"))
        self.assertEqual(fresh.timeout_options.kv_timeout, timedelta(seconds=2.5))
        with self.assertRaises(e.InvalidArgumentException):
            options.apply_profile("moon")

    async def test_another_seed_serves_when_the_first_is_down(self) -> None:
        url = f"couchbase://127.0.0.1:1,127.0.0.1:{self.node.port}"
        async with await nacre.connect(url, "user", "password") as cluster:
            found = await cluster.bucket("b").default_collection().get("k")
            self.assertEqual(found.content, "v")

    async def test_requests_do_not_storm_a_node_that_is_down(self) -> None:
        bucket = (await self.connect()).bucket("b")
        collection = bucket.default_collection()
        await collection.get("k")
        count = self.node.connection_count
        self.node.on[SELECT_BUCKET] = self.node.on[HELLO] = lambda _: None
        with patch("nacre._connection._OPEN_SECONDS_MAX", 0.02):
            self.node.drop()
            reads = [collection.get(f"k{n}", timeout=timedelta(seconds=1)) for n in range(100)]
            outcomes = await asyncio.gather(*reads, return_exceptions=True)
        self.assertTrue(all(isinstance(one, e.TimeoutException) for one in outcomes))
        # Every pause is twice as long as the one before, whoever waits for the node.
        self.assertLess(self.node.connection_count - count, 20)

    async def test_bytes_that_are_no_answers_end_in_an_error_and_leave_nothing(self) -> None:
        collection = (await self.connect()).bucket("b").default_collection()
        await collection.get("k")
        # A frame that promises 4 GB, one with parts beyond its end, and noise.
        too_long = struct.pack(">BBHBBHIIQ", 0x81, 0, 0, 0, 0, 0, 0xFFFFFFFF, 1, 0)
        torn = struct.pack(">BBHBBHIIQ", 0x81, 0, 9, 9, 0, 0, 3, 1, 0) + b"abc"
        for garbage in (too_long, torn, bytes(range(256)) * 64):
            self.node.on[GET] = lambda _: None
            read = asyncio.create_task(collection.get("k", timeout=SHORT))
            async with asyncio.timeout(SECONDS_MAX):
                while not self.node.count(GET):
                    await asyncio.sleep(0)
            self.node.send(garbage)
            with self.assertRaises(e.UnAmbiguousTimeoutException):
                await read
            self.node.on[GET] = lambda _: FOUND
            self.assertEqual((await collection.get("k")).content, "v")
            self.node.asked.clear()


class ReplicaTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.node = await self.enterAsyncContext(FakeNode())
        self.node.replicas = [0, -1]
        cluster = await nacre.connect(self.node.url, "user", "password")
        self.cluster = await self.enterAsyncContext(cluster)
        bucket = self.cluster.bucket("b")
        await bucket.on_connect()
        self.collection = bucket.default_collection()

    async def test_a_replica_answers_for_an_active_copy_that_does_not(self) -> None:
        self.node.on[GET] = lambda _: None
        self.node.on[GET_REPLICA] = lambda _: FOUND
        before = asyncio.all_tasks()
        found = await self.collection.get_any_replica("k")
        self.assertEqual((found.content, found.is_replica, found.key), ("v", True, "k"))
        self.assertEqual(asyncio.all_tasks(), before)

    async def test_copies_that_have_the_document_are_all_read(self) -> None:
        self.node.on[GET] = lambda _: (NOT_FOUND, b"", b"")
        self.node.on[GET_REPLICA] = lambda _: FOUND
        found = await self.collection.get_all_replicas("k")
        self.assertEqual([copy.is_replica for copy in found], [True])

    async def test_a_lookup_in_a_replica_says_so_to_the_server(self) -> None:
        self.node.on[LOOKUP] = lambda asked: (
            (0, b"", b"\x00\x00\x00\x00\x00\x011") if asked.extras == b"\x20" else None
        )
        found = await self.collection.lookup_in_any_replica("k", [sd.get("a")])
        self.assertEqual((found.content_as[int](0), found.is_replica), (1, True))

    async def test_a_group_without_copies_has_none(self) -> None:
        options = nacre.ClusterOptions(
            nacre.PasswordAuthenticator("user", "password"), preferred_server_group="g"
        )
        preference = ReadPreference.SELECTED_SERVER_GROUP
        with self.assertRaises(e.InvalidArgumentException):
            await self.collection.get_any_replica("k", read_preference=preference)
        async with await nacre.Cluster.connect(self.node.url, options) as cluster:
            collection = cluster.bucket("b").default_collection()
            with self.assertRaises(e.DocumentUnretrievableException):
                await collection.get_any_replica("k", read_preference=preference)

    async def test_a_read_that_is_cancelled_leaves_nothing_behind(self) -> None:
        self.node.on[GET] = self.node.on[GET_REPLICA] = lambda _: None
        before = asyncio.all_tasks()
        for read in (self.collection.get_any_replica, self.collection.get_all_replicas):
            with self.assertRaises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await read("k")
        self.assertEqual(asyncio.all_tasks(), before)


class LoginTest(unittest.IsolatedAsyncioTestCase):
    async def test_a_server_that_does_not_know_the_password_is_not_trusted(self) -> None:
        async with FakeNode() as node:
            node.password = "another"
            with self.assertRaises(e.AuthenticationException):
                await nacre.connect(node.url, "user", "password")

    async def test_nobody_there_ends_at_the_time_out(self) -> None:
        async with FakeNode() as node:
            url = node.url
        timeouts = nacre.ClusterTimeoutOptions(connect_timeout=SHORT)
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await nacre.connect(url, "user", "password", timeouts=timeouts)

    async def test_the_next_seed_is_asked_when_the_first_is_down(self) -> None:
        async with FakeNode() as node:
            url = f"couchbase://127.0.0.1:1,127.0.0.1:{node.port}"
            await (await nacre.connect(url, "user", "password")).close()
