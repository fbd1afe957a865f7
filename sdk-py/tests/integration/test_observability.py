"""Spans, durations and reports of operations on a node."""

import asyncio
import json
import logging
import unittest
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import nacre
from nacre import exceptions as e
from nacre import subdocument as sd
from nacre.kv_range_scan import PrefixScan
from nacre.observability.metrics import Histogram, Meter, ValueRecorder
from nacre.observability.tracing import (
    RequestSpan,
    RequestTracer,
    SpanAttributes,
    SpanAttributeValue,
    SpanStatusCode,
)
from nacre.options import (
    ClusterMetricsOptions,
    ClusterTracingOptions,
)
from nacre.views import DesignDocument, View
from tests.integration.node import NodeTest, unique


class Span(RequestSpan):
    def __init__(self, name: str, parent: RequestSpan | None) -> None:
        self._name, self.parent = name, parent
        self.attributes: dict[str, Any] = {}
        self.status = SpanStatusCode.UNSET
        self.end_count = 0

    @property
    def name(self) -> str:
        return self._name

    def set_attribute(self, key: str, value: SpanAttributeValue) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: SpanAttributes) -> None:
        self.attributes.update(attributes)

    def add_event(
        self, name: str, attributes: SpanAttributes | None = None, timestamp: int | None = None
    ) -> None:
        raise AssertionError("there are no events")

    def set_status(self, status: SpanStatusCode) -> None:
        self.status = status

    def end(self, end_time: int | None = None) -> None:
        self.end_count += 1


class Tracer(RequestTracer):
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def request_span(
        self, name: str, parent_span: RequestSpan | None = None, start_time: int | None = None
    ) -> Span:
        self.spans.append(Span(name, parent_span))
        return self.spans[-1]

    def below(self, parent: RequestSpan | None) -> list[str]:
        return [span.name for span in self.spans if span.parent is parent]


class Recorder(ValueRecorder):
    def __init__(self, taken: list[tuple[str, Mapping[str, Any], int]], *about: Any) -> None:
        self._taken, self._about = taken, about

    def record_value(self, value: int) -> None:
        self._taken.append((*self._about, value))


class OwnMeter(Meter):
    def __init__(self) -> None:
        self.taken: list[tuple[str, Mapping[str, Any], int]] = []

    def value_recorder(self, name: str, tags: Mapping[str, Any]) -> Recorder:
        return Recorder(self.taken, name, tags)


class ObservabilityTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.tracer, self.meter = Tracer(), OwnMeter()
        options = self.cluster_options()
        options.tracer, options.meter = self.tracer, self.meter
        watched = await nacre.Cluster.connect(self.node.url, options)
        self.watched = await self.enterAsyncContext(watched)
        self.documents = self.watched.bucket(self.node.bucket).default_collection()
        await self.watched.bucket(self.node.bucket).on_connect()

    async def test_an_operation_has_a_span_below_the_one_it_is_given(self) -> None:
        parent = Span("work", None)
        await self.documents.upsert(self.key, {"a": 1}, parent_span=parent)
        self.assertEqual(self.tracer.below(parent), ["upsert"])
        (span,) = self.tracer.spans[:1]
        self.assertEqual(self.tracer.below(span), ["request_encoding", "dispatch_to_server"])
        self.assertEqual(
            span.attributes,
            {
                "db.system.name": "couchbase",
                "couchbase.service": "kv",
                "db.operation.name": "upsert",
                "db.namespace": self.node.bucket,
                "couchbase.scope.name": "_default",
                "couchbase.collection.name": "_default",
                "couchbase.retries": 0,
            },
        )
        dispatch = self.tracer.spans[2]
        self.assertEqual(dispatch.attributes["network.transport"], "tcp")
        self.assertGreater(dispatch.attributes["server.port"], 0)
        self.assertRegex(dispatch.attributes["couchbase.operation_id"], "^0x[0-9a-f]+$")
        self.assertEqual({one.end_count for one in self.tracer.spans}, {1})
        ((name, tags, value),) = self.meter.taken
        self.assertEqual(name, "db.client.operation.duration")
        self.assertEqual((tags["db.operation.name"], tags["__unit"]), ("upsert", "s"))
        self.assertGreater(value, 0)

    async def test_an_error_is_in_the_span_and_in_the_tags(self) -> None:
        with self.assertRaises(e.DocumentNotFoundException):
            await self.documents.get(self.key, {"span": None})
        (span, dispatch) = self.tracer.spans
        self.assertEqual((span.name, span.status), ("get", SpanStatusCode.ERROR))
        self.assertEqual(span.attributes["error.type"], "DocumentNotFoundException")
        self.assertEqual((dispatch.parent, dispatch.end_count), (span, 1))
        self.assertEqual(self.meter.taken[0][1]["error.type"], "DocumentNotFoundException")

    async def test_a_document_with_members_named_as_options_stays_as_it_is(self) -> None:
        document = {"span": 1, "parent_span": None, "options": {}}
        await self.documents.upsert(self.key, document)
        self.assertEqual((await self.collection.get(self.key)).content, document)
        parent = Span("work", None)
        await self.documents.replace(self.key, document, {"parent_span": parent})
        await self.documents.replace(self.key, document, options={"parent_span": parent})
        self.assertEqual((await self.collection.get(self.key)).content, document)
        self.assertEqual(self.tracer.below(parent), ["replace", "replace"])

    async def test_operations_on_many_documents_have_a_span_for_each(self) -> None:
        keys = [f"{self.key}-{n}" for n in range(3)]
        parent = Span("work", None)
        await self.documents.upsert_multi(dict.fromkeys(keys, 1), parent_span=parent)
        self.assertEqual(self.tracer.below(parent), ["upsert_multi"])
        self.assertEqual(self.tracer.below(self.tracer.spans[0]), ["upsert"] * 3)
        names = [tags["db.operation.name"] for _, tags, _ in self.meter.taken]
        self.assertEqual(names, ["upsert"] * 3)

    async def test_requests_over_http_have_spans(self) -> None:
        parent = Span("work", None)
        query = self.watched.query("SELECT RAW 1", parent_span=parent)
        self.assertEqual(await query.execute(), [1])
        self.assertEqual(self.tracer.below(parent), ["query"])
        query_span = next(span for span in self.tracer.spans if span.name == "query")
        self.assertEqual(self.tracer.below(query_span), ["dispatch_to_server"])
        await self.watched.buckets().get_all_buckets(parent_span=parent)
        self.assertEqual(self.tracer.below(parent), ["query", "get_all_buckets"])
        self.assertEqual(self.tracer.spans[-1].name, "dispatch_to_server")
        services = {span.attributes.get("couchbase.service") for span in self.tracer.spans}
        self.assertEqual(services, {"query", "management", None})
        self.assertEqual({one.end_count for one in self.tracer.spans}, {1})

    async def test_views_and_scans_have_spans(self) -> None:
        parent = Span("work", None)
        name = unique("design")
        bucket = self.watched.bucket(self.node.bucket)
        views = bucket.view_indexes()
        design = DesignDocument(name, {"v": View("function (d, m) { emit(m.id, null); }")})
        await views.upsert_design_document(design, parent_span=parent)
        async for _ in bucket.view_query(name, "v", limit=1, parent_span=parent):
            break
        await views.drop_design_document(name, parent_span=parent)
        await self.documents.upsert(self.key, 1)
        scan = self.documents.scan(PrefixScan(self.key), parent_span=parent)
        self.assertEqual([found.id async for found in scan], [self.key])
        names = ["upsert_design_document", "view_query", "drop_design_document", "scan"]
        self.assertEqual(self.tracer.below(parent), names)
        failed = [one.name for one in self.tracer.spans if one.status == SpanStatusCode.ERROR]
        self.assertEqual(failed, [])

    async def test_operations_at_a_time_keep_their_spans_apart(self) -> None:
        parents = [Span(str(n), None) for n in range(20)]
        work = [
            self.documents.upsert(f"{self.key}-{parent.name}", 1, parent_span=parent)
            for parent in parents
        ]
        await asyncio.gather(*work)
        for parent in parents:
            self.assertEqual(self.tracer.below(parent), ["upsert"])
        roots = [one for one in self.tracer.spans if one.name == "upsert"]
        for root in roots:
            self.assertEqual(self.tracer.below(root), ["request_encoding", "dispatch_to_server"])

    async def test_what_is_no_span_or_tracer_is_refused(self) -> None:
        with self.assertRaisesRegex(e.InvalidArgumentException, "parent_span is a span"):
            wrong: Any = 1
            await self.documents.get(self.key, parent_span=wrong)
        options = self.cluster_options()
        options.tracer = wrong
        with self.assertRaisesRegex(e.InvalidArgumentException, "tracer has a method"):
            nacre.Cluster(self.node.url, options)
        options.tracer = None
        options.tracing_options = {"threshold": 1}  # type: ignore[typeddict-unknown-key]
        with self.assertRaisesRegex(TypeError, "no option 'threshold'"):
            nacre.Cluster(self.node.url, options)


