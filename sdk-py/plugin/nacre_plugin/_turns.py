"""Tracks the item of a call that is being processed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ._events import DocumentError
from ._outside import outside

T = TypeVar("T")


class Turns:
    """Processes the documents or timers of a call, one after the other.

    From the first item with an effect outside on, the host is told about the start of each item: if
    a later item ends the call, the effects of earlier ones are not repeated. Items that only fold
    are cheaper to repeat than to report.
    """

    def __init__(self) -> None:
        self._has_acted = False

    def act(self) -> None:
        """Must be called before an effect outside the state."""
        self._has_acted = True

    def take(
        self, items: Iterable[T], call: Callable[[int, T], DocumentError | None]
    ) -> list[DocumentError]:
        """Calls a function for each item. Returns the errors that the host has not received yet."""
        self._has_acted = False
        errors: list[DocumentError] = []
        for index, item in enumerate(items):
            if self._has_acted:
                turn = outside["turn"]
                for error in errors:
                    turn.failed(error.index, error.message)
                errors = []
                turn.begin(index)
            if failed := call(index, item):
                errors.append(failed)
        return errors


turns = Turns()
