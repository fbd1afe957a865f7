"""Views: queries, and the design documents that define them."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import quote, urlencode

from ._http import HttpRequest, HttpResponse
from ._instruments import Labels, watched
from ._record import dataclass
from ._rows import RowParser, RowResult
from .exceptions import (
    CouchbaseException,
    DecodingFailureException,
    DesignDocumentNotFoundException,
    InvalidArgumentException,
    ViewEngineException,
    ViewNotFoundException,
)
from .options import TimeoutOptions, options_of, seconds_of
from .transcoder import encode_json

if TYPE_CHECKING:
    from .bucket import Bucket


class DesignDocumentNamespace(Enum):
    """Whether a design document is in use or under development (its name then starts with dev_)."""

    PRODUCTION = ""
    DEVELOPMENT = "dev_"

    def prefix(self, name: str) -> str:
        """Returns the name in this namespace."""
        bare = name.removeprefix("dev_")
        if not bare:
            raise InvalidArgumentException("a design document needs a name")
        return self.value + bare


class ViewScanConsistency(Enum):
    """Consistency of a query."""

    NOT_BOUNDED = "ok"
    """It uses the index as it is."""
    REQUEST_PLUS = "false"
    """It waits until the index has every mutation before the query."""
    UPDATE_AFTER = "update_after"
    """It uses the index as it is, and brings it up to date afterwards."""


class ViewOrdering(Enum):
    """Order of rows."""

    ASCENDING = "false"
    DESCENDING = "true"


class ViewErrorMode(Enum):
    """Behaviour of the server when a part of the index fails."""

    CONTINUE = "continue"
    STOP = "stop"


class ViewOptions(TimeoutOptions, total=False):
    """Options of ``view_query``. Keys are JSON values."""

    scan_consistency: ViewScanConsistency
    skip: int
    limit: int
    key: Any
    keys: list[Any]
    startkey: Any
    endkey: Any
    startkey_docid: str
    endkey_docid: str
    inclusive_end: bool
    group: bool
    group_level: int
    order: ViewOrdering
    reduce: bool
    on_error: ViewErrorMode
    debug: bool
    raw: dict[str, str]
    namespace: DesignDocumentNamespace
    client_context_id: str
    """Name of the request in errors."""
    full_set: bool
    """Of a view under development: rows of all documents, and not of a part of them alone."""


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A row of a view. ``id`` is the document's key, None for reduced rows."""

    id: str | None
    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class ViewMetaData:
    """Metadata of a view result."""

    total_rows: int | None
    """Rows in the index, whatever the query; None for reduced results."""
    debug_info: Any = None


class ViewResult(RowResult[ViewRow]):
    """Rows of a view, in its order: ``async for row in bucket.view_query("shop", "by_price")``.

    Reading them raises `ViewNotFoundException` if the view does not exist, and
    `ViewEngineException` if the query was refused or, after the rows, if an index has failed.
    """

    def __init__(self, bucket: "Bucket", ddoc: str, view: str, options: ViewOptions) -> None:
        super().__init__()
        self._bucket = bucket
        self._ddoc = options.get("namespace", DesignDocumentNamespace.PRODUCTION).prefix(ddoc)
        self._view = view
        self._options = options
        self._query = _query(options)
        self._client_id = options.get("client_context_id")
        labels = Labels("views", bucket.name)
        self._watch(bucket.client.instruments, "view_query", labels, options)

    def metadata(self) -> ViewMetaData:
        """Returns the metadata, once all rows were read.

        Raises:
            InvalidArgumentException: if they were not.
        """
        members = self._ended()
        return ViewMetaData(members.get("total_rows"), members.get("debug_info"))

    async def _send(self) -> AsyncGenerator[ViewRow, None]:
        timeout = seconds_of(self._options.get("timeout"), self._bucket.timeouts.views_timeout)
        path = f"{_path(self._bucket.name, self._ddoc)}/_view/{quote(self._view, safe='')}"
        path += f"?{self._query}" if self._query else ""
        # A list of keys may exceed the maximum length of a request line.
        keys = self._options.get("keys")
        body = b"" if keys is None else encode_json({"keys": keys})
        method = "GET" if keys is None else "POST"
        request = HttpRequest(method, path, body, reads=True, span=self._span)
        parser = RowParser("rows")
        async with self._bucket.http_stream("capi", request, timeout) as answer:
            answer.context.client_context_id = self._client_id
            if answer.status != 200:
                text = (await answer.body()).decode(errors="replace")
                kind = ViewNotFoundException if answer.status == 404 else ViewEngineException
                raise kind(text, answer.context)
            async with aclosing(answer.parts()) as parts:
                async for part in parts:
                    for row in parser.feed(part):
                        yield _row(row)
            last, members = parser.finish()
            for row in last:
                yield _row(row)
            if members.get("errors"):
                raise ViewEngineException(
                    f"part of the index failed: {members['errors']}", answer.context
                )
        self._members = members


