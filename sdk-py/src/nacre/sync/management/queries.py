"""Indexes for queries."""

from ...management.queries import (
    BuildDeferredQueryIndexOptions,
    CreatePrimaryQueryIndexOptions,
    CreateQueryIndexOptions,
    DropPrimaryQueryIndexOptions,
    DropQueryIndexOptions,
    GetAllQueryIndexOptions,
    KeyspaceOptions,
    QueryIndex,
    WatchQueryIndexOptions,
)
from .. import CollectionQueryIndexManager, QueryIndexManager

__all__ = [
    "BuildDeferredQueryIndexOptions",
    "CollectionQueryIndexManager",
    "CreatePrimaryQueryIndexOptions",
    "CreateQueryIndexOptions",
    "DropPrimaryQueryIndexOptions",
    "DropQueryIndexOptions",
    "GetAllQueryIndexOptions",
    "KeyspaceOptions",
    "QueryIndex",
    "QueryIndexManager",
    "WatchQueryIndexOptions",
]
