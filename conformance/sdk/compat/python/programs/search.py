"""Search requests in the official package's form, as they are sent."""

import couchbase.search as search
from couchbase.exceptions import InvalidArgumentException
from couchbase.search import SearchRequest
from couchbase.vector_search import VectorQuery, VectorSearch


def queries_of_text(c):
    queries = [
        search.MatchQuery("hello", field="title", analyzer="en", fuzziness=1, prefix_length=2, boost=1.5),
        search.MatchPhraseQuery("hello world", field="title"),
        search.PhraseQuery("hello", "world", field="title"),
        search.TermQuery("exact", field="kind"),
        search.QueryStringQuery("+a -b"),
        search.RegexQuery("a.*b", field="x"),
        search.WildcardQuery("a*", field="x"),
        search.PrefixQuery("ab", field="x"),
    ]
    return [query.encodable for query in queries]


def queries_of_ranges(c):
    queries = [
        search.NumericRangeQuery(1, 2, max_inclusive=True, field="n"),
        search.DateRangeQuery("2020-01-01", "2021-01-01", field="d"),
        search.TermRangeQuery("a", "b", field="t"),
    ]
    return [query.encodable for query in queries]


def queries_of_queries(c):
    a, b = search.TermQuery("a"), search.TermQuery("b")
    queries = [
        search.ConjunctionQuery(a, b),
        search.DisjunctionQuery(a, b, min=1),
        search.BooleanQuery(must=a, should=b, must_not=search.TermQuery("c")),
    ]
    return [query.encodable for query in queries]


def queries_of_others(c):
    queries = [
        search.DocIdQuery(["a", "b"]),
        search.BooleanFieldQuery(True, field="flag"),
        search.MatchAllQuery(),
        search.MatchNoneQuery(),
    ]
    return [query.encodable for query in queries]


def queries_of_places(c):
    queries = [
        search.GeoDistanceQuery("10km", (1.0, 2.0), field="geo"),
        search.GeoBoundingBoxQuery((1.0, 2.0), (3.0, 4.0), field="geo"),
    ]
    return [query.encodable for query in queries]


def vectors_are_not_empty(c):
    return [c.fails(VectorQuery, "e", []), c.fails(VectorQuery.create, "e", None)]


def requests_have_one_of_each(c):
    request = SearchRequest.create(search.MatchAllQuery())
    error = c.fails(request.with_search_query, search.MatchNoneQuery())
    request.with_vector_search(VectorSearch.from_vector_query(VectorQuery("e", [0.5])))
    return [error, isinstance(InvalidArgumentException("x"), Exception)]
