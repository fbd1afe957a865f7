"""How what is outside of the plugin is reached."""

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
        """As the component has it: a result that is an error."""

        def __init__(self, value: Any) -> None:
            self.value = value


def bytes_of(value: Any) -> bytes:
    """Bytes and text as they are, everything else as JSON."""
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case _:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def named(errors: type, value: Any) -> Exception:
    """The error of ``errors`` that a variant case is called after: ``Error_NotFound``."""
    kind: type[Exception] = getattr(errors, type(value).__name__.removeprefix("Error_"))
    return kind(getattr(value, "value", kind.__doc__))
