"""Which mutations a query or scan has to see."""

from ..mutation_state import *  # noqa: F403
