"""Analytics: what is asked of the service, and what its answers mean."""

import asyncio
import json
import subprocess
import sys
import unittest
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

import nacre
from nacre import exceptions as e
from nacre import sync
from nacre.analytics import AnalyticsOptions, AnalyticsScanConsistency, AnalyticsStatus
from nacre.management import analytics as m
from nacre.observability.tracing import RequestSpan
from tests.integration.test_observability import Tracer
from tests.unit.fake_node import FakeNode

METRICS = {
    "elapsedTime": "1.5s",
    "executionTime": "12.25ms",
    "resultCount": 2,
    "resultSize": 20,
    "processedObjects": 300,
    "warningCount": 1,
}
ANSWER = {
    "requestID": "r",
    "clientContextID": "c",
    "signature": {"*": "*"},
    "results": [{"n": 1}, {"n": 2}],
    "warnings": [{"code": 24061, "msg": "so so"}],
    "status": "success",
    "metrics": METRICS,
}
DONE = {"status": "success"}
ENCRYPTION = m.CouchbaseAnalyticsEncryptionSettings
FULL = m.AnalyticsEncryptionLevel.FULL


def failure(code: int, **more: Any) -> dict[str, Any]:
    """The answer to a request that fails."""
    return {"errors": [{"code": code, "msg": f"for {code}", **more}], "status": "fatal"}


def tracer_name(span: RequestSpan | None) -> str | None:
    """Name of a span, if there is one."""
    return None if span is None else span.name


class AnalyticsTest(unittest.IsolatedAsyncioTestCase):
    """A cluster whose service gives the next of ``answers``, and the last one again and again."""

    async def asyncSetUp(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.heads: list[str] = []
        self.answers: list[tuple[int, Any]] = [(200, ANSWER)]
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        await self.enterAsyncContext(server)
        self.node = await self.enterAsyncContext(FakeNode())
        self.node.services["cbas"] = server.sockets[0].getsockname()[1]
        cluster = await nacre.connect(self.node.url, "user", "password")
        self.cluster = await self.enterAsyncContext(cluster)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0])
        self.heads.append(head)
        self.asked.append(
            (head.partition(" HTTP/1.1")[0], (await reader.readexactly(length)).decode())
        )
        status, answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        lines = f"HTTP/1.1 {status} OK\r\nConnection: close\r\nContent-Length: {len(content)}"
        writer.write(lines.encode() + b"\r\n\r\n" + content)
        writer.close()

    def sent(self) -> dict[str, Any]:
        """The members of the last statement, without those that differ each time."""
        path, body = self.asked[-1]
        self.assertEqual(path, "POST /query/service")
        members: dict[str, Any] = json.loads(body)
        self.assertTrue(members.pop("client_context_id"))
        self.assertRegex(members.pop("timeout"), r"^\d+ms$")
        return members


