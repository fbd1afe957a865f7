"""Search: queries, facets, sort orders, and results.

request = SearchRequest.create(MatchQuery("sea view", field="text"))
async for row in cluster.search("hotels", request, limit=10):
    print(row.id, row.score)
"""

import builtins
import dataclasses
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import field
from datetime import timedelta
from enum import Enum
from typing import Any, Self
from urllib.parse import quote

from ._client import KvClient
from ._http import HttpClient, HttpRequest
from ._instruments import Labels
from ._record import dataclass
from ._rows import RowParser, RowResult
from .exceptions import (
    CouchbaseException,
    DecodingFailureException,
    FeatureUnavailableException,
    InvalidArgumentException,
    QuotaLimitedException,
    RateLimitedException,
    SearchIndexNotFoundException,
)
from .options import SearchOptions
from .vector_search import VectorQuery, VectorQueryCombination, VectorSearch

__all__ = [
    "BooleanFieldQuery",
    "BooleanQuery",
    "ConjunctionQuery",
    "DateFacet",
    "DateRangeQuery",
    "DisjunctionQuery",
    "DocIdQuery",
    "Facet",
    "GeoBoundingBoxQuery",
    "GeoDistanceQuery",
    "GeoPolygonQuery",
    "HighlightStyle",
    "MatchAllQuery",
    "MatchNoneQuery",
    "MatchOperator",
    "MatchPhraseQuery",
    "MatchQuery",
    "NumericFacet",
    "NumericRangeQuery",
    "PhraseQuery",
    "PrefixQuery",
    "QueryStringQuery",
    "RawQuery",
    "RegexQuery",
    "SearchDateRangeFacet",
    "SearchFacetResult",
    "SearchMetaData",
    "SearchMetrics",
    "SearchNumericRangeFacet",
    "SearchOptions",
    "SearchQuery",
    "SearchRequest",
    "SearchResult",
    "SearchRow",
    "SearchRowFields",
    "SearchRowLocation",
    "SearchRowLocations",
    "SearchScanConsistency",
    "SearchTermFacet",
    "Sort",
    "SortField",
    "SortGeoDistance",
    "SortID",
    "SortScore",
    "TermFacet",
    "TermQuery",
    "TermRangeQuery",
    "VectorQuery",
    "VectorQueryCombination",
    "VectorSearch",
    "WildcardQuery",
]


class SearchScanConsistency(Enum):
    """Consistency of a search."""

    NOT_BOUNDED = "not_bounded"
    REQUEST_PLUS = "request_plus"
    AT_PLUS = "at_plus"


class HighlightStyle(Enum):
    """How matches are marked in fragments."""

    Ansi = "ansi"
    Html = "html"


class MatchOperator(Enum):
    """Whether all words of a `MatchQuery` must occur."""

    OR = "or"
    AND = "and"


class _Member:
    """A member of a query, as an attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, holder: Any, kind: type | None = None) -> Any:
        return self if holder is None else holder.encodable.get(self.name)

    def __set__(self, holder: Any, value: Any) -> None:
        holder.set_prop(self.name, value)


class _Encodable:
    """A part of a request that is sent as a JSON object."""

    def __init__(self, **members: Any) -> None:
        self._members: dict[str, Any] = {}
        for name, value in members.items():
            if value is not None:
                setattr(self, name, value)

    @property
    def encodable(self) -> dict[str, Any]:
        """Returns the JSON object."""
        return self._members

    def set_prop(self, name: str, value: Any) -> None:
        """Sets a member. Enumerations become their values, points longitude and latitude."""
        self._members[name] = value.value if isinstance(value, Enum) else value


class SearchQuery(_Encodable):
    """Base class of queries."""

    boost = _Member("boost")
    """How much more the query counts than others."""

    def validate(self) -> None:
        """Raises if the query is invalid.

        Raises:
            InvalidArgumentException: if something is missing.
        """
        if not self.encodable:
            raise InvalidArgumentException(f"a {type(self).__name__} looks for something")


class MatchQuery(SearchQuery):
    """Matches documents with words, after analysis by the field's analyzer."""

    match = _Member("match")
    field = _Member("field")
    analyzer = _Member("analyzer")
    fuzziness = _Member("fuzziness")
    prefix_length = _Member("prefix_length")
    match_operator = _Member("operator")

    def __init__(self, match: str, **members: Any) -> None:
        super().__init__(match=match, **members)


