"""Search indexes and search queries."""

from datetime import timedelta

import couchbase.search as query
from couchbase.exceptions import (
    QueryIndexAlreadyExistsException,
    QueryIndexNotFoundException,
    SearchIndexNotFoundException,
)
from couchbase.management.search import SearchIndex
from couchbase.mutation_state import MutationState
from couchbase.options import SearchOptions
from couchbase.vector_search import VectorQuery, VectorSearch

from support import eventually, refused

_MAPPING = {
    "doc_config": {"mode": "type_field", "type_field": "type"},
    "mapping": {
        "default_analyzer": "standard",
        "default_mapping": {
            "dynamic": True,
            "enabled": True,
            "properties": {
                "place": {"enabled": True, "fields": [{"name": "place", "type": "geopoint", "index": True}]},
                "shade": {
                    "enabled": True,
                    "fields": [{"name": "shade", "type": "vector", "dims": 3, "similarity": "l2_norm", "index": True}],
                },
            },
        },
        "index_dynamic": True,
        "store_dynamic": True,
    },
    "store": {"indexType": "scorch", "segmentVersion": 16},
}
_PLAN = {"maxPartitionsPerPIndex": 1024, "indexPartitions": 1}
_SHELLS = [
    {"title": "Black pearl of the deep", "size": 3, "found": "2020-01-05T10:00:00Z", "shade": [0, 0, 0]},
    {"title": "White pearl", "size": 5, "found": "2021-06-01T10:00:00Z", "shade": [9, 9, 9]},
    {"title": "Empty oyster", "size": 8, "found": "2022-03-01T10:00:00Z", "shade": [5, 5, 4]},
    {"title": "Mother of pearl, an inner layer", "size": 1, "found": "2019-01-01T10:00:00Z", "shade": [8, 9, 9]},
]


def _index(env):
    """Returns the name of an index of this run's documents, created once, and the documents' keys."""
    if not hasattr(env, "shells"):
        manager, name = env.cluster.search_indexes(), env.name("fts")
        manager.upsert_index(
            SearchIndex(name=name, source_name=env.bucket_name, source_type="couchbase", params=_MAPPING, plan_params=_PLAN)
        )
        env.later(lambda: manager.drop_index(name))
        places = [(2.35, 48.85), (-0.12, 51.5), (13.4, 52.5), (139.7, 35.7)]
        # Other modules leave documents with a field "run".
        shells = [
            {"beach": env.run, "place": {"lon": lon, "lat": lat}, **shell}
            for shell, (lon, lat) in zip(_SHELLS, places)
        ]
        stored = [env.document(shell) for shell in shells]
        env.shells = name, [key for key, _ in stored], MutationState(*(result for _, result in stored))
    return env.shells


def _ask(env, wanted, **options):
    """Returns the rows of a query over this run's documents, all of which the index has, and the result."""
    name, _, state = _index(env)
    own = query.ConjunctionQuery(query.MatchQuery(env.run, field="beach"), wanted)
    result = env.cluster.search(name, own, SearchOptions(consistent_with=state, **options))
    return list(result.rows()), result


def a_query_sees_what_it_is_consistent_with(env):
    _, keys, _ = _index(env)
    rows, result = _ask(env, query.MatchQuery("pearl", field="title"))
    assert {row.id for row in rows} == {keys[0], keys[1], keys[3]}
    assert all(row.score > 0 and row.index.startswith(_index(env)[0]) for row in rows)
    metrics = result.metadata().metrics()
    assert metrics.total_rows() == 3 and metrics.took() > timedelta(0) and metrics.max_score() > 0
    assert metrics.error_partition_count() == 0 and metrics.success_partition_count() >= 1


