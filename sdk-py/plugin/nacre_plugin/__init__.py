"""The Python guest kit: everything that a plugin needs to fold the change stream into a state and
to answer requests from it.

A plugin derives from `Service` and is passed to `export`::

    from nacre_plugin import Event, Request, Response, Service, export, state

    @export
    class Cities(Service):
        name = "cities"

        def on_update(self, doc, meta: Event) -> None:
            state.put(meta.key, doc["city"])

        def on_delete(self, meta: Event) -> None:
            state.delete(meta.key)

        def handle(self, request: Request) -> Response:
            return Response.json(200, {"city": state.get_text(request.path[1:])})

A plugin that derives from `Functions` has functions for queries instead. The same class runs as
plain Python in `nacre_plugin_testing.Harness`, which tests its logic; the WebAssembly component
adds only the sandbox. A plugin has no clock and no true random numbers: `time` fails, `random`
returns the same numbers in each instance, and the time is that of the events, the request or the
timer. Everything outside is accessible through `state`, `kv`, `timer`, `http`, `metrics` and `log`.
Each is a capability; `kv` and `http` require an entry in plugin.toml.

The package has no dependencies: each project contains a copy.
"""

# A running component has no files, so every module must be imported here.
from ._component import export
from ._events import (
    DATATYPE_JSON,
    MAGIC,
    DecodeError,
    DocumentError,
    Event,
    EventKind,
    Events,
    Previous,
)
from ._faults import Fatal, Fault, Reject, Retry
from ._http import Http, http
from ._kv import Counted, Document, Kv, kv
from ._outside import outside
from ._plugins import Functions, Plugin, Service
from ._reports import Log, Metrics, log, metrics
from ._requests import Chunk, Header, Request, Response
from ._state import State, state, successor
from ._timers import Timer, Timers, timer

__all__ = [
    "DATATYPE_JSON",
    "MAGIC",
    "Chunk",
    "Counted",
    "DecodeError",
    "Document",
    "DocumentError",
    "Event",
    "EventKind",
    "Events",
    "Fatal",
    "Fault",
    "Functions",
    "Header",
    "Http",
    "Kv",
    "Log",
    "Metrics",
    "Plugin",
    "Previous",
    "Reject",
    "Request",
    "Response",
    "Retry",
    "Service",
    "State",
    "Timer",
    "Timers",
    "export",
    "http",
    "kv",
    "log",
    "metrics",
    "outside",
    "state",
    "successor",
    "timer",
]
