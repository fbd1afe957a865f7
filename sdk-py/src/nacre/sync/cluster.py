"""The entry point: clusters."""

from ..n1ql import QueryMetaData, QueryProfile, QueryScanConsistency, QueryStatus
from ..options import ClusterOptions, ClusterTimeoutOptions, QueryOptions
from . import Cluster

__all__ = [
    "Cluster",
    "ClusterOptions",
    "ClusterTimeoutOptions",
    "QueryMetaData",
    "QueryOptions",
    "QueryProfile",
    "QueryScanConsistency",
    "QueryStatus",
]
