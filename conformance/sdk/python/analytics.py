"""Analytics with the official Python SDK: queries, definitions, pending changes, against a node with the service `cbas`.

    python analytics.py --connection couchbase://127.0.0.1 --user U --password P --bucket B

Each function is a case; the last line contains the number of passed cases. `cargo xtask analytics` runs it.
"""

import argparse
import inspect
import sys
import time
import traceback
import uuid
from datetime import timedelta

from couchbase.analytics import AnalyticsScanConsistency, AnalyticsStatus
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import (CouchbaseException, DatasetAlreadyExistsException, DatasetNotFoundException,
                                  DataverseAlreadyExistsException, DataverseNotFoundException, UnAmbiguousTimeoutException)
from couchbase.management.analytics import AnalyticsDataType
from couchbase.management.options import (ConnectLinkOptions, CreateAnalyticsIndexOptions, CreateDatasetOptions,
                                          CreateDataverseOptions, DropAnalyticsIndexOptions, DropDatasetOptions,
                                          DropDataverseOptions)
from couchbase.options import AnalyticsOptions, ClusterOptions

from support import Environment, cases, eventually, refused

FRESH = AnalyticsScanConsistency.REQUEST_PLUS


class Shells:
    """A collection with documents, and the dataset that follows it."""

    def __init__(self, env, documents):
        self.scope, manager = env.name("scope"), env.bucket.collections()
        manager.create_scope(self.scope)
        env.later(lambda: manager.drop_scope(self.scope))
        manager.create_collection(self.scope, "shells")
        self.collection = env.bucket.scope(self.scope).collection("shells")
        for key, value in documents.items():
            self.collection.upsert(key, value)
        self.dataset = env.name("dataset").replace("-", "_")
        path = f"`{env.bucket_name}`.`{self.scope}`.`shells`"
        # The SDK runs a query when its rows are read.
        list(env.cluster.analytics_query(f"CREATE ANALYTICS COLLECTION `{self.dataset}` ON {path}").rows())
        env.later(lambda: list(env.cluster.analytics_query(f"DROP ANALYTICS COLLECTION `{self.dataset}` IF EXISTS").rows()))

    def query(self, env, statement, **options):
        options.setdefault("scan_consistency", FRESH)
        result = env.cluster.analytics_query(statement.replace("@", f"`{self.dataset}`"), AnalyticsOptions(**options))
        return list(result.rows())

    def explain(self, env, statement):
        return self.query(env, "EXPLAIN " + statement)[0]


def _documents(count=20):
    return {f"s{n}": {"n": n, "even": n % 2 == 0, "name": f"shell {n}", "price": n + 0.5,
                      "parts": [{"of": n, "at": at} for at in range(n % 4)]} for n in range(count)}


def a_query_without_documents_gives_rows_and_metadata(env):
    result = env.cluster.analytics_query("SELECT 1 + 1 AS two, 'pearl' AS word")
    assert list(result.rows()) == [{"two": 2, "word": "pearl"}]
    metadata = result.metadata()
    assert metadata.status() == AnalyticsStatus.SUCCESS, metadata.status()
    metrics = metadata.metrics()
    assert metadata.request_id() and metrics.result_count().value == 1 and metrics.error_count().value == 0
    assert timedelta() < metrics.elapsed_time()


def documents_are_grouped_and_ordered_over_columns(env):
    shells = Shells(env, _documents())
    statement = "SELECT s.even, COUNT(*) AS count, SUM(s.n) AS sum, AVG(s.price) AS mean FROM @ AS s " \
                "WHERE s.n >= 4 GROUP BY s.even ORDER BY s.even LIMIT 5"
    assert shells.query(env, statement) == [{"even": False, "count": 8, "sum": 96, "mean": 12.5},
                                            {"even": True, "count": 8, "sum": 88, "mean": 11.5}]
    assert shells.explain(env, statement)["engine"] == "columns"


def elements_of_arrays_are_rows(env):
    shells = Shells(env, _documents())
    statement = "SELECT VALUE COUNT(*) FROM @ AS s, s.parts AS p WHERE p.at = 1"
    assert shells.query(env, statement) == [10]
    assert shells.explain(env, statement)["engine"] == "columns"


def collections_are_joined(env):
    shells = Shells(env, _documents())
    statement = "SELECT a.n, b.name FROM @ AS a JOIN @ AS b ON a.n = b.n + 1 WHERE b.even ORDER BY a.n LIMIT 2"
    assert shells.query(env, statement) == [{"n": 1, "name": "shell 0"}, {"n": 3, "name": "shell 2"}]
    assert shells.explain(env, statement)["engine"] == "columns"


