"""Client for nacre and other servers that speak Couchbase's wire protocols.

    async with await nacre.connect("couchbase://127.0.0.1", "Administrator", "password") as cluster:
        collection = cluster.bucket("default").default_collection()
        await collection.upsert("greeting", {"text": "hello"})

The same without ``await`` is in `nacre.sync`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .auth import CertificateAuthenticator, PasswordAuthenticator, TokenAuthenticator
from .binary import BinaryCollection
from .bucket import Bucket, Scope
from .cluster import Cluster, connect
from .collection import Collection
from .durability import (
    ClientDurability,
    Durability,
    DurabilityLevel,
    PersistTo,
    ReplicateTo,
    ServerDurability,
)
from .exceptions import CouchbaseException, ErrorContext
from .options import ClusterOptions, ClusterTimeoutOptions, StoreSemantics
from .result import (
    CounterResult,
    ExistsResult,
    GetResult,
    LookupInResult,
    MutateInResult,
    MutationResult,
    MutationToken,
)
from .transcoder import JSONTranscoder, RawBinaryTranscoder, RawStringTranscoder

if TYPE_CHECKING:
    from ._device_sync import DeviceSync
    from .views import ViewOptions, ViewResult, ViewRow, ViewScanConsistency

# Names whose modules a client of keys and values does without, by module.
_LATER = {
    "_device_sync": ("DeviceSync",),
    "views": ("ViewOptions", "ViewResult", "ViewRow", "ViewScanConsistency"),
}


def __getattr__(name: str) -> object:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BinaryCollection",
    "Bucket",
    "CertificateAuthenticator",
    "ClientDurability",
    "Cluster",
    "ClusterOptions",
    "ClusterTimeoutOptions",
    "Collection",
    "CouchbaseException",
    "CounterResult",
    "DeviceSync",
    "Durability",
    "DurabilityLevel",
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
    "ServerDurability",
    "StoreSemantics",
    "TokenAuthenticator",
    "ViewOptions",
    "ViewResult",
    "ViewRow",
    "ViewScanConsistency",
    "connect",
]
