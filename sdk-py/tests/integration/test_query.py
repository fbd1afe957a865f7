"""Queries in SQL++."""

from datetime import timedelta

from nacre import exceptions as e
from nacre.mutation_state import MutationState
from nacre.n1ql import QueryProfile, QueryScanConsistency, QueryStatus
from tests.integration.node import NodeTest, unique


class QueryTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.keyspace = f"`{self.node.bucket}`"

    async def test_rows_come_one_by_one(self) -> None:
        result = self.cluster.query("SELECT RAW n FROM ARRAY_RANGE(0, 5000) AS n", metrics=True)
        with self.assertRaises(e.InvalidArgumentException):
            result.metadata()
        self.assertEqual([row async for row in result], list(range(5000)))
        metadata = result.metadata()
        self.assertEqual(metadata.status(), QueryStatus.SUCCESS)
        metrics = metadata.metrics()
        assert metrics is not None
        self.assertEqual(metrics.result_count(), 5000)
        self.assertGreater(metrics.elapsed_time(), timedelta())
        self.assertTrue(metadata.request_id() and metadata.client_context_id())
        self.assertEqual((metadata.errors(), metadata.warnings()), ([], []))
        with self.assertRaises(e.AlreadyQueriedException):
            await result.execute()

    async def test_parameters_go_by_place_and_by_name(self) -> None:
        rows = await self.cluster.query(
            "SELECT $1 AS a, $2 AS b", positional_parameters=[1, {"x": "y"}]
        ).execute()
        self.assertEqual(rows, [{"a": 1, "b": {"x": "y"}}])
        rows = await self.cluster.query("SELECT RAW $a", named_parameters={"a": "é"}).execute()
        self.assertEqual(rows, ["é"])

    async def test_a_query_sees_the_mutations_it_is_told_of(self) -> None:
        state = MutationState()
        for number in range(3):
            key = f"{self.key}:{number}"
            state.add_results(await self.collection.upsert(key, {"run": self.key, "n": number}))
        statement = f"SELECT RAW n FROM {self.keyspace} WHERE run = $run ORDER BY n"
        for options in (
            {"consistent_with": state},
            {"scan_consistency": QueryScanConsistency.REQUEST_PLUS},
        ):
            result = self.cluster.query(
                statement, named_parameters={"run": self.key}, read_only=True, **options
            )
            self.assertEqual(await result.execute(), [0, 1, 2])

    async def test_statements_are_prepared_once(self) -> None:
        statement = f"SELECT RAW $n + 1 /* {unique('s')} */"
        for number in range(3):
            result = self.cluster.query(statement, adhoc=False, named_parameters={"n": number})
            self.assertEqual(await result.execute(), [number + 1])
        # One that the server has forgotten is prepared anew.
        await self.cluster.query("DELETE FROM system:prepareds").execute()
        result = self.cluster.query(statement, adhoc=False, named_parameters={"n": 9})
        self.assertEqual(await result.execute(), [10])

    async def test_a_profile_is_given_when_asked_for(self) -> None:
        result = self.cluster.query("SELECT 1", profile=QueryProfile.TIMINGS)
        await result.execute()
        self.assertIsInstance(result.metadata().profile(), dict)
        result = self.cluster.query("SELECT 1")
        await result.execute()
        self.assertIsNone(result.metadata().profile())

    async def test_a_scope_is_the_context_of_its_queries(self) -> None:
        scope = self.bucket.default_scope()
        await self.collection.upsert(self.key, {"here": True})
        rows = await scope.query(
            "SELECT RAW d.here FROM _default AS d USE KEYS $1", positional_parameters=[self.key]
        ).execute()
        self.assertEqual(rows, [True])

    async def test_errors_have_names(self) -> None:
        missing = unique("none")
        await self.collection.upsert(self.key, {})
        insert = f"INSERT INTO {self.keyspace} (KEY, VALUE) VALUES ('{self.key}', {{}})"
        for statement, kind in (
            ("SELEKT 1", e.ParsingFailedException),
            (f"SELECT * FROM `{missing}`", e.KeyspaceNotFoundException),
            (f"DROP INDEX `{missing}` ON {self.keyspace}", e.QueryIndexNotFoundException),
            (insert, e.DocumentExistsException),
        ):
            with self.subTest(statement), self.assertRaises(kind) as caught:
                await self.cluster.query(statement).execute()
            context = caught.exception.context
            self.assertEqual(context.statement, statement)
            self.assertIsNotNone(context.first_error_code)
            self.assertTrue(context.client_context_id and context.first_error_message)
        with self.assertRaises(e.CouchbaseException):
            await self.cluster.query(insert, read_only=True).execute()
        with self.assertRaises(e.InvalidArgumentException):
            self.cluster.query("")

    async def test_a_query_out_of_time_says_whether_it_may_have_changed_something(self) -> None:
        statement = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 30000) AS a, ARRAY_RANGE(0, 30000) AS b"
        for read_only, kind in (
            (True, e.UnAmbiguousTimeoutException),
            (False, e.AmbiguousTimeoutException),
        ):
            with self.assertRaises(kind):
                await self.cluster.query(
                    statement, read_only=read_only, timeout=timedelta(seconds=0.3)
                ).execute()

    async def test_a_result_that_is_left_frees_its_connection(self) -> None:
        async with await type(self.cluster).connect(
            self.node.url, self.cluster_options()
        ) as cluster:
            rows = cluster.query("SELECT RAW n FROM ARRAY_RANGE(0, 200000) AS n").rows()
            self.assertEqual(await anext(rows), 0)
            await rows.aclose()  # type: ignore[attr-defined]
            self.assertEqual(len(cluster.http._sockets), 0)
