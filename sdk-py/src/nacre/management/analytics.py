"""Management of analytics: dataverses, datasets, indexes and links.

A dataverse is an analytics scope, and a dataset is an analytics collection: a copy of a collection
that the service keeps up to date.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote, urlencode

from .._analytics_errors import refusal
from .._http import HttpRequest, HttpResponse
from .._instruments import watched
from .._record import dataclass
from .._statements import quoted
from ..exceptions import DecodingFailureException, InvalidArgumentException
from ..options import AnalyticsOptions, TimeoutOptions, options_of, seconds_of
from ._analytics_links import (
    LINK_KINDS,
    AnalyticsEncryptionLevel,
    AnalyticsLink,
    AnalyticsLinkType,
    AzureBlobExternalAnalyticsLink,
    CouchbaseAnalyticsEncryptionSettings,
    CouchbaseRemoteAnalyticsLink,
    S3ExternalAnalyticsLink,
)
from ._base import FORM, JsonManager, read

if TYPE_CHECKING:
    from ..cluster import Cluster

__all__ = [
    "AnalyticsDataType",
    "AnalyticsDataset",
    "AnalyticsEncryptionLevel",
    "AnalyticsIndex",
    "AnalyticsIndexManager",
    "AnalyticsLink",
    "AnalyticsLinkType",
    "AzureBlobExternalAnalyticsLink",
    "ConnectLinkOptions",
    "CouchbaseAnalyticsEncryptionSettings",
    "CouchbaseRemoteAnalyticsLink",
    "CreateAnalyticsIndexOptions",
    "CreateDatasetOptions",
    "CreateDataverseOptions",
    "CreateLinkAnalyticsOptions",
    "DisconnectLinkOptions",
    "DropAnalyticsIndexOptions",
    "DropDatasetOptions",
    "DropDataverseOptions",
    "DropLinkAnalyticsOptions",
    "GetAllAnalyticsIndexesOptions",
    "GetAllDatasetOptions",
    "GetLinksAnalyticsOptions",
    "ReplaceLinkAnalyticsOptions",
    "S3ExternalAnalyticsLink",
]

_DATAVERSE, _LINK = "Default", "Local"
"""Dataverse and link of requests that name none."""
_PATH = "/analytics/link"


class AnalyticsDataType(Enum):
    """Type of an index's field."""

    STRING = "string"
    INT64 = "int64"
    DOUBLE = "double"


class CreateDataverseOptions(TimeoutOptions, total=False):
    """Options of ``create_dataverse``."""

    ignore_if_exists: bool


class DropDataverseOptions(TimeoutOptions, total=False):
    """Options of ``drop_dataverse``."""

    ignore_if_not_exists: bool


class CreateDatasetOptions(TimeoutOptions, total=False):
    """Options of ``create_dataset``."""

    ignore_if_exists: bool
    condition: str
    """Expression that selects the documents of the dataset, as after ``WHERE``."""
    dataverse_name: str


class DropDatasetOptions(TimeoutOptions, total=False):
    """Options of ``drop_dataset``."""

    ignore_if_not_exists: bool
    dataverse_name: str


class CreateAnalyticsIndexOptions(TimeoutOptions, total=False):
    """Options of ``create_index``."""

    ignore_if_exists: bool
    dataverse_name: str


class DropAnalyticsIndexOptions(TimeoutOptions, total=False):
    """Options of ``drop_index``."""

    ignore_if_not_exists: bool
    dataverse_name: str


class DisconnectLinkOptions(TimeoutOptions, total=False):
    """Options of ``disconnect_link``."""

    dataverse_name: str
    link_name: str


class ConnectLinkOptions(DisconnectLinkOptions, total=False):
    """Options of ``connect_link``."""

    force: bool
    """The link connects although the bucket has been dropped and created again."""


class GetLinksAnalyticsOptions(TimeoutOptions, total=False):
    """Options of ``get_links``."""

    dataverse_name: str
    name: str
    link_type: AnalyticsLinkType


GetAllDatasetOptions = GetAllAnalyticsIndexesOptions = TimeoutOptions
CreateLinkAnalyticsOptions = ReplaceLinkAnalyticsOptions = TimeoutOptions
DropLinkAnalyticsOptions = TimeoutOptions


