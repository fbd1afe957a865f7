"""SQL++ statements, their options and errors, and indexes."""

from datetime import timedelta

from couchbase.exceptions import CouchbaseException, ParsingFailedException
from couchbase.management.options import (
    CreatePrimaryQueryIndexOptions,
    CreateQueryIndexOptions,
    DropPrimaryQueryIndexOptions,
    DropQueryIndexOptions,
    WatchQueryIndexOptions,
)
from couchbase.mutation_state import MutationState
from couchbase.n1ql import QueryProfile, QueryScanConsistency
from couchbase.options import QueryOptions


def people(context):
    collection = context.scope.collection("people")
    return [
        collection.upsert(f"{context.key}-{name}", {"kind": context.key, "name": name, "age": 30 + number})
        for number, name in enumerate(("Ada", "Bob", "Eve"))
    ]


def a_constant(c):
    return list(c.cluster.query('SELECT 1 + 1 AS two, "x" AS text, NULL AS nothing'))


def raw_rows(c):
    return [row for row in c.cluster.query("SELECT RAW n FROM [3, 1, 2] AS n ORDER BY n").rows()]


def executed_at_once(c):
    return c.cluster.query("SELECT RAW 1").execute()


def named_parameters(c):
    options = QueryOptions(named_parameters={"a": "x", "b": "y"})
    return list(c.cluster.query("SELECT RAW $a || $b", options))


def named_parameters_by_keyword(c):
    return list(c.cluster.query("SELECT RAW $a || $b", a="x", b="y"))


def positional_parameters(c):
    options = QueryOptions(positional_parameters=[20, 22])
    return list(c.cluster.query("SELECT RAW $1 + $2", options))


def positional_parameters_by_position(c):
    return list(c.cluster.query("SELECT RAW $1 + $2", 20, 22))


def prepared_statements(c):
    found = []
    for n in (1, 2, 3):
        found += list(c.cluster.query("SELECT RAW $n * 2", QueryOptions(adhoc=False, named_parameters={"n": n})))
    return found


def rows_of_a_collection(c):
    people(c)
    options = QueryOptions(named_parameters={"kind": c.key}, scan_consistency=QueryScanConsistency.REQUEST_PLUS)
    return list(c.scope.query("SELECT p.name, p.age FROM people AS p WHERE p.kind = $kind ORDER BY p.name", options))


def rows_of_a_whole_name(c):
    people(c)
    statement = f"SELECT RAW COUNT(*) FROM `{c.bucket.name}`.`{c.scope.name}`.people WHERE kind = $1"
    options = QueryOptions(positional_parameters=[c.key], scan_consistency=QueryScanConsistency.REQUEST_PLUS)
    return list(c.cluster.query(statement, options))


def a_context_by_option(c):
    people(c)
    options = QueryOptions(
        positional_parameters=[c.key],
        query_context=f"default:`{c.bucket.name}`.`{c.scope.name}`",
        scan_consistency=QueryScanConsistency.REQUEST_PLUS,
    )
    return list(c.cluster.query("SELECT RAW COUNT(*) FROM people WHERE kind = $1", options))


def consistent_with_a_state(c):
    written = people(c)
    options = QueryOptions(positional_parameters=[c.key], consistent_with=MutationState(*written))
    return list(c.scope.query("SELECT RAW name FROM people WHERE kind = $1 ORDER BY name", options))


def metrics(c):
    result = c.cluster.query("SELECT RAW 1", QueryOptions(metrics=True))
    rows = list(result)
    found = result.metadata().metrics()
    return [
        rows,
        found is not None,
        type(found.elapsed_time()).__name__,
    ]


def meta_of_a_result(c):
    result = c.cluster.query("SELECT 1 AS a", QueryOptions(client_context_id="mine"))
    rows = list(result)
    meta = result.metadata()
    return [rows, meta.status().value, meta.client_context_id(), type(meta.request_id()).__name__, meta.signature(), meta.warnings()]


