"""Managing a cluster: a module for each kind of thing."""

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
