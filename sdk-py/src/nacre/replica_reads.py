"""Which copies of a document may be read."""

from .options import ReadPreference

__all__ = ["ReadPreference"]
