"""Operations on counters and on binary documents."""

from .binary import BinaryCollection

__all__ = ["BinaryCollection"]
