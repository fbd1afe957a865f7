"""Several nodes, one of which ends; and certificates of clients."""

import asyncio
import contextlib
import subprocess
import tempfile
import unittest
from datetime import timedelta
from pathlib import Path

import nacre
from nacre import exceptions as e
from nacre import subdocument as sd
from nacre.durability import (
    ClientDurability,
    DurabilityLevel,
    PersistTo,
    ReplicateTo,
    ServerDurability,
)
from nacre.kv_range_scan import PrefixScan
from nacre.management.buckets import CreateBucketSettings
from tests.integration.own_nodes import PASSWORD, USER, OwnNode

COUNT = 1000
SECONDS_MAX = 120.0


class ClusterTest(unittest.TestCase):
    def test_copies_are_read_and_nothing_is_missing_when_a_node_ends(self) -> None:
        with OwnNode() as one, OwnNode() as two, OwnNode() as three:
            one.cluster("add", two.address)
            one.cluster("add", three.address)
            one.cluster("rebalance")
            asyncio.run(self.use(one, two, three))

    async def use(self, one: OwnNode, two: OwnNode, three: OwnNode) -> None:
        url = f"couchbase://{three.kv},{one.kv}"
        async with await nacre.connect(url, USER, PASSWORD) as cluster:
            settings = CreateBucketSettings("b", num_replicas=2)
            await cluster.buckets().create_bucket(settings)
            bucket = cluster.bucket("b")
            await bucket.wait_until_ready(timedelta(seconds=60))
            collection = bucket.default_collection()
            await self.copies(collection)
            await self.failover(cluster, collection, one, three)

    async def copies(self, collection: nacre.Collection) -> None:
        for level in DurabilityLevel:
            await collection.upsert("k", {"a": 1}, durability=ServerDurability(level))
        everywhere = ClientDurability(ReplicateTo.TWO, PersistTo.THREE)
        await collection.upsert("k", {"a": 1}, durability=everywhere)
        found = await collection.get_all_replicas("k")
        copies = sorted((copy.is_replica, copy.content["a"]) for copy in found)
        self.assertEqual(copies, [(False, 1), (True, 1), (True, 1)])
        parts = await collection.lookup_in_all_replicas("k", [sd.get("a")])
        self.assertEqual([part.content_as[int](0) for part in parts], [1, 1, 1])
        self.assertEqual((await collection.get_any_replica("k")).content, {"a": 1})

    async def failover(
        self, cluster: nacre.Cluster, collection: nacre.Collection, one: OwnNode, three: OwnNode
    ) -> None:
        keys = [f"x{number}" for number in range(COUNT)]
        self.assertTrue((await collection.upsert_multi(dict.fromkeys(keys, 0))).all_ok)
        scan = collection.scan(PrefixScan("x"), ids_only=True, concurrency=16)
        self.assertEqual(sorted([item.id async for item in scan]), sorted(keys))
        newest: dict[str, int] = {}

        async def read() -> None:
            async for change in collection.changes():
                newest[change.id] = change.content
                if all(newest.get(key) == 1 for key in keys):
                    return

        async def write(own: list[str]) -> None:
            for key in own:
                while True:
                    with contextlib.suppress(e.CouchbaseException):
                        await collection.upsert(key, 1)
                        break

        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as tasks:
            tasks.create_task(read())
            for worker in range(8):
                tasks.create_task(write(keys[worker::8]))
            await asyncio.sleep(0.1)
            three.kill()
            await asyncio.to_thread(one.cluster, "failover", three.address)
        found = await collection.get_multi(keys)
        self.assertEqual(
            {key: got.content for key, got in found.results.items()}, dict.fromkeys(keys, 1)
        )
        await cluster.wait_until_ready(timedelta(seconds=30))


class CertificateTest(unittest.TestCase):
    def test_a_client_logs_in_with_its_certificate(self) -> None:
        with OwnNode("--buckets", "default") as node, tempfile.TemporaryDirectory() as folder:
            certificate, key = make_certificate(Path(folder), Path(node.folder.name))
            node.ask("/node/controller/loadTrustedCAs", b"", as_json=False)
            prefix = b'{"path": "subject.cn", "prefix": "", "delimiter": ""}'
            rule = b'{"state": "enable", "prefixes": [' + prefix + b"]}"
            node.ask("/settings/clientCertAuth", rule)
            pem = node.ask("/pools/default/certificate").decode()
            asyncio.run(self.use(node, certificate, key, pem))

    async def use(self, node: OwnNode, certificate: str, key: str, pem: str) -> None:
        options = nacre.ClusterOptions(
            nacre.CertificateAuthenticator(certificate, key), trust_pem=pem
        )
        url = f"couchbases://{node.kv_tls}"
        async with await nacre.Cluster.connect(url, options) as cluster:
            collection = cluster.bucket("default").default_collection()
            await collection.upsert("k", 1)
            self.assertEqual((await collection.get("k")).content, 1)
            self.assertEqual(await cluster.query("SELECT RAW 1").execute(), [1])
            self.assertEqual(len(await cluster.buckets().get_all_buckets()), 1)
            with self.assertRaises(e.InvalidArgumentException):
                cluster.set_authenticator(nacre.PasswordAuthenticator(USER, PASSWORD))


def make_certificate(folder: Path, data: Path) -> tuple[str, str]:
    """A certificate of the administrator, by an authority that the node will trust."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=clients")
    openssl("req", *curve, "-keyout", "me.key", "-out", "me.csr", "-subj", f"/CN={USER}")
    (folder / "ext").write_text("extendedKeyUsage=clientAuth\n")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext"]
    openssl("x509", "-req", "-in", "me.csr", "-out", "me.pem", *signing)
    authorities = data / "inbox" / "CA"
    authorities.mkdir(parents=True, exist_ok=True)
    (authorities / "clients.pem").write_bytes((folder / "ca.pem").read_bytes())
    return str(folder / "me.pem"), str(folder / "me.key")