def _row(row: object) -> ViewRow:
    if not isinstance(row, dict):
        raise DecodingFailureException("a row of the view is no object")
    return ViewRow(row.get("id"), row.get("key"), row.get("value"))


def _query(options: ViewOptions) -> str:
    parameters: dict[str, str] = {}
    for name in ("key", "startkey", "endkey"):
        if name in options:
            parameters[name] = encode_json(options.get(name)).decode()
    # The server uses the last of group and group_level: this order selects the level, as in the
    # official SDKs.
    if (group := options.get("group")) is not None:
        parameters["group"] = "true" if group else "false"
    for name in ("skip", "limit", "group_level"):
        if (number := options.get(name)) is not None:
            if not isinstance(number, int) or number < 0:
                raise InvalidArgumentException(f"{name} is a number from 0")
            parameters[name] = str(number)
    for name in ("inclusive_end", "reduce", "debug", "full_set"):
        if (flag := options.get(name)) is not None:
            parameters[name] = "true" if flag else "false"
    for name in ("startkey_docid", "endkey_docid"):
        if (text := options.get(name)) is not None:
            parameters[name] = str(text)
    if "scan_consistency" in options:
        parameters["stale"] = options["scan_consistency"].value
    if "order" in options:
        parameters["descending"] = options["order"].value
    if "on_error" in options:
        parameters["on_error"] = options["on_error"].value
    return urlencode({**parameters, **options.get("raw", {})}, quote_via=quote)


@dataclass(frozen=True, slots=True)
class View:
    """JavaScript source of a view; ``reduce`` may also be ``_count``, ``_sum`` or ``_stats``."""

    map: str
    reduce: str | None = None
    members: dict[str, Any] = field(default_factory=dict)
    """Further members of the view, which a write gives back to the server."""

    def as_dict(self, name: str | None = None) -> dict[str, Any]:
        """Returns the view in the format of the service, with a name if one is given."""
        reduce = {"reduce": self.reduce} if self.reduce else {}
        return {**self.members, "map": self.map, **reduce, **({"name": name} if name else {})}

    def to_json(self) -> str:
        """Returns the view as JSON."""
        return json.dumps(self.as_dict())

    @classmethod
    def from_json(cls, text: str) -> "View":
        """Parses a view in JSON.

        Raises:
            InvalidArgumentException: if it cannot be parsed.
        """
        try:
            return _view(dict(json.loads(text)))
        except (ValueError, LookupError, TypeError) as error:
            raise InvalidArgumentException(f"the view cannot be read: {error!r}") from None


