"""Capabilities `metrics` and `log`, for the operator."""

from __future__ import annotations

from ._outside import outside


class Metrics:
    """Capability `metrics`: numbers for the operator.

    A name consists of 1 to 64 of the characters `a-z`, `0-9` and `_`. A deployment can have 64
    names; further ones are dropped.
    """

    def add(self, name: str, delta: float = 1) -> None:
        """Adds to a number, which is initially 0."""
        outside["metrics"].add(name, float(delta))

    def set(self, name: str, value: float) -> None:
        """Sets a number."""
        outside["metrics"].set(name, float(value))


class Log:
    """Capability `log`: lines in the log of the deployment. The host keeps 100 of a call, 2000
    characters each.
    """

    def debug(self, message: str) -> None:
        """Logs a line for the author of the plugin."""
        self._write("DEBUG", message)

    def info(self, message: str) -> None:
        """Logs a line for the operator, who need not act."""
        self._write("INFO", message)

    def warn(self, message: str) -> None:
        """Logs a line for the operator, who may have to act."""
        self._write("WARN", message)

    def error(self, message: str) -> None:
        """Logs an error."""
        self._write("ERROR", message)

    def _write(self, level: str, message: str) -> None:
        wit = outside["log"]
        wit.write(wit.Level[level], message)


metrics, log = Metrics(), Log()
