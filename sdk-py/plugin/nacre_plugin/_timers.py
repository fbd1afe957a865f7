"""Capability `timer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ._outside import bytes_of, outside


class Timer(NamedTuple):
    """A due timer."""

    name: str
    """Its name."""
    due_us: int
    """When it was to fire, in microseconds since the Unix epoch."""
    payload: bytes
    """What was given when it was set."""


class Timers:
    """Capability `timer`: calls of `Service.on_timer` at a later time.

    Timers belong to the state: setting them, and removing them when they fire, is atomic with the
    writes of the call.
    """

    def __init__(self) -> None:
        self._held: list[Callable[[], Any]] | None = None

    def set(self, name: str, due_us: int, payload: Any = b"") -> None:
        """Sets a timer, and replaces one with the same name (1 to 1024 bytes). The time is in µs
        since the Unix epoch.

        The payload is bytes or text; everything else is kept as JSON.
        """
        content = bytes_of(payload)
        self._do(lambda: outside["timer"].set(name, due_us, content))

    def is_set(self, name: str) -> bool:
        """Returns True if an earlier call has set a timer with that name."""
        return bool(outside["timer"].is_set(name))

    def cancel(self, name: str) -> None:
        """Removes the timer with that name, if it exists."""
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
