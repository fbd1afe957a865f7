"""Capabilities `metrics` and `log`: what the operator sees."""

from __future__ import annotations

from ._outside import outside


class Metrics:
    """Capability `metrics`: numbers for the operator.

    A name has 1 to 64 of the characters `a-z`, `0-9` and `_`, and a deployment at most 64 of them;
    others are dropped.
    """

    def add(self, name: str, delta: float = 1) -> None:
        """Adds to a number, 0 at first."""
        outside["metrics"].add(name, float(delta))

    def set(self, name: str, value: float) -> None:
        """Sets a number."""
        outside["metrics"].set(name, float(value))


class Log:
    """Capability `log`: lines in the log of the deployment. The host keeps 100 of a call, 2000
    characters each.
    """

    def debug(self, message: str) -> None:
        """For the author of the plugin."""
        self._write("DEBUG", message)

    def info(self, message: str) -> None:
        """For the operator, nothing to do."""
        self._write("INFO", message)

    def warn(self, message: str) -> None:
        """For the operator, something may have to be done."""
        self._write("WARN", message)

    def error(self, message: str) -> None:
        """Something went wrong."""
        self._write("ERROR", message)

    def _write(self, level: str, message: str) -> None:
        wit = outside["log"]
        wit.write(wit.Level[level], message)


metrics, log = Metrics(), Log()
