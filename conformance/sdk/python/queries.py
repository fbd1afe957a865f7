"""Queries and their indexes."""

from datetime import timedelta

from couchbase.exceptions import (InternalServerFailureException, KeyspaceNotFoundException, ParsingFailedException,
                                  QueryIndexAlreadyExistsException, QueryIndexNotFoundException,
                                  UnAmbiguousTimeoutException)
from couchbase.management.options import (CreatePrimaryQueryIndexOptions, CreateQueryIndexOptions,
                                          DropPrimaryQueryIndexOptions, WatchQueryIndexOptions)
from couchbase.n1ql import QueryScanConsistency, QueryStatus
from couchbase.options import QueryOptions

from support import refused

FRESH = QueryScanConsistency.REQUEST_PLUS


def _shells(env, count=3):
    """Creates a scope whose collection `shells` has the documents `0`, `1` and so on."""
    name, manager = env.name("scope"), env.bucket.collections()
    manager.create_scope(name)
    env.later(lambda: manager.drop_scope(name))
    manager.create_collection(name, "shells")
    scope = env.bucket.scope(name)
    for number in range(count):
        scope.collection("shells").upsert(str(number), {"n": number, "even": number % 2 == 0})
    return scope


def a_query_of_the_cluster_gives_rows_and_metadata(env):
    result = env.cluster.query("SELECT 1 + 1 AS two, 'pearl' AS word", QueryOptions(metrics=True))
    assert list(result.rows()) == [{"two": 2, "word": "pearl"}]
    metadata = result.metadata()
    assert metadata.status() == QueryStatus.SUCCESS, metadata.status()
    assert metadata.request_id() and metadata.signature() == {"two": "number", "word": "string"}
    assert metadata.metrics().result_count().value == 1 and metadata.metrics().error_count().value == 0


def a_query_of_a_scope_takes_parameters_by_position_and_by_name(env):
    scope = _shells(env)
    fresh = {"scan_consistency": FRESH}
    rows = scope.query("SELECT RAW s.n FROM shells AS s WHERE s.n >= $1 ORDER BY s.n",
                       QueryOptions(positional_parameters=[1], **fresh))
    assert list(rows.rows()) == [1, 2]
    rows = scope.query("SELECT RAW s.n FROM shells AS s WHERE s.even = $even ORDER BY s.n",
                       QueryOptions(named_parameters={"even": True}, **fresh))
    assert list(rows.rows()) == [0, 2]


def a_prepared_query_gives_the_same_rows_each_time(env):
    scope = _shells(env)
    statement = "SELECT RAW COUNT(*) FROM shells AS s WHERE s.n < $1"
    for limit in (1, 2, 3, 1):
        options = QueryOptions(adhoc=False, positional_parameters=[limit], scan_consistency=FRESH)
        assert list(scope.query(statement, options).rows()) == [limit]


def a_query_with_request_plus_sees_what_was_written_before(env):
    scope = _shells(env, count=0)
    shells = scope.collection("shells")
    manager = shells.query_indexes()
    manager.create_index("by_n", ["n"])
    for number in range(20):
        shells.upsert(str(number), {"n": number})
        rows = scope.query("SELECT RAW COUNT(s.n) FROM shells AS s WHERE s.n >= 0",
                           QueryOptions(scan_consistency=FRESH))
        assert list(rows.rows()) == [number + 1]


def statements_change_documents(env):
    scope = _shells(env)
    result = scope.query("UPDATE shells SET n = n + 10 WHERE n > 0 RETURNING RAW n",
                         QueryOptions(metrics=True, scan_consistency=FRESH))
    assert sorted(result.rows()) == [11, 12]
    assert result.metadata().metrics().mutation_count().value == 2
    assert scope.collection("shells").get("2").content_as[dict]["n"] == 12


def a_readonly_query_refuses_to_write(env):
    scope = _shells(env)
    with refused(InternalServerFailureException):
        scope.query("DELETE FROM shells", QueryOptions(read_only=True)).execute()
    assert scope.collection("shells").exists("0").exists


def mistakes_have_the_classes_of_the_sdk(env):
    with refused(ParsingFailedException):
        env.cluster.query("SELECT FROM WHERE").execute()
    with refused(KeyspaceNotFoundException):
        env.cluster.query("SELECT 1 FROM nowhere.s.c AS n").execute()


def a_query_that_takes_too_long_times_out(env):
    statement = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 20000) AS a, ARRAY_RANGE(0, 20000) AS b, ARRAY_RANGE(0, 20000) AS c"
    with refused(UnAmbiguousTimeoutException):
        env.cluster.query(statement, QueryOptions(read_only=True, timeout=timedelta(seconds=1))).execute()


def indexes_are_created_listed_and_dropped(env):
    scope = _shells(env)
    manager = scope.collection("shells").query_indexes()
    manager.create_primary_index()
    manager.create_index("by_n", ["n"], CreateQueryIndexOptions(condition="n > 0"))
    found = {index.name: index for index in manager.get_all_indexes()}
    assert set(found) == {"#primary", "by_n"}, found
    assert found["#primary"].is_primary and found["by_n"].state == "online"
    assert "> 0" in found["by_n"].condition
    assert (found["by_n"].scope_name, found["by_n"].collection_name) == (scope.name, "shells")
    with refused(QueryIndexAlreadyExistsException):
        manager.create_index("by_n", ["n"])
    manager.create_index("by_n", ["n"], CreateQueryIndexOptions(ignore_if_exists=True))
    manager.drop_index("by_n")
    with refused(QueryIndexNotFoundException):
        manager.drop_index("by_n")
    manager.drop_primary_index()
    manager.drop_primary_index(DropPrimaryQueryIndexOptions(ignore_if_not_exists=True))
    assert list(manager.get_all_indexes()) == []


def deferred_indexes_are_built_and_watched(env):
    manager = _shells(env).collection("shells").query_indexes()
    manager.create_primary_index(CreatePrimaryQueryIndexOptions(deferred=True))
    manager.create_index("by_n", ["n"], CreateQueryIndexOptions(deferred=True))
    assert {index.state for index in manager.get_all_indexes()} == {"deferred"}
    manager.build_deferred_indexes()
    manager.watch_indexes(["by_n"], WatchQueryIndexOptions(timeout=timedelta(seconds=60), watch_primary=True))
    assert {index.state for index in manager.get_all_indexes()} == {"online"}