class MatchPhraseQuery(SearchQuery):
    """Matches documents with a phrase, after analysis."""

    match_phrase = _Member("match_phrase")
    field = _Member("field")
    analyzer = _Member("analyzer")

    def __init__(self, match_phrase: str, **members: Any) -> None:
        super().__init__(match_phrase=match_phrase, **members)


class PhraseQuery(SearchQuery):
    """Matches documents with a phrase of exact terms."""

    terms = _Member("terms")
    field = _Member("field")

    def __init__(self, *phrases: str, **members: Any) -> None:
        super().__init__(terms=list(phrases), **members)


class TermQuery(SearchQuery):
    """Matches documents with an exact term."""

    term = _Member("term")
    field = _Member("field")
    fuzziness = _Member("fuzziness")
    prefix_length = _Member("prefix_length")

    def __init__(self, term: str, **members: Any) -> None:
        super().__init__(term=term, **members)


class PrefixQuery(SearchQuery):
    """Matches documents with a term that has a prefix."""

    prefix = _Member("prefix")
    field = _Member("field")

    def __init__(self, prefix: str, **members: Any) -> None:
        super().__init__(prefix=prefix, **members)


class RegexQuery(SearchQuery):
    """Matches documents with a term that matches a regular expression."""

    regexp = _Member("regexp")
    regex = _Member("regexp")
    field = _Member("field")

    def __init__(self, regexp: str, **members: Any) -> None:
        super().__init__(regexp=regexp, **members)


class WildcardQuery(SearchQuery):
    """Matches documents with a term that matches a pattern with ``*`` and ``?``."""

    wildcard = _Member("wildcard")
    field = _Member("field")

    def __init__(self, wildcard: str, **members: Any) -> None:
        super().__init__(wildcard=wildcard, **members)


class QueryStringQuery(SearchQuery):
    """A query in the query string syntax of the service."""

    query = _Member("query")

    def __init__(self, query: str, **members: Any) -> None:
        super().__init__(query=query, **members)


class DocIdQuery(SearchQuery):
    """Matches documents by their keys."""

    ids = _Member("ids")

    def __init__(self, *ids: str | Sequence[str], **members: Any) -> None:
        every = [each for given in ids for each in ([given] if isinstance(given, str) else given)]
        super().__init__(ids=every, **members)


class BooleanFieldQuery(SearchQuery):
    """Matches documents whose field is true, or false."""

    bool = _Member("bool")
    field = _Member("field")

    def __init__(self, value: builtins.bool, **members: Any) -> None:
        super().__init__(bool=value, **members)


class MatchAllQuery(SearchQuery):
    """Matches all documents."""

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self._members["match_all"] = None


class MatchNoneQuery(SearchQuery):
    """Matches no document."""

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self._members["match_none"] = None


class NumericRangeQuery(SearchQuery):
    """Matches documents with a number in a range."""

    min = _Member("min")
    max = _Member("max")
    inclusive_min = _Member("inclusive_min")
    inclusive_max = _Member("inclusive_max")
    min_inclusive = _Member("inclusive_min")
    max_inclusive = _Member("inclusive_max")
    field = _Member("field")

    def __init__(self, min: float | None = None, max: float | None = None, **members: Any) -> None:
        super().__init__(min=min, max=max, **members)


class DateRangeQuery(SearchQuery):
    """Matches documents with a date in a range."""

    start = _Member("start")
    end = _Member("end")
    inclusive_start = _Member("inclusive_start")
    inclusive_end = _Member("inclusive_end")
    start_inclusive = _Member("inclusive_start")
    end_inclusive = _Member("inclusive_end")
    datetime_parser = _Member("datetime_parser")
    field = _Member("field")

    def __init__(self, start: str | None = None, end: str | None = None, **members: Any) -> None:
        super().__init__(start=start, end=end, **members)


class TermRangeQuery(SearchQuery):
    """Matches documents with a term in a range."""

    min = _Member("min")
    max = _Member("max")
    start = _Member("min")
    end = _Member("max")
    inclusive_min = _Member("inclusive_min")
    inclusive_max = _Member("inclusive_max")
    start_inclusive = _Member("inclusive_min")
    end_inclusive = _Member("inclusive_max")
    field = _Member("field")

    def __init__(self, min: str | None = None, max: str | None = None, **members: Any) -> None:
        super().__init__(min=min, max=max, **members)