def writes_and_deletes_are_seen(env):
    shells = Shells(env, _documents(5))
    assert shells.query(env, "SELECT VALUE COUNT(*) FROM @ s") == [5]
    shells.collection.remove("s0")
    shells.collection.upsert("s1", {"n": 100})
    shells.collection.upsert("new", {"n": 1000})
    assert shells.query(env, "SELECT VALUE s.n FROM @ s ORDER BY s.n") == [2, 3, 4, 100, 1000]
    eventually(lambda: shells.query(env, "SELECT VALUE COUNT(*) FROM @ s", scan_consistency=None) == [5])


def missing_and_null_are_told_apart(env):
    shells = Shells(env, {"a": {"n": 1, "v": None}, "b": {"n": 2}, "c": {"n": 3, "v": 7}})
    assert shells.query(env, "SELECT s.n, s.v FROM @ s ORDER BY s.n") == [
        {"n": 1, "v": None}, {"n": 2}, {"n": 3, "v": 7}]
    assert shells.query(env, "SELECT VALUE s.n FROM @ s WHERE s.v IS NULL") == [1]
    assert shells.query(env, "SELECT VALUE s.n FROM @ s WHERE s.v IS MISSING") == [2]
    assert shells.query(env, "SELECT VALUE s.n FROM @ s WHERE s.v IS UNKNOWN ORDER BY s.n") == [1, 2]
    rows = shells.query(env, "SELECT s.v, COUNT(*) AS count FROM @ s GROUP BY s.v ORDER BY s.v")
    assert rows == [{"count": 1}, {"v": None, "count": 1}, {"v": 7, "count": 1}], rows


def values_of_several_kinds_are_evaluated_one_by_one(env):
    shells = Shells(env, {"a": {"v": 5}, "b": {"v": "5"}, "c": {"v": [5]}, "d": {"v": {"x": 5}}, "e": {"v": 5.5}})
    assert shells.query(env, "SELECT VALUE META(s).id FROM @ s WHERE s.v = 5") == ["a"]
    assert shells.query(env, "SELECT VALUE META(s).id FROM @ s WHERE s.v.x = 5") == ["d"]
    assert shells.query(env, "SELECT VALUE META(s).id FROM @ s ORDER BY s.v") == ["a", "e", "b", "c", "d"]
    assert shells.explain(env, "SELECT VALUE META(s).id FROM @ s WHERE s.v = 5")["evaluated"]


def whole_documents_are_as_they_were_written(env):
    document = {"z": 1, "a": [1, 2.5, None, {"deep": [[]]}], "text": "Perle mère 真珠", "n": None}
    shells = Shells(env, {"x": document})
    assert shells.query(env, "SELECT VALUE s FROM @ s") == [document]
    assert shells.query(env, "SELECT * FROM @ s") == [{"s": document}]
    assert shells.query(env, "SELECT s.* FROM @ s") == [document]


def parameters_are_taken_by_position_and_by_name(env):
    shells = Shells(env, _documents())
    statement = "SELECT VALUE s.n FROM @ s WHERE s.n >= $1 AND s.name LIKE $like ORDER BY s.n LIMIT $2"
    rows = shells.query(env, statement, positional_parameters=[7, 2], named_parameters={"like": "shell 1%"})
    assert rows == [10, 11], rows


def a_large_answer_comes_whole(env):
    rows = env.cluster.analytics_query("SELECT {'some': 'data', 'number': i} AS o FROM range(1, 20000) AS i").rows()
    count = sum(1 for _ in rows)
    assert count == 20000, count


def a_query_that_takes_too_long_is_ended(env):
    began = time.monotonic()
    # The SDK sends the option `timeout` in microseconds instead of milliseconds.
    with refused(UnAmbiguousTimeoutException):
        list(env.cluster.analytics_query("SELECT sleep('some value', 10000) AS v",
                                         AnalyticsOptions(raw={"timeout": "1s"})))
    assert time.monotonic() - began < 5


def what_is_wrong_is_said(env):
    # The SDK has no class for this code.
    with refused(CouchbaseException):
        list(env.cluster.analytics_query("SELEC 1"))
    with refused(DatasetNotFoundException):
        list(env.cluster.analytics_query("SELECT * FROM nothing_of_this_name AS x"))


def a_scope_has_collections_of_its_own(env):
    name, manager = env.name("scope"), env.bucket.collections()
    manager.create_scope(name)
    env.later(lambda: manager.drop_scope(name))
    manager.create_collection(name, "shells")
    scope = env.bucket.scope(name)
    scope.collection("shells").upsert("a", {"service": "x"})
    path = f"`{env.bucket_name}`.`{name}`.`shells`"
    list(env.cluster.analytics_query(f"ALTER COLLECTION {path} ENABLE ANALYTICS"))
    options = AnalyticsOptions(positional_parameters=["x"], scan_consistency=FRESH)
    rows = list(scope.analytics_query("SELECT s.* FROM shells AS s WHERE s.service = ? LIMIT 1", options))
    assert rows == [{"service": "x"}], rows
    rows = list(env.cluster.analytics_query(f"SELECT VALUE COUNT(*) FROM {path} AS s"))
    assert rows == [1], rows
    list(env.cluster.analytics_query(f"ALTER COLLECTION {path} DISABLE ANALYTICS"))


