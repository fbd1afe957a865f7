"""Management of query indexes."""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Unpack

from .._instruments import Labels, watched
from .._record import dataclass
from .._statements import quoted
from ..exceptions import (
    InvalidArgumentException,
    QueryIndexAlreadyExistsException,
    QueryIndexNotFoundException,
    WatchQueryIndexTimeoutException,
)
from ..options import QueryOptions, TimeoutOptions, options_of

if TYPE_CHECKING:
    from ..cluster import Cluster

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_PRIMARY = "#primary"
_PAUSE_FIRST, _PAUSE_MAX = 0.05, 1.0


class KeyspaceOptions(TimeoutOptions, total=False):
    """Options that name a collection of the bucket."""

    scope_name: str
    collection_name: str


class CreateQueryIndexOptions(KeyspaceOptions, total=False):
    """Options of ``create_index``."""

    ignore_if_exists: bool
    deferred: bool
    num_replicas: int
    condition: str


class CreatePrimaryQueryIndexOptions(KeyspaceOptions, total=False):
    """Options of ``create_primary_index``."""

    index_name: str
    ignore_if_exists: bool
    deferred: bool
    num_replicas: int


class DropQueryIndexOptions(KeyspaceOptions, total=False):
    """Options of ``drop_index``."""

    ignore_if_not_exists: bool


class DropPrimaryQueryIndexOptions(KeyspaceOptions, total=False):
    """Options of ``drop_primary_index``."""

    index_name: str
    ignore_if_not_exists: bool


class WatchQueryIndexOptions(KeyspaceOptions, total=False):
    """Options of ``watch_indexes``."""

    watch_primary: bool


GetAllQueryIndexOptions = BuildDeferredQueryIndexOptions = KeyspaceOptions


@dataclass(frozen=True, slots=True)
class QueryIndex:
    """An index."""

    name: str
    is_primary: bool
    type: str
    state: str
    namespace: str
    datastore_id: str
    keyspace: str
    index_key: list[str] = field(default_factory=list)
    condition: str | None = None
    bucket_name: str | None = None
    scope_name: str | None = None
    collection_name: str | None = None
    partition: str | None = None

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "QueryIndex":
        """Parses an index from the catalog."""
        bucket = members.get("bucket_id")
        return cls(
            members["name"],
            bool(members.get("is_primary", False)),
            members.get("using", "gsi"),
            members.get("state", ""),
            members.get("namespace_id", "default"),
            members.get("datastore_id", ""),
            members.get("keyspace_id", ""),
            list(members.get("index_key") or ()),
            members.get("condition"),
            bucket or members.get("keyspace_id"),
            members.get("scope_id") if bucket else None,
            members.get("keyspace_id") if bucket else None,
            members.get("partition"),
        )


