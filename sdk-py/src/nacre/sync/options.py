"""Options of the operations."""

from ..options import *  # noqa: F403