class QueryTest(AnalyticsTest):
    async def test_rows_come_with_metadata(self) -> None:
        result = self.cluster.analytics_query("SELECT 1")
        with self.assertRaises(e.InvalidArgumentException):
            result.metadata()
        self.assertEqual([row async for row in result.rows()], [{"n": 1}, {"n": 2}])
        self.assertEqual(self.sent(), {"statement": "SELECT 1"})
        self.assertNotIn("Analytics-Priority", self.heads[0])
        metadata = result.metadata()
        self.assertEqual((metadata.request_id(), metadata.client_context_id()), ("r", "c"))
        self.assertEqual(metadata.status(), AnalyticsStatus.SUCCESS)
        self.assertEqual((metadata.signature(), metadata.errors()), ({"*": "*"}, []))
        (warning,) = metadata.warnings()
        self.assertEqual((warning.code(), warning.message()), (24061, "so so"))
        metrics = metadata.metrics()
        assert metrics is not None
        self.assertEqual(metrics.elapsed_time(), timedelta(seconds=1.5))
        self.assertEqual(metrics.execution_time(), timedelta(milliseconds=12.25))
        self.assertEqual((metrics.result_count(), metrics.result_size()), (2, 20))
        self.assertEqual((metrics.processed_objects(), metrics.warning_count()), (300, 1))
        self.assertEqual(metrics.error_count(), 0)
        with self.assertRaises(e.AlreadyQueriedException):
            await result.execute()

    async def test_options_are_members_of_the_request(self) -> None:
        options = AnalyticsOptions(
            read_only=True,
            scan_consistency=AnalyticsScanConsistency.REQUEST_PLUS,
            positional_parameters=[1],
            named_parameters={"x": 2, "$y": 3},
            client_context_id="mine",
            priority=True,
            metrics=True,
            query_context="default:`a`.`b`",
            raw={"max-warnings": 5},
        )
        await self.cluster.analytics_query("SELECT 1", "two", options, z=4).execute()
        body = json.loads(self.asked[-1][1])
        self.assertEqual(body.pop("client_context_id"), "mine")
        self.assertGreater(int(body.pop("timeout").removesuffix("ms")), 70_000)
        expected = {
            "statement": "SELECT 1",
            "readonly": True,
            "scan_consistency": "request_plus",
            "args": [1, "two"],
            "$x": 2,
            "$y": 3,
            "$z": 4,
            "query_context": "default:`a`.`b`",
            "max-warnings": 5,
        }
        self.assertEqual(body, expected)
        self.assertIn("Analytics-Priority: -1\r\n", self.heads[-1])

    async def test_a_raw_timeout_has_precedence(self) -> None:
        await self.cluster.analytics_query("SELECT 1", raw={"timeout": "1s"}).execute()
        self.assertEqual(json.loads(self.asked[-1][1])["timeout"], "1s")

    async def test_a_scope_is_the_context(self) -> None:
        await self.cluster.bucket("b").scope("s`s").analytics_query("SELECT 1").execute()
        expected = {"statement": "SELECT 1", "query_context": "default:`b`.`s``s`"}
        self.assertEqual(self.sent(), expected)

    async def test_what_cannot_be_sent_is_refused_before(self) -> None:
        wrong: Any = "request_plus"
        for ask in (
            lambda: self.cluster.analytics_query(""),
            lambda: self.cluster.analytics_query("SELECT 1", scan_consistency=wrong),
            lambda: self.cluster.analytics_query("SELECT 1", positional_parameters=wrong),
            lambda: self.cluster.analytics_query("SELECT 1", timeout=timedelta(0)),
        ):
            with self.assertRaises(e.InvalidArgumentException):
                ask()
        self.assertEqual(self.asked, [])

    async def test_errors_have_the_names_of_their_codes(self) -> None:
        cases: list[tuple[int, type[e.CouchbaseException]]] = [
            (20001, e.AuthenticationException),
            (21002, e.UnAmbiguousTimeoutException),
            (21007, e.RequestCanceledException),
            (21010, e.InvalidArgumentException),
            (22001, e.AnalyticsException),
            (23008, e.AnalyticsException),
            (24000, e.CompilationFailedException),
            (24006, e.AnalyticsLinkNotFoundException),
            (24025, e.DatasetNotFoundException),
            (24034, e.DataverseNotFoundException),
            (24039, e.DataverseAlreadyExistsException),
            (24040, e.DatasetAlreadyExistsException),
            (24044, e.DatasetNotFoundException),
            (24045, e.DatasetNotFoundException),
            (24047, e.QueryIndexNotFoundException),
            (24048, e.QueryIndexAlreadyExistsException),
            (24055, e.AnalyticsLinkExistsException),
            (24122, e.CompilationFailedException),
            (25000, e.InternalServerFailureException),
        ]
        for code, kind in cases:
            # Errors may follow rows, and then have the status 200.
            for status, answer in ((400, {}), (200, {}), (200, {"results": [1, 2]})):
                self.answers = [(status, {**answer, **failure(code)})]
                with self.subTest(code, status=status):
                    with self.assertRaises(kind) as caught:
                        await self.cluster.analytics_query(
                            "SELECT 1", client_context_id="i"
                        ).execute()
                    self.assertIs(type(caught.exception), kind)
                    context = caught.exception.context
                    self.assertEqual(context.first_error_code, code)
                    self.assertEqual(context.first_error_message, f"for {code}")
                    self.assertEqual(
                        (context.statement, context.client_context_id), ("SELECT 1", "i")
                    )
        self.assertEqual(len(self.asked), 3 * len(cases))

    async def test_an_answer_without_errors_that_is_no_success_fails(self) -> None:
        for status, answer, kind in (
            (200, {"status": "timeout"}, e.UnAmbiguousTimeoutException),
            (200, {"status": "fatal"}, e.AnalyticsException),
            (200, '{"results": [1', e.DecodingFailureException),
            (401, "", e.AuthenticationException),
            (404, "no such path", e.InternalServerFailureException),
            (500, '{"errors": []}', e.InternalServerFailureException),
            (500, '{"errors": null}', e.InternalServerFailureException),
        ):
            self.answers = [(status, answer)]
            with self.subTest(answer), self.assertRaises(kind):
                await self.cluster.analytics_query("SELECT 1").execute()

    async def test_a_service_that_is_starting_or_full_is_asked_again(self) -> None:
        for code in (23000, 23003, 23007, 24999):
            more = {"retriable": True} if code == 24999 else {}
            self.answers = [(503, failure(code, **more))] * 2 + [(200, ANSWER)]
            self.asked.clear()
            rows = await self.cluster.analytics_query("CREATE …").execute()
            self.assertEqual((len(rows), len(self.asked)), (2, 3))

    async def test_a_service_that_stays_so_is_named_soon(self) -> None:
        for code, kind in ((23000, e.TemporaryFailException), (23007, e.JobQueueFullException)):
            self.answers = [(503, failure(code))]
            self.asked.clear()
            with self.assertRaises(kind) as caught:
                await self.cluster.analytics_query("SELECT 1").execute()
            self.assertEqual(len(self.asked), 11)
            self.assertEqual(caught.exception.context.retry_attempts, 10)
            self.assertEqual(caught.exception.context.first_error_code, code)

    async def test_the_timeout_ends_the_retries(self) -> None:
        self.answers = [(503, failure(23000))]
        with self.assertRaises(e.TemporaryFailException):
            await self.cluster.analytics_query("SELECT 1", timeout=timedelta(seconds=1)).execute()
        # Another pause, of half a second, would be too long.
        self.assertLess(len(self.asked), 11)

    async def test_a_failure_behind_rows_is_not_repeated(self) -> None:
        self.answers = [(200, {"results": [1], **failure(23000)})]
        with self.assertRaises(e.TemporaryFailException):
            await self.cluster.analytics_query("SELECT 1").execute()
        self.assertEqual(len(self.asked), 1)

    async def test_without_the_service_the_error_says_so(self) -> None:
        async with FakeNode() as node, await nacre.connect(node.url, "user", "password") as cluster:
            for ask in (
                cluster.analytics_query("SELECT 1").execute,
                cluster.bucket("b").default_scope().analytics_query("SELECT 1").execute,
                cluster.analytics_indexes().get_all_datasets,
                cluster.analytics_indexes().get_links,
            ):
                with self.assertRaises(e.ServiceUnavailableException):
                    await ask()

    async def test_operations_are_watched(self) -> None:
        tracer = Tracer()
        options = nacre.ClusterOptions(
            nacre.PasswordAuthenticator("user", "password"), tracer=tracer
        )
        async with await nacre.Cluster.connect(self.node.url, options) as cluster:
            await cluster.analytics_query("SELECT 1").execute()
            await cluster.analytics_indexes().create_dataverse("d")
        names = [(span.name, tracer_name(span.parent)) for span in tracer.spans]
        self.assertEqual(
            names,
            [
                ("analytics_query", None),
                ("dispatch_to_server", "analytics_query"),
                ("create_dataverse", None),
                ("analytics_query", "create_dataverse"),
                ("dispatch_to_server", "analytics_query"),
            ],
        )
        for span in (tracer.spans[0], tracer.spans[2]):
            self.assertEqual(span.attributes["couchbase.service"], "analytics")