def definitions_are_managed(env):
    manager, dataverse = env.cluster.analytics_indexes(), env.name("dv").replace("-", "_")
    manager.create_dataverse(dataverse)
    env.later(lambda: manager.drop_dataverse(dataverse, DropDataverseOptions(ignore_if_not_exists=True)))
    with refused(DataverseAlreadyExistsException):
        manager.create_dataverse(dataverse)
    manager.create_dataverse(dataverse, CreateDataverseOptions(ignore_if_exists=True))
    manager.create_dataset("ds", env.bucket_name, CreateDatasetOptions(dataverse_name=dataverse))
    with refused(DatasetAlreadyExistsException):
        manager.create_dataset("ds", env.bucket_name, CreateDatasetOptions(dataverse_name=dataverse))
    options = CreateDatasetOptions(dataverse_name=dataverse, ignore_if_exists=True)
    manager.create_dataset("ds", env.bucket_name, options)
    datasets = [d for d in manager.get_all_datasets() if d.dataverse_name == dataverse]
    assert [(d.dataset_name, d.link_name, d.bucket_name) for d in datasets] == [("ds", "Local", env.bucket_name)]
    fields = {"name": AnalyticsDataType.STRING, "n": AnalyticsDataType.INT64}
    manager.create_index("by_name", "ds", fields, CreateAnalyticsIndexOptions(dataverse_name=dataverse))
    indexes = [i for i in manager.get_all_indexes() if i.dataverse_name == dataverse and i.name == "by_name"]
    assert len(indexes) == 1 and not indexes[0].is_primary, indexes
    manager.drop_index("by_name", "ds", DropAnalyticsIndexOptions(dataverse_name=dataverse))
    manager.connect_link(ConnectLinkOptions(dataverse_name=dataverse))
    eventually(lambda: manager.get_pending_mutations().get(f"{dataverse}.ds", 0) == 0)
    manager.drop_dataset("ds", DropDatasetOptions(dataverse_name=dataverse))
    with refused(DatasetNotFoundException):
        manager.drop_dataset("ds", DropDatasetOptions(dataverse_name=dataverse))
    manager.drop_dataverse(dataverse)
    with refused(DataverseNotFoundException):
        manager.drop_dataverse(dataverse)


def users_without_the_right_are_refused(env):
    shells = Shells(env, _documents(3))
    statement = f"SELECT VALUE COUNT(*) FROM `{shells.dataset}` s"
    for roles, may in (("data_reader[*]", False), ("analytics_reader", True),
                       (f"analytics_select[{env.bucket_name}]", True)):
        name = env.name("user")
        cluster = env.log_in(name, roles)
        if may:
            eventually(lambda: list(cluster.analytics_query(statement)) == [3])
        else:
            with refused(CouchbaseException):
                list(cluster.analytics_query(statement))
        with refused(CouchbaseException):
            list(cluster.analytics_query(f"DROP ANALYTICS COLLECTION `{shells.dataset}`"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connection", default="couchbase://127.0.0.1")
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--case", help="run this one alone")
    arguments = parser.parse_args()

    def connect(user, password):
        cluster = Cluster(arguments.connection, ClusterOptions(PasswordAuthenticator(user, password)))
        cluster.wait_until_ready(timedelta(seconds=30))
        return cluster

    cluster, run = connect(arguments.user, arguments.password), uuid.uuid4().hex[:6]

    def log_in(name, roles):
        from couchbase.management.users import Role, User
        role, _, inside = roles.partition("[")
        of = {"bucket": inside.rstrip("]")} if inside else {}
        user = User(username=name, password="password", roles=[Role(name=role, **of)])
        cluster.users().upsert_user(user)
        env.later(lambda: cluster.users().drop_user(name))
        other = Cluster(arguments.connection, ClusterOptions(PasswordAuthenticator(name, "password")))
        env.later(other.close)
        return other

    env = Environment(cluster, log_in, arguments.bucket, f"a{run}")
    passed, failed = 0, []
    wanted = [case for case in cases(sys.modules[__name__])
              if inspect.isfunction(case) and list(inspect.signature(case).parameters) == ["env"]]
    for case in wanted:
        if arguments.case and case.__name__ != arguments.case:
            continue
        try:
            case(env)
            passed += 1
            print(f"passed {case.__name__}")
        except Exception:
            failed.append(case.__name__)
            print(f"FAILED {case.__name__}\n{traceback.format_exc()}")
    env.clean()
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
