"""Spans for OpenTelemetry, if the application has its package; this one does not depend on it.

options = ClusterOptions(authenticator, tracer=get_otel_tracer(), meter=get_otel_meter())
"""

from importlib import import_module
from typing import Any

from .tracing import (
    RequestSpan,
    RequestTracer,
    SpanAttributes,
    SpanAttributeValue,
    SpanStatusCode,
)

LIBRARY, VERSION = "nacre", "0.1.0"


def opentelemetry(module: str) -> Any:
    """A module of OpenTelemetry.

    Raises:
        ImportError: the package ``opentelemetry-api`` is not installed.
    """
    try:
        return import_module(f"opentelemetry.{module}")
    except ImportError as error:
        raise ImportError("this needs the package opentelemetry-api") from error


class OtelWrapperSpan(RequestSpan):
    """A span of OpenTelemetry as one of an operation."""

    def __init__(self, otel_span: Any, name: str) -> None:
        self.otel_span = otel_span
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_recording(self) -> bool:
        return bool(self.otel_span.is_recording())

    def set_attribute(self, key: str, value: SpanAttributeValue) -> None:
        self.otel_span.set_attribute(key, value)

    def set_attributes(self, attributes: SpanAttributes) -> None:
        self.otel_span.set_attributes(attributes)

    def add_event(
        self,
        name: str,
        attributes: SpanAttributes | None = None,
        timestamp: int | None = None,
    ) -> None:
        self.otel_span.add_event(name, attributes, timestamp)

    def set_status(self, status: SpanStatusCode) -> None:
        codes = opentelemetry("trace").StatusCode
        self.otel_span.set_status(codes[status.name])

    def end(self, end_time: int | None = None) -> None:
        self.otel_span.end(end_time)


class OtelWrapperTracer(RequestTracer):
    """A tracer of OpenTelemetry as one of operations.

    A span without a parent is a child of the span that is active.
    """

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._trace = opentelemetry("trace")

    def request_span(
        self,
        name: str,
        parent_span: RequestSpan | None = None,
        start_time: int | None = None,
    ) -> RequestSpan:
        context = None
        if parent_span is not None:
            parent = getattr(parent_span, "otel_span", parent_span)
            context = self._trace.set_span_in_context(parent)
        span = self._tracer.start_span(
            name, context=context, kind=self._trace.SpanKind.CLIENT, start_time=start_time
        )
        return OtelWrapperSpan(span, name)


def get_otel_tracer(provider: Any = None) -> RequestTracer:
    """A tracer for ``ClusterOptions``, of a provider or of the one that is registered.

    Raises:
        ImportError: the package ``opentelemetry-api`` is not installed.
    """
    found = provider or opentelemetry("trace").get_tracer_provider()
    return OtelWrapperTracer(found.get_tracer(LIBRARY, VERSION))
