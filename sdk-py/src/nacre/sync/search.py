"""Search: queries, facets, the order of rows, and results."""

from ..search import *  # noqa: F403
