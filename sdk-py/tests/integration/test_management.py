"""Managing users, groups, buckets, indexes, design documents and functions."""

import asyncio
import unittest
from datetime import timedelta

import nacre
from nacre import exceptions as e
from nacre.durability import DurabilityLevel
from nacre.management.buckets import BucketSettings, BucketType, CreateBucketSettings
from nacre.management.collections import (
    CollectionSpec,
    CreateCollectionSettings,
    UpdateCollectionSettings,
)
from nacre.management.eventing import (
    EventingFunction,
    EventingFunctionBucketAccess,
    EventingFunctionBucketBinding,
    EventingFunctionConstantBinding,
    EventingFunctionKeyspace,
    EventingFunctionSettings,
    EventingFunctionState,
    EventingFunctionUrlAuthBasic,
    EventingFunctionUrlBinding,
)
from nacre.management.search import SearchIndex
from nacre.management.users import Group, Role, User
from nacre.management.views import DesignDocument, DesignDocumentNamespace, View
from nacre.mutation_state import MutationState
from nacre.search import MatchOperator, MatchQuery, SearchRequest
from tests.integration.node import NodeTest, unique

MINUTE = timedelta(minutes=1)


class BucketTest(NodeTest):
    async def test_a_bucket_is_changed_flushed_and_described(self) -> None:
        manager, name = self.cluster.buckets(), unique("bucket")
        settings = CreateBucketSettings(
            name, bucket_type=BucketType.EPHEMERAL, flush_enabled=True, num_replicas=0
        )
        await manager.create_bucket(settings)
        try:
            bucket = self.cluster.bucket(name)
            await bucket.wait_until_ready(MINUTE)
            collection = bucket.default_collection()
            await collection.upsert("k", 1)
            await manager.flush_bucket(name)
            async with asyncio.timeout(10):
                while (await collection.exists("k")).exists:
                    await asyncio.sleep(0.05)
            await manager.update_bucket(
                BucketSettings(name, max_expiry=MINUTE, ram_quota_mb=120, flush_enabled=False)
            )
            found = await manager.get_bucket(name)
            self.assertEqual((found.max_expiry, found.ram_quota_mb), (MINUTE, 120))
            self.assertEqual(found.minimum_durability_level, DurabilityLevel.NONE)
            described = await manager.bucket_describe(name)
            self.assertEqual((described.name, described.number_of_nodes), (name, 1))
            with self.assertRaises(e.BucketNotFlushableException):
                await manager.flush_bucket(name)
        finally:
            await manager.drop_bucket(name)
        for missing in (
            manager.flush_bucket(name),
            manager.bucket_describe(name),
            manager.update_bucket(BucketSettings(name, ram_quota_mb=100)),
        ):
            with self.assertRaises(e.BucketNotFoundException):
                await missing


class CollectionTest(NodeTest):
    async def test_collections_are_named_as_the_official_package_does(self) -> None:
        manager, scope = self.bucket.collections(), unique("s")
        await manager.create_scope(scope)
        await manager.create_collection(CollectionSpec("a", scope, max_expiry=MINUTE))
        await manager.create_collection(scope, "b", CreateCollectionSettings(max_expiry=MINUTE))
        await manager.update_collection(scope, "b", UpdateCollectionSettings(2 * MINUTE))
        listed = next(one for one in await manager.get_all_scopes() if one.name == scope)
        expiries = {one.name: one.max_expiry for one in listed.collections}
        self.assertEqual(expiries, {"a": MINUTE, "b": 2 * MINUTE})
        await manager.drop_collection(CollectionSpec("a", scope))
        with self.assertRaises(e.CollectionNotFoundException):
            await manager.update_collection(scope, "a", UpdateCollectionSettings(MINUTE))
        await manager.drop_scope(scope)


