"""The Python guest kit: everything a plugin needs to fold the change stream into a state and answer
from it.

A plugin derives from `Service` and is named in `export`::

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

A plugin that derives from `Functions` has functions for queries in place of that. The same class
runs as plain Python in `nacre_plugin_testing.Harness`, which is how its logic is tested; the
WebAssembly component adds nothing but the sandbox. It has no clock and no chance: `time` fails,
`random` gives the same numbers in each instance, and the time is that of the events, the request or
the timer. What is outside is reached through `state`, `kv`, `timer`, `http`, `metrics` and `log`,
each a capability; `kv` and `http` only when plugin.toml asks for them.

A package without dependencies: a copy lies in each project.
"""

# A component has no files when it runs: every module is imported here.
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