def a_profile(c):
    result = c.cluster.query("SELECT RAW 1", QueryOptions(profile=QueryProfile.TIMINGS))
    list(result)
    return type(result.metadata().profile()).__name__


def updates_and_deletes(c):
    people(c)
    options = {"positional_parameters": [c.key], "scan_consistency": QueryScanConsistency.REQUEST_PLUS, "metrics": True}
    updated = list(c.scope.query("UPDATE people SET seen = TRUE WHERE kind = $1 RETURNING RAW seen", QueryOptions(**options)))
    deleted = c.scope.query("DELETE FROM people WHERE kind = $1 AND age > 30", QueryOptions(**options))
    deleted.execute()
    left = list(c.scope.query("SELECT RAW name FROM people WHERE kind = $1", QueryOptions(**options)))
    return [updated, left]


def read_only_refuses_writes(c):
    query = c.scope.query("UPSERT INTO people (KEY, VALUE) VALUES ($1, {})", QueryOptions(positional_parameters=[c.key], read_only=True))
    return c.fails(query.execute) is not None


def a_syntax_error(c):
    return c.fails(c.cluster.query("SELEKT 1").execute)


def a_syntax_error_is_an_instance(c):
    try:
        c.cluster.query("SELEKT 1").execute()
    except ParsingFailedException as error:
        return [isinstance(error, CouchbaseException), error.context.statement, error.context.first_error_code]


def many_rows(c):
    rows = list(c.cluster.query("SELECT RAW n FROM ARRAY_RANGE(0, 5000) AS n"))
    return [len(rows), rows[-1]]


def raw_options(c):
    return list(c.cluster.query("SELECT RAW $x", QueryOptions(raw={"$x": 5})))


def options_of_every_kind(c):
    options = QueryOptions(
        max_parallelism=1,
        pipeline_batch=10,
        pipeline_cap=10,
        scan_cap=10,
        scan_wait=timedelta(milliseconds=10),
        flex_index=False,
        preserve_expiry=False,
        timeout=timedelta(seconds=5),
    )
    return list(c.cluster.query("SELECT RAW 1", options))


def indexes_of_a_collection(c):
    indexes = c.scope.collection("indexed").query_indexes()
    name = "ix_" + "".join(filter(str.isalnum, c.key))
    indexes.create_index(name, ["a", "b"])
    again = c.fails(indexes.create_index, name, ["a", "b"])
    indexes.create_index(name, ["a", "b"], CreateQueryIndexOptions(ignore_if_exists=True))
    found = next(index for index in indexes.get_all_indexes() if index.name == name)
    indexes.drop_index(name)
    gone = c.fails(indexes.drop_index, name)
    indexes.drop_index(name, DropQueryIndexOptions(ignore_if_not_exists=True))
    return [again, gone, found.is_primary, found.state, list(found.index_key)]


def indexes_that_are_built_later(c):
    indexes = c.scope.collection("indexed").query_indexes()
    name = "later_" + "".join(filter(str.isalnum, c.key))
    indexes.create_index(name, ["c"], deferred=True)
    states = [next(index.state for index in indexes.get_all_indexes() if index.name == name)]
    indexes.build_deferred_indexes()
    indexes.watch_indexes([name], WatchQueryIndexOptions(timeout=timedelta(seconds=20)))
    states.append(next(index.state for index in indexes.get_all_indexes() if index.name == name))
    indexes.drop_index(name)
    return states


def primary_indexes(c):
    indexes = c.cluster.query_indexes()
    where = {"scope_name": c.scope.name, "collection_name": "primary"}
    indexes.create_primary_index(c.bucket.name, CreatePrimaryQueryIndexOptions(**where))
    again = c.fails(indexes.create_primary_index, c.bucket.name, CreatePrimaryQueryIndexOptions(**where))
    indexes.drop_primary_index(c.bucket.name, DropPrimaryQueryIndexOptions(**where))
    return [again, c.fails(indexes.drop_primary_index, c.bucket.name, DropPrimaryQueryIndexOptions(**where))]
