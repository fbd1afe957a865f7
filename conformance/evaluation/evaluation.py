"""One client with the official Python SDK: times of inserts, updates, queries, searches and deletes of documents.

    evaluation.py --connection couchbase://127.0.0.1 --count 1000 --durability majority

prints one line of JSON: the milliseconds of all documents by operation, one after the other, and of the slowest single
one.
"""

import argparse
import json
import time
from datetime import timedelta

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.management.search import SearchIndex
from couchbase.n1ql import QueryScanConsistency
from couchbase.options import (
    ClusterOptions,
    InsertOptions,
    QueryOptions,
    RemoveOptions,
    ReplaceOptions,
    SearchOptions,
)
from couchbase.search import MatchQuery

LEVELS = {
    "none": DurabilityLevel.NONE,
    "majority": DurabilityLevel.MAJORITY,
    "majorityAndPersistActive": DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE,
    "persistToMajority": DurabilityLevel.PERSIST_TO_MAJORITY,
}
#: Time limit for the search index to have all documents.
PATIENCE_S = 120
TEXT_INDEX = "by_name"
#: A dynamic mapping.
MAPPING = {"mapping": {"default_mapping": {"enabled": True, "dynamic": True}}}


def key(number):
    return f"document-{number}"


def document(number, revision):
    """Returns a document of about two hundred bytes; its name is a word that no other document has."""
    return {"ordinal": number, "name": f"name{number}", "round": revision, "text": "all work and no play " * 6}


def only(rows, number):
    """Checks that the single row is the document's."""
    found = list(rows)
    if len(found) != 1 or found[0]["ordinal"] != number:
        raise SystemExit(f"asked for {number}, got {found}")


class Evaluation:
    def __init__(self, cluster, bucket, level):
        self.cluster = cluster
        self.bucket = bucket
        self.collection = cluster.bucket(bucket).default_collection()
        self.durability = ServerDurability(LEVELS[level])
        self.statement = f"SELECT d.* FROM `{bucket}` AS d WHERE d.ordinal = $1"

    def prepare(self):
        list(self.cluster.query(f"CREATE INDEX by_ordinal IF NOT EXISTS ON `{self.bucket}`(ordinal)").rows())
        indexes = self.cluster.search_indexes()
        if TEXT_INDEX not in [index.name for index in indexes.get_all_indexes()]:
            indexes.upsert_index(SearchIndex(name=TEXT_INDEX, source_name=self.bucket, params=MAPPING))

    def insert(self, number):
        self.collection.insert(key(number), document(number, 0), InsertOptions(durability=self.durability))

    def update(self, number):
        self.collection.replace(key(number), document(number, 1), ReplaceOptions(durability=self.durability))

    def query(self, number):
        only(self.cluster.query(self.statement, QueryOptions(positional_parameters=[number], adhoc=False)).rows(), number)

    def search(self, number):
        rows = list(self.find(number))
        if [row.id for row in rows] != [key(number)]:
            raise SystemExit(f"searched for {number}, found {[row.id for row in rows]}")

    def delete(self, number):
        self.collection.remove(key(number), RemoveOptions(durability=self.durability))

    def find(self, number):
        query = MatchQuery(f"name{number}", field="name")
        return self.cluster.search_query(TEXT_INDEX, query, SearchOptions(limit=2)).rows()

    def settle(self, count):
        """Waits until both indexes have all documents."""
        fresh = QueryOptions(positional_parameters=[0], scan_consistency=QueryScanConsistency.REQUEST_PLUS)
        list(self.cluster.query(self.statement, fresh).rows())
        until = time.monotonic() + PATIENCE_S
        missing = set(range(count))
        while missing:
            if time.monotonic() > until:
                raise SystemExit(f"the search index lacks {len(missing)} documents")
            missing = {number for number in missing if not list(self.find(number))}

    def timed(self, count):
        took = {"slowest": 0.0}
        for name in ["insert", "update", "query", "search", "delete"]:
            if name == "query":
                self.settle(count)
            operation, total = getattr(self, name), 0.0
            for number in range(count):
                begun = time.perf_counter()
                operation(number)
                each = (time.perf_counter() - begun) * 1000
                total += each
                took["slowest"] = max(took["slowest"], each)
            took[name] = total
        return took


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--connection", default="couchbase://127.0.0.1")
    options.add_argument("--user", default="Administrator")
    options.add_argument("--password", default="password")
    options.add_argument("--bucket", default="default")
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--durability", choices=LEVELS, default="none")
    given = options.parse_args()
    cluster = Cluster(given.connection, ClusterOptions(PasswordAuthenticator(given.user, given.password)))
    cluster.wait_until_ready(timedelta(seconds=60))
    evaluation = Evaluation(cluster, given.bucket, given.durability)
    evaluation.prepare()
    print(json.dumps(evaluation.timed(given.count)))


if __name__ == "__main__":
    main()