class UserTest(NodeTest):
    async def test_users_and_groups_are_created_used_listed_and_dropped(self) -> None:
        manager, name, group = self.cluster.users(), unique("user"), unique("group")
        role = Role("data_reader", self.node.bucket, "_default", "_default")
        await manager.upsert_group(Group(group, "readers", [role]))
        self.assertEqual((await manager.get_group(group)).roles, [role])
        self.assertIn(group, [one.name for one in await manager.get_all_groups()])
        user = User(name, "A User", [group], [Role("ro_admin")], "password")
        self.assertNotIn("password", repr(user))
        await manager.upsert_user(user)
        found = await manager.get_user(name)
        self.assertEqual((found.user.display_name, found.user.groups), ("A User", {group}))
        self.assertEqual(found.user.roles, [Role("ro_admin")])
        self.assertEqual({one.role for one in found.effective_roles}, {role, Role("ro_admin")})
        self.assertIn(name, [one.user.username for one in await manager.get_all_users()])

        async with await nacre.connect(self.node.url, name, "password") as cluster:
            collection = cluster.bucket(self.node.bucket).default_collection()
            await self.collection.upsert(self.key, 1)
            self.assertEqual((await collection.get(self.key)).content, 1)
            with self.assertRaises(e.AuthenticationException):
                await collection.upsert(self.key, 2)
            await cluster.users().change_password("another")
        with self.assertRaises(e.AuthenticationException):
            await nacre.connect(self.node.url, name, "password")
        async with await nacre.connect(self.node.url, name, "another"):
            pass

        await manager.drop_user(name)
        await manager.drop_group(group)
        for missing in (manager.get_user(name), manager.drop_user(name)):
            with self.assertRaises(e.UserNotFoundException):
                await missing
        for none in (manager.get_group(group), manager.drop_group(group)):
            with self.assertRaises(e.GroupNotFoundException):
                await none
        self.assertIn("admin", [one.role.name for one in await manager.get_roles()])
        with self.assertRaises(e.InvalidArgumentException):
            await manager.get_all_users(domain_name="elsewhere")


class QueryIndexTest(NodeTest):
    async def test_indexes_are_created_built_watched_listed_and_dropped(self) -> None:
        scope, name = unique("s"), unique("i")
        await self.bucket.collections().create_scope(scope)
        await self.bucket.collections().create_collection(scope, "c")
        collection = self.bucket.scope(scope).collection("c")
        manager = collection.query_indexes()
        await manager.create_primary_index()
        with self.assertRaises(e.QueryIndexAlreadyExistsException):
            await manager.create_primary_index()
        await manager.create_primary_index(ignore_if_exists=True)
        await manager.create_index(name, ["a", "b.c", "LOWER(d)"], condition="a > 1", deferred=True)
        await manager.build_deferred_indexes()
        await manager.watch_indexes([name], watch_primary=True, timeout=MINUTE)
        indexes = await manager.get_all_indexes()
        self.assertEqual([(one.name, one.state) for one in indexes][1], (name, "online"))
        primary, other = indexes
        self.assertEqual((primary.is_primary, other.is_primary), (True, False))
        self.assertEqual((other.scope_name, other.collection_name), (scope, "c"))
        self.assertEqual(other.bucket_name, self.node.bucket)
        self.assertEqual((len(other.index_key), bool(other.condition)), (3, True))
        with self.assertRaises(e.QueryIndexNotFoundException):
            await manager.watch_indexes([unique("none")], timeout=MINUTE)
        await manager.drop_index(name)
        with self.assertRaises(e.QueryIndexNotFoundException):
            await manager.drop_index(name)
        await manager.drop_index(name, ignore_if_not_exists=True)
        await manager.drop_primary_index()
        self.assertEqual(await manager.get_all_indexes(), [])
        await self.bucket.collections().drop_scope(scope)

    async def test_a_bucket_stands_for_its_default_collection(self) -> None:
        manager, name = self.cluster.query_indexes(), unique("i")
        await manager.create_index(self.node.bucket, name, ["a"])
        await manager.watch_indexes(self.node.bucket, [name], timeout=MINUTE)
        names = [one.name for one in await manager.get_all_indexes(self.node.bucket)]
        self.assertIn(name, names)
        await manager.drop_index(self.node.bucket, name)


class DesignDocumentTest(NodeTest):
    async def test_a_design_document_is_developed_published_and_listed(self) -> None:
        manager, name = self.bucket.view_indexes(), unique("d")
        development = DesignDocumentNamespace.DEVELOPMENT
        view = View("function (doc, meta) { emit(meta.id); }")
        await manager.upsert_design_document(DesignDocument(name, {"v": view}), development)
        listed = await manager.get_all_design_documents(development)
        self.assertIn(name, [one.name for one in listed])
        self.assertNotIn(name, [one.name for one in await manager.get_all_design_documents()])
        await manager.publish_design_document(name)
        self.assertEqual((await manager.get_design_document(name)).views["v"].map, view.map)
        await manager.drop_design_document(name)
        await manager.drop_design_document(name, development)
        with self.assertRaises(e.DesignDocumentNotFoundException):
            await manager.publish_design_document(name)


