"""Indexes for search."""

from ...management.search import (
    SearchIndex,
)
from .. import ScopeSearchIndexManager, SearchIndexManager

__all__ = [
    "ScopeSearchIndexManager",
    "SearchIndex",
    "SearchIndexManager",
]
