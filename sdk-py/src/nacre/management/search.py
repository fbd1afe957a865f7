"""Management of search indexes."""

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from .._http import HttpResponse
from .._instruments import watched
from .._record import dataclass
from ..exceptions import InvalidArgumentException, SearchIndexNotFoundException
from ..options import TimeoutOptions, options_of
from ._base import JsonManager, read, require_success

if TYPE_CHECKING:
    from ..cluster import Cluster


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """Definition of an index."""

    name: str
    source_type: str = "couchbase"
    idx_type: str = "fulltext-index"
    source_name: str | None = None
    uuid: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    source_uuid: str | None = None
    source_params: dict[str, Any] = field(default_factory=dict)
    plan_params: dict[str, Any] = field(default_factory=dict)

    def is_valid(self) -> bool:
        """Returns True if the definition has all required members."""
        return bool(self.name and self.idx_type and self.source_type)

    def as_dict(self) -> dict[str, Any]:
        """Returns the definition in the format of the service."""
        members: dict[str, Any] = {
            "name": self.name,
            "type": self.idx_type,
            "sourceType": self.source_type,
            "sourceName": self.source_name,
            "uuid": self.uuid,
            "sourceUUID": self.source_uuid,
            "params": self.params,
            "sourceParams": self.source_params,
            "planParams": self.plan_params,
        }
        return {name: value for name, value in members.items() if value}

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "SearchIndex":
        """Parses a definition from the service."""
        return cls(
            members["name"],
            members.get("sourceType", "couchbase"),
            members.get("type", "fulltext-index"),
            members.get("sourceName"),
            members.get("uuid"),
            members.get("params") or {},
            members.get("sourceUUID"),
            members.get("sourceParams") or {},
            members.get("planParams") or {},
        )

    @classmethod
    def from_json(cls, text: str) -> "SearchIndex":
        """Parses an exported definition in JSON.

        Raises:
            InvalidArgumentException: if it cannot be parsed.
        """
        try:
            return cls.from_server(json.loads(text))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidArgumentException(f"the definition cannot be read: {error}") from None


@watched
class SearchIndexManager(JsonManager):
    """Manages search indexes. Without the service, all operations raise
    `ServiceUnavailableException`.

    Operations on a missing index raise `SearchIndexNotFoundException`.
    """

    _SERVICE = "fts"
    _ROOT = "/api"

    async def get_index(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> SearchIndex:
        """Returns the definition of an index."""
        merged = options_of("get_index", TimeoutOptions, options, kwargs)
        response = await self._send("GET", self._path(index_name), merged)
        _require(response)
        return read(response, lambda found: SearchIndex.from_server(found["indexDef"]))

    async def get_all_indexes(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[SearchIndex]:
        """Returns the definitions of all indexes."""
        merged = options_of("get_all_indexes", TimeoutOptions, options, kwargs)
        response = await self._send("GET", f"{self._ROOT}/index", merged)
        _require(response)
        return read(response, _definitions)

    async def upsert_index(
        self,
        index: SearchIndex,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates an index, or replaces the one with the definition's ``uuid``."""
        merged = options_of("upsert_index", TimeoutOptions, options, kwargs)
        _require(await self._send("PUT", self._path(index.name), merged, index.as_dict()))

    async def drop_index(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Drops an index."""
        merged = options_of("drop_index", TimeoutOptions, options, kwargs)
        _require(await self._send("DELETE", self._path(index_name), merged))

    async def get_indexed_documents_count(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> int:
        """Returns the number of documents in an index."""
        merged = options_of("get_indexed_documents_count", TimeoutOptions, options, kwargs)
        response = await self._send("GET", f"{self._path(index_name)}/count", merged)
        _require(response)
        return read(response, lambda found: int(found["count"]))

    async def get_index_stats(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> dict[str, Any]:
        """Returns the statistics of an index."""
        merged = options_of("get_index_stats", TimeoutOptions, options, kwargs)
        path = f"/api/stats/index/{quote(index_name, safe='')}"
        response = await self._send("GET", path, merged)
        _require(response)
        return read(response, dict)

    async def get_all_index_stats(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> dict[str, Any]:
        """Returns the statistics of all indexes."""
        merged = options_of("get_all_index_stats", TimeoutOptions, options, kwargs)
        response = await self._send("GET", "/api/nsstats", merged)
        _require(response)
        return read(response, dict)

    async def analyze_document(
        self,
        index_name: str,
        document: Any,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> dict[str, Any]:
        """Returns the fields and tokens that an index produces for a document."""
        merged = options_of("analyze_document", TimeoutOptions, options, kwargs)
        path = f"{self._path(index_name)}/analyzeDoc"
        response = await self._send("POST", path, merged, document)
        _require(response)
        return read(response, lambda found: {"analysis": found["analyzed"], **found})

    async def pause_ingest(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Pauses the ingest of documents."""
        merged = options_of("pause_ingest", TimeoutOptions, options, kwargs)
        await self._control(index_name, "ingestControl/pause", merged)

    async def resume_ingest(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Resumes the ingest of documents."""
        merged = options_of("resume_ingest", TimeoutOptions, options, kwargs)
        await self._control(index_name, "ingestControl/resume", merged)

    async def allow_querying(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Allows queries of an index."""
        merged = options_of("allow_querying", TimeoutOptions, options, kwargs)
        await self._control(index_name, "queryControl/allow", merged)

    async def disallow_querying(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Disallows queries of an index."""
        merged = options_of("disallow_querying", TimeoutOptions, options, kwargs)
        await self._control(index_name, "queryControl/disallow", merged)

    async def freeze_plan(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Freezes the placement of an index's partitions."""
        merged = options_of("freeze_plan", TimeoutOptions, options, kwargs)
        await self._control(index_name, "planFreezeControl/freeze", merged)

    async def unfreeze_plan(
        self,
        index_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Allows an index's partitions to move again."""
        merged = options_of("unfreeze_plan", TimeoutOptions, options, kwargs)
        await self._control(index_name, "planFreezeControl/unfreeze", merged)

    async def _control(self, index_name: str, what: str, options: TimeoutOptions) -> None:
        _require(await self._send("POST", f"{self._path(index_name)}/{what}", options))

    def _path(self, index_name: str) -> str:
        if not index_name:
            raise InvalidArgumentException("an index has a name")
        return f"{self._ROOT}/index/{quote(index_name, safe='')}"


class ScopeSearchIndexManager(SearchIndexManager):
    """Manages the search indexes of a scope."""

    def __init__(self, cluster: "Cluster", bucket: str, scope: str) -> None:
        super().__init__(cluster)
        self._ROOT = f"/api/bucket/{quote(bucket, safe='')}/scope/{quote(scope, safe='')}"


def _require(response: HttpResponse) -> None:
    text = response.text.lower()
    if response.status >= 400 and "index not found" in text:
        raise SearchIndexNotFoundException(response.text, response.context)
    require_success(response)


def _definitions(found: dict[str, Any]) -> list[SearchIndex]:
    definitions = found["indexDefs"]
    indexes = definitions["indexDefs"] if definitions else {}
    return [SearchIndex.from_server(index) for index in indexes.values()]