@dataclass(frozen=True, slots=True)
class DesignDocument:
    """A named set of views that are built together."""

    name: str
    views: dict[str, View] = field(default_factory=dict)
    namespace: DesignDocumentNamespace = DesignDocumentNamespace.PRODUCTION
    collection: str | None = None
    """``scope.collection`` that the views index; None is ``_default._default``. Only nacre has
    this."""
    members: dict[str, Any] = field(default_factory=dict)
    """Further members of the document, which a write gives back to the server."""

    @property
    def rev(self) -> str | None:
        """Returns the revision from the server, if any."""
        return self.members.get("_rev")

    def add_view(self, name: str, view: View) -> Self:
        """Adds or replaces a view, and returns the document itself."""
        self.views[name] = view
        return self

    def as_dict(self, namespace: DesignDocumentNamespace | None = None) -> dict[str, Any]:
        """Returns the document with its name and namespace, as `from_json` reads it."""
        members: dict[str, Any] = {
            "name": self.name,
            "namespace": (namespace or self.namespace).name.lower(),
            "views": {name: view.as_dict() for name, view in self.views.items()},
            "collection": self.collection,
            "rev": self.rev,
        }
        return {name: value for name, value in members.items() if value is not None}

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> "DesignDocument":
        """Returns a document from its members, as `as_dict` gives them.

        Raises:
            InvalidArgumentException: if they are not those of a design document.
        """
        try:
            return cls(
                members["name"],
                {name: _view(dict(view)) for name, view in (members.get("views") or {}).items()},
                DesignDocumentNamespace[(members.get("namespace") or "production").upper()],
                members.get("collection"),
                {"_rev": members["rev"]} if members.get("rev") else {},
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidArgumentException(f"the document cannot be read: {error!r}") from None

    def get_view(self, name: str) -> View | None:
        """Returns a view by its name, or None."""
        return self.views.get(name)


@watched
class ViewIndexManager:
    """Manages the design documents of a bucket."""

    def __init__(self, bucket: "Bucket") -> None:
        self._bucket = bucket
        self._instruments = bucket.client.instruments

    def _labels(self) -> Labels:
        """Returns the labels of an operation."""
        return Labels("views", self._bucket.name)

    async def get_design_document(
        self,
        name: str,
        namespace: DesignDocumentNamespace = DesignDocumentNamespace.PRODUCTION,
        **kwargs: Unpack[TimeoutOptions],
    ) -> DesignDocument:
        """Reads a design document.

        Raises:
            DesignDocumentNotFoundException: if it does not exist.
        """
        options = options_of("get_design_document", TimeoutOptions, kwargs)
        response = await self._send("GET", namespace.prefix(name), b"", options)
        members = _object(response)
        views = members.pop("views", None) or {}
        collection = members.pop("collection", None)
        try:
            read = {key: _view(dict(view)) for key, view in views.items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DecodingFailureException(
                "the design document's views cannot be read", response.context
            ) from None
        return DesignDocument(name.removeprefix("dev_"), read, namespace, collection, members)

    async def get_all_design_documents(
        self,
        namespace: DesignDocumentNamespace = DesignDocumentNamespace.PRODUCTION,
        **kwargs: Unpack[TimeoutOptions],
    ) -> list[DesignDocument]:
        """Returns all design documents of a namespace."""
        options = options_of("get_all_design_documents", TimeoutOptions, kwargs)
        response = await self._bucket.http_ddocs(
            seconds_of(options.get("timeout"), self._bucket.timeouts.management_timeout)
        )
        rows = _object(response).get("rows")
        try:
            names = [row["doc"]["meta"]["id"].removeprefix("_design/") for row in rows or ()]
        except (AttributeError, LookupError, TypeError):
            raise DecodingFailureException(
                "the list of design documents cannot be read", response.context
            ) from None
        is_development = namespace is DesignDocumentNamespace.DEVELOPMENT
        return [
            await self.get_design_document(name, namespace, **kwargs)
            for name in names
            if name.startswith("dev_") == is_development
        ]

    async def publish_design_document(self, name: str, **kwargs: Unpack[TimeoutOptions]) -> None:
        """Publishes a design document that is under development.

        Raises:
            DesignDocumentNotFoundException: if it does not exist.
        """
        options_of("publish_design_document", TimeoutOptions, kwargs)
        development = DesignDocumentNamespace.DEVELOPMENT
        found = await self.get_design_document(name, development, **kwargs)
        production = DesignDocumentNamespace.PRODUCTION
        await self.upsert_design_document(found, production, **kwargs)

    async def upsert_design_document(
        self,
        design_document: DesignDocument,
        namespace: DesignDocumentNamespace | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Creates or replaces a design document. The server rebuilds changed views."""
        options = options_of("upsert_design_document", TimeoutOptions, kwargs)
        name = (namespace or design_document.namespace).prefix(design_document.name)
        views = {key: view.as_dict() for key, view in design_document.views.items()}
        body = {**design_document.members, "views": views}
        if design_document.collection is not None:
            body["collection"] = design_document.collection
        await self._send("PUT", name, encode_json(body), options)

    async def drop_design_document(
        self,
        name: str,
        namespace: DesignDocumentNamespace = DesignDocumentNamespace.PRODUCTION,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Drops a design document and its indexes.

        Raises:
            DesignDocumentNotFoundException: if it does not exist.
        """
        options = options_of("drop_design_document", TimeoutOptions, kwargs)
        await self._send("DELETE", namespace.prefix(name), b"", options)

    async def _send(
        self, method: str, name: str, body: bytes, options: TimeoutOptions
    ) -> HttpResponse:
        timeout = seconds_of(options.get("timeout"), self._bucket.timeouts.management_timeout)
        request = HttpRequest(method, _path(self._bucket.name, name), body, reads=method == "GET")
        response = await self._bucket.http_capi(request, timeout)
        if response.status == 404:
            raise DesignDocumentNotFoundException(response.text, response.context)
        if response.status not in (200, 201):
            raise CouchbaseException(response.text, response.context)
        return response


def _view(members: dict[str, Any]) -> View:
    return View(members.pop("map"), members.pop("reduce", None), members)


def _path(bucket: str, ddoc: str) -> str:
    return f"/{quote(bucket, safe='')}/_design/{quote(ddoc, safe='')}"


def _object(response: HttpResponse) -> dict[str, Any]:
    try:
        answer = json.loads(response.body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise DecodingFailureException("the answer is no JSON object", response.context)
    return answer
