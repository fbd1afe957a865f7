"""Changes of several documents that take effect together."""

from datetime import timedelta

from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import (
    DocumentNotFoundException,
    DocumentUnretrievableException,
    TransactionException,
    TransactionFailed,
)
from couchbase.options import TransactionOptions, TransactionQueryOptions
from couchbase.transactions import TransactionGetMultiReplicasFromPreferredServerGroupSpec


def options():
    durability = ServerDurability(DurabilityLevel.NONE)
    return TransactionOptions(durability=durability, timeout=timedelta(seconds=20))


def documents_are_inserted(c):
    def run(attempt):
        attempt.insert(c.collection, f"{c.key}-1", {"n": 1})
        attempt.insert(c.collection, f"{c.key}-2", {"n": 2})

    c.cluster.transactions.run(run, options())
    return [c.collection.get(f"{c.key}-1").value, c.collection.get(f"{c.key}-2").value]


def documents_are_replaced(c):
    c.collection.upsert(c.key, {"n": 1})

    def run(attempt):
        document = attempt.get(c.collection, c.key)
        attempt.replace(document, {"n": document.content_as[dict]["n"] + 1})

    c.cluster.transactions.run(run, options())
    return c.collection.get(c.key).value


def documents_are_removed(c):
    c.collection.upsert(c.key, {"n": 1})
    c.cluster.transactions.run(lambda attempt: attempt.remove(attempt.get(c.collection, c.key)), options())
    return c.fails(c.collection.get, c.key)


def a_failure_changes_nothing(c):
    c.collection.upsert(c.key, {"n": 1})

    def run(attempt):
        attempt.replace(attempt.get(c.collection, c.key), {"n": 2})
        raise ValueError("not today")

    try:
        c.cluster.transactions.run(run, options())
    except TransactionFailed as error:
        return [isinstance(error, TransactionException), c.collection.get(c.key).value]


def money_moves(c):
    c.collection.upsert(f"{c.key}-a", {"balance": 100})
    c.collection.upsert(f"{c.key}-b", {"balance": 0})

    def run(attempt):
        a = attempt.get(c.collection, f"{c.key}-a")
        b = attempt.get(c.collection, f"{c.key}-b")
        attempt.replace(a, {"balance": a.content_as[dict]["balance"] - 30})
        attempt.replace(b, {"balance": b.content_as[dict]["balance"] + 30})

    c.cluster.transactions.run(run, options())
    return [c.collection.get(f"{c.key}-{each}").value for each in "ab"]


def own_writes_are_read(c):
    read = []

    def run(attempt):
        attempt.insert(c.collection, c.key, {"n": 1})
        read.append(attempt.get(c.collection, c.key).content_as[dict])

    c.cluster.transactions.run(run, options())
    return read


def documents_that_are_not_there(c):
    found = []

    def run(attempt):
        try:
            attempt.get(c.collection, c.key)
        except DocumentNotFoundException as error:
            found.append(type(error).__name__)

    c.cluster.transactions.run(run, options())
    return found


def inserts_that_collide(c):
    c.collection.upsert(c.key, 1)
    failed = c.fails(c.cluster.transactions.run, lambda attempt: attempt.insert(c.collection, c.key, 2), options())
    return [failed, c.collection.get(c.key).value]


def statements_in_a_transaction(c):
    collection = c.scope.collection("people")

    def run(attempt):
        asked = TransactionQueryOptions(positional_parameters=[c.key])
        people = f"`{c.bucket.name}`.`{c.scope.name}`.people"
        attempt.query(f'INSERT INTO {people} (KEY, VALUE) VALUES ($1, {{"n": 5}})', asked)
        attempt.query(f"UPDATE {people} USE KEYS [$1] SET n = n + 1", asked)

    c.cluster.transactions.run(run, options())
    return collection.get(c.key).value


def rows_in_a_transaction(c):
    found = []
    c.cluster.transactions.run(lambda attempt: found.extend(attempt.query("SELECT RAW 1").rows()), options())
    return found


def a_statement_that_fails(c):
    return c.fails(c.cluster.transactions.run, lambda attempt: attempt.query("SELEKT"), options())


def results_say_how_it_went(c):
    result = c.cluster.transactions.run(lambda attempt: attempt.insert(c.collection, c.key, 1), options())
    return [type(result.transaction_id).__name__, result.unstaging_complete]


def near_copies_of_documents_are_read(c):
    c.collection.upsert(c.key, {"n": 1})
    seen = []

    def run(attempt):
        del seen[:]
        try:
            attempt.get_replica_from_preferred_server_group(c.collection, f"{c.key}-none")
        except DocumentUnretrievableException:
            seen.append("none")
        document = attempt.get_replica_from_preferred_server_group(c.collection, c.key)
        seen.append(document.content_as[dict])
        attempt.replace(document, {"n": 2})
        specs = [TransactionGetMultiReplicasFromPreferredServerGroupSpec(c.collection, key) for key in (c.key, f"{c.key}-none")]
        several = attempt.get_multi_replicas_from_preferred_server_group(specs)
        seen.extend([several.exists(0), several.exists(1), several.content_as[dict](0)])

    c.cluster.transactions.run(run, options())
    return [*seen, c.collection.get(c.key).value]
