"""Spans: the interfaces that a tracer implements, and a tracer that reports slow operations."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from heapq import heappush, heappushpop
from typing import Any

SpanAttributeValue = (
    str | bool | int | float | Sequence[str] | Sequence[bool] | Sequence[int] | Sequence[float]
)
SpanAttributes = Mapping[str, SpanAttributeValue]


class SpanStatusCode(Enum):
    """Final status of a span's operation."""

    UNSET = 0
    OK = 1
    ERROR = 2


class RequestSpan(ABC):
    """A span: the duration of an operation or of one of its requests."""

    @property
    def is_recording(self) -> bool:
        """Returns False if the span is not recorded. It then gets no attributes and no children."""
        return True

    @property
    @abstractmethod
    def name(self) -> str:
        """Returns the name of the operation."""

    @abstractmethod
    def set_attribute(self, key: str, value: SpanAttributeValue) -> None:
        """Sets an attribute."""

    @abstractmethod
    def set_attributes(self, attributes: SpanAttributes) -> None:
        """Sets several attributes."""

    @abstractmethod
    def add_event(
        self,
        name: str,
        attributes: SpanAttributes | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Adds an event; ``timestamp`` is in nanoseconds since 1970."""

    @abstractmethod
    def set_status(self, status: SpanStatusCode) -> None:
        """Sets the status of the operation."""

    @abstractmethod
    def end(self, end_time: int | None = None) -> None:
        """Ends the span; ``end_time`` is in nanoseconds since 1970, by default now."""


class RequestTracer(ABC):
    """Creates spans."""

    @abstractmethod
    def request_span(
        self,
        name: str,
        parent_span: RequestSpan | None = None,
        start_time: int | None = None,
    ) -> RequestSpan:
        """Starts a span; ``start_time`` is in nanoseconds since 1970, by default now."""


class _TimedSpan(RequestSpan):
    """A span of `ThresholdLoggingTracer`: the root of an operation, or a request of one."""

    def __init__(
        self,
        tracer: "ThresholdLoggingTracer",
        name: str,
        parent: RequestSpan | None,
        start_time: int | None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._parent = parent if isinstance(parent, _TimedSpan) else None
        self._start = time.time_ns() if start_time is None else start_time
        self._attributes: dict[str, Any] = {}
        self.children_us: dict[str, int] = {}
        """Time that requests and encoding took, by name of the span."""

    @property
    def name(self) -> str:
        return self._name

    def set_attribute(self, key: str, value: SpanAttributeValue) -> None:
        self._attributes[key] = value

    def set_attributes(self, attributes: SpanAttributes) -> None:
        self._attributes.update(attributes)

    def add_event(
        self,
        name: str,
        attributes: SpanAttributes | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Ignored: reports contain no events."""

    def set_status(self, status: SpanStatusCode) -> None:
        """Ignored: reports contain durations only."""

    def end(self, end_time: int | None = None) -> None:
        duration_us = ((time.time_ns() if end_time is None else end_time) - self._start) // 1000
        if self._parent is not None:
            spent = self._parent.children_us
            spent[self._name] = spent.get(self._name, 0) + duration_us
            if "server.address" in self._attributes:
                host, port = self._attributes["server.address"], self._attributes["server.port"]
                self._parent.set_attribute("last_remote_socket", f"{host}:{port}")
        service = self._attributes.get("couchbase.service")
        if service is not None:
            self._tracer.take(str(service), duration_us, self._report(duration_us))

    def _report(self, duration_us: int) -> dict[str, Any]:
        found = self._attributes
        report = {
            "operation_name": self._name,
            "total_duration_us": duration_us,
            "last_dispatch_duration_us": self.children_us.get("dispatch_to_server"),
            "encode_duration_us": self.children_us.get("request_encoding"),
            "last_remote_socket": found.get("last_remote_socket"),
            "retries": found.get("couchbase.retries"),
        }
        return {name: value for name, value in report.items() if value is not None}


class ThresholdLoggingTracer(RequestTracer):
    """Reports the slowest operations, by service, as a JSON line at an interval.

    ``thresholds`` are the durations by service above which an operation is reported.
    """

    def __init__(
        self,
        thresholds: Mapping[str, timedelta] | None = None,
        sample_size: int = 64,
    ) -> None:
        given = thresholds or {}
        default = dict.fromkeys(_SERVICES, timedelta(seconds=1)) | {"kv": timedelta(seconds=0.5)}
        self._thresholds_us = {
            name: limit // timedelta(microseconds=1) for name, limit in {**default, **given}.items()
        }
        self._sample_size = sample_size
        self._slowest: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
        self._counts: dict[str, int] = {}
        self._taken = 0

    def request_span(
        self,
        name: str,
        parent_span: RequestSpan | None = None,
        start_time: int | None = None,
    ) -> RequestSpan:
        return _TimedSpan(self, name, parent_span, start_time)

    def take(self, service: str, duration_us: int, report: dict[str, Any]) -> None:
        """Records a finished operation if it was slow."""
        if duration_us < self._thresholds_us.get(service, 1_000_000):
            return
        self._counts[service] = self._counts.get(service, 0) + 1
        self._taken += 1
        kept = self._slowest.setdefault(service, [])
        # The serial number makes entries with equal durations comparable.
        entry = (duration_us, self._taken, report)
        if len(kept) < self._sample_size:
            heappush(kept, entry)
        elif kept:
            heappushpop(kept, entry)

    def report(self) -> dict[str, Any]:
        """Returns the slow operations since the last report, slowest first; empty if there are
        none.
        """
        found = {
            service: {
                "total_count": count,
                "top_requests": [one for *_, one in sorted(self._slowest[service], reverse=True)],
            }
            for service, count in self._counts.items()
        }
        self._slowest, self._counts = {}, {}
        return found


_SERVICES = ("kv", "query", "search", "views", "analytics", "eventing", "management")
