"""A scope of a bucket."""

from . import Scope

__all__ = [
    "Scope",
]
