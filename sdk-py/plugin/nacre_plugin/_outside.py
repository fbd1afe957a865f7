"""Access to the capabilities of the host."""

from __future__ import annotations

import importlib
import json
from typing import Any

outside: dict[str, Any] = {}
"""The interfaces that the plugin imports, by name: modules of the component, or what a test puts in
their place.
"""

for _name in ("state", "log", "kv", "timer", "http_out", "metrics", "turn"):
    try:
        outside[_name] = importlib.import_module(f"wit_world.imports.{_name}")
    except ImportError:
        continue
try:
    Err: Any = importlib.import_module("componentize_py_types").Err
except ImportError:

    class Err(Exception):  # type: ignore[no-redef]
        """An error result, as in the component."""

        def __init__(self, value: Any) -> None:
            self.value = value


def bytes_of(value: Any) -> bytes:
    """Encodes a value: bytes and text unchanged, everything else as JSON."""
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case _:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def named(errors: type, value: Any) -> Exception:
    """Returns the class in ``errors`` for a variant case such as ``Error_NotFound``."""
    kind: type[Exception] = getattr(errors, type(value).__name__.removeprefix("Error_"))
    return kind(getattr(value, "value", kind.__doc__))
