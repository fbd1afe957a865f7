"""Instruments of operations: a tracer, a meter, and their reports.

An instrumented operation has its span in `CURRENT` while it runs, so that the key-value and HTTP
clients know the parent of their requests' spans. Without a tracer and a meter, the only cost is a
check for instruments.
"""

import asyncio
import inspect
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import field
from functools import wraps
from typing import Any, TypeVar

from ._connstr import Address
from ._record import dataclass
from .exceptions import InvalidArgumentException
from .observability.metrics import LoggingMeter, Meter
from .observability.tracing import (
    RequestSpan,
    RequestTracer,
    SpanStatusCode,
    ThresholdLoggingTracer,
)

LOGGER = logging.getLogger("nacre")
DURATION = "db.client.operation.duration"
CURRENT: ContextVar[RequestSpan | None] = ContextVar("nacre_span", default=None)
"""Span of the operation that runs."""
SPAN_OPTIONS = ("parent_span", "span")
"""Names of the option for the span that an operation's span is a child of."""
T = TypeVar("T")


@dataclass(slots=True)
class OrphanReporter:
    """Collects orphan responses: those that arrived after their operation had ended."""

    sample_size: int = 64
    _count: int = 0
    _sample: deque[dict[str, Any]] = field(default_factory=deque)

    def take(self, operation: str, opaque: int, address: Address, local: str | None) -> None:
        """Records an orphan response."""
        self._count += 1
        self._sample.append(
            {
                "operation_name": operation,
                "operation_id": f"{opaque:#x}",
                "last_remote_socket": str(address),
                "last_local_socket": local,
            }
        )
        if len(self._sample) > self.sample_size:
            self._sample.popleft()

    def report(self) -> dict[str, Any]:
        """Returns the orphan responses since the last report; empty if there were none."""
        if not self._count:
            return {}
        found = {"kv": {"total_count": self._count, "top_requests": list(self._sample)}}
        self._count = 0
        self._sample.clear()
        return found


