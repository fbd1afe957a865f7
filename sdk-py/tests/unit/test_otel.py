"""Spans and durations for OpenTelemetry, in whose place there is a stand-in here."""

import sys
import unittest
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import nacre
from nacre import exceptions as e
from nacre.auth import PasswordAuthenticator
from nacre.observability.otel_metrics import get_otel_meter
from nacre.observability.otel_tracing import get_otel_tracer
from tests.unit.fake_node import FakeNode

GET = 0x00


class Span:
    def __init__(self, name: str, parent: Any, kind: str) -> None:
        self.name, self.parent, self.kind = name, parent, kind
        self.attributes: dict[str, Any] = {}
        self.status: Any = None
        self.end_count = 0

    def is_recording(self) -> bool:
        return True

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self.attributes.update(attributes)

    def set_status(self, status: Any) -> None:
        self.status = status

    def end(self, end_time: int | None = None) -> None:
        self.end_count += 1


class StatusCode(Enum):
    UNSET, OK, ERROR = 0, 1, 2


class Registered:
    """What an application has registered."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.values: list[tuple[str, str, float, dict[str, Any]]] = []

    def modules(self) -> dict[str, ModuleType]:
        trace: Any = ModuleType("opentelemetry.trace")
        trace.StatusCode = StatusCode
        trace.SpanKind = SimpleNamespace(CLIENT="client")
        trace.set_span_in_context = lambda span: ("context of", span)
        tracer = SimpleNamespace(start_span=self._start)
        provider = SimpleNamespace(get_tracer=lambda name, version: tracer)
        trace.get_tracer_provider = lambda: provider
        metrics: Any = ModuleType("opentelemetry.metrics")
        meter = SimpleNamespace(create_histogram=self._histogram)
        meters = SimpleNamespace(get_meter=lambda name, version: meter)
        metrics.get_meter_provider = lambda: meters
        package = ModuleType("opentelemetry")
        return {
            "opentelemetry": package,
            "opentelemetry.trace": trace,
            "opentelemetry.metrics": metrics,
        }

    def _start(self, name: str, context: Any, kind: str, start_time: int | None) -> Span:
        self.spans.append(Span(name, context and context[1], kind))
        return self.spans[-1]

    def _histogram(self, name: str, unit: str) -> Any:
        def record(value: float, attributes: dict[str, Any]) -> None:
            self.values.append((name, unit, value, attributes))

        return SimpleNamespace(record=record)


class OtelTest(unittest.IsolatedAsyncioTestCase):
    async def test_spans_and_durations_go_to_what_is_registered(self) -> None:
        registered = Registered()
        with patch.dict(sys.modules, registered.modules()):
            async with FakeNode() as node:
                options = nacre.ClusterOptions(
                    PasswordAuthenticator("user", "password"),
                    tracer=get_otel_tracer(),
                    meter=get_otel_meter(),
                )
                node.on[GET] = lambda asked: (1, b"", b"")
                async with await nacre.Cluster.connect(node.url, options) as cluster:
                    with self.assertRaises(e.DocumentNotFoundException):
                        await cluster.bucket("b").default_collection().get("k")
        (span,) = [one for one in registered.spans if one.name == "get"]
        self.assertEqual((span.parent, span.kind), (None, "client"))
        self.assertEqual(span.status, StatusCode.ERROR)
        below = [one.name for one in registered.spans if one.parent is span]
        self.assertEqual(below, ["dispatch_to_server"])
        self.assertEqual({one.end_count for one in registered.spans}, {1})
        ((name, unit, value, attributes),) = registered.values
        self.assertEqual((name, unit), ("db.client.operation.duration", "s"))
        self.assertTrue(0 < value < 60)
        self.assertEqual(attributes["db.operation.name"], "get")
        self.assertNotIn("__unit", attributes)

    def test_without_the_package_the_error_names_it(self) -> None:
        missing: Any = {"opentelemetry": None}
        with patch.dict(sys.modules, missing):
            for wanted in (get_otel_tracer, get_otel_meter):
                with self.assertRaisesRegex(ImportError, "opentelemetry-api"):
                    wanted()
