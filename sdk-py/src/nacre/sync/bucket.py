"""A bucket."""

from . import Bucket

__all__ = [
    "Bucket",
]