def queries_of_many_kinds_find_documents(env):
    _, keys, _ = _index(env)

    def found(wanted):
        return [keys.index(row.id) for row in _ask(env, wanted, sort=["size"])[0]]

    assert found(query.TermQuery("oyster", field="title")) == [2]
    assert found(query.MatchPhraseQuery("mother of pearl", field="title")) == [3]
    assert found(query.PrefixQuery("pear", field="title")) == [3, 0, 1]
    assert found(query.WildcardQuery("oy?t*", field="title")) == [2]
    assert found(query.RegexQuery("whi.e", field="title")) == [1]
    assert found(query.QueryStringQuery("+title:pearl -title:white")) == [3, 0]
    assert found(query.NumericRangeQuery(min=3, max=8, field="size")) == [0, 1]
    assert found(query.DateRangeQuery(start="2021-01-01T00:00:00Z", end="2023-01-01T00:00:00Z", field="found")) == [1, 2]
    assert found(query.DocIdQuery([keys[0], keys[2]])) == [0, 2]
    assert found(query.GeoDistanceQuery("400km", (2.35, 48.85), field="place")) == [0, 1]
    assert found(query.MatchQuery("pearll", field="title", fuzziness=1)) == [3, 0, 1]
    assert found(query.DisjunctionQuery(query.TermQuery("empty", field="title"), query.TermQuery("white", field="title"))) == [1, 2]
    assert found(query.MatchNoneQuery()) == []


def rows_have_fields_fragments_and_locations(env):
    rows, _ = _ask(
        env,
        query.MatchQuery("oyster", field="title"),
        fields=["title", "size"],
        highlight_style=query.HighlightStyle.Html,
        include_locations=True,
    )
    assert len(rows) == 1 and rows[0].fields == {"title": "Empty oyster", "size": 8}
    assert rows[0].fragments["title"] == ["Empty <mark>oyster</mark>"]
    places = {(place.field, place.term): place for place in rows[0].locations.get_all()}
    place = places["title", "oyster"]
    assert (place.position, place.start, place.end) == (2, 6, 12)


def facets_count_terms_numbers_and_dates(env):
    sizes, years = query.NumericFacet("size", 2), query.DateFacet("found", 2)
    sizes.add_range("small", max=4)
    sizes.add_range("large", min=4)
    years.add_range("old", end="2021-01-01T00:00:00Z")
    facets = {"words": query.TermFacet("title", 2), "sizes": sizes, "years": years}
    _, result = _ask(env, query.MatchAllQuery(), facets=facets)
    found = result.facets()
    assert found["words"].terms[0].term == "pearl" and found["words"].terms[0].count == 3
    assert {part.name: part.count for part in found["sizes"].numeric_ranges} == {"small": 2, "large": 2}
    assert [(part.name, part.count) for part in found["years"].date_ranges] == [("old", 2)]


def pages_are_sorted_and_scores_can_be_left_out(env):
    _, keys, _ = _index(env)
    by_size = [keys[3], keys[0], keys[1], keys[2]]
    rows, _ = _ask(env, query.MatchAllQuery(), sort=["-size"], limit=2, skip=1)
    assert [row.id for row in rows] == [by_size[2], by_size[1]]
    rows, _ = _ask(env, query.MatchAllQuery(), disable_scoring=True)
    assert len(rows) == 4 and all(row.score == 0 for row in rows)


def vectors_have_nearest_neighbours(env):
    name, keys, state = _index(env)
    _ask(env, query.MatchAllQuery())
    wanted = VectorSearch.from_vector_query(VectorQuery.create("shade", [9.0, 9.0, 9.0], num_candidates=2))
    result = env.cluster.search(name, query.SearchRequest.create(wanted), SearchOptions(limit=2))
    assert [row.id for row in result.rows()] == [keys[1], keys[3]]


