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
    """Returns a module of OpenTelemetry.

    Raises:
        ImportError: if the package ``opentelemetry-api`` is not installed.
    """
    try:
        return import_module(f"opentelemetry.{module}")
    except ImportError as error:
        raise ImportError("this needs the package opentelemetry-api") from error


class OtelWrapperSpan(RequestSpan):
    """Wraps an OpenTelemetry span as a span of an operation."""

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
    """Wraps an OpenTelemetry tracer.

    A span without a parent becomes a child of the active span.
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
    """Returns a tracer for ``ClusterOptions``, from the given or the registered provider.

    Raises:
        ImportError: if the package ``opentelemetry-api`` is not installed.
    """
    found = provider or opentelemetry("trace").get_tracer_provider()
    return OtelWrapperTracer(found.get_tracer(LIBRARY, VERSION))
