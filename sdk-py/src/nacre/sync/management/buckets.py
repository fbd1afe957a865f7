"""Buckets."""

from ...management.buckets import (
    BucketDescribeResult,
    BucketSettings,
    BucketType,
    CompressionMode,
    ConflictResolutionType,
    CreateBucketSettings,
    EvictionPolicyType,
    StorageBackend,
)
from .. import BucketManager

__all__ = [
    "BucketDescribeResult",
    "BucketManager",
    "BucketSettings",
    "BucketType",
    "CompressionMode",
    "ConflictResolutionType",
    "CreateBucketSettings",
    "EvictionPolicyType",
    "StorageBackend",
]