class ReportTest(NodeTest):
    async def reports(self, options: nacre.ClusterOptions) -> dict[str, Any]:
        """What is logged when a cluster is closed, by heading."""
        with self.assertLogs("nacre", logging.INFO) as logged:
            async with await nacre.Cluster.connect(self.node.url, options) as cluster:
                documents = cluster.bucket(self.node.bucket).default_collection()
                await documents.upsert(self.key, {"a": 1})
                await documents.lookup_in(self.key, [sd.get("a")])
                await cluster.query("SELECT 1").execute()
        parts = (record.getMessage().partition(": ") for record in logged.records)
        return {heading: json.loads(text) for heading, _, text in parts}

    async def test_slow_operations_are_reported(self) -> None:
        options = self.cluster_options()
        options.tracing_options = ClusterTracingOptions(
            tracing_threshold_kv=timedelta(microseconds=1),
            tracing_threshold_query=timedelta(hours=1),
            tracing_threshold_queue_size=1,
        )
        reports = await self.reports(options)
        (found,) = reports.values()
        self.assertEqual(list(found), ["kv"])
        self.assertEqual(found["kv"]["total_count"], 2)
        (slowest,) = found["kv"]["top_requests"]
        self.assertIn(slowest["operation_name"], ("upsert", "lookup_in"))
        self.assertGreater(slowest["last_dispatch_duration_us"], 0)
        self.assertIn(":", slowest["last_remote_socket"])

    async def test_durations_are_reported(self) -> None:
        options = self.cluster_options()
        options.metrics_options = ClusterMetricsOptions(emit_interval=timedelta(hours=1))
        found = (await self.reports(options))["Metrics"]
        self.assertEqual(found["kv"].keys(), {"upsert", "lookup_in"})
        self.assertEqual(found["query"]["query"]["total_count"], 1)
        self.assertGreater(found["kv"]["upsert"]["percentiles_us"]["50.0"], 0)

    async def test_reports_come_at_intervals(self) -> None:
        options = self.cluster_options()
        options.metrics_options = ClusterMetricsOptions(emit_interval=timedelta(milliseconds=10))
        logged = asyncio.Event()
        handler = logging.Handler()
        handler.emit = lambda record: logged.set()  # type: ignore[method-assign]
        logger = logging.getLogger("nacre")
        logger.addHandler(handler)
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            async with await nacre.Cluster.connect(self.node.url, options) as cluster:
                await cluster.bucket(self.node.bucket).default_collection().upsert(self.key, 1)
                async with asyncio.timeout(10):
                    await logged.wait()
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    async def test_nothing_is_reported_unless_asked_for(self) -> None:
        options = self.cluster_options()
        options.metrics_options = ClusterMetricsOptions()
        options.enable_metrics = False
        with self.assertNoLogs("nacre", logging.INFO):
            async with await nacre.Cluster.connect(self.node.url, options) as cluster:
                await cluster.bucket(self.node.bucket).default_collection().upsert(self.key, 1)


class HistogramTest(unittest.TestCase):
    def test_percentiles_are_within_ten_percent(self) -> None:
        histogram = Histogram()
        for value in range(1, 100_001):
            histogram.record_value(value)
        for percent in (1, 50, 90, 99, 99.9):
            exact = percent * 1000
            self.assertAlmostEqual(histogram.percentile(percent), exact, delta=exact * 0.13)
        self.assertEqual(histogram.percentile(100), 100_000)
        self.assertEqual(Histogram().percentile(50), 0)