@watched
class QueryIndexManager:
    """Manages the query indexes of a cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._instruments = cluster.http.instruments

    def _labels(self) -> Labels:
        """Returns the labels of an operation."""
        return Labels("query")

    async def create_index(
        self,
        bucket_name: str,
        index_name: str,
        keys: Sequence[str],
        options: CreateQueryIndexOptions | None = None,
        **kwargs: Unpack[CreateQueryIndexOptions],
    ) -> None:
        """Creates an index on paths or expressions.

        With ``deferred``, `build_deferred_indexes` builds it later.

        Raises:
            QueryIndexAlreadyExistsException: if it exists already.
        """
        merged = options_of("create_index", CreateQueryIndexOptions, options, kwargs)
        if isinstance(keys, str) or not keys:
            raise InvalidArgumentException("the keys of an index are a list of expressions")
        parts = ", ".join(quoted(key) if _PLAIN_NAME.fullmatch(key) else key for key in keys)
        where = f" WHERE {merged['condition']}" if merged.get("condition") else ""
        statement = (
            f"CREATE INDEX {quoted(index_name)} ON {_keyspace(bucket_name, merged)}({parts})"
            f"{where}{_with(merged)}"
        )
        await self._create(statement, merged)

    async def create_primary_index(
        self,
        bucket_name: str,
        options: CreatePrimaryQueryIndexOptions | None = None,
        **kwargs: Unpack[CreatePrimaryQueryIndexOptions],
    ) -> None:
        """Creates a primary index.

        Raises:
            QueryIndexAlreadyExistsException: if it exists already.
        """
        merged = options_of("create_primary_index", CreatePrimaryQueryIndexOptions, options, kwargs)
        name = f" {quoted(merged['index_name'])}" if merged.get("index_name") else ""
        keyspace = _keyspace(bucket_name, merged)
        await self._create(f"CREATE PRIMARY INDEX{name} ON {keyspace}{_with(merged)}", merged)

    async def drop_index(
        self,
        bucket_name: str,
        index_name: str,
        options: DropQueryIndexOptions | None = None,
        **kwargs: Unpack[DropQueryIndexOptions],
    ) -> None:
        """Drops an index.

        Raises:
            QueryIndexNotFoundException: if it does not exist.
        """
        merged = options_of("drop_index", DropQueryIndexOptions, options, kwargs)
        statement = f"DROP INDEX {quoted(index_name)} ON {_keyspace(bucket_name, merged)}"
        await self._drop(statement, merged, merged.get("ignore_if_not_exists", False))

    async def drop_primary_index(
        self,
        bucket_name: str,
        options: DropPrimaryQueryIndexOptions | None = None,
        **kwargs: Unpack[DropPrimaryQueryIndexOptions],
    ) -> None:
        """Drops a primary index.

        Raises:
            QueryIndexNotFoundException: if it does not exist.
        """
        merged = options_of("drop_primary_index", DropPrimaryQueryIndexOptions, options, kwargs)
        keyspace = _keyspace(bucket_name, merged)
        name = merged.get("index_name")
        statement = (
            f"DROP INDEX {quoted(name)} ON {keyspace}"
            if name
            else f"DROP PRIMARY INDEX ON {keyspace}"
        )
        await self._drop(statement, merged, merged.get("ignore_if_not_exists", False))

    async def get_all_indexes(
        self,
        bucket_name: str,
        options: KeyspaceOptions | None = None,
        **kwargs: Unpack[KeyspaceOptions],
    ) -> list[QueryIndex]:
        """Returns all indexes of a bucket, or of a scope or collection in it."""
        merged = options_of("get_all_indexes", KeyspaceOptions, options, kwargs)
        scope, collection = merged.get("scope_name"), merged.get("collection_name")
        where = "idx.bucket_id = $bucket"
        if scope:
            where += " AND idx.scope_id = $scope"
        if collection:
            where += " AND idx.keyspace_id = $collection"
        if (scope or "_default") == "_default" and (collection or "_default") == "_default":
            where = f"({where}) OR (idx.bucket_id IS MISSING AND idx.keyspace_id = $bucket)"
        statement = (
            f"SELECT idx.* FROM system:indexes AS idx WHERE ({where}) AND idx.`using` = 'gsi' "
            "ORDER BY idx.is_primary DESC, idx.name ASC"
        )
        named = {"bucket": bucket_name, "scope": scope, "collection": collection}
        used = {name: value for name, value in named.items() if value}
        rows = await self._query(statement, merged, read_only=True, named_parameters=used)
        return [QueryIndex.from_server(row) for row in rows]

    async def build_deferred_indexes(
        self,
        bucket_name: str,
        options: KeyspaceOptions | None = None,
        **kwargs: Unpack[KeyspaceOptions],
    ) -> None:
        """Starts to build all deferred indexes."""
        merged = options_of("build_deferred_indexes", KeyspaceOptions, options, kwargs)
        for keyspace, names in (await self._deferred(bucket_name, merged)).items():
            listed = ", ".join(map(quoted, names))
            await self._query(f"BUILD INDEX ON {keyspace} ({listed})", merged)

    async def _deferred(self, bucket_name: str, options: KeyspaceOptions) -> dict[str, list[str]]:
        """Returns the names of deferred indexes, by keyspace."""
        found: dict[str, list[str]] = {}
        place = KeyspaceOptions(
            scope_name=options.get("scope_name", "_default"),
            collection_name=options.get("collection_name", "_default"),
        )
        if "timeout" in options:
            place["timeout"] = options["timeout"]
        for index in await self.get_all_indexes(bucket_name, place):
            if index.state == "deferred":
                found.setdefault(_keyspace(bucket_name, options), []).append(index.name)
        return found

    async def watch_indexes(
        self,
        bucket_name: str,
        index_names: Iterable[str],
        options: WatchQueryIndexOptions | None = None,
        **kwargs: Unpack[WatchQueryIndexOptions],
    ) -> None:
        """Returns when all these indexes are online.

        Raises:
            QueryIndexNotFoundException: if an index does not exist.
            WatchQueryIndexTimeoutException: if they are not online in time.
        """
        merged = options_of("watch_indexes", WatchQueryIndexOptions, options, kwargs)
        wanted = set(index_names) | ({_PRIMARY} if merged.get("watch_primary") else set())
        if "timeout" not in merged:
            raise InvalidArgumentException("watching indexes needs a timeout")
        place = KeyspaceOptions(timeout=merged["timeout"])
        if "scope_name" in merged:
            place["scope_name"] = merged["scope_name"]
        if "collection_name" in merged:
            place["collection_name"] = merged["collection_name"]
        pause = _PAUSE_FIRST
        try:
            async with asyncio.timeout(merged["timeout"].total_seconds()):
                while True:
                    indexes = await self.get_all_indexes(bucket_name, place)
                    if missing := wanted - {index.name for index in indexes}:
                        raise QueryIndexNotFoundException(
                            f"there is no index {', '.join(sorted(missing))}"
                        )
                    states = {index.state for index in indexes if index.name in wanted}
                    if states <= {"online"}:
                        return
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _PAUSE_MAX)
        except TimeoutError:
            raise WatchQueryIndexTimeoutException(
                f"not all of {', '.join(sorted(wanted))} are online"
            ) from None

    async def _create(
        self, statement: str, options: CreateQueryIndexOptions | CreatePrimaryQueryIndexOptions
    ) -> None:
        try:
            await self._query(statement, options)
        except QueryIndexAlreadyExistsException:
            if not options.get("ignore_if_exists"):
                raise

    async def _drop(self, statement: str, options: KeyspaceOptions, ignores: bool) -> None:
        try:
            await self._query(statement, options)
        except QueryIndexNotFoundException:
            if not ignores:
                raise

    async def _query(
        self, statement: str, options: TimeoutOptions, **kwargs: Unpack[QueryOptions]
    ) -> list[Any]:
        kwargs["timeout"] = options.get("timeout", self._cluster.timeouts.management_timeout)
        return await self._cluster.query(statement, kwargs).execute()


class CollectionQueryIndexManager:
    """Manages the query indexes of a collection."""

    def __init__(self, cluster: "Cluster", bucket: str, scope: str, collection: str) -> None:
        self._manager = QueryIndexManager(cluster)
        self._bucket = bucket
        self._scope = scope
        self._collection = collection

    async def create_index(
        self,
        index_name: str,
        keys: Sequence[str],
        options: CreateQueryIndexOptions | None = None,
        **kwargs: Unpack[CreateQueryIndexOptions],
    ) -> None:
        """Creates an index on paths or expressions.

        Raises:
            QueryIndexAlreadyExistsException: if it exists already.
        """
        merged = options_of("create_index", CreateQueryIndexOptions, options, kwargs)
        await self._manager.create_index(self._bucket, index_name, keys, merged, **self._place())

    async def create_primary_index(
        self,
        options: CreatePrimaryQueryIndexOptions | None = None,
        **kwargs: Unpack[CreatePrimaryQueryIndexOptions],
    ) -> None:
        """Creates a primary index.

        Raises:
            QueryIndexAlreadyExistsException: if it exists already.
        """
        merged = options_of("create_primary_index", CreatePrimaryQueryIndexOptions, options, kwargs)
        await self._manager.create_primary_index(self._bucket, merged, **self._place())

    async def drop_index(
        self,
        index_name: str,
        options: DropQueryIndexOptions | None = None,
        **kwargs: Unpack[DropQueryIndexOptions],
    ) -> None:
        """Drops an index.

        Raises:
            QueryIndexNotFoundException: if it does not exist.
        """
        merged = options_of("drop_index", DropQueryIndexOptions, options, kwargs)
        await self._manager.drop_index(self._bucket, index_name, merged, **self._place())

    async def drop_primary_index(
        self,
        options: DropPrimaryQueryIndexOptions | None = None,
        **kwargs: Unpack[DropPrimaryQueryIndexOptions],
    ) -> None:
        """Drops a primary index.

        Raises:
            QueryIndexNotFoundException: if it does not exist.
        """
        merged = options_of("drop_primary_index", DropPrimaryQueryIndexOptions, options, kwargs)
        await self._manager.drop_primary_index(self._bucket, merged, **self._place())

    async def get_all_indexes(
        self, options: KeyspaceOptions | None = None, **kwargs: Unpack[KeyspaceOptions]
    ) -> list[QueryIndex]:
        """Returns all indexes of the collection."""
        merged = options_of("get_all_indexes", KeyspaceOptions, options, kwargs)
        return await self._manager.get_all_indexes(self._bucket, merged, **self._place())

    async def build_deferred_indexes(
        self, options: KeyspaceOptions | None = None, **kwargs: Unpack[KeyspaceOptions]
    ) -> None:
        """Starts to build all deferred indexes."""
        merged = options_of("build_deferred_indexes", KeyspaceOptions, options, kwargs)
        await self._manager.build_deferred_indexes(self._bucket, merged, **self._place())

    async def watch_indexes(
        self,
        index_names: Iterable[str],
        options: WatchQueryIndexOptions | None = None,
        **kwargs: Unpack[WatchQueryIndexOptions],
    ) -> None:
        """Returns when all these indexes are online.

        Raises:
            QueryIndexNotFoundException: if an index does not exist.
            WatchQueryIndexTimeoutException: if they are not online in time.
        """
        merged = options_of("watch_indexes", WatchQueryIndexOptions, options, kwargs)
        await self._manager.watch_indexes(self._bucket, index_names, merged, **self._place())

    def _place(self) -> KeyspaceOptions:
        return {"scope_name": self._scope, "collection_name": self._collection}


def _keyspace(bucket: str, options: KeyspaceOptions) -> str:
    scope, collection = options.get("scope_name"), options.get("collection_name")
    if scope is None and collection is None:
        return quoted(bucket)
    if scope is None or collection is None:
        raise InvalidArgumentException("a collection is named with its scope")
    return ".".join(map(quoted, (bucket, scope, collection)))


def _with(options: CreateQueryIndexOptions | CreatePrimaryQueryIndexOptions) -> str:
    settings: dict[str, object] = {}
    if options.get("deferred"):
        settings["defer_build"] = True
    if options.get("num_replicas") is not None:
        settings["num_replica"] = options["num_replicas"]
    return f" WITH {json.dumps(settings)}" if settings else ""