class ManagementTest(AnalyticsTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.answers = [(200, DONE)]
        self.manager = self.cluster.analytics_indexes()

    async def test_definitions_are_statements(self) -> None:
        manager, fields = self.manager, {"a.b": m.AnalyticsDataType.STRING}
        many = {**fields, "n": m.AnalyticsDataType.INT64, "d": m.AnalyticsDataType.DOUBLE}
        cases: list[tuple[Awaitable[None], str]] = [
            (manager.create_dataverse("d"), "CREATE DATAVERSE `d`"),
            (
                manager.create_dataverse("b/s", ignore_if_exists=True),
                "CREATE DATAVERSE `b`.`s` IF NOT EXISTS",
            ),
            (manager.drop_dataverse("d`"), "DROP DATAVERSE `d```"),
            (
                manager.drop_dataverse("d", ignore_if_not_exists=True),
                "DROP DATAVERSE `d` IF EXISTS",
            ),
            (manager.create_dataset("s", "b"), "CREATE DATASET `Default`.`s` ON `b`"),
            (
                manager.create_dataset(
                    "s", "b", ignore_if_exists=True, dataverse_name="b/s", condition="a = 1"
                ),
                "CREATE DATASET IF NOT EXISTS `b`.`s`.`s` ON `b` WHERE a = 1",
            ),
            (manager.drop_dataset("s"), "DROP DATASET `Default`.`s`"),
            (
                manager.drop_dataset("s", ignore_if_not_exists=True, dataverse_name="d"),
                "DROP DATASET `d`.`s` IF EXISTS",
            ),
            (
                manager.create_index("i", "s", fields),
                "CREATE INDEX `i` ON `Default`.`s` (a.b:string)",
            ),
            (
                manager.create_index("i", "s", many, ignore_if_exists=True, dataverse_name="d"),
                "CREATE INDEX `i` IF NOT EXISTS ON `d`.`s` (a.b:string,n:int64,d:double)",
            ),
            (manager.drop_index("i", "s"), "DROP INDEX `Default`.`s`.`i`"),
            (
                manager.drop_index("i", "s", ignore_if_not_exists=True, dataverse_name="d"),
                "DROP INDEX `d`.`s`.`i` IF EXISTS",
            ),
            (manager.connect_link(), "CONNECT LINK `Default`.`Local`"),
            (
                manager.connect_link(dataverse_name="b/s", link_name="l", force=True),
                'CONNECT LINK `b`.`s`.`l` WITH {"force": true}',
            ),
            (manager.disconnect_link(), "DISCONNECT LINK `Default`.`Local`"),
            (
                manager.disconnect_link(dataverse_name="d", link_name="l"),
                "DISCONNECT LINK `d`.`l`",
            ),
        ]
        for work, statement in cases:
            with self.subTest(statement):
                await work
                self.assertEqual(self.sent(), {"statement": statement})

    async def test_the_catalog_is_read(self) -> None:
        dataset = {"DatasetName": "s", "DataverseName": "b/s", "LinkName": "Local"}
        self.answers = [(200, {"results": [{**dataset, "BucketName": "b"}], **DONE})]
        expected = m.AnalyticsDataset("s", "b/s", "Local", "b")
        self.assertEqual(await self.manager.get_all_datasets(), [expected])
        self.assertIs(self.sent()["readonly"], True)
        self.answers = [(200, {"results": [dataset], **DONE})]
        with self.assertRaises(e.DecodingFailureException):
            await self.manager.get_all_datasets()
        index = {**dataset, "IndexName": "i", "IsPrimary": False}
        self.answers = [(200, {"results": [index], **DONE})]
        indexes = await self.manager.get_all_indexes()
        self.assertEqual(indexes, [m.AnalyticsIndex("i", "s", "b/s", False)])

    async def test_pending_mutations_are_read(self) -> None:
        self.answers = [(200, {"Default": {"s": 3}, "b/s": {"c": 12, "d": 0}})]
        pending = await self.manager.get_pending_mutations()
        self.assertEqual(pending, {"Default.s": 3, "b/s.c": 12, "b/s.d": 0})
        self.assertEqual(self.asked, [("GET /analytics/node/agg/stats/remaining", "")])
        for wrong in ([1], {"d": 1}, "x"):
            self.answers = [(200, wrong)]
            with self.assertRaises(e.DecodingFailureException):
                await self.manager.get_pending_mutations()

    async def test_links_are_forms(self) -> None:
        level = m.AnalyticsEncryptionLevel
        of_dataverse = {"dataverse": "d", "name": "l"}
        half = ENCRYPTION(level.HALF)
        identity = ENCRYPTION(FULL, b"C", b"CC", b"K")
        s3 = {"type": "s3", "accessKeyId": "A", "region": "r", "secretAccessKey": "K"}
        azure = {"type": "azureblob", "accountName": "n", "sharedAccessSignature": "x"}
        remote = {"type": "couchbase", "hostname": "h:1"}
        login = {"username": "u", "password": "p"}
        cases: list[tuple[m.AnalyticsLink, dict[str, str]]] = [
            (
                m.CouchbaseRemoteAnalyticsLink("d", "l", "h:1", ENCRYPTION(), "u", "p"),
                of_dataverse | remote | login | {"encryption": "none"},
            ),
            (
                m.CouchbaseRemoteAnalyticsLink("b/s", "l", "h:1", half, "u", "p"),
                remote | login | {"encryption": "half"},
            ),
            (
                m.CouchbaseRemoteAnalyticsLink("d", "l", "h:1", identity),
                of_dataverse
                | remote
                | {"encryption": "full", "certificate": "C"}
                | {"clientCertificate": "CC", "clientKey": "K"},
            ),
            (m.S3ExternalAnalyticsLink("d", "l", "A", "r", "K"), of_dataverse | s3),
            (
                m.S3ExternalAnalyticsLink("b/s", "l", "A", "r", "K", "T", "http://e"),
                s3 | {"sessionToken": "T", "serviceEndpoint": "http://e"},
            ),
            (
                m.AzureBlobExternalAnalyticsLink("d", "l", "a=b;c=d"),
                of_dataverse | {"type": "azureblob", "connectionString": "a=b;c=d"},
            ),
            (
                m.AzureBlobExternalAnalyticsLink(
                    "b/s",
                    "l",
                    account_name="n",
                    shared_access_signature="x",
                    blob_endpoint="e",
                    endpoint_suffix="f",
                ),
                azure | {"blobEndpoint": "e", "endpointSuffix": "f"},
            ),
        ]
        for link, form in cases:
            with self.subTest(form):
                in_path = "/b%2Fs/l" if link.dataverse_name() == "b/s" else ""
                for method, change in (
                    ("POST", self.manager.create_link),
                    ("PUT", self.manager.replace_link),
                ):
                    await change(link)
                    path, body = self.asked[-1]
                    self.assertEqual(path, f"{method} /analytics/link{in_path}")
                    self.assertEqual(dict(parse_qsl(body)), form)
                    self.assertIn("Content-Type: application/x-www-form-urlencoded", self.heads[-1])
                self.assertEqual(body, link.form_encode().decode())
                self.assertEqual((link.name(), link.link_type().value), ("l", form["type"]))
                self.assertEqual(link.as_dict()["link_type"], form["type"])

    async def test_links_are_dropped_by_their_names(self) -> None:
        await self.manager.drop_link("l", "d")
        await self.manager.drop_link("l/l", "b/s")
        expected = [
            ("DELETE /analytics/link", "dataverse=d&name=l"),
            ("DELETE /analytics/link/b%2Fs/l%2Fl", ""),
        ]
        self.assertEqual(self.asked, expected)

    async def test_links_are_listed(self) -> None:
        s3 = {"type": "s3", "scope": "d", "name": "s", "accessKeyId": "A", "region": "r"}
        remote = {"type": "couchbase", "dataverse": "b/s", "name": "c", "activeHostname": "h"}
        remote |= {"encryption": "full", "certificate": "C", "username": ""}
        azure = {"type": "azureblob", "dataverse": "d", "name": "a", "accountName": "n"}
        self.answers = [(200, [s3, remote, azure, {"type": "newer"}])]
        expected = [
            m.S3ExternalAnalyticsLink("d", "s", "A", "r"),
            m.CouchbaseRemoteAnalyticsLink("b/s", "c", "h", ENCRYPTION(FULL, b"C")),
            m.AzureBlobExternalAnalyticsLink("d", "a", account_name="n"),
        ]
        self.assertEqual(await self.manager.get_links(), expected)
        kind = m.AnalyticsLinkType.S3External
        await self.manager.get_links(dataverse_name="d", name="l", link_type=kind)
        await self.manager.get_links(dataverse_name="b/s", link_type=kind)
        await self.manager.get_links(dataverse_name="b/s", name="l")
        paths = [path.removeprefix("GET /analytics/link") for path, _ in self.asked]
        self.assertEqual(paths, ["", "?dataverse=d&name=l&type=s3", "/b%2Fs?type=s3", "/b%2Fs/l"])
        answers: list[Any] = [{}, [1], [{"type": "s3"}], [{**remote, "encryption": "quarter"}]]
        for wrong in answers:
            self.answers = [(200, wrong)]
            with self.subTest(wrong), self.assertRaises(e.DecodingFailureException):
                await self.manager.get_links()

    async def test_what_is_incomplete_is_refused_before(self) -> None:
        manager, wrong = self.manager, {"f": "string"}
        cases: list[Callable[[], Awaitable[object]]] = [
            lambda: manager.create_dataverse(""),
            lambda: manager.create_dataverse("b//s"),
            lambda: manager.create_dataset("", "b"),
            lambda: manager.create_dataset("s", ""),
            lambda: manager.create_index("i", "s", {}),
            lambda: manager.create_index("i", "s", wrong),  # type: ignore[arg-type]
            lambda: manager.drop_link("", "d"),
            lambda: manager.drop_link("l", ""),
            lambda: manager.get_links(name="l"),
        ]
        links: list[m.AnalyticsLink] = [
            m.CouchbaseRemoteAnalyticsLink("d", "l", "", ENCRYPTION(), "u", "p"),
            m.CouchbaseRemoteAnalyticsLink("d", "l", "h"),
            m.CouchbaseRemoteAnalyticsLink("d", "l", "h", ENCRYPTION(FULL), "u", "p"),
            m.CouchbaseRemoteAnalyticsLink("d", "l", "h", ENCRYPTION(FULL, b"C", b"CC")),
            m.S3ExternalAnalyticsLink("", "l", "A", "r", "K"),
            m.S3ExternalAnalyticsLink("d", "", "A", "r", "K"),
            m.S3ExternalAnalyticsLink("d", "l", "A", "r"),
            m.S3ExternalAnalyticsLink("d", "l", "A", "", "K"),
            m.AzureBlobExternalAnalyticsLink("d", "l", account_name="n"),
            m.AzureBlobExternalAnalyticsLink("d", "l", account_key="k"),
        ]
        cases += [lambda link=link: manager.create_link(link) for link in links]  # type: ignore[misc]
        cases += [lambda link=link: manager.replace_link(link) for link in links]  # type: ignore[misc]
        for ask in cases:
            with self.assertRaises(e.InvalidArgumentException):
                await ask()
        self.assertEqual(self.asked, [])

    async def test_refused_links_have_the_names_of_their_codes(self) -> None:
        link = m.S3ExternalAnalyticsLink("d", "l", "A", "r", "secret")
        for answer, kind in (
            (failure(24055), e.AnalyticsLinkExistsException),
            ("24055: Link d.l already exists", e.AnalyticsLinkExistsException),
            ("24006: Link d.l does not exist", e.AnalyticsLinkNotFoundException),
            (failure(24034), e.DataverseNotFoundException),
            (failure(23000), e.TemporaryFailException),
            (failure(20001), e.AuthenticationException),
            ("port 240550 is no code", e.HTTPException),
            ({"errors": []}, e.HTTPException),
        ):
            self.answers = [(400, answer)]
            with self.subTest(answer):
                with self.assertRaises(kind) as caught:
                    await self.manager.create_link(link)
                self.assertIs(type(caught.exception), kind)
                self.assertNotIn("secret", repr(caught.exception) + str(caught.exception))

    def test_secrets_are_not_shown(self) -> None:
        for link in (
            m.S3ExternalAnalyticsLink("d", "l", "A", "r", "secret", "secret"),
            m.CouchbaseRemoteAnalyticsLink(
                "d", "l", "h", ENCRYPTION(FULL, b"C", b"C", b"secret"), "u", "secret"
            ),
            m.AzureBlobExternalAnalyticsLink("d", "l", "secret", "n", "secret", "secret"),
        ):
            self.assertNotIn("secret", repr(link))


class SyncTest(AnalyticsTest):
    async def test_the_same_is_there_without_await(self) -> None:
        def body() -> None:
            with sync.connect(self.node.url, "user", "password") as cluster:
                result = cluster.analytics_query("SELECT 1", 5)
                self.assertEqual(list(result), [{"n": 1}, {"n": 2}])
                self.assertEqual(result.metadata().status(), AnalyticsStatus.SUCCESS)
                scope = cluster.bucket("b").scope("s")
                self.assertEqual(scope.analytics_query("SELECT 1").execute(), [{"n": 1}, {"n": 2}])
                cluster.analytics_indexes().create_dataverse("d")

        await asyncio.to_thread(body)
        statements = [json.loads(body)["statement"] for _, body in self.asked]
        self.assertEqual(statements, ["SELECT 1", "SELECT 1", "CREATE DATAVERSE `d`"])

    def test_programs_without_analytics_do_not_load_it(self) -> None:
        program = "import nacre, nacre.sync, sys; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        loaded = [name for name in done.stdout.split() if "analytics" in name]
        self.assertEqual(loaded, [])
