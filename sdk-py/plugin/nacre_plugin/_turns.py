"""Which item of a call is at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ._events import DocumentError
from ._outside import outside

T = TypeVar("T")


class Turns:
    """The documents or timers of a call, one after the other.

    From the first one on that acts outside, the host is told of each that begins: what those before
    it did is not done again because a later one ends the call. What only folds is made again for
    less than this costs.
    """

    def __init__(self) -> None:
        self._has_acted = False

    def act(self) -> None:
        """Is called before something is done outside."""
        self._has_acted = True

    def take(
        self, items: Iterable[T], call: Callable[[int, T], DocumentError | None]
    ) -> list[DocumentError]:
        """Calls for each item; gives the errors that the host has not been told of."""
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
