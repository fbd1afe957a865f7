"""Exports a plugin as a component."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar, cast

from ._events import Events
from ._faults import Fatal, Fault, Reject, Retry, said
from ._outside import Err
from ._plugins import Functions, Plugin, Service, fired, handled
from ._requests import Response, headers_of, request_of
from ._timers import Timer

T = TypeVar("T")
S = TypeVar("S", bound=type[Plugin])


class _Answer(Protocol):
    """Makes a call, and converts its errors into those of the component's world."""

    def __call__(self, call: Callable[[], T]) -> T: ...


def export(plugin: S) -> S:
    """Exports a `Service`, or `Functions`, as the component that is built from its module. Does
    nothing outside of WebAssembly.
    """
    try:
        types = importlib.import_module("wit_world.imports.types")
    except ImportError:
        return plugin

    def answer(call: Callable[[], T]) -> T:
        try:
            return call()
        except Fault as fault:
            kind = next(kind for kind in (Retry, Reject, Fatal) if isinstance(fault, kind))
            raise Err(getattr(types, f"Fault_{kind.__name__}")(str(fault))) from fault
        except Exception as error:
            raise Err(types.Fault_Reject(said(error))) from error

    # The names that componentize-py looks for, one per interface.
    interfaces = ["Lifecycle"]
    if issubclass(plugin, Functions):
        component = _component_of_functions(plugin, answer)
        interfaces += ["Scalar"]
    else:
        component = _component_of_service(cast(type[Service], plugin), answer, types)
        interfaces += ["Feed", "Reader", "TimerHandler"]
    for interface in interfaces:
        setattr(sys.modules[plugin.__module__], interface, component)
    return plugin


def _component_of_functions(functions: type[Functions], answer: _Answer) -> type:
    class Component:
        running: ClassVar[Functions]

        def describe(self) -> str:
            return functions.describe()

        def init(self, config: str) -> None:
            Component.running = answer(lambda: functions(json.loads(config)))

        def call(self, name: str, arguments: str) -> str:
            given = json.loads(arguments)
            return answer(lambda: json.dumps(Component.running._call(name, given), allow_nan=False))

    return Component


def _component_of_service(service: type[Service], answer: _Answer, types: Any) -> type:
    feed = importlib.import_module("wit_world.exports.feed")
    reader = importlib.import_module("wit_world.exports.reader")

    def lowered(response: Response) -> Any:
        headers = [types.Header(name, value) for name, value in response.headers]
        return reader.Response(response.status, headers, response.body, response.cursor)

    class Component:
        running: ClassVar[Service]

        def describe(self) -> str:
            return service.describe()

        def init(self, config: str) -> None:
            Component.running = answer(lambda: service(json.loads(config)))

        def on_batch(self, buffer: bytes) -> Any:
            errors = answer(lambda: Component.running.on_batch(Events(buffer)))
            told = [feed.DocumentError(error.index, error.message) for error in errors or ()]
            return feed.Outcome(told)

        def rollback(self, vb: int, seqno: int) -> int | None:
            return answer(lambda: Component.running.rollback(vb, seqno))

        def on_timer(self, now_us: int, timers: list[Any]) -> None:
            due = [Timer(timer.name, timer.due_us, timer.payload) for timer in timers]
            answer(lambda: fired(Component.running, now_us, due))

        def handle(self, request: Any) -> Any:
            return answer(lambda: lowered(handled(Component.running, request_of(request))))

        def more(self, cursor: bytes) -> Any:
            return answer(lambda: reader.Chunk(*Component.running.more(cursor)))

        def merge(self, request: Any, partials: list[Any]) -> Any:
            whole = [
                Response(part.status, headers_of(part.headers), part.body) for part in partials
            ]
            return answer(lambda: lowered(Component.running.merge(request_of(request), whole)))

    return Component