@dataclass(frozen=True, slots=True)
class AnalyticsDataset:
    """A dataset: the copy of a collection."""

    dataset_name: str
    dataverse_name: str
    link_name: str
    bucket_name: str

    @classmethod
    def from_server(cls, members: Mapping[str, Any]) -> "AnalyticsDataset":
        """Parses a dataset from the catalog."""
        return cls(
            members["DatasetName"],
            members["DataverseName"],
            members["LinkName"],
            members["BucketName"],
        )


@dataclass(frozen=True, slots=True)
class AnalyticsIndex:
    """An index of a dataset."""

    name: str
    dataset_name: str
    dataverse_name: str
    is_primary: bool

    @classmethod
    def from_server(cls, members: Mapping[str, Any]) -> "AnalyticsIndex":
        """Parses an index from the catalog."""
        return cls(
            members["IndexName"],
            members["DatasetName"],
            members["DataverseName"],
            bool(members["IsPrimary"]),
        )


@watched
class AnalyticsIndexManager(JsonManager):
    """Manages the dataverses, datasets, indexes and links of analytics. Without the service, all
    operations raise `ServiceUnavailableException`.

    The name of a dataverse has one part, or two parts with a slash: ``bucket/scope``. Where no
    dataverse is named, it is ``Default``.
    """

    _SERVICE = "cbas"

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(cluster)

    async def create_dataverse(
        self,
        dataverse_name: str,
        options: CreateDataverseOptions | None = None,
        **kwargs: Unpack[CreateDataverseOptions],
    ) -> None:
        """Creates a dataverse.

        Raises:
            DataverseAlreadyExistsException: if it exists already.
        """
        merged = options_of("create_dataverse", CreateDataverseOptions, options, kwargs)
        ignores = " IF NOT EXISTS" if merged.get("ignore_if_exists") else ""
        await self._run(f"CREATE DATAVERSE {_dataverse(dataverse_name)}{ignores}", merged)

    async def drop_dataverse(
        self,
        dataverse_name: str,
        options: DropDataverseOptions | None = None,
        **kwargs: Unpack[DropDataverseOptions],
    ) -> None:
        """Drops a dataverse and its datasets.

        Raises:
            DataverseNotFoundException: if it does not exist.
        """
        merged = options_of("drop_dataverse", DropDataverseOptions, options, kwargs)
        ignores = " IF EXISTS" if merged.get("ignore_if_not_exists") else ""
        await self._run(f"DROP DATAVERSE {_dataverse(dataverse_name)}{ignores}", merged)

    async def create_dataset(
        self,
        dataset_name: str,
        bucket_name: str,
        options: CreateDatasetOptions | None = None,
        **kwargs: Unpack[CreateDatasetOptions],
    ) -> None:
        """Creates a dataset, which follows the default collection of a bucket.

        For another collection, execute ``CREATE ANALYTICS COLLECTION …``.

        Raises:
            DatasetAlreadyExistsException: if it exists already.
            DataverseNotFoundException: if its dataverse does not exist.
        """
        merged = options_of("create_dataset", CreateDatasetOptions, options, kwargs)
        ignores = "IF NOT EXISTS " if merged.get("ignore_if_exists") else ""
        condition = merged.get("condition")
        where = f" WHERE {condition}" if condition else ""
        name = _within(merged.get("dataverse_name"), dataset_name)
        await self._run(f"CREATE DATASET {ignores}{name} ON {quoted(bucket_name)}{where}", merged)

    async def drop_dataset(
        self,
        dataset_name: str,
        options: DropDatasetOptions | None = None,
        **kwargs: Unpack[DropDatasetOptions],
    ) -> None:
        """Drops a dataset and its indexes.

        Raises:
            DatasetNotFoundException: if it does not exist.
        """
        merged = options_of("drop_dataset", DropDatasetOptions, options, kwargs)
        ignores = " IF EXISTS" if merged.get("ignore_if_not_exists") else ""
        name = _within(merged.get("dataverse_name"), dataset_name)
        await self._run(f"DROP DATASET {name}{ignores}", merged)

    async def get_all_datasets(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[AnalyticsDataset]:
        """Returns all datasets that follow collections."""
        merged = options_of("get_all_datasets", TimeoutOptions, options, kwargs)
        statement = (
            'SELECT d.* FROM Metadata.`Dataset` d WHERE d.DataverseName <> "Metadata" '
            'AND d.DatasetType = "INTERNAL"'
        )
        found = await self._run(statement, merged, reads=True)
        return [_parsed(AnalyticsDataset.from_server, row) for row in found]

    async def create_index(
        self,
        index_name: str,
        dataset_name: str,
        fields: Mapping[str, AnalyticsDataType],
        options: CreateAnalyticsIndexOptions | None = None,
        **kwargs: Unpack[CreateAnalyticsIndexOptions],
    ) -> None:
        """Creates an index on fields of a dataset, given by their paths and types.

        Raises:
            QueryIndexAlreadyExistsException: if it exists already.
            DatasetNotFoundException: if the dataset does not exist.
        """
        merged = options_of("create_index", CreateAnalyticsIndexOptions, options, kwargs)
        if not fields or not all(isinstance(kind, AnalyticsDataType) for kind in fields.values()):
            raise InvalidArgumentException("the fields of an index have an AnalyticsDataType each")
        ignores = " IF NOT EXISTS" if merged.get("ignore_if_exists") else ""
        keys = ",".join(f"{path}:{kind.value}" for path, kind in fields.items())
        dataset = _within(merged.get("dataverse_name"), dataset_name)
        await self._run(f"CREATE INDEX {quoted(index_name)}{ignores} ON {dataset} ({keys})", merged)

    async def drop_index(
        self,
        index_name: str,
        dataset_name: str,
        options: DropAnalyticsIndexOptions | None = None,
        **kwargs: Unpack[DropAnalyticsIndexOptions],
    ) -> None:
        """Drops an index of a dataset.

        Raises:
            QueryIndexNotFoundException: if it does not exist.
        """
        merged = options_of("drop_index", DropAnalyticsIndexOptions, options, kwargs)
        ignores = " IF EXISTS" if merged.get("ignore_if_not_exists") else ""
        dataset = _within(merged.get("dataverse_name"), dataset_name)
        await self._run(f"DROP INDEX {dataset}.{quoted(index_name)}{ignores}", merged)

    async def get_all_indexes(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[AnalyticsIndex]:
        """Returns all indexes; each dataset has a primary index."""
        merged = options_of("get_all_indexes", TimeoutOptions, options, kwargs)
        statement = 'SELECT d.* FROM Metadata.`Index` d WHERE d.DataverseName <> "Metadata"'
        found = await self._run(statement, merged, reads=True)
        return [_parsed(AnalyticsIndex.from_server, row) for row in found]

    async def connect_link(
        self, options: ConnectLinkOptions | None = None, **kwargs: Unpack[ConnectLinkOptions]
    ) -> None:
        """Connects a link, ``Local`` by default, so that its datasets follow their collections.

        Raises:
            AnalyticsLinkNotFoundException: if it does not exist.
        """
        merged = options_of("connect_link", ConnectLinkOptions, options, kwargs)
        force = ' WITH {"force": true}' if merged.get("force") else ""
        await self._run(f"CONNECT LINK {_link(merged)}{force}", merged)

    async def disconnect_link(
        self, options: DisconnectLinkOptions | None = None, **kwargs: Unpack[DisconnectLinkOptions]
    ) -> None:
        """Disconnects a link, ``Local`` by default. Its datasets remain as they are.

        Raises:
            AnalyticsLinkNotFoundException: if it does not exist.
        """
        merged = options_of("disconnect_link", DisconnectLinkOptions, options, kwargs)
        await self._run(f"DISCONNECT LINK {_link(merged)}", merged)

    async def get_pending_mutations(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> dict[str, int]:
        """Returns the numbers of mutations that datasets have not copied yet, by
        ``dataverse.dataset``.
        """
        merged = options_of("get_pending_mutations", TimeoutOptions, options, kwargs)
        response = await self._ask("GET", "/analytics/node/agg/stats/remaining", merged)
        return read(response, _pending)

    async def create_link(
        self,
        link: AnalyticsLink,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates a link to another cluster or store.

        Raises:
            AnalyticsLinkExistsException: if it exists already.
            DataverseNotFoundException: if its dataverse does not exist.
        """
        merged = options_of("create_link", TimeoutOptions, options, kwargs)
        link.validate()
        await self._ask("POST", _path(link.dataverse, link.link_name), merged, link.form_encode())

    async def replace_link(
        self,
        link: AnalyticsLink,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Replaces a link.

        Raises:
            AnalyticsLinkNotFoundException: if it does not exist.
        """
        merged = options_of("replace_link", TimeoutOptions, options, kwargs)
        link.validate()
        await self._ask("PUT", _path(link.dataverse, link.link_name), merged, link.form_encode())

    async def drop_link(
        self,
        link_name: str,
        dataverse_name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Drops a link.

        Raises:
            AnalyticsLinkNotFoundException: if it does not exist.
        """
        merged = options_of("drop_link", TimeoutOptions, options, kwargs)
        if not link_name or not dataverse_name:
            raise InvalidArgumentException("a link has a name and a dataverse")
        names = {"dataverse": dataverse_name, "name": link_name}
        body = b"" if "/" in dataverse_name else urlencode(names).encode()
        await self._ask("DELETE", _path(dataverse_name, link_name), merged, body)

    async def get_links(
        self,
        options: GetLinksAnalyticsOptions | None = None,
        **kwargs: Unpack[GetLinksAnalyticsOptions],
    ) -> list[AnalyticsLink]:
        """Returns the links to other clusters and stores: all of them, those of a dataverse, those
        of a kind, or one by its dataverse and name.
        """
        merged = options_of("get_links", GetLinksAnalyticsOptions, options, kwargs)
        dataverse, name = merged.get("dataverse_name"), merged.get("name")
        if name and not dataverse:
            raise InvalidArgumentException("a link is named with its dataverse")
        names = {} if "/" in (dataverse or "") else {"dataverse": dataverse, "name": name}
        kind = merged.get("link_type")
        query = {**names, "type": kind.value if kind else None}
        parameters = urlencode({key: value for key, value in query.items() if value})
        path = _path(dataverse or "", name) + (f"?{parameters}" if parameters else "")
        return read(await self._ask("GET", path, merged), _links)

    async def _run(self, statement: str, options: TimeoutOptions, reads: bool = False) -> list[Any]:
        """Returns the rows of a statement."""
        timeout = options.get("timeout", self._cluster.timeouts.management_timeout)
        given = AnalyticsOptions(timeout=timeout)
        if reads:
            given["read_only"] = True
        return await self._cluster.analytics_query(statement, given).execute()

    async def _ask(
        self, method: str, path: str, options: TimeoutOptions, body: bytes = b""
    ) -> HttpResponse:
        """Returns the response to a request that is not a statement.

        Raises:
            AnalyticsException: if the service refuses it.
        """
        timeout = seconds_of(options.get("timeout"), self._cluster.timeouts.management_timeout)
        request = HttpRequest(method, path, body, FORM, reads=method == "GET")
        response = await self._cluster.http_service(self._SERVICE, request, timeout)
        if response.status >= 300:
            raise refusal(response)
        return response


def _dataverse(name: str) -> str:
    parts = name.split("/") if isinstance(name, str) else [name]
    return ".".join(map(quoted, parts))


def _within(dataverse: str | None, name: str) -> str:
    return f"{_dataverse(dataverse or _DATAVERSE)}.{quoted(name)}"


def _link(options: DisconnectLinkOptions) -> str:
    return _within(options.get("dataverse_name"), options.get("link_name") or _LINK)


def _path(dataverse: str, name: str | None) -> str:
    """Returns the path of a link; a dataverse with one part is a parameter instead."""
    if "/" not in dataverse:
        return _PATH
    return "/".join((_PATH, *(quote(part, safe="") for part in (dataverse, name) if part)))


def _pending(found: dict[str, Any]) -> dict[str, int]:
    return {
        f"{dataverse}.{dataset}": int(count)
        for dataverse, datasets in found.items()
        for dataset, count in datasets.items()
    }


def _links(found: object) -> list[AnalyticsLink]:
    if not isinstance(found, list):
        raise TypeError("the links are a list")
    known = ((LINK_KINDS.get(members["type"]), members) for members in found)
    return [kind.link_from_server_json(members) for kind, members in known if kind]


def _parsed(convert: Any, row: Any) -> Any:
    try:
        return convert(row)
    except (LookupError, TypeError) as error:
        raise DecodingFailureException(f"the catalog cannot be read: {error!r}") from None
