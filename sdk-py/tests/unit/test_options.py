"""No operation drops an option without a word."""

import asyncio
import inspect
import socket
import unittest
from datetime import timedelta
from typing import Any

import nacre
from nacre import exceptions as e
from nacre import subdocument as sd
from nacre.binary import BinaryCollection
from nacre.bucket import Bucket, Scope
from nacre.cluster import Cluster
from nacre.collection import Collection
from nacre.kv_range_scan import PrefixScan
from nacre.management import BucketManager, CollectionManager, CreateBucketSettings
from nacre.management.analytics import (
    AnalyticsDataType,
    AnalyticsIndexManager,
    S3ExternalAnalyticsLink,
)
from nacre.management.eventing import (
    EventingFunction,
    EventingFunctionKeyspace,
    EventingFunctionManager,
)
from nacre.management.queries import CollectionQueryIndexManager, QueryIndexManager
from nacre.management.search import SearchIndex, SearchIndexManager
from nacre.management.users import Group, User, UserManager
from nacre.options import OFFICIAL_NAMES, analytics_options_of, query_options_of
from nacre.search import MatchAllQuery, SearchRequest
from nacre.views import DesignDocument, View, ViewIndexManager
from tests.unit.fake_node import FakeNode, FakeService

HOLDERS = (
    Cluster,
    Bucket,
    Scope,
    Collection,
    BinaryCollection,
    ViewIndexManager,
    CollectionManager,
    BucketManager,
    UserManager,
    QueryIndexManager,
    CollectionQueryIndexManager,
    EventingFunctionManager,
    SearchIndexManager,
    AnalyticsIndexManager,
)
SOMEWHERE = EventingFunctionKeyspace("b")
ARGUMENTS: dict[str, Any] = {
    "key": "k",
    "value": 1,
    "cas": 1,
    "expiry": timedelta(seconds=1),
    "lock_time": timedelta(seconds=1),
    "design_doc": "d",
    "view_name": "v",
    "name": "d",
    "design_document": DesignDocument("d"),
    "settings": CreateBucketSettings("n"),
    "bucket_name": "n",
    "scope_name": "s",
    "collection_name": "c",
    "keys": {"k": 1},
    "statement": "SELECT 1",
    "request": SearchRequest(MatchAllQuery()),
    "query": MatchAllQuery(),
    "username": "u",
    "user": User("u"),
    "group_name": "g",
    "group": Group("g"),
    "new_password": "p",
    "index_name": "i",
    "index_names": ["i"],
    "index": "i",
    "document": {},
    "function": EventingFunction("f", "", SOMEWHERE, SOMEWHERE),
    "keys_and_docs": {"k": 1},
    "keys_and_values": {"k": b"1"},
    "scan_type": PrefixScan("k"),
    "timeout": timedelta(seconds=1),
    "dataverse_name": "d",
    "dataset_name": "s",
    "fields": {"f": AnalyticsDataType.STRING},
    "link": S3ExternalAnalyticsLink("d", "l", "id", "region", "key"),
    "link_name": "l",
}
"""What operations are called with, by parameter."""


def operations() -> list[tuple[type, str]]:
    """All operations that take options."""
    return [
        (holder, name)
        for holder in HOLDERS
        for name, method in inspect.getmembers(holder, inspect.isfunction)
        if not name.startswith("_") and "kwargs" in inspect.signature(method).parameters
    ]


class OptionsTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.node = await self.enterAsyncContext(FakeNode())
        self.service = await self.enterAsyncContext(FakeService())
        self.node.neighbours = [{"mgmt": self.service.port, "capi": self.service.port}]
        cluster = await nacre.connect(self.node.url, "user", "password")
        self.cluster = await self.enterAsyncContext(cluster)

    def holder(self, kind: type) -> Any:
        bucket = self.cluster.bucket("b")
        collection = bucket.default_collection()
        held = (
            bucket,
            collection,
            collection.binary(),
            bucket.view_indexes(),
            bucket.collections(),
            self.cluster.buckets(),
            self.cluster,
            bucket.default_scope(),
            self.cluster.users(),
            self.cluster.query_indexes(),
            collection.query_indexes(),
            self.cluster.eventing_functions(),
            self.cluster.search_indexes(),
            self.cluster.analytics_indexes(),
        )
        return next(one for one in held if type(one) is kind)

    async def call(self, kind: type, name: str, **options: Any) -> None:
        method = getattr(self.holder(kind), name)
        arguments = [
            [sd.get("a") if name.startswith("lookup_in") else sd.upsert("a", 1)]
            if parameter.name == "specs"
            else SearchIndex("i")
            if name == "upsert_index"
            else ARGUMENTS[parameter.name]
            for parameter in inspect.signature(method).parameters.values()
            if parameter.default is parameter.empty and parameter.name not in ("options", "kwargs")
        ]
        result = method(*arguments, **options)
        if inspect.isawaitable(result):
            await result

    async def test_all_operations_are_called(self) -> None:
        self.assertEqual(len(operations()), 134)

    async def test_an_unknown_option_is_a_type_error(self) -> None:
        for kind, name in operations():
            if name in ("query", "analytics_query"):
                # It is a parameter of the statement.
                continue
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"{name}.. has no option"):
                await self.call(kind, name, expirry=1)
        self.assertEqual(self.service.asked, [])

    async def test_an_option_of_the_official_sdk_is_named_as_unavailable(self) -> None:
        for kind, name in operations():
            # Of changes, the name is an option of their own.
            for option in OFFICIAL_NAMES - ({"include_docs"} if name == "changes" else set()):
                with (
                    self.subTest(name, option=option),
                    self.assertRaisesRegex(e.FeatureUnavailableException, f"option {option} yet"),
                ):
                    await self.call(kind, name, **{option: 1})

    def test_what_is_no_option_of_a_query_is_a_parameter(self) -> None:
        given = query_options_of([1, {"adhoc": False}, "x"], {"name": "y", "read_only": True})
        expected = {
            "adhoc": False,
            "read_only": True,
            "positional_parameters": [1, "x"],
            "named_parameters": {"name": "y"},
        }
        self.assertEqual(given, expected)
        del expected["adhoc"]
        given = analytics_options_of([1, {"read_only": True}, "x"], {"name": "y"})
        self.assertEqual(given, expected)

    async def test_options_in_a_dictionary_are_checked_as_well(self) -> None:
        collection = self.cluster.bucket("b").default_collection()
        options: Any = {"expirry": timedelta(seconds=1)}
        with self.assertRaises(TypeError):
            await collection.upsert("a", {}, options)
        with self.assertRaises(TypeError):
            self.cluster.bucket("b").view_query("d", "v", options)


class ConnectionErrorsTest(unittest.IsolatedAsyncioTestCase):
    async def failure(self, url: str) -> e.CouchbaseException:
        timeouts = nacre.ClusterTimeoutOptions(connect_timeout=timedelta(milliseconds=300))
        with self.assertRaises(e.UnAmbiguousTimeoutException) as caught:
            await nacre.connect(url, "user", "password", timeouts=timeouts)
        return caught.exception

    async def test_a_closed_port_is_named_with_its_cause(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        error = await self.failure(f"couchbase://127.0.0.1:{port}")
        self.assertRegex(str(error), f"No connection to 127.0.0.1:{port} .*Connect call failed")
        self.assertIsInstance(error.__cause__, ConnectionRefusedError)
        self.assertEqual(error.context.endpoint, f"127.0.0.1:{port}")

    async def test_an_unknown_host_is_named(self) -> None:
        error = await self.failure("couchbase://no-such-host.invalid")
        self.assertIn("No connection to no-such-host.invalid:11210", str(error))
        self.assertIsInstance(error.__cause__, socket.gaierror)

    async def test_a_port_of_http_is_named_as_no_key_value_port(self) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            error = await self.failure(f"couchbase://127.0.0.1:{port}")
        self.assertIn("may not be a key-value port", str(error))


class ViewsTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.asked: list[str] = []
        self.kept = b'{"rows": []}'
        server = await self.enterAsyncContext(
            await asyncio.start_server(self.serve, "127.0.0.1", 0)
        )
        port = server.sockets[0].getsockname()[1]
        node = await self.enterAsyncContext(FakeNode())
        node.neighbours = [{"mgmt": port, "capi": port}]
        cluster = await self.enterAsyncContext(await nacre.connect(node.url, "user", "password"))
        self.bucket = cluster.bucket("b")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Keeps what is put, and gives it back."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.partition(" HTTP/1.1")[0])
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0])
        body = await reader.readexactly(length)
        if head.startswith("PUT"):
            self.kept = body
        answer = b'{"rows": []}' if "_view" in head else self.kept
        head_bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(head_bytes % len(answer) + answer)
        await reader.read()
        writer.close()

    async def test_the_level_comes_after_the_group_so_that_it_counts(self) -> None:
        await self.bucket.view_query("d", "v", group=True, group_level=1).execute()
        await self.bucket.view_query("d", "v", group_level=1, group=True).execute()
        self.assertEqual(self.asked, ["GET /b/_design/d/_view/v?group=true&group_level=1"] * 2)

    async def test_a_design_document_keeps_its_collection_and_all_other_members(self) -> None:
        manager = self.bucket.view_indexes()
        view = View("function (doc, meta) {}", "_count", {"note": 1})
        document = DesignDocument(
            "todos", {"open": view}, collection="app.todos", members={"language": "javascript"}
        )
        await manager.upsert_design_document(document)
        read = await manager.get_design_document("todos")
        self.assertEqual(read, document)
        await manager.upsert_design_document(read)
        self.assertEqual(await manager.get_design_document("todos"), document)
