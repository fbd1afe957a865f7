"""Clusters without key-value: by tokens, and by passwords over HTTP."""

import base64
import json
from datetime import timedelta
from typing import Any
from urllib.request import Request, urlopen

import nacre
import nacre.sync
from nacre import exceptions as e
from nacre.diagnostics import PingState, ServiceType
from nacre.kv_range_scan import PrefixScan
from tests.integration.node import NodeTest


class TokenTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        cluster_map = await self.cluster.client.refresh(10)
        self.url = f"http://{cluster_map.nodes('mgmt')[0]}"
        body = {"name": self.key, "scopes": ["query_select[*]", "data_reader[*]"], "ttl": 600}
        made = self.ask("POST", "/api/v1/tokens", body)
        self.token, self.token_id = made["token"], made["id"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Answer of the node to a request of the user."""
        login = base64.b64encode(f"{self.node.user}:{self.node.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.url + path, content, headers, method=method)) as answer:
            return json.loads(answer.read() or b"null")

    async def test_a_token_queries_until_it_is_revoked(self) -> None:
        await self.collection.upsert(self.key, {"a": "ü"})
        async with await nacre.connect(self.url, token=self.token) as cluster:
            statement = f"SELECT d.a FROM `{self.node.bucket}` d USE KEYS $1"
            rows = cluster.query(statement, positional_parameters=[self.key])
            self.assertEqual(await rows.execute(), [{"a": "ü"}])
            scope = cluster.bucket(self.node.bucket).default_scope()
            self.assertEqual(await scope.query("SELECT RAW 1").execute(), [1])
            change = f"DELETE FROM `{self.node.bucket}` d USE KEYS $1"
            with self.assertRaises(e.CouchbaseException):
                await cluster.query(change, positional_parameters=[self.key]).execute()
            self.assertTrue((await self.collection.exists(self.key)).exists)
            self.ask("DELETE", f"/api/v1/tokens/{self.token_id}")
            with self.assertRaises(e.AuthenticationException):
                await cluster.query("SELECT RAW 1").execute()

    async def test_operations_on_documents_say_what_they_need(self) -> None:
        async with await nacre.connect(self.url, token=self.token) as cluster:
            documents = cluster.bucket(self.node.bucket).default_collection()
            for work in (
                documents.get(self.key),
                documents.upsert(self.key, 1),
                documents.upsert(self.key, 1, durability=nacre.ClientDurability()),
                documents.get_any_replica(self.key),
                _all(documents.scan(PrefixScan(self.key))),
            ):
                with self.assertRaisesRegex(e.FeatureUnavailableException, "need key-value"):
                    await work
        with self.assertRaisesRegex(e.InvalidArgumentException, "key-value takes no tokens"):
            await nacre.connect(self.node.url, token=self.token)
        with self.assertRaisesRegex(e.InvalidArgumentException, "key-value takes no tokens"):
            self.cluster.set_authenticator(nacre.TokenAuthenticator(self.token))
        for wrong in ("", "a b", "a\r\nX: y"):
            with self.assertRaises(e.InvalidArgumentException):
                await nacre.connect(self.url, token=wrong)

    async def test_a_wrong_token_is_refused(self) -> None:
        with self.assertRaises(e.AuthenticationException):
            await nacre.connect(self.url, token="nacre1_0000000000000000_00")

    async def test_a_password_goes_over_http_as_well(self) -> None:
        async with await nacre.connect(self.url, self.node.user, self.node.password) as cluster:
            names = [bucket.name for bucket in await cluster.buckets().get_all_buckets()]
            self.assertIn(self.node.bucket, names)
            found = await cluster.ping(service_types=[ServiceType.Query, ServiceType.KeyValue])
            (query,) = found.endpoints[ServiceType.Query]
            (documents,) = found.endpoints[ServiceType.KeyValue]
            self.assertEqual((query.state, documents.state), (PingState.OK, PingState.ERROR))

    async def test_a_changed_token_counts_from_the_next_request_on(self) -> None:
        async with await nacre.connect(self.url, token=self.token) as cluster:
            cluster.set_authenticator(nacre.TokenAuthenticator("nacre1_0000000000000000_00"))
            with self.assertRaises(e.AuthenticationException):
                await cluster.query("SELECT RAW 1").execute()
            cluster.set_authenticator(nacre.TokenAuthenticator(self.token))
            self.assertEqual(await cluster.query("SELECT RAW 1").execute(), [1])

    async def test_an_address_where_nobody_is_ends_in_a_named_error(self) -> None:
        timeouts = nacre.ClusterTimeoutOptions(connect_timeout=timedelta(milliseconds=500))
        with self.assertRaisesRegex(e.UnAmbiguousTimeoutException, "No connection to 127.0.0.1:9"):
            await nacre.connect("http://127.0.0.1:9", token=self.token, timeouts=timeouts)

    async def test_the_synchronous_api_takes_tokens(self) -> None:
        with nacre.sync.connect(self.url, token=self.token) as cluster:
            self.assertEqual(list(cluster.query("SELECT RAW 1")), [1])


async def _all(rows: Any) -> list[Any]:
    return [row async for row in rows]
