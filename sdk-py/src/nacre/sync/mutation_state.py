"""Mutations that queries and scans must reflect."""

from ..mutation_state import *  # noqa: F403
