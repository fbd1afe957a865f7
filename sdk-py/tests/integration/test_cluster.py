"""Connecting, and managing buckets, scopes and collections."""

from datetime import timedelta

import nacre
from nacre import exceptions as e
from nacre.management import BucketType, CreateBucketSettings
from tests.integration.node import NodeTest, unique

SHORT = timedelta(milliseconds=900)


class ConnectTest(NodeTest):
    async def test_a_wrong_password_is_refused(self) -> None:
        for user, password in ((self.node.user, "wrong"), ("nobody", "password")):
            with self.assertRaises(e.AuthenticationException) as caught:
                await nacre.connect(self.node.url, user, password)
            self.assertEqual(caught.exception.context.status, 0x20)

    async def test_a_missing_bucket_is_not_found(self) -> None:
        bucket = self.cluster.bucket(unique("none"))
        with self.assertRaises(e.BucketNotFoundException):
            await bucket.on_connect()
        with self.assertRaises(e.BucketNotFoundException):
            await bucket.default_collection().get("k")

    async def test_options_are_those_of_the_official_sdk(self) -> None:
        authenticator = nacre.PasswordAuthenticator(self.node.user, self.node.password)
        self.assertNotIn(self.node.password, repr(authenticator))
        options = nacre.ClusterOptions(authenticator)
        async with await nacre.Cluster.connect(self.node.url, options) as cluster:
            await cluster.bucket(self.node.bucket).on_connect()


class BucketManagerTest(NodeTest):
    async def test_buckets_are_created_used_listed_and_dropped(self) -> None:
        manager = self.cluster.buckets()
        name = unique("bucket")
        await manager.create_bucket(CreateBucketSettings(name, bucket_type=BucketType.EPHEMERAL))
        try:
            with self.assertRaises(e.BucketAlreadyExistsException):
                await manager.create_bucket(CreateBucketSettings(name))
            created = await manager.get_bucket(name)
            self.assertEqual(created.bucket_type, BucketType.EPHEMERAL)
            self.assertIn(name, [bucket.name for bucket in await manager.get_all_buckets()])
            collection = self.cluster.bucket(name).default_collection()
            await collection.upsert("k", 1)
            self.assertEqual((await collection.get("k")).content, 1)
        finally:
            await manager.drop_bucket(name)
        with self.assertRaises(e.BucketNotFoundException):
            await manager.drop_bucket(name)
        with self.assertRaises(e.BucketNotFoundException):
            await manager.get_bucket(name)

    async def test_settings_that_mean_nothing_are_refused(self) -> None:
        with self.assertRaises(e.InvalidArgumentException):
            await self.cluster.buckets().create_bucket(CreateBucketSettings("no/slashes"))


class CollectionManagerTest(NodeTest):
    async def test_scopes_and_collections_are_created_used_listed_and_dropped(self) -> None:
        manager = self.bucket.collections()
        scope, name = unique("s"), unique("c")
        await manager.create_scope(scope)
        with self.assertRaises(e.ScopeAlreadyExistsException):
            await manager.create_scope(scope)
        hour = timedelta(hours=1)
        await manager.create_collection(scope, name, max_expiry=hour)
        with self.assertRaises(e.CollectionAlreadyExistsException):
            await manager.create_collection(scope, name)

        listed = next(s for s in await manager.get_all_scopes() if s.name == scope)
        self.assertEqual([(c.name, c.max_expiry) for c in listed.collections], [(name, hour)])

        collection = self.bucket.scope(scope).collection(name)
        await collection.upsert(self.key, "here")
        self.assertEqual((await collection.get(self.key)).content, "here")
        self.assertFalse((await self.collection.exists(self.key)).exists)
        with self.assertRaises(e.InvalidArgumentException):
            await collection.get("k" * 247)

        await manager.drop_collection(scope, name)
        with self.assertRaises(e.CollectionNotFoundException):
            await collection.get(self.key, timeout=SHORT)
        with self.assertRaises(e.CollectionNotFoundException):
            await manager.drop_collection(scope, name)
        await manager.create_collection(scope, name)
        # The old id is forgotten, and the new collection is empty.
        self.assertFalse((await collection.exists(self.key)).exists)
        await manager.drop_scope(scope)

    async def test_missing_scopes_are_not_found(self) -> None:
        manager = self.bucket.collections()
        scope = unique("none")
        with self.assertRaises(e.ScopeNotFoundException):
            await manager.drop_scope(scope)
        with self.assertRaises(e.ScopeNotFoundException):
            await manager.create_collection(scope, "c")
        with self.assertRaises(e.ScopeNotFoundException):
            await self.bucket.scope(scope).collection("c").get("k", timeout=SHORT)
