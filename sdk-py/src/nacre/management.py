"""Buckets, scopes and collections: create, drop, list."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import quote

from ._http import HttpRequest, HttpResponse, form
from .exceptions import (
    BucketAlreadyExistsException,
    BucketNotFoundException,
    CollectionAlreadyExistsException,
    CollectionNotFoundException,
    CouchbaseException,
    DecodingFailureException,
    InvalidArgumentException,
    ScopeAlreadyExistsException,
    ScopeNotFoundException,
)
from .options import TimeoutOptions, options_of, seconds_of

if TYPE_CHECKING:
    from .cluster import Cluster

_FORM = "application/x-www-form-urlencoded"
T = TypeVar("T")


class BucketType(Enum):
    """Where a bucket keeps its documents."""

    COUCHBASE = "membase"
    """In memory and on disk."""
    EPHEMERAL = "ephemeral"
    """In memory only."""


@dataclass(frozen=True, slots=True)
class CreateBucketSettings:
    """What a new bucket is like; None leaves the choice to the server."""

    name: str
    ram_quota_mb: int = 100
    bucket_type: BucketType = BucketType.COUCHBASE
    num_replicas: int | None = None
    flush_enabled: bool | None = None
    max_expiry: timedelta | None = None


@dataclass(frozen=True, slots=True)
class BucketSettings:
    """What a bucket is like."""

    name: str
    bucket_type: BucketType
    ram_quota_mb: int | None
    num_replicas: int | None
    raw: dict[str, Any] = field(repr=False, default_factory=dict)
    """All that the server says about it."""


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """A collection of a scope."""

    name: str
    scope_name: str
    max_expiry: timedelta | None = None
    """Longest life of its documents; None if the collection sets no limit."""


@dataclass(frozen=True, slots=True)
class ScopeSpec:
    """A scope with its collections."""

    name: str
    collections: tuple[CollectionSpec, ...]


class _Manager:
    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    async def _send(
        self,
        method: str,
        path: str,
        options: TimeoutOptions,
        fields: dict[str, object] | None = None,
    ) -> HttpResponse:
        timeout = seconds_of(options.get("timeout"), self._cluster.timeouts.management_timeout)
        request = HttpRequest(method, path, form(fields or {}), _FORM, reads=method == "GET")
        return await self._cluster.http_management(request, timeout)


class BucketManager(_Manager):
    """Buckets of a cluster."""

    async def create_bucket(
        self, settings: CreateBucketSettings, **kwargs: Unpack[TimeoutOptions]
    ) -> None:
        """Creates a bucket.

        Raises:
            BucketAlreadyExistsException: there is one of this name.
        """
        options = options_of("create_bucket", TimeoutOptions, kwargs)
        fields: dict[str, object] = {
            "name": settings.name,
            "ramQuotaMB": settings.ram_quota_mb,
            "bucketType": settings.bucket_type.value,
            "replicaNumber": settings.num_replicas,
            "flushEnabled": settings.flush_enabled,
            "maxTTL": settings.max_expiry and int(settings.max_expiry.total_seconds()),
        }
        response = await self._send("POST", "/pools/default/buckets", options, fields)
        if "already exists" in response.text.lower():
            raise BucketAlreadyExistsException(response.text, response.context)
        _require_success(response)

    async def drop_bucket(self, bucket_name: str, **kwargs: Unpack[TimeoutOptions]) -> None:
        """Drops a bucket and everything in it.

        Raises:
            BucketNotFoundException: there is none of this name.
        """
        options = options_of("drop_bucket", TimeoutOptions, kwargs)
        response = await self._send("DELETE", _bucket_path(bucket_name), options)
        if response.status == 404:
            raise BucketNotFoundException(response.text, response.context)
        _require_success(response)

    async def get_bucket(
        self, bucket_name: str, **kwargs: Unpack[TimeoutOptions]
    ) -> BucketSettings:
        """What a bucket is like.

        Raises:
            BucketNotFoundException: there is none of this name.
        """
        options = options_of("get_bucket", TimeoutOptions, kwargs)
        response = await self._send("GET", _bucket_path(bucket_name), options)
        if response.status == 404:
            raise BucketNotFoundException(response.text, response.context)
        return _read(response, _settings)

    async def get_all_buckets(self, **kwargs: Unpack[TimeoutOptions]) -> list[BucketSettings]:
        """All buckets that the user may see."""
        options = options_of("get_all_buckets", TimeoutOptions, kwargs)
        response = await self._send("GET", "/pools/default/buckets", options)
        return _read(response, lambda buckets: [_settings(bucket) for bucket in buckets])


class CollectionManager(_Manager):
    """Scopes and collections of a bucket."""

    def __init__(self, cluster: "Cluster", bucket_name: str) -> None:
        super().__init__(cluster)
        self._path = f"{_bucket_path(bucket_name)}/scopes"

    async def create_scope(self, scope_name: str, **kwargs: Unpack[TimeoutOptions]) -> None:
        """Creates a scope.

        Raises:
            ScopeAlreadyExistsException: there is one of this name.
        """
        options = options_of("create_scope", TimeoutOptions, kwargs)
        _require_outcome(await self._send("POST", self._path, options, {"name": scope_name}))

    async def drop_scope(self, scope_name: str, **kwargs: Unpack[TimeoutOptions]) -> None:
        """Drops a scope and everything in it.

        Raises:
            ScopeNotFoundException: there is none of this name.
        """
        options = options_of("drop_scope", TimeoutOptions, kwargs)
        path = f"{self._path}/{quote(scope_name, safe='')}"
        _require_outcome(await self._send("DELETE", path, options))

    async def get_all_scopes(self, **kwargs: Unpack[TimeoutOptions]) -> list[ScopeSpec]:
        """All scopes of the bucket, with their collections."""
        options = options_of("get_all_scopes", TimeoutOptions, kwargs)
        response = await self._send("GET", self._path, options)
        return _read(response, lambda manifest: [_scope(scope) for scope in manifest["scopes"]])

    async def create_collection(
        self,
        scope_name: str,
        collection_name: str,
        max_expiry: timedelta | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates a collection, whose documents live for ``max_expiry`` at most.

        Raises:
            CollectionAlreadyExistsException: there is one of this name.
            ScopeNotFoundException: there is no such scope.
        """
        options = options_of("create_collection", TimeoutOptions, kwargs)
        seconds = None if max_expiry is None else int(max_expiry.total_seconds())
        path = f"{self._path}/{quote(scope_name, safe='')}/collections"
        fields: dict[str, object] = {"name": collection_name, "maxTTL": seconds}
        _require_outcome(await self._send("POST", path, options, fields))

    async def drop_collection(
        self, scope_name: str, collection_name: str, **kwargs: Unpack[TimeoutOptions]
    ) -> None:
        """Drops a collection and everything in it.

        Raises:
            CollectionNotFoundException, ScopeNotFoundException: there is none of this name.
        """
        options = options_of("drop_collection", TimeoutOptions, kwargs)
        scope, collection = quote(scope_name, safe=""), quote(collection_name, safe="")
        path = f"{self._path}/{scope}/collections/{collection}"
        _require_outcome(await self._send("DELETE", path, options))