class EventingTest(NodeTest):
    async def test_a_function_is_defined_deployed_paused_and_dropped(self) -> None:
        manager, name = self.cluster.eventing_functions(), unique("f").replace("-", "_")
        scope = unique("s")
        await self.bucket.collections().create_scope(scope)
        for collection in ("source", "target", "state"):
            await self.bucket.collections().create_collection(scope, collection)
        source, target, state = (
            EventingFunctionKeyspace(self.node.bucket, scope, collection)
            for collection in ("source", "target", "state")
        )
        function = EventingFunction(
            name,
            "function OnUpdate(doc, meta) { target[meta.id] = {n: doc.n + one}; }",
            source,
            state,
            bucket_bindings=[
                EventingFunctionBucketBinding(
                    "target", target, EventingFunctionBucketAccess.ReadWrite
                )
            ],
            constant_bindings=[EventingFunctionConstantBinding("one", "1")],
            url_bindings=[
                EventingFunctionUrlBinding(
                    "http://example.com", "web", auth=EventingFunctionUrlAuthBasic("u", "p")
                )
            ],
            settings=EventingFunctionSettings.new_settings(
                description="adds one", execution_timeout=MINUTE / 2
            ),
        )
        await manager.upsert_function(function)
        found = await manager.get_function(name)
        self.assertEqual((found.code, found.source_keyspace), (function.code, source))
        self.assertEqual(found.bucket_bindings, function.bucket_bindings)
        self.assertEqual(found.constant_bindings, function.constant_bindings)
        self.assertEqual(found.settings.execution_timeout, MINUTE / 2)
        self.assertIn(name, [one.name for one in await manager.get_all_functions()])

        await manager.deploy_function(name)
        await self.state(name, EventingFunctionState.Deployed)
        with self.assertRaises(e.EventingFunctionAlreadyDeployedException):
            await manager.deploy_function(name)
        with self.assertRaises(e.EventingFunctionNotUnDeployedException):
            await manager.drop_function(name)
        await self.bucket.scope(scope).collection("source").upsert("k", {"n": 1})
        async with asyncio.timeout(30):
            result = self.bucket.scope(scope).collection("target")
            while not (await result.exists("k")).exists:
                await asyncio.sleep(0.05)
        self.assertEqual((await result.get("k")).content, {"n": 2})
        await manager.pause_function(name)
        await self.state(name, EventingFunctionState.Paused)
        await manager.resume_function(name)
        await self.state(name, EventingFunctionState.Deployed)
        await manager.undeploy_function(name)
        await self.state(name, EventingFunctionState.Undeployed)
        await manager.drop_function(name)
        with self.assertRaises(e.EventingFunctionNotFoundException):
            await manager.get_function(name)
        function.code = "function {"
        with self.assertRaises(e.EventingFunctionCompilationFailureException):
            await manager.upsert_function(function)
        await self.bucket.collections().drop_scope(scope)

    async def state(self, name: str, wanted: EventingFunctionState) -> None:
        manager = self.cluster.eventing_functions()
        async with asyncio.timeout(60):
            while True:
                status = await manager.functions_status()
                if [one.state for one in status.functions if one.name == name] == [wanted]:
                    return
                await asyncio.sleep(0.05)

    async def test_a_scope_has_functions_of_its_own(self) -> None:
        manager = self.bucket.default_scope().eventing_functions()
        self.assertEqual(await manager.get_all_functions(), [])
        with self.assertRaises(e.EventingFunctionNotFoundException):
            await manager.get_function("none")


class SearchTest(NodeTest):
    async def test_an_index_finds_what_was_written_and_is_dropped(self) -> None:
        manager, name, word = self.cluster.search_indexes(), unique("index"), unique("word")
        await manager.upsert_index(SearchIndex(name, source_name=self.node.bucket))
        stored = await self.collection.upsert(self.key, {"word": word})
        query = MatchQuery(word, field="word", analyzer="keyword")
        request = SearchRequest(query)
        found = await self.cluster.search(
            name, request, consistent_with=MutationState(stored), timeout=MINUTE
        ).execute()
        self.assertEqual(found, [])
        pieces = SearchRequest(MatchQuery(word, field="word", match_operator=MatchOperator.AND))
        rows = await self.cluster.search(name, pieces).execute()
        self.assertEqual([row.id for row in rows], [self.key])
        self.assertIn(name, [index.name for index in await manager.get_all_indexes()])
        await manager.drop_index(name)
        with self.assertRaises(e.SearchIndexNotFoundException):
            await manager.get_index(name)


class DefinitionTest(unittest.TestCase):
    def test_definitions_come_over_as_they_are(self) -> None:
        text = '{"name": "i", "type": "fulltext-index", "params": {"a": 1}, "sourceName": "b"}'
        index = SearchIndex.from_json(text)
        self.assertEqual((index.name, index.params), ("i", {"a": 1}))
        self.assertEqual(index.as_dict()["sourceName"], "b")
        for wrong in ("", "[]", "{}"):
            with self.assertRaises(e.InvalidArgumentException):
                SearchIndex.from_json(wrong)

    def test_roles_are_read_as_they_are_written(self) -> None:
        for text in ("admin", "bucket_admin[b]", "data_reader[b:s]", "data_reader[b:s:c]"):
            self.assertEqual(str(Role.parse(text)), text)
        with self.assertRaises(e.InvalidArgumentException):
            Role.parse("a[b")
