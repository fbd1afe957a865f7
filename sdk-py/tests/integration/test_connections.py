"""TLS, mechanisms, pings, diagnostics, and what is left behind."""

import asyncio
import json
import os
import ssl
import tempfile
import urllib.request
from datetime import timedelta
from pathlib import Path

import nacre
from nacre import exceptions as e
from nacre.diagnostics import ClusterState, EndpointState, PingState, ServiceType
from nacre.options import TLSVerifyMode
from tests.integration.node import NodeTest, unique

SHORT = timedelta(seconds=1)


class TlsTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        cluster_map = self.bucket.client.map
        assert cluster_map is not None
        (management,) = cluster_map.nodes("mgmt")
        certificate = f"http://{management}/pools/default/certificate"
        services = f"http://{management}/pools/default/nodeServices"

        def fetch() -> tuple[str, int]:
            passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
            passwords.add_password(None, services, self.node.user, self.node.password)
            handler = urllib.request.HTTPBasicAuthHandler(passwords)
            with urllib.request.build_opener(handler).open(services) as answer:
                port = json.load(answer)["nodesExt"][0]["services"]["kvSSL"]
            with urllib.request.urlopen(certificate) as answer:
                return answer.read().decode(), int(port)

        self.pem, port = await asyncio.to_thread(fetch)
        self.url = f"couchbases://127.0.0.1:{port}"

    async def use(self, cluster: nacre.Cluster) -> None:
        async with cluster:
            bucket = cluster.bucket(self.node.bucket)
            await bucket.default_collection().upsert(self.key, 1)
            # Services over HTTP use TLS as well.
            await bucket.collections().get_all_scopes()
            result = await cluster.ping()
            states = [report.state for found in result.endpoints.values() for report in found]
            self.assertEqual(set(states), {PingState.OK})

    async def test_an_authority_is_trusted_as_text_or_file(self) -> None:
        user, password = self.node.user, self.node.password
        await self.use(await nacre.connect(self.url, user, password, trust_pem=self.pem))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ca.pem"
            path.write_text(self.pem)
            await self.use(
                await nacre.connect(self.url, user, password, trust_store_path=str(path))
            )
            url = f"{self.url}?trust_certificate={path}"
            await self.use(await nacre.connect(url, user, password))
            options = nacre.ClusterOptions(nacre.PasswordAuthenticator(user, password, str(path)))
            await self.use(await nacre.Cluster.connect(self.url, options))

    async def test_a_password_may_be_sent_as_it_is(self) -> None:
        user = nacre.PasswordAuthenticator.ldap_compatible(self.node.user, self.node.password)
        options = nacre.ClusterOptions(user, trust_pem=self.pem)
        await self.use(await nacre.Cluster.connect(self.url, options))

    async def test_all_mechanisms_log_in(self) -> None:
        for mechanism in ("SCRAM-SHA512", "SCRAM-SHA256", "SCRAM-SHA1"):
            user = nacre.PasswordAuthenticator(
                self.node.user, self.node.password, allowed_sasl_mechanisms=(mechanism,)
            )
            async with await nacre.Cluster.connect(self.node.url, nacre.ClusterOptions(user)):
                pass
        wrong = nacre.PasswordAuthenticator("u", "p", allowed_sasl_mechanisms=("SCRAM-MD5",))
        with self.assertRaises(e.InvalidArgumentException):
            await nacre.Cluster.connect(self.node.url, nacre.ClusterOptions(wrong))

    async def test_a_node_that_is_not_trusted_is_refused(self) -> None:
        with self.assertRaises(e.AuthenticationException) as caught:
            await nacre.connect(self.url, self.node.user, self.node.password)
        self.assertIsInstance(caught.exception.__cause__, ssl.SSLCertVerificationError)

    async def test_checking_certificates_can_be_switched_off(self) -> None:
        user = nacre.PasswordAuthenticator(self.node.user, self.node.password)
        options = nacre.ClusterOptions(user, tls_verify=TLSVerifyMode.NONE)
        await self.use(await nacre.Cluster.connect(self.url, options))
        url = f"{self.url}?tls_verify=none"
        await self.use(await nacre.connect(url, self.node.user, self.node.password))

    async def test_a_wrong_password_is_refused_with_tls_too(self) -> None:
        with self.assertRaises(e.AuthenticationException):
            await nacre.connect(self.url, self.node.user, "wrong", trust_pem=self.pem)

    async def test_a_certificate_that_cannot_be_read_is_refused(self) -> None:
        for arguments in ({"trust_pem": "no certificate"}, {"trust_store_path": "/no/such.pem"}):
            with self.assertRaises(e.InvalidArgumentException):
                await nacre.connect(self.url, "user", "password", **arguments)
        shown = nacre.CertificateAuthenticator("/no/such.pem", "/no/such.key")
        for url in (self.url, self.node.url):
            with self.assertRaises(e.InvalidArgumentException):
                await nacre.Cluster.connect(url, nacre.ClusterOptions(shown))

    async def test_a_node_without_tls_is_told_in_time(self) -> None:
        port = self.node.url.rpartition(":")[2]
        timeouts = nacre.ClusterTimeoutOptions(connect_timeout=SHORT)
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await nacre.connect(
                f"couchbases://127.0.0.1:{port}", "user", "password", timeouts=timeouts
            )


