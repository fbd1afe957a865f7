"""Base classes of plugins."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from ._events import DocumentError, Event, EventKind, Events
from ._faults import Fatal, Fault, Reject, said
from ._requests import Chunk, Request, Response
from ._state import state
from ._timers import Timer, timer
from ._turns import turns


def _attempt(call: Callable[[], None]) -> None:
    """Runs ``call``. If it raises, reverts state and timers."""
    state._hold()
    timer._hold()
    kept = False
    try:
        call()
        kept = True
    finally:
        state._settle(kept)
        timer._settle(kept)


class Plugin:
    """Base class of plugins in every world."""

    name: ClassVar[str] = ""
    """What it is called; without one as its class."""
    version: ClassVar[str] = "0.1.0"
    """Its version."""

    def __init__(self, config: Any) -> None:
        """Prepares an instance for the deployment with that configuration, parsed JSON.

        Raises:
            Reject: if the configuration cannot be deployed; the message is for its author.
        """
        self.config = config

    @classmethod
    def describe(cls) -> str:
        """Describes this plugin, as JSON with at least ``name``, ``version`` and ``limits``."""
        name = cls.name or cls.__name__.lower()
        return json.dumps({"name": name, "version": cls.version, "limits": {}})


class Functions(Plugin):
    """Functions for queries: each method without a leading underscore is a function.

    Equal arguments must give equal results. A call may use no capability except `log`. Its limits
    are those of the deployment, at most 50 ms and 64 MiB.
    """

    def _call(self, name: str, arguments: list[Any]) -> Any:
        """Calls a function. Returns a JSON value.

        Raises:
            Reject: if the function does not exist.
        """
        is_own = not name.startswith("_") and not hasattr(Functions, name)
        function = getattr(self, name, None) if is_own else None
        if not callable(function):
            raise Reject("there is no such function")
        return function(*arguments)


class Service(Plugin):
    """A fold over the change stream, plus answers from its state.

    The host relies on this: everything that must survive is in the state, because an instance may
    be replaced between any two calls; ``__init__`` uses no capability except `log`; equal calls
    make equal writes.

    A plugin defines `on_update` and `on_delete`, or `on_batch` to see all events of a batch
    together.
    """

    def on_update(self, doc: Any, meta: Event) -> None:
        """Processes a created or changed document: its parsed JSON, or its bytes if it is not JSON.

        If it raises, its changes of state and timers are reverted, the document is reported, and
        the feed continues; a `Fault` ends the call. Its effects outside remain, and the effects of
        earlier documents are not repeated.
        """

    def on_delete(self, meta: Event) -> None:
        """Processes a deleted or expired document. Exceptions have the same effect as in
        `on_update`.
        """

    def on_batch(self, events: Events) -> list[DocumentError]:
        """Folds a batch into the state. Returns the failed documents. The default calls `on_update`
        and `on_delete`. An override should only fold: if the call is repeated, its effects outside
        are repeated too, from the first document on.

        Raises:
            Fault: if the whole batch could not be processed; its writes are then dropped.
        """
        return turns.take(events, self._error_of)

    def _error_of(self, index: int, event: Event) -> DocumentError | None:
        try:
            _attempt(lambda: self._on_event(event))
        except Fault:
            raise
        except Exception as error:
            return DocumentError(index, said(error))
        return None

    def _on_event(self, event: Event) -> None:
        if event.kind != EventKind.UPSERT:
            self.on_delete(event)
        else:
            self.on_update(event.json() if event.is_json else event.body, event)

    def rollback(self, vb: int, seqno: int) -> int | None:
        """Removes data of vBucket ``vb`` after ``seqno``. Returns the seqno that it has reached, at
        most ``seqno``.

        None means that the host must call it again for the rest; such a call must have removed
        something. Without this method, the host rebuilds the state from the first document on.

        Raises:
            Fault: if the state cannot be rolled back.
        """
        raise Fatal(f"vBucket {vb} was cut back to {seqno}, and this plugin cannot be")

    def handle(self, request: Request) -> Response:
        """Answers a request from a snapshot of the state. Without this method, every path is
        unknown.

        If it raises an error other than a `Fault`, the response has the status 500 and names the
        error.

        Raises:
            Fault: if there is no response. An HTTP error status needs no fault: return a response.
        """
        return Response.json(404, {"error": "not_found", "reason": "missing"})

    def more(self, cursor: bytes) -> Chunk:
        """Returns the next piece of a response with a cursor, on the same snapshot and in the same
        instance.

        Raises:
            Fault: if the response cannot be continued.
        """
        raise Reject("this plugin does not answer in pieces")

    def merge(self, request: Request, partials: list[Response]) -> Response:
        """Merges the responses of several partitions into one.

        Raises:
            Fault: if they cannot be merged.
        """
        raise Reject("this plugin cannot merge answers")

    def on_timer(self, now_us: int, due: Timer) -> None:
        """Processes a due timer, which no longer exists and may be set again.

        If it raises, its changes of state and timers are reverted. The host fires it again after
        `Retry`, and otherwise drops it. The effects of earlier timers outside are not repeated.
        """


def fired(service: Service, now_us: int, timers: list[Timer]) -> None:
    """Passes due timers to a service."""
    turns.take(timers, lambda _, due: service.on_timer(now_us, due))


def handled(service: Service, request: Request) -> Response:
    """Returns the response of a service, or the response for its failure."""
    try:
        return service.handle(request)
    except Fault:
        raise
    except Exception as error:
        return Response.json(500, {"error": "exception", "reason": said(error)})
