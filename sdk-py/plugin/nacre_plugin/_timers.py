"""Capability `timer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ._outside import bytes_of, outside


class Timer(NamedTuple):
    """A timer that is due."""

    name: str
    """Its name."""
    due_us: int
    """When it was to fire, in microseconds since the Unix epoch."""
    payload: bytes
    """What was given when it was set."""


class Timers:
    """Capability `timer`: calls of `Service.on_timer` at a later time.

    Timers belong to the state: they are set, and removed when they fire, together with what the
    call writes.
    """

    def __init__(self) -> None:
        self._held: list[Callable[[], Any]] | None = None

    def set(self, name: str, due_us: int, payload: Any = b"") -> None:
        """Sets a timer, in place of one of the same name (1 to 1024 bytes), for a time in µs since
        the Unix epoch.

        The payload is bytes or text; everything else is kept as JSON.
        """
        content = bytes_of(payload)
        self._do(lambda: outside["timer"].set(name, due_us, content))

    def is_set(self, name: str) -> bool:
        """Whether a timer of that name was set by an earlier call."""
        return bool(outside["timer"].is_set(name))

    def cancel(self, name: str) -> None:
        """Removes a timer, if there is one of that name."""
        self._do(lambda: outside["timer"].cancel(name))

    def _do(self, call: Callable[[], Any]) -> None:
        if self._held is None:
            call()
        else:
            self._held.append(call)

    def _hold(self) -> None:
        self._held = []

    def _settle(self, keep: bool) -> None:
        held, self._held = self._held or [], None
        for call in held if keep else ():
            call()


timer = Timers()