class GeoDistanceQuery(SearchQuery):
    """Matches documents within a distance, such as ``10km``, of a point (longitude and latitude).
    """

    distance = _Member("distance")
    location = _Member("location")
    field = _Member("field")

    def __init__(self, distance: str, location: Sequence[float], **members: Any) -> None:
        super().__init__(distance=distance, location=_place(location), **members)


class GeoBoundingBoxQuery(SearchQuery):
    """Matches documents in a box, given by two corners (longitude and latitude)."""

    top_left = _Member("top_left")
    bottom_right = _Member("bottom_right")
    field = _Member("field")

    def __init__(
        self, top_left: Sequence[float], bottom_right: Sequence[float], **members: Any
    ) -> None:
        super().__init__(top_left=_place(top_left), bottom_right=_place(bottom_right), **members)


class GeoPolygonQuery(SearchQuery):
    """Matches documents in a polygon, whose vertices are longitude and latitude."""

    polygon_points = _Member("polygon_points")
    field = _Member("field")

    def __init__(self, polygon_points: Iterable[Sequence[float]], **members: Any) -> None:
        super().__init__(polygon_points=[_place(one) for one in polygon_points], **members)


class RawQuery(SearchQuery):
    """A query as JSON."""

    def __init__(self, query: Mapping[str, Any]) -> None:
        super().__init__()
        self._members.update(query)


class _Compound(SearchQuery):
    _PARTS = ""

    def __init__(self, *queries: SearchQuery | Iterable[SearchQuery], **members: Any) -> None:
        super().__init__(**members)
        self._members[self._PARTS] = [one.encodable for one in _flat(queries)]

    def validate(self) -> None:
        """Raises if there are no queries.

        Raises:
            InvalidArgumentException: if there are none.
        """
        if not self._members[self._PARTS]:
            raise InvalidArgumentException(f"a {type(self).__name__} has queries")


class ConjunctionQuery(_Compound):
    """Matches documents that match all queries."""

    _PARTS = "conjuncts"


class DisjunctionQuery(_Compound):
    """Matches documents that match at least ``min`` of the queries; 1 by default."""

    _PARTS = "disjuncts"
    min = _Member("min")

    def __init__(self, *queries: SearchQuery | Iterable[SearchQuery], **members: Any) -> None:
        super().__init__(*queries, **{"min": 1, **members})


class BooleanQuery(SearchQuery):
    """Combines queries that must, should and must not match."""

    must: ConjunctionQuery | None
    should: DisjunctionQuery | None
    must_not: DisjunctionQuery | None

    def __init__(
        self,
        must: SearchQuery | Iterable[SearchQuery] | None = None,
        should: SearchQuery | Iterable[SearchQuery] | None = None,
        must_not: SearchQuery | Iterable[SearchQuery] | None = None,
    ) -> None:
        super().__init__()
        self.must = None if must is None else ConjunctionQuery(must)
        self.should = None if should is None else DisjunctionQuery(should)
        self.must_not = None if must_not is None else DisjunctionQuery(must_not)

    @property
    def encodable(self) -> dict[str, Any]:
        """Returns the JSON object."""
        parts = {"must": self.must, "should": self.should, "must_not": self.must_not}
        encoded = {name: part.encodable for name, part in parts.items() if part is not None}
        return {**self._members, **encoded}


class Facet(_Encodable):
    """Base class of facets: counts of the hits by the values of a field."""

    field = _Member("field")
    limit = _Member("size")

    def __init__(self, field: str, limit: int | None = None) -> None:
        super().__init__(field=field, limit=limit)


class TermFacet(Facet):
    """The most frequent terms."""


class NumericFacet(Facet):
    """Ranges of numbers."""

    numeric_ranges = _Member("numeric_ranges")

    def add_range(self, name: str, min: float | None = None, max: float | None = None) -> Self:
        """Adds a range, and returns the facet itself."""
        _add_range(self, "numeric_ranges", name, min=min, max=max)
        return self


class DateFacet(Facet):
    """Ranges of dates."""

    date_ranges = _Member("date_ranges")

    def add_range(self, name: str, start: str | None = None, end: str | None = None) -> Self:
        """Adds a range, and returns the facet itself."""
        _add_range(self, "date_ranges", name, start=start, end=end)
        return self


def _add_range(facet: Facet, member: str, name: str, **ends: Any) -> None:
    given = {end: value for end, value in ends.items() if value is not None}
    if not given:
        raise InvalidArgumentException("a range has an end")
    facet.encodable.setdefault(member, []).append({**given, "name": name})


