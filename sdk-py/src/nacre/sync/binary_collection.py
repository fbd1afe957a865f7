"""Operations on counters and on binary documents."""

from . import BinaryCollection

__all__ = [
    "BinaryCollection",
]
