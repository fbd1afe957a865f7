"""Counters, and documents that are plain bytes."""

from . import BinaryCollection

__all__ = [
    "BinaryCollection",
]
