"""Client for nacre and other servers that speak Couchbase's wire protocols.

    async with await nacre.connect("couchbase://127.0.0.1", "Administrator", "password") as cluster:
        collection = cluster.bucket("default").default_collection()
        await collection.upsert("greeting", {"text": "hello"})

The same without ``await`` is in `nacre.sync`.
"""

from .binary import BinaryCollection
from .bucket import Bucket, Scope
from .cluster import Cluster, connect
from .collection import Collection
from .exceptions import CouchbaseException, ErrorContext
from .options import (
    ClientDurability,
    ClusterOptions,
    ClusterTimeoutOptions,
    PasswordAuthenticator,
    PersistTo,
    ReplicateTo,
    StoreSemantics,
)
from .results import (
    CounterResult,
    ExistsResult,
    GetResult,
    LookupInResult,
    MutateInResult,
    MutationResult,
    MutationToken,
)
from .transcoder import JSONTranscoder, RawBinaryTranscoder, RawStringTranscoder
from .views import ViewOptions, ViewResult, ViewRow, ViewScanConsistency

__all__ = [
    "BinaryCollection",
    "Bucket",
    "ClientDurability",
    "Cluster",
    "ClusterOptions",
    "ClusterTimeoutOptions",
    "Collection",
    "CouchbaseException",
    "CounterResult",
    "ErrorContext",
    "ExistsResult",
    "GetResult",
    "JSONTranscoder",
    "LookupInResult",
    "MutateInResult",
    "MutationResult",
    "MutationToken",
    "PasswordAuthenticator",
    "PersistTo",
    "RawBinaryTranscoder",
    "RawStringTranscoder",
    "ReplicateTo",
    "Scope",
    "StoreSemantics",
    "ViewOptions",
    "ViewResult",
    "ViewRow",
    "ViewScanConsistency",
    "connect",
]
