"""A scope of a bucket."""

from .bucket import Scope

__all__ = ["Scope"]
