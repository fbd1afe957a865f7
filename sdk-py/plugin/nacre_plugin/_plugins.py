"""What a plugin derives from."""

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
    """Runs ``call``; when it raises, state and timers are as they were before."""
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
    """What plugins of every world have."""

    name: ClassVar[str] = ""
    """What it is called; without one as its class."""
    version: ClassVar[str] = "0.1.0"
    """Its version."""

    def __init__(self, config: Any) -> None:
        """Prepares an instance for the deployment with that configuration, parsed JSON.

        Raises:
            Reject: the configuration cannot be deployed; the message is for its author.
        """
        self.config = config

    @classmethod
    def describe(cls) -> str:
        """What this plugin is: a JSON object with at least ``name``, ``version`` and ``limits``."""
        name = cls.name or cls.__name__.lower()
        return json.dumps({"name": name, "version": cls.version, "limits": {}})


class Functions(Plugin):
    """Functions for queries: each method whose name has no underscore in front is one.

    Equal arguments give equal results. A call may use nothing but `log`, and has what the
    deployment allows of 50 ms and 64 MiB.
    """

    def _call(self, name: str, arguments: list[Any]) -> Any:
        """Calls a function; gives what JSON can say.

        Raises:
            Reject: there is none of that name.
        """
        is_own = not name.startswith("_") and not hasattr(Functions, name)
        function = getattr(self, name, None) if is_own else None
        if not callable(function):
            raise Reject("there is no such function")
        return function(*arguments)


class Service(Plugin):
    """A fold over the change stream, plus answers from its state.

    The host relies on this: nothing that must survive lies outside the state, since an instance may
    be replaced between any two calls; ``__init__`` uses no capability but `log`; equal calls give
    equal writes.

    A plugin has `on_update` and `on_delete`, or `on_batch` to see all events of a batch at once.
    """

    def on_update(self, doc: Any, meta: Event) -> None:
        """Takes a document that was created or changed: its parsed JSON, or the bytes of what is
        none.

        When it raises, what it did to state and timers is taken back, the document is reported, and
        the feed goes on; a `Fault` ends the call. What it did outside stays, and what documents
        before this one did outside is not done again.
        """

    def on_delete(self, meta: Event) -> None:
        """Takes a document that was deleted or expired. When it raises, then as for `on_update`."""

    def on_batch(self, events: Events) -> list[DocumentError]:
        """Folds a batch into the state; gives the documents that failed. Unless overridden, calls
        `on_update` and `on_delete`. One that overrides it is for folding: what it does outside is
        done again when the call is made again, from the first document on.

        Raises:
            Fault: the batch as a whole could not be taken; its writes are dropped then.
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
        """Removes what came from vBucket ``vb`` after ``seqno``; gives the seqno (at most that)
        reached.

        None has it called again for the rest; a call that gives None must have removed something.
        Without it, the host builds the state anew from the first document on.

        Raises:
            Fault: the state could not be cut back.
        """
        raise Fatal(f"vBucket {vb} was cut back to {seqno}, and this plugin cannot be")

    def handle(self, request: Request) -> Response:
        """Answers a request from a snapshot of the state. Without it, there is nothing to be found.

        When it raises another error than a `Fault`, the answer has the status 500 and names it.

        Raises:
            Fault: there is no answer; an HTTP error status is an answer.
        """
        return Response.json(404, {"error": "not_found", "reason": "missing"})

    def more(self, cursor: bytes) -> Chunk:
        """The next piece of an answer that had a cursor: on the same snapshot, in the same
        instance.

        Raises:
            Fault: the answer cannot go on.
        """
        raise Reject("this plugin gives its answers whole")

    def merge(self, request: Request, partials: list[Response]) -> Response:
        """Makes one answer from the answers of several partitions.

        Raises:
            Fault: they cannot be merged.
        """
        raise Reject("this plugin cannot merge answers")

    def on_timer(self, now_us: int, due: Timer) -> None:
        """Takes a timer that is due. It is gone, and may be set again.

        When it raises, nothing that it did to state and timers has happened; the host fires it
        again after `Retry`, and else does without it. What timers before this one did outside is
        not done again.
        """


def fired(service: Service, now_us: int, timers: list[Timer]) -> None:
    """Gives a service timers that are due."""
    turns.take(timers, lambda _, due: service.on_timer(now_us, due))


def handled(service: Service, request: Request) -> Response:
    """What a service answers; of one that fails, as the request then does."""
    try:
        return service.handle(request)
    except Fault:
        raise
    except Exception as error:
        return Response.json(500, {"error": "exception", "reason": said(error)})