class DiagnosticsTest(NodeTest):
    async def test_all_services_answer_a_ping(self) -> None:
        result = await self.cluster.ping(report_id="me")
        self.assertEqual(result.id, "me")
        self.assertIn(ServiceType.Query, result.endpoints)
        (kv,) = result.endpoints[ServiceType.KeyValue]
        self.assertEqual(kv.state, PingState.OK)
        self.assertGreater(kv.latency, timedelta())
        self.assertEqual(json.loads(result.as_json())["services"]["kv"][0]["state"], "ok")
        result = await self.bucket.ping(service_types=[ServiceType.KeyValue])
        self.assertEqual(list(result.endpoints), [ServiceType.KeyValue])
        self.assertEqual(result.endpoints[ServiceType.KeyValue][0].namespace, self.node.bucket)

    async def test_connections_are_reported(self) -> None:
        result = await self.cluster.diagnostics()
        self.assertEqual(result.state, ClusterState.Online)
        reports = result.endpoints[ServiceType.KeyValue]
        self.assertEqual([report.namespace for report in reports], [None, self.node.bucket])
        self.assertEqual({report.state for report in reports}, {EndpointState.Connected})
        self.assertEqual(len(json.loads(result.as_json())["services"]["kv"]), 2)

    async def test_a_cluster_that_is_ready_is_not_waited_for(self) -> None:
        await self.cluster.wait_until_ready(timedelta(seconds=10))
        await self.bucket.wait_until_ready(timedelta(seconds=10))
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await self.cluster.wait_until_ready(
                timedelta(seconds=0.3), service_types=[ServiceType.Analytics]
            )
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await self.cluster.bucket(unique("none")).wait_until_ready(timedelta(seconds=0.3))

    async def test_the_cluster_tells_of_its_nodes(self) -> None:
        info = await self.cluster.cluster_info()
        self.assertEqual(len(info.nodes), 1)
        self.assertTrue(info.server_version and info.server_version_short)
        self.assertNotEqual(info.is_enterprise, info.is_community)

    async def test_a_bucket_that_is_closed_connects_anew_by_its_name(self) -> None:
        await self.bucket.close()
        with self.assertRaises(e.RequestCanceledException):
            await self.collection.get(self.key)
        again = self.cluster.bucket(self.node.bucket).default_collection()
        await again.upsert(self.key, 1)

    async def test_another_user_logs_in_from_now_on(self) -> None:
        self.cluster.set_authenticator(nacre.PasswordAuthenticator("nobody", "wrong"))
        await self.collection.upsert(self.key, 1)
        with self.assertRaises(e.AuthenticationException):
            await self.cluster.buckets().get_all_buckets()
        self.cluster.set_authenticator(
            nacre.PasswordAuthenticator(self.node.user, self.node.password)
        )
        await self.cluster.buckets().get_all_buckets()


class LeaksTest(NodeTest):
    async def test_nothing_is_left_of_what_is_cancelled_at_any_point(self) -> None:
        key = self.key

        async def use() -> None:
            cluster = await nacre.connect(self.node.url, self.node.user, self.node.password)
            async with cluster:
                bucket = cluster.bucket(self.node.bucket)
                collection = bucket.default_collection()
                await collection.upsert(key, {"n": 1})
                await collection.get_any_replica(key)
                await collection.get_multi([key, key + "2"])
                await bucket.collections().get_all_scopes()
                async for _ in bucket.view_query("none", "none"):
                    pass

        await self.settle()
        tasks, files = asyncio.all_tasks(), open_files()
        steps = 0
        while True:
            task = asyncio.create_task(use())
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                break
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            self.assertIsInstance(outcome, asyncio.CancelledError)
            # Steps that only wait for a socket are many and alike.
            steps = steps + 1 if steps < 60 else steps * 5 // 4
        with self.assertRaises(e.ViewNotFoundException):
            await task
        await self.settle()
        self.assertEqual(asyncio.all_tasks(), tasks)
        self.assertEqual(open_files(), files)

    async def settle(self) -> None:
        """Lets the loop close the sockets of connections that have ended."""
        for _ in range(20):
            await asyncio.sleep(0)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
