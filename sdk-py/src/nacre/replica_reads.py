"""The copies of a document that may be read."""

from .options import ReadPreference

__all__ = ["ReadPreference"]