def _bucket_path(name: str) -> str:
    if not name:
        raise InvalidArgumentException("a bucket has a name")
    return f"/pools/default/buckets/{quote(name, safe='')}"


def _require_outcome(response: HttpResponse) -> None:
    """Raises what a refusal about scopes and collections means; its text tells them apart."""
    text = response.text.lower()
    if response.status < 300:
        return
    subjects = (
        ("collection", CollectionNotFoundException, CollectionAlreadyExistsException),
        ("scope", ScopeNotFoundException, ScopeAlreadyExistsException),
        ("resource", BucketNotFoundException, BucketAlreadyExistsException),
    )
    for subject, missing, existing in subjects:
        if subject in text and ("not found" in text or "not_found" in text):
            raise missing(response.text, response.context)
        if subject in text and "already exists" in text:
            raise existing(response.text, response.context)
    _require_success(response)


def _require_success(response: HttpResponse) -> None:
    if response.status == 400:
        raise InvalidArgumentException(response.text, response.context)
    if response.status >= 300:
        raise CouchbaseException(response.text, response.context)


def _read(response: HttpResponse, read: Callable[[Any], T]) -> T:
    _require_success(response)
    try:
        return read(json.loads(response.body))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DecodingFailureException(
            f"the answer cannot be read: {error!r}", response.context
        ) from None


def _settings(bucket: dict[str, Any]) -> BucketSettings:
    quota = bucket.get("quota", {}).get("rawRAM")
    return BucketSettings(
        bucket["name"],
        BucketType(bucket["bucketType"]),
        None if quota is None else int(quota) // (1 << 20),
        bucket.get("replicaNumber"),
        bucket,
    )


def _scope(scope: dict[str, Any]) -> ScopeSpec:
    name = scope["name"]
    return ScopeSpec(
        name,
        tuple(
            CollectionSpec(
                collection["name"],
                name,
                timedelta(seconds=collection["maxTTL"]) if collection.get("maxTTL") else None,
            )
            for collection in scope["collections"]
        ),
    )
