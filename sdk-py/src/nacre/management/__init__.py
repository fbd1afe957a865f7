"""Management of a cluster, with one module for each kind of object."""

from .buckets import BucketManager, BucketSettings, BucketType, CreateBucketSettings
from .collections import CollectionManager, CollectionSpec, ScopeSpec

__all__ = [
    "BucketManager",
    "BucketSettings",
    "BucketType",
    "CollectionManager",
    "CollectionSpec",
    "CreateBucketSettings",
    "ScopeSpec",
]
