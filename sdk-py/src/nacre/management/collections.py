"""Management of scopes and collections."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from .._http import HttpResponse
from .._instruments import watched
from .._record import dataclass
from ..exceptions import (
    BucketAlreadyExistsException,
    BucketNotFoundException,
    CollectionAlreadyExistsException,
    CollectionNotFoundException,
    InvalidArgumentException,
    ScopeAlreadyExistsException,
    ScopeNotFoundException,
)
from ..options import TimeoutOptions, options_of
from ._base import Manager, read, require_success
from .buckets import bucket_path

if TYPE_CHECKING:
    from ..cluster import Cluster


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """A collection of a scope."""

    name: str
    scope_name: str = "_default"
    max_expiry: timedelta | None = None
    """Longest life of its documents; None if the collection sets no limit."""
    history: bool | None = None
    """Whether old versions are kept."""

    @property
    def max_ttl(self) -> timedelta | None:
        """Equivalent to ``max_expiry``."""
        return self.max_expiry


@dataclass(frozen=True, slots=True)
class ScopeSpec:
    """A scope with its collections."""

    name: str
    collections: tuple[CollectionSpec, ...]


@dataclass(frozen=True, slots=True)
class CreateCollectionSettings:
    """Settings of a new collection."""

    max_expiry: timedelta | None = None
    """Longest life of its documents; a second less than none means that they never expire."""
    history: bool | None = None


UpdateCollectionSettings = CreateCollectionSettings


@watched
class CollectionManager(Manager):
    """Manages the scopes and collections of a bucket."""

    def __init__(self, cluster: "Cluster", bucket_name: str) -> None:
        super().__init__(cluster)
        self._path = f"{bucket_path(bucket_name)}/scopes"

    async def create_scope(
        self,
        scope_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates a scope.

        Raises:
            ScopeAlreadyExistsException: if it exists already.
        """
        merged = options_of("create_scope", TimeoutOptions, options, kwargs)
        _require_outcome(await self._send("POST", self._path, merged, {"name": scope_name}))

    async def drop_scope(
        self,
        scope_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Drops a scope and everything in it.

        Raises:
            ScopeNotFoundException: if it does not exist.
        """
        merged = options_of("drop_scope", TimeoutOptions, options, kwargs)
        path = f"{self._path}/{quote(scope_name, safe='')}"
        _require_outcome(await self._send("DELETE", path, merged))

    async def get_all_scopes(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[ScopeSpec]:
        """Returns all scopes of the bucket, with their collections."""
        merged = options_of("get_all_scopes", TimeoutOptions, options, kwargs)
        response = await self._send("GET", self._path, merged)
        return read(response, lambda manifest: [_scope(scope) for scope in manifest["scopes"]])

    async def create_collection(
        self,
        scope_name: str | CollectionSpec,
        collection_name: str | None = None,
        settings: CreateCollectionSettings | None = None,
        options: TimeoutOptions | None = None,
        *,
        max_expiry: timedelta | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates a collection, given by its names or as a `CollectionSpec`.

        ``max_expiry``, also in the settings, is the maximum time to live of its documents.

        Raises:
            CollectionAlreadyExistsException: if it exists already.
            ScopeNotFoundException: if the scope does not exist.
        """
        merged = options_of("create_collection", TimeoutOptions, options, kwargs)
        scope, name, given = _named(scope_name, collection_name)
        chosen = settings or given
        expiry = max_expiry if chosen.max_expiry is None else chosen.max_expiry
        fields = {"name": name, **_fields(CreateCollectionSettings(expiry, chosen.history))}
        path = f"{self._path}/{quote(scope, safe='')}/collections"
        _require_outcome(await self._send("POST", path, merged, fields))

    async def update_collection(
        self,
        scope_name: str,
        collection_name: str,
        settings: UpdateCollectionSettings,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Changes the settings of a collection; None keeps the present value.

        Raises:
            CollectionNotFoundException, ScopeNotFoundException: if it does not exist.
        """
        merged = options_of("update_collection", TimeoutOptions, options, kwargs)
        path = self._collection_path(scope_name, collection_name)
        _require_outcome(await self._send("PATCH", path, merged, _fields(settings)))

    async def drop_collection(
        self,
        scope_name: str | CollectionSpec,
        collection_name: str | None = None,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Drops a collection and everything in it.

        Raises:
            CollectionNotFoundException, ScopeNotFoundException: if it does not exist.
        """
        merged = options_of("drop_collection", TimeoutOptions, options, kwargs)
        scope, name, _ = _named(scope_name, collection_name)
        _require_outcome(await self._send("DELETE", self._collection_path(scope, name), merged))

    def _collection_path(self, scope_name: str, collection_name: str) -> str:
        scope, collection = quote(scope_name, safe=""), quote(collection_name, safe="")
        return f"{self._path}/{scope}/collections/{collection}"


def _named(
    scope: str | CollectionSpec, collection: str | None
) -> tuple[str, str, CreateCollectionSettings]:
    if isinstance(scope, CollectionSpec):
        given = CreateCollectionSettings(scope.max_expiry, scope.history)
        return scope.scope_name, scope.name, given
    if not collection:
        raise InvalidArgumentException("a collection has a name")
    return scope, collection, CreateCollectionSettings()


def _fields(settings: CreateCollectionSettings) -> dict[str, object]:
    expiry = settings.max_expiry
    history = settings.history
    return {
        "maxTTL": None if expiry is None else int(expiry.total_seconds()),
        "history": None if history is None else str(history).lower(),
    }


def _require_outcome(response: HttpResponse) -> None:
    """Raises the exception for a refusal about scopes and collections, according to its text."""
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
    require_success(response)


def _scope(scope: dict[str, Any]) -> ScopeSpec:
    name = scope["name"]
    return ScopeSpec(
        name,
        tuple(
            CollectionSpec(
                collection["name"],
                name,
                timedelta(seconds=collection["maxTTL"]) if collection.get("maxTTL") else None,
                collection.get("history"),
            )
            for collection in scope["collections"]
        ),
    )
