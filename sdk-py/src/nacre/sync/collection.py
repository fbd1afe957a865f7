"""Documents of one collection."""

from . import Collection

__all__ = [
    "Collection",
]
