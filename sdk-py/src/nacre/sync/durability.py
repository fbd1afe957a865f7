"""Durability that a change must reach before the operation returns."""

from ..durability import *  # noqa: F403
