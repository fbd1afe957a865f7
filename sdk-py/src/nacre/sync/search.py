"""Search: queries, facets, sort orders, and results."""

from ..search import *  # noqa: F403