def an_index_of_a_scope_sees_its_collections(env):
    manager = env.bucket.collections()
    scope_name = f"s{env.run}".replace("-", "_")
    manager.create_scope(scope_name)
    env.later(lambda: manager.drop_scope(scope_name))
    for collection in "reef", "beach":
        manager.create_collection(scope_name, collection)
    scope, name = env.bucket.scope(scope_name), env.name("fts")
    types = {f"{scope_name}.{collection}": {"enabled": True, "dynamic": True} for collection in ("reef", "beach")}
    params = {
        "doc_config": {"mode": "scope.collection.type_field", "type_field": "type"},
        "mapping": {"default_mapping": {"enabled": False}, "types": types, "store_dynamic": True},
    }
    indexes = scope.search_indexes()
    indexes.upsert_index(SearchIndex(name=name, source_name=env.bucket_name, source_type="couchbase", params=params))
    assert [index.name for index in indexes.get_all_indexes()] == [name]
    stored = [scope.collection(collection).upsert("same", {"word": "coral"}) for collection in ("reef", "beach")]

    def found(**options):
        options = SearchOptions(consistent_with=MutationState(*stored), **options)
        request = query.SearchRequest.create(query.MatchQuery("coral", field="word"))
        return sorted(row.fields["_$c"] for row in scope.search(name, request, options).rows())

    assert found() == ["beach", "reef"]
    assert found(collections=["reef"]) == ["reef"]
    indexes.drop_index(name)
    with refused(SearchIndexNotFoundException):
        indexes.get_index(name)


def indexes_are_made_read_changed_and_dropped(env):
    manager, name = env.cluster.search_indexes(), env.name("fts")
    manager.upsert_index(
        SearchIndex(name=name, source_name=env.bucket_name, source_type="couchbase", params=_MAPPING, plan_params=_PLAN)
    )
    found = manager.get_index(name)
    assert found.name == name and found.uuid and found.plan_params == _PLAN and found.params == _MAPPING
    assert name in {index.name for index in manager.get_all_indexes()}
    with refused(QueryIndexAlreadyExistsException):
        manager.upsert_index(SearchIndex(name=name, source_name=env.bucket_name, source_type="couchbase"))
    manager.upsert_index(found)
    assert manager.get_index(name).uuid != found.uuid
    manager.pause_ingest(name)
    assert manager.get_index(name).plan_params["nodePlanParams"][""][""]["canWrite"] is False
    manager.resume_ingest(name)
    manager.disallow_querying(name)
    manager.allow_querying(name)
    manager.freeze_plan(name)
    assert manager.get_index(name).plan_params["planFrozen"] is True
    manager.unfreeze_plan(name)
    assert manager.get_index(name).plan_params == _PLAN
    manager.drop_index(name)
    for missing in manager.get_index, manager.drop_index, manager.get_indexed_documents_count, manager.pause_ingest:
        with refused(QueryIndexNotFoundException, SearchIndexNotFoundException):
            missing(name)


def documents_are_counted_and_analyzed(env):
    manager, (name, _, _) = env.cluster.search_indexes(), _index(env)
    _ask(env, query.MatchAllQuery())
    assert manager.get_indexed_documents_count(name) >= len(_SHELLS)
    terms = manager.analyze_document(name, {"title": "Red Pearls"})["analysis"]
    assert {"red", "pearls"} <= {term for field in terms for term in field}
    assert isinstance(manager.get_index_stats(name), dict) and isinstance(manager.get_all_index_stats(), dict)


def an_alias_answers_for_its_target(env):
    manager, (target, keys, _), name = env.cluster.search_indexes(), _index(env), env.name("fts")
    _ask(env, query.MatchAllQuery())
    manager.upsert_index(SearchIndex(name=name, idx_type="fulltext-alias", source_type="nil", params={"targets": {target: {}}}))
    env.later(lambda: manager.drop_index(name))
    rows = env.cluster.search(name, query.DocIdQuery(keys)).rows()
    assert {row.id for row in rows} == set(keys)


def a_missing_index_is_told(env):
    with refused(QueryIndexNotFoundException):
        list(env.cluster.search(env.name("fts"), query.MatchAllQuery()).rows())
