"""Search: what is asked of the service, and what its answers mean."""

import asyncio
import json
import unittest
from typing import Any

import nacre
from nacre import exceptions as e
from nacre import search as s
from nacre.mutation_state import MutationState
from nacre.result import MutationToken
from nacre.vector_search import VectorQuery, VectorQueryCombination, VectorSearch
from tests.unit.fake_node import FakeNode

TERM = s.TermQuery("a")
ANSWER = {
    "status": {"total": 2, "failed": 1, "successful": 1, "errors": {"p1": "down"}},
    "hits": [
        {
            "index": "i_1",
            "id": "k",
            "score": 1.5,
            "fields": {"name": "x"},
            "sort": ["_score"],
            "fragments": {"name": ["<mark>x</mark>"]},
            "locations": {"name": {"x": [{"pos": 1, "start": 0, "end": 1}]}},
        },
        {"id": "l"},
    ],
    "total_hits": 7,
    "max_score": 1.5,
    "took": 2_500_000,
    "facets": {
        "t": {"field": "f", "total": 3, "terms": [{"term": "x", "count": 2}]},
        "n": {"field": "f", "numeric_ranges": [{"name": "r", "min": 1, "count": 2}]},
        "d": {"field": "f", "date_ranges": [{"name": "r", "start": "2020", "count": 1}]},
    },
}


class QueryTest(unittest.TestCase):
    def test_queries_are_those_of_the_service(self) -> None:
        cases: list[tuple[s.SearchQuery, dict[str, Any]]] = [
            (
                s.MatchQuery("a", field="f", match_operator=s.MatchOperator.AND, fuzziness=1),
                {"match": "a", "field": "f", "operator": "and", "fuzziness": 1},
            ),
            (s.MatchPhraseQuery("a b", analyzer="en"), {"match_phrase": "a b", "analyzer": "en"}),
            (s.PhraseQuery("a", "b"), {"terms": ["a", "b"]}),
            (s.PrefixQuery("a"), {"prefix": "a"}),
            (s.RegexQuery("a+"), {"regexp": "a+"}),
            (s.WildcardQuery("a*"), {"wildcard": "a*"}),
            (s.QueryStringQuery("a:b", boost=2), {"query": "a:b", "boost": 2}),
            (s.DocIdQuery("a", "b"), {"ids": ["a", "b"]}),
            (s.BooleanFieldQuery(True, field="f"), {"bool": True, "field": "f"}),
            (s.MatchAllQuery(), {"match_all": None}),
            (s.MatchNoneQuery(), {"match_none": None}),
            (
                s.NumericRangeQuery(1, 2, inclusive_max=True),
                {"min": 1, "max": 2, "inclusive_max": True},
            ),
            (s.DateRangeQuery("a", "b"), {"start": "a", "end": "b"}),
            (s.TermRangeQuery("a", "b"), {"min": "a", "max": "b"}),
            (
                s.GeoDistanceQuery("1mi", (1, 2), field="g"),
                {"distance": "1mi", "location": [1.0, 2.0], "field": "g"},
            ),
            (
                s.GeoBoundingBoxQuery((1, 2), (3, 4)),
                {"top_left": [1.0, 2.0], "bottom_right": [3.0, 4.0]},
            ),
            (
                s.GeoPolygonQuery([(1, 2), (3, 4), (5, 6)]),
                {"polygon_points": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]},
            ),
            (s.ConjunctionQuery(TERM, TERM), {"conjuncts": [{"term": "a"}, {"term": "a"}]}),
            (s.DisjunctionQuery([TERM], min=1), {"disjuncts": [{"term": "a"}], "min": 1}),
            (
                s.BooleanQuery(must=TERM, should=TERM, must_not=[TERM]),
                {
                    "must": {"conjuncts": [{"term": "a"}]},
                    "should": {"disjuncts": [{"term": "a"}], "min": 1},
                    "must_not": {"disjuncts": [{"term": "a"}], "min": 1},
                },
            ),
            (s.RawQuery({"x": 1}), {"x": 1}),
        ]
        for query, expected in cases:
            with self.subTest(type(query).__name__):
                query.validate()
                self.assertEqual(query.encodable, expected)

    def test_what_is_no_query_is_refused(self) -> None:
        wrong: Any = "a"
        for make in (
            lambda: s.ConjunctionQuery().validate(),
            lambda: s.BooleanQuery().validate(),
            lambda: s.SearchRequest(wrong),
            lambda: s.GeoDistanceQuery("1mi", (1,)),
            lambda: s.NumericFacet("f").add_range("r"),
            lambda: VectorSearch([]),
            lambda: VectorQuery("", [1.0]).encode(),
        ):
            with self.assertRaises(e.InvalidArgumentException):
                make()

    def test_facets_and_sorting_are_those_of_the_service(self) -> None:
        numeric = s.NumericFacet("f", limit=3).add_range("r", min=1, max=2)
        ranges = [{"min": 1, "max": 2, "name": "r"}]
        self.assertEqual(numeric.encodable, {"field": "f", "size": 3, "numeric_ranges": ranges})
        dates = s.DateFacet("f").add_range("r", "a", "b").encodable["date_ranges"]
        self.assertEqual(dates, [{"start": "a", "end": "b", "name": "r"}])
        sorting = s.SortField("f", type="string", mode="min", missing="last", desc=True)
        self.assertEqual(
            sorting.as_encodable(),
            {"by": "field", "field": "f", "type": "string", "mode": "min", "missing": "last"}
            | {"desc": True},
        )
        distance = s.SortGeoDistance((1, 2), "g", unit="km").as_encodable()
        expected = {"by": "geo_distance", "location": [1.0, 2.0], "field": "g", "unit": "km"}
        self.assertEqual(distance, expected)


class SearchTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: tuple[int, Any] = (200, ANSWER)
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        await self.enterAsyncContext(server)
        node = await self.enterAsyncContext(FakeNode())
        node.services["fts"] = server.sockets[0].getsockname()[1]
        cluster = await nacre.connect(node.url, "user", "password")
        self.cluster = await self.enterAsyncContext(cluster)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.asked.append((head.split(" ")[1], body))
        status, answer = self.answer
        content = json.dumps(answer).encode()
        lines = f"HTTP/1.1 {status} OK\r\nConnection: close\r\nContent-Length: {len(content)}"
        writer.write(lines.encode() + b"\r\n\r\n" + content)
        writer.close()

    async def test_rows_facets_and_metadata_are_read(self) -> None:
        result = self.cluster.search("i", s.SearchRequest.create(TERM))
        first, second = [row async for row in result.rows()]
        self.assertEqual((first.id, first.score, first.fields), ("k", 1.5, {"name": "x"}))
        assert first.locations is not None
        self.assertEqual(first.locations.fields(), ["name"])
        self.assertEqual(first.locations.terms_for("name"), ["x"])
        self.assertEqual((second.id, second.locations), ("l", None))
        metrics = result.metadata().metrics()
        self.assertEqual((metrics.total_rows(), metrics.took().microseconds), (7, 2500))
        self.assertEqual(metrics.error_partition_count(), 1)
        self.assertEqual(result.metadata().errors(), {"p1": "down"})
        facets = result.facets()
        self.assertEqual(facets["t"].terms[0].count, 2)
        self.assertEqual(facets["n"].numeric_ranges[0].min, 1)
        self.assertEqual(facets["d"].date_ranges[0].start, "2020")

    async def test_options_and_vectors_are_asked_for(self) -> None:
        vectors = VectorSearch([VectorQuery("v", [1, 2], num_candidates=4, prefilter=TERM)])
        request = s.SearchRequest.create(TERM).with_vector_search(vectors)
        state = MutationState()
        state.add_mutation_token(MutationToken(3, 4, 5, "b"))
        scope = self.cluster.bucket("b").scope("s")
        await scope.search(
            "i",
            request,
            limit=3,
            skip=1,
            fields=["*"],
            highlight_style=s.HighlightStyle.Html,
            facets={"t": s.TermFacet("f", 2)},
            sort=["a", s.SortScore(desc=True)],
            disable_scoring=True,
            consistent_with=state,
            vector_query_combination=VectorQueryCombination.AND,
            raw={"x": 1},
        ).execute()
        path, body = self.asked[-1]
        self.assertEqual(path, "/api/bucket/b/scope/s/index/i/query")
        self.assertEqual(body.pop("ctl")["consistency"]["vectors"], {"i": {"3/4": 5}})
        expected = {
            "query": {"term": "a"},
            "knn": [{"field": "v", "k": 4, "vector": [1.0, 2.0], "filter": {"term": "a"}}],
            "knn_operator": "and",
            "size": 3,
            "from": 1,
            "fields": ["*"],
            "highlight": {"style": "html"},
            "facets": {"t": {"field": "f", "size": 2}},
            "sort": ["a", {"by": "score", "desc": True}],
            "score": "none",
            "showrequest": False,
            "x": 1,
        }
        self.assertEqual(body, expected)

    async def test_refusals_have_names(self) -> None:
        for status, text, kind in (
            (400, "rest_auth: preparePerms, err: index not found", e.SearchIndexNotFoundException),
            (400, "parse error", e.InvalidArgumentException),
            (429, "num_concurrent_requests", e.RateLimitedException),
        ):
            self.answer = (status, {"error": text})
            with self.subTest(text), self.assertRaises(kind):
                await self.cluster.search_query("i", TERM).execute()