class Sort(_Encodable):
    """Base class of sort orders."""

    desc = _Member("desc")
    descending = _Member("desc")

    def __init__(self, by: str, **members: Any) -> None:
        super().__init__(**members)
        self._members["by"] = by

    def as_encodable(self) -> dict[str, Any]:
        """Returns the JSON object."""
        return self.encodable


class SortScore(Sort):
    """Sorts by score."""

    def __init__(self, **members: Any) -> None:
        super().__init__("score", **members)


class SortID(Sort):
    """Sorts by key."""

    def __init__(self, **members: Any) -> None:
        super().__init__("id", **members)


class SortField(Sort):
    """Sorts by a field."""

    field = _Member("field")
    type = _Member("type")
    mode = _Member("mode")
    missing = _Member("missing")

    def __init__(self, field: str, **members: Any) -> None:
        super().__init__("field", field=field, **members)


class SortGeoDistance(Sort):
    """Sorts by the distance from a point (longitude and latitude)."""

    field = _Member("field")
    location = _Member("location")
    unit = _Member("unit")

    def __init__(self, location: Sequence[float], field: str, **members: Any) -> None:
        super().__init__("geo_distance", location=_place(location), field=field, **members)


class SearchRequest:
    """A search request: a query, vectors, or both."""

    search_query: SearchQuery | None
    vector_search: VectorSearch | None

    def __init__(self, query: SearchQuery | VectorSearch) -> None:
        self.search_query = None
        self.vector_search = None
        if isinstance(query, SearchQuery):
            self.search_query = query
        elif isinstance(query, VectorSearch):
            self.vector_search = query
        else:
            raise InvalidArgumentException("a request has a SearchQuery or a VectorSearch")

    @classmethod
    def create(cls, query: SearchQuery | VectorSearch) -> "SearchRequest":
        """Creates a request with a query or vectors."""
        return cls(query)

    def with_search_query(self, query: SearchQuery) -> Self:
        """Adds a query."""
        if self.search_query is not None or not isinstance(query, SearchQuery):
            raise InvalidArgumentException("a request has one SearchQuery")
        self.search_query = query
        return self

    def with_vector_search(self, vector_search: VectorSearch) -> Self:
        """Adds vectors."""
        if self.vector_search is not None or not isinstance(vector_search, VectorSearch):
            raise InvalidArgumentException("a request has one VectorSearch")
        self.vector_search = vector_search
        return self

    def encode(self) -> dict[str, Any]:
        """Returns the members of the request to the service."""
        query = self.search_query or MatchNoneQuery()
        query.validate()
        body: dict[str, Any] = {"query": query.encodable}
        if self.vector_search is not None:
            body["knn"] = [one.encode() for one in self.vector_search.queries]
            combination = self.vector_search.combination
            if combination is not None:
                body["knn_operator"] = combination.value
        return body


class SearchRowFields(dict[str, Any]):
    """Stored fields of a document."""


@dataclass(frozen=True, slots=True)
class SearchRowLocation:
    """The location of a term in a document."""

    field: str
    term: str
    position: int
    start: int
    end: int
    array_positions: list[int] | None = None


class SearchRowLocations:
    """The locations of a query's terms in a document."""

    def __init__(self, locations: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]) -> None:
        self._all = [
            SearchRowLocation(
                name, term, one["pos"], one["start"], one["end"], one.get("array_positions")
            )
            for name, terms in locations.items()
            for term, places in terms.items()
            for one in places
        ]

    def get_all(self) -> list[SearchRowLocation]:
        """Returns all locations."""
        return list(self._all)

    def get(self, field: str, term: str) -> list[SearchRowLocation]:
        """Returns the locations of a term in a field."""
        return [one for one in self._all if (one.field, one.term) == (field, term)]

    def fields(self) -> list[str]:
        """Returns the fields that contain a term."""
        return list(dict.fromkeys(one.field for one in self._all))

    def terms(self) -> list[str]:
        """Returns the terms that were found."""
        return list(dict.fromkeys(one.term for one in self._all))

    def terms_for(self, field: str) -> list[str]:
        """Returns the terms that were found in a field."""
        return list(dict.fromkeys(one.term for one in self._all if one.field == field))


@dataclass(frozen=True, slots=True)
class SearchRow:
    """A hit."""

    index: str
    id: str
    score: float
    fields: SearchRowFields = field(default_factory=SearchRowFields)
    sort: list[Any] = field(default_factory=list)
    locations: SearchRowLocations | None = None
    fragments: dict[str, list[str]] = field(default_factory=dict)
    explanation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchTermFacet:
    """A term, and its number of documents."""

    term: str
    count: int


