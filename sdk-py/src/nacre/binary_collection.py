"""Counters, and documents that are plain bytes."""

from .binary import BinaryCollection

__all__ = ["BinaryCollection"]