@dataclass(slots=True)
class Instruments:
    """The tracer and meter of a cluster, and its reports."""

    tracer: RequestTracer | None = None
    meter: Meter | None = None
    orphans: OrphanReporter | None = None
    intervals: dict[str, float] = field(default_factory=dict)
    """Seconds between reports, by what is reported: ``tracer``, ``meter`` and ``orphans``."""
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    @property
    def watches(self) -> bool:
        """Returns True if operations are traced or measured."""
        return self.tracer is not None or self.meter is not None

    def start(self) -> None:
        """Starts the reports, in the running loop."""
        for name in self.intervals.keys() - self._timers.keys():
            self._schedule(name)

    def close(self) -> None:
        """Sends the last reports, and stops."""
        for timer in self._timers.values():
            timer.cancel()
        for name in self._timers:
            self._write(name)
        self._timers.clear()

    def _schedule(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(self.intervals[name], self._due, name)

    def _due(self, name: str) -> None:
        self._write(name)
        self._schedule(name)

    def _write(self, name: str) -> None:
        source = getattr(self, name)
        if not isinstance(source, ThresholdLoggingTracer | LoggingMeter | OrphanReporter):
            return
        if found := source.report():
            heading, level = _HEADINGS[name]
            LOGGER.log(level, "%s: %s", heading, json.dumps(found, separators=(",", ":")))


_HEADINGS = {
    "tracer": ("Operations over threshold", logging.WARNING),
    "meter": ("Metrics", logging.INFO),
    "orphans": ("Orphan responses", logging.WARNING),
}


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of an operation, which are known before it runs."""

    service: str
    bucket: str | None = None
    scope: str | None = None
    collection: str | None = None

    def attributes(self, name: str) -> dict[str, Any]:
        """Returns the attributes of the operation's span, which are also the tags of its duration.
        """
        found = {
            "db.system.name": "couchbase",
            "couchbase.service": self.service,
            "db.operation.name": name,
            "db.namespace": self.bucket,
            "couchbase.scope.name": self.scope,
            "couchbase.collection.name": self.collection,
        }
        return {key: value for key, value in found.items() if value is not None}


class Watch:
    """The span and the duration of an operation, until `end`."""

    def __init__(
        self, instruments: Instruments, name: str, labels: Labels, parent: RequestSpan | None
    ) -> None:
        self._meter = instruments.meter
        self._attributes = labels.attributes(name)
        self._began = time.perf_counter_ns()
        self.span: RequestSpan | None = None
        if instruments.tracer is not None:
            self.span = instruments.tracer.request_span(name, parent)
            if self.span.is_recording:
                self.span.set_attributes(self._attributes)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span, and records the duration."""
        if self.span is not None:
            if error is not None:
                self.span.set_attribute("error.type", type(error).__name__)
                self.span.set_status(SpanStatusCode.ERROR)
            self.span.end(None)
        # Each document of an operation on several documents counts.
        if self._meter is None or self._attributes["db.operation.name"].endswith("_multi"):
            return
        tags = {**self._attributes, "__unit": "s"}
        if error is not None:
            tags["error.type"] = type(error).__name__
        duration_us = (time.perf_counter_ns() - self._began) // 1000
        self._meter.value_recorder(DURATION, tags).record_value(duration_us)


class Dispatch:
    """The span of a request to a node, as a child of the operation's span if there is one."""

    __slots__ = ("_span",)

    def __init__(
        self,
        instruments: Instruments | None,
        address: Address,
        local: str | None = None,
        parent: RequestSpan | None = None,
    ) -> None:
        self._span: RequestSpan | None = None
        if instruments is None or instruments.tracer is None:
            return
        parent = parent or CURRENT.get()
        if parent is None or not parent.is_recording:
            return
        self._span = instruments.tracer.request_span("dispatch_to_server", parent)
        self._span.set_attributes(
            {
                "db.system.name": "couchbase",
                "network.transport": "tcp",
                "server.address": address.host,
                "server.port": address.port,
            }
        )
        if local is not None:
            self._span.set_attribute("couchbase.local_id", local)

    def end(self, opaque: int | None = None) -> None:
        """Ends the span; ``opaque`` is that of the request."""
        if self._span is not None:
            if opaque is not None:
                self._span.set_attribute("couchbase.operation_id", f"{opaque:#x}")
            self._span.end(None)
            self._span = None


def span_in(options: Mapping[str, Any]) -> RequestSpan | None:
    """Returns the span in the options.

    Raises:
        InvalidArgumentException: if it is not a span.
    """
    for name in SPAN_OPTIONS:
        span: RequestSpan | None = options.get(name)
        if span is not None:
            if not hasattr(span, "set_attribute"):
                raise InvalidArgumentException(f"{name} is a span, such as a tracer gives")
            return span
    return None


def parent_of(*options: Mapping[str, Any]) -> RequestSpan | None:
    """Returns the span in the options, or that of the running operation."""
    return next((span for each in options if (span := span_in(each))), CURRENT.get())


def watched(kind: type[T]) -> type[T]:
    """Instruments the operations of a class: its coroutines with options.

    The class must have an attribute ``_instruments`` and a method ``_labels``.
    """
    for name, method in list(vars(kind).items()):
        if name.startswith("_") or not inspect.iscoroutinefunction(method):
            continue
        code = method.__code__
        # inspect.signature() takes longer than the rest of the import of this module.
        parameters = code.co_varnames[: code.co_argcount]
        if code.co_flags & inspect.CO_VARKEYWORDS:
            setattr(kind, name, _watched(name, method, parameters))
    return kind


def _watched(
    name: str, method: Callable[..., Any], parameters: tuple[str, ...]
) -> Callable[..., Any]:
    # The options are among the arguments after self. Documents are dictionaries too, and remain
    # unchanged.
    place = parameters.index("options") - 1 if "options" in parameters else len(parameters)

    @wraps(method)
    def call(holder: Any, /, *args: Any, **kwargs: Any) -> Any:
        if holder._instruments is None:
            return method(holder, *args, **kwargs)
        return _run(name, method, holder, args, kwargs, place)

    return call


async def _run(
    name: str,
    method: Callable[..., Any],
    holder: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    place: int,
) -> Any:
    options = args[place] if len(args) > place else kwargs.get("options")
    parent = parent_of(kwargs, options or {})
    # Calls of the operation are children of its span.
    args = (*args[:place], *(_without_spans(options) for options in args[place:]))
    kwargs = dict(_without_spans(kwargs))
    if isinstance(kwargs.get("options"), Mapping):
        kwargs["options"] = _without_spans(kwargs["options"])
    watch = Watch(holder._instruments, name, holder._labels(), parent)
    token = CURRENT.set(watch.span)
    try:
        found = await method(holder, *args, **kwargs)
    except BaseException as error:
        watch.end(error)
        raise
    finally:
        CURRENT.reset(token)
    watch.end()
    return found


def _without_spans(options: Any) -> Any:
    if not isinstance(options, Mapping):
        return options
    return {name: value for name, value in options.items() if name not in SPAN_OPTIONS}
