"""Documents of one collection, and its scope."""

from . import Collection, Scope

__all__ = ["Collection", "Scope"]
