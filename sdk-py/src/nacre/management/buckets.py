"""Management of buckets."""

from dataclasses import field
from datetime import timedelta
from enum import Enum
from typing import Any, Unpack
from urllib.parse import quote

from .._http import HttpResponse
from .._instruments import watched
from .._record import dataclass
from ..durability import DurabilityLevel
from ..exceptions import (
    BucketAlreadyExistsException,
    BucketDoesNotExistException,
    BucketNotFlushableException,
    InvalidArgumentException,
)
from ..options import TimeoutOptions, options_of
from ._base import Manager, read, require_success


class BucketType(Enum):
    """Type of a bucket, which determines where it stores documents."""

    COUCHBASE = "membase"
    """In memory and on disk."""
    EPHEMERAL = "ephemeral"
    """In memory only."""
    MEMCACHED = "memcached"
    UNKNOWN = "unknown"


class EvictionPolicyType(Enum):
    """Data that the server evicts when memory is full."""

    VALUE_ONLY = "valueOnly"
    FULL = "fullEviction"
    NOT_RECENTLY_USED = "nruEviction"
    NO_EVICTION = "noEviction"


class CompressionMode(Enum):
    """Compression of documents."""

    OFF = "off"
    PASSIVE = "passive"
    ACTIVE = "active"
    UNKNOWN = "unknown"


class ConflictResolutionType(Enum):
    """Conflict resolution between versions from different clusters."""

    SEQUENCE_NUMBER = "seqno"
    TIMESTAMP = "lww"
    CUSTOM = "custom"


class StorageBackend(Enum):
    """Storage backend of a bucket."""

    UNDEFINED = "undefined"
    COUCHSTORE = "couchstore"
    MAGMA = "magma"


_LEVELS = {
    "none": DurabilityLevel.NONE,
    "majority": DurabilityLevel.MAJORITY,
    "majorityAndPersistActive": DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE,
    "persistToMajority": DurabilityLevel.PERSIST_TO_MAJORITY,
}
_LEVEL_NAMES = {level: name for name, level in _LEVELS.items()}


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """Settings of a bucket; None means the default of the server."""

    name: str
    bucket_type: BucketType | None = None
    ram_quota_mb: int | None = None
    num_replicas: int | None = None
    raw: dict[str, Any] = field(repr=False, default_factory=dict)
    """All that the server says about it."""
    flush_enabled: bool | None = None
    replica_index: bool | None = None
    max_expiry: timedelta | None = None
    compression_mode: CompressionMode | None = None
    eviction_policy: EvictionPolicyType | None = None
    minimum_durability_level: DurabilityLevel | None = None
    storage_backend: StorageBackend | None = None
    num_vbuckets: int | None = None
    history_retention_collection_default: bool | None = None
    history_retention_bytes: int | None = None
    history_retention_duration: timedelta | None = None

    @property
    def max_ttl(self) -> int | None:
        """Returns the maximum time to live of documents, in seconds."""
        return None if self.max_expiry is None else int(self.max_expiry.total_seconds())


@dataclass(frozen=True, slots=True)
class CreateBucketSettings:
    """Settings of a new bucket; None means the default of the server."""

    name: str
    ram_quota_mb: int = 100
    bucket_type: BucketType = BucketType.COUCHBASE
    num_replicas: int | None = None
    flush_enabled: bool | None = None
    max_expiry: timedelta | None = None
    replica_index: bool | None = None
    compression_mode: CompressionMode | None = None
    eviction_policy: EvictionPolicyType | None = None
    minimum_durability_level: DurabilityLevel | None = None
    storage_backend: StorageBackend | None = None
    num_vbuckets: int | None = None
    history_retention_collection_default: bool | None = None
    history_retention_bytes: int | None = None
    history_retention_duration: timedelta | None = None
    conflict_resolution_type: ConflictResolutionType | None = None


@dataclass(frozen=True, slots=True)
class BucketDescribeResult:
    """The description of a bucket."""

    name: str
    uuid: str
    number_of_nodes: int
    number_of_replicas: int
    bucket_capabilities: list[str]
    storage_backend: str | None


