"""How safe a change must be before the operation answers."""

from ..durability import *  # noqa: F403