@dataclass(frozen=True, slots=True)
class SearchNumericRangeFacet:
    """A range of numbers, and its number of documents."""

    name: str
    count: int
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class SearchDateRangeFacet:
    """A range of dates, and its number of documents."""

    name: str
    count: int
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True, slots=True)
class SearchFacetResult:
    """The result of a facet."""

    name: str
    field: str
    total: int
    missing: int
    other: int
    terms: list[SearchTermFacet] = dataclasses.field(default_factory=list)
    numeric_ranges: list[SearchNumericRangeFacet] = dataclasses.field(default_factory=list)
    date_ranges: list[SearchDateRangeFacet] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SearchMetrics:
    """Metrics of a search. Missing numbers are 0."""

    raw: Mapping[str, Any]

    def took(self) -> timedelta:
        """Returns the duration of the search."""
        return timedelta(microseconds=int(self.raw.get("took") or 0) // 1000)

    def total_rows(self) -> int:
        """Returns the number of hits, independent of the limit."""
        return int(self.raw.get("total_hits") or 0)

    def max_score(self) -> float:
        """Returns the best score."""
        return float(self.raw.get("max_score") or 0)

    def total_partition_count(self) -> int:
        """Returns the number of partitions of the index."""
        return self._partitions("total")

    def success_partition_count(self) -> int:
        """Returns the number of partitions that have answered."""
        return self._partitions("successful")

    def error_partition_count(self) -> int:
        """Returns the number of partitions that have failed."""
        return self._partitions("failed")

    def _partitions(self, name: str) -> int:
        status = self.raw.get("status")
        return int(status.get(name) or 0) if isinstance(status, dict) else 0


@dataclass(frozen=True, slots=True)
class SearchMetaData:
    """Metadata of a search."""

    raw: Mapping[str, Any]
    client_id: str | None = None

    def client_context_id(self) -> str | None:
        """Returns the client's ID of the request, if it has set one."""
        return self.client_id

    def metrics(self) -> SearchMetrics:
        """Returns the metrics of the search."""
        return SearchMetrics(self.raw)

    def errors(self) -> dict[str, str]:
        """Returns the errors of partitions, by their names."""
        status = self.raw.get("status")
        return dict(status.get("errors") or {}) if isinstance(status, dict) else {}


class SearchResult(RowResult[SearchRow]):
    """The hits of a search: ``async for row in cluster.search("hotels", request)``."""

    def __init__(
        self,
        client: KvClient,
        http: HttpClient,
        path: str,
        request: SearchRequest,
        options: SearchOptions,
        timeout: float,
    ) -> None:
        super().__init__()
        if not isinstance(request, SearchRequest):
            raise InvalidArgumentException("a search has a SearchRequest")
        self._client = client
        self._http = http
        self._path = path
        self._index = path.rpartition("/index/")[2].removesuffix("/query")
        self._timeout = timeout
        self._serializer = options.get("serializer")
        self._client_id = options.get("client_context_id")
        self._watch(http.instruments, "search", Labels("search"), options)
        self._body = {**request.encode(), **_encode(options, self._index, timeout)}
        combination = options.get("vector_query_combination")
        if combination is not None and "knn" in self._body:
            self._body["knn_operator"] = combination.value

    def metadata(self) -> SearchMetaData:
        """Returns the metadata, once all rows were read."""
        return SearchMetaData(self._ended(), self._client_id)

    def facets(self) -> dict[str, SearchFacetResult]:
        """Returns the results of the facets, once all rows were read."""
        found = self._ended().get("facets") or {}
        return {name: _facet(name, one) for name, one in found.items()}

    async def _send(self) -> AsyncGenerator[SearchRow, None]:
        body = json.dumps(self._body).encode()
        request = HttpRequest("POST", self._path, body, reads=True, span=self._span)
        parser = RowParser("hits")
        async with self._http.stream(self._client, "fts", request, self._timeout) as answer:
            if answer.status != 200:
                text = (await answer.body()).decode(errors="replace")
                answer.context.detail = text
                raise _kind(answer.status, text)(text, answer.context)
            async with aclosing(answer.parts()) as parts:
                async for part in parts:
                    for row in parser.feed(part):
                        yield self._row(row)
            last, members = parser.finish()
            for row in last:
                yield self._row(row)
        self._members = members

    def _row(self, row: Any) -> SearchRow:
        try:
            fields = row.get("fields") or {}
            if self._serializer is not None:
                fields = self._serializer.deserialize(json.dumps(fields).encode())
            locations = row.get("locations")
            return SearchRow(
                row.get("index", ""),
                row["id"],
                float(row.get("score") or 0),
                SearchRowFields(fields),
                list(row.get("sort") or ()),
                SearchRowLocations(locations) if locations else None,
                dict(row.get("fragments") or {}),
                dict(row.get("explanation") or {}),
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise DecodingFailureException(f"a row cannot be read: {error!r}") from None


def path_of(index: str, bucket: str | None = None, scope: str | None = None) -> str:
    """Returns the path for queries of an index."""
    if not index:
        raise InvalidArgumentException("an index has a name")
    place = ""
    if bucket is not None and scope is not None:
        place = f"/bucket/{quote(bucket, safe='')}/scope/{quote(scope, safe='')}"
    return f"/api{place}/index/{quote(index, safe='')}/query"


def _encode(options: SearchOptions, index: str, timeout: float) -> dict[str, Any]:
    control: dict[str, Any] = {"timeout": int(timeout * 1000)}
    state = options.get("consistent_with")
    consistency = options.get("scan_consistency")
    if state is not None:
        vectors = {
            f"{token.partition_id}/{token.partition_uuid}": token.sequence_number for token in state
        }
        control["consistency"] = {"level": "at_plus", "vectors": {index: vectors}}
    elif consistency is not None and consistency is not SearchScanConsistency.NOT_BOUNDED:
        control["consistency"] = {"level": consistency.value}
    style, marked = options.get("highlight_style"), options.get("highlight_fields")
    highlight: dict[str, Any] = {}
    if style is not None:
        highlight["style"] = style.value
    if marked is not None:
        highlight["fields"] = list(marked)
    facets = options.get("facets")
    sort = options.get("sort")
    body: dict[str, Any] = {
        "size": options.get("limit"),
        "from": options.get("skip"),
        "explain": options.get("explain"),
        "fields": options.get("fields"),
        "collections": options.get("collections"),
        "includeLocations": options.get("include_locations"),
        "score": "none" if options.get("disable_scoring") else None,
        "showrequest": options.get("show_request", False),
        "highlight": highlight or None,
        "facets": {name: facet.encodable for name, facet in facets.items()} if facets else None,
        "sort": [_sorting(one) for one in sort] if sort else None,
        "ctl": control,
        **(options.get("raw") or {}),
    }
    return {name: value for name, value in body.items() if value is not None}


def _sorting(one: "Sort | str") -> Any:
    return one.as_encodable() if isinstance(one, Sort) else one


def _facet(name: str, found: Mapping[str, Any]) -> SearchFacetResult:
    try:
        return SearchFacetResult(
            name,
            found.get("field", ""),
            found.get("total", 0),
            found.get("missing", 0),
            found.get("other", 0),
            [SearchTermFacet(one["term"], one["count"]) for one in found.get("terms") or ()],
            [
                SearchNumericRangeFacet(one["name"], one["count"], one.get("min"), one.get("max"))
                for one in found.get("numeric_ranges") or ()
            ],
            [
                SearchDateRangeFacet(one["name"], one["count"], one.get("start"), one.get("end"))
                for one in found.get("date_ranges") or ()
            ],
        )
    except (LookupError, TypeError, AttributeError) as error:
        raise DecodingFailureException(f"a facet cannot be read: {error!r}") from None


def _kind(status: int, text: str) -> type[CouchbaseException]:
    lower = text.lower()
    if "index not found" in lower:
        return SearchIndexNotFoundException
    if status == 429:
        limited = "num_concurrent_requests" in lower or "num_queries_per_min" in lower
        return RateLimitedException if limited else QuotaLimitedException
    if status == 400:
        return InvalidArgumentException
    return FeatureUnavailableException if status == 404 else CouchbaseException


def _place(location: Sequence[float]) -> list[float]:
    if len(location) != 2:
        raise InvalidArgumentException("a place is longitude and latitude")
    return [float(part) for part in location]


def _flat(queries: Iterable[SearchQuery | Iterable[SearchQuery]]) -> list[SearchQuery]:
    flat: list[SearchQuery] = []
    for one in queries:
        flat += [one] if isinstance(one, SearchQuery) else list(one)
    return flat