@watched
class BucketManager(Manager):
    """Manages the buckets of a cluster."""

    async def create_bucket(
        self,
        settings: CreateBucketSettings,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates a bucket.

        Raises:
            BucketAlreadyExistsException: if it exists already.
        """
        merged = options_of("create_bucket", TimeoutOptions, options, kwargs)
        fields: dict[str, object] = {
            "name": settings.name,
            "bucketType": settings.bucket_type.value,
        }
        conflict = settings.conflict_resolution_type
        fields["conflictResolutionType"] = None if conflict is None else conflict.value
        response = await self._send(
            "POST", "/pools/default/buckets", merged, {**fields, **_fields(settings)}
        )
        if "already exists" in response.text.lower():
            raise BucketAlreadyExistsException(response.text, response.context)
        require_success(response)

    async def update_bucket(
        self,
        settings: BucketSettings,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Changes the settings of a bucket; None keeps the present value.

        Raises:
            BucketDoesNotExistException: if it does not exist.
        """
        merged = options_of("update_bucket", TimeoutOptions, options, kwargs)
        fields = _fields(settings)
        response = await self._send("POST", bucket_path(settings.name), merged, fields)
        _require_bucket(response)
        require_success(response)

    async def drop_bucket(
        self,
        bucket_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Drops a bucket and everything in it.

        Raises:
            BucketDoesNotExistException: if it does not exist.
        """
        merged = options_of("drop_bucket", TimeoutOptions, options, kwargs)
        response = await self._send("DELETE", bucket_path(bucket_name), merged)
        _require_bucket(response)
        require_success(response)

    async def flush_bucket(
        self,
        bucket_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Removes all documents of a bucket.

        Raises:
            BucketDoesNotExistException: if it does not exist.
            BucketNotFlushableException: if its settings forbid it.
        """
        merged = options_of("flush_bucket", TimeoutOptions, options, kwargs)
        path = f"{bucket_path(bucket_name)}/controller/doFlush"
        response = await self._send("POST", path, merged)
        _require_bucket(response)
        if response.status == 400 and "flush is disabled" in response.text.lower():
            raise BucketNotFlushableException(response.text, response.context)
        require_success(response)

    async def get_bucket(
        self,
        bucket_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> BucketSettings:
        """Returns the settings of a bucket.

        Raises:
            BucketDoesNotExistException: if it does not exist.
        """
        merged = options_of("get_bucket", TimeoutOptions, options, kwargs)
        response = await self._send("GET", bucket_path(bucket_name), merged)
        _require_bucket(response)
        return read(response, _settings)

    async def get_all_buckets(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[BucketSettings]:
        """Returns all buckets that the user may see."""
        merged = options_of("get_all_buckets", TimeoutOptions, options, kwargs)
        response = await self._send("GET", "/pools/default/buckets", merged)
        return read(response, lambda buckets: [_settings(bucket) for bucket in buckets])

    async def bucket_describe(
        self,
        bucket_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> BucketDescribeResult:
        """Returns the description of a bucket: its nodes and capabilities.

        Raises:
            BucketDoesNotExistException: if it does not exist.
        """
        merged = options_of("bucket_describe", TimeoutOptions, options, kwargs)
        response = await self._send("GET", bucket_path(bucket_name), merged)
        _require_bucket(response)
        return read(response, _description)


def _require_bucket(response: HttpResponse) -> None:
    """Raises BucketDoesNotExistException if the bucket in the path does not exist."""
    if response.status == 404:
        raise BucketDoesNotExistException(response.text, response.context)


def bucket_path(name: str) -> str:
    """Returns the path of a bucket on the management service."""
    if not name:
        raise InvalidArgumentException("a bucket has a name")
    return f"/pools/default/buckets/{quote(name, safe='')}"


def _fields(settings: BucketSettings | CreateBucketSettings) -> dict[str, object]:
    level = settings.minimum_durability_level
    duration = settings.history_retention_duration
    chosen: dict[str, Enum | None] = {
        "compressionMode": settings.compression_mode,
        "evictionPolicy": settings.eviction_policy,
        "storageBackend": settings.storage_backend,
    }
    expiry = settings.max_expiry
    return {
        "ramQuotaMB": settings.ram_quota_mb,
        "replicaNumber": settings.num_replicas,
        "flushEnabled": settings.flush_enabled,
        "maxTTL": None if expiry is None else int(expiry.total_seconds()),
        "replicaIndex": settings.replica_index,
        "durabilityMinLevel": None if level is None else _LEVEL_NAMES[DurabilityLevel(level)],
        "numVBuckets": settings.num_vbuckets,
        "historyRetentionCollectionDefault": settings.history_retention_collection_default,
        "historyRetentionBytes": settings.history_retention_bytes,
        "historyRetentionSeconds": None if duration is None else int(duration.total_seconds()),
        **{name: None if value is None else value.value for name, value in chosen.items()},
    }


def _settings(bucket: dict[str, Any]) -> BucketSettings:
    quota = bucket.get("quota", {}).get("rawRAM")
    duration = bucket.get("historyRetentionSeconds")
    return BucketSettings(
        bucket["name"],
        _known(BucketType, bucket["bucketType"]) or BucketType.UNKNOWN,
        None if quota is None else int(quota) // (1 << 20),
        bucket.get("replicaNumber"),
        bucket,
        "flush" in bucket.get("controllers", {}),
        bucket.get("replicaIndex"),
        timedelta(seconds=bucket.get("maxTTL", 0)),
        _known(CompressionMode, bucket.get("compressionMode")),
        _known(EvictionPolicyType, bucket.get("evictionPolicy")),
        _LEVELS.get(bucket.get("durabilityMinLevel", "none")),
        _known(StorageBackend, bucket.get("storageBackend")),
        bucket.get("numVBuckets"),
        bucket.get("historyRetentionCollectionDefault"),
        bucket.get("historyRetentionBytes"),
        None if duration is None else timedelta(seconds=duration),
    )


def _known(kind: type[Any], value: object) -> Any:
    return kind(value) if value in kind._value2member_map_ else None


def _description(bucket: dict[str, Any]) -> BucketDescribeResult:
    return BucketDescribeResult(
        bucket["name"],
        bucket["uuid"],
        len(bucket["nodes"]),
        bucket.get("replicaNumber", 0),
        list(bucket.get("bucketCapabilities", ())),
        bucket.get("storageBackend"),
    )
