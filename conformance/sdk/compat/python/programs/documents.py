"""Whole documents: reads, writes, CAS, expiry, locks, many at once."""

from datetime import timedelta

from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import (
    CASMismatchException,
    CouchbaseException,
    DocumentExistsException,
    DocumentNotFoundException,
)
from couchbase.options import (
    ExistsOptions,
    GetAllReplicasOptions,
    GetAndLockOptions,
    GetAndTouchOptions,
    GetAnyReplicaOptions,
    GetMultiOptions,
    GetOptions,
    InsertMultiOptions,
    InsertOptions,
    RemoveOptions,
    ReplaceOptions,
    TouchOptions,
    UnlockOptions,
    UpsertMultiOptions,
    UpsertOptions,
)


def upsert_and_get(c):
    c.collection.upsert(c.key, {"name": "Ada", "tags": ["a", "b"]})
    return c.collection.get(c.key).content_as[dict]


def content_of_every_kind(c):
    values = [None, True, 0, -1.5, "text", "", [], {}, [1, [2]], {"a": {"b": None}}, "ümläut 💧"]
    read = []
    for number, value in enumerate(values):
        c.collection.upsert(f"{c.key}-{number}", value)
        read.append(c.collection.get(f"{c.key}-{number}").value)
    return read


def content_as_types(c):
    c.collection.upsert(c.key, "text")
    return [c.collection.get(c.key).content_as[str], c.collection.get(c.key).value]


def results_of_writes(c):
    result = c.collection.upsert(c.key, 1)
    token = result.mutation_token()
    return [
        result.key == c.key,
        result.success,
        result.cas > 0,
        token.bucket_name,
        token.sequence_number > 0,
        token.partition_id >= 0,
        token.partition_uuid > 0,
    ]


def results_of_reads(c):
    c.collection.upsert(c.key, 1)
    result = c.collection.get(c.key)
    return [result.key == c.key, result.success, result.cas > 0, result.expiry_time]


def insert_is_refused_twice(c):
    c.collection.insert(c.key, {"a": 1}, InsertOptions(timeout=timedelta(seconds=5)))
    return [c.fails(c.collection.insert, c.key, {"a": 2}), c.collection.get(c.key).value]


def insert_raises_its_class(c):
    c.collection.insert(c.key, 1)
    try:
        c.collection.insert(c.key, 1)
    except DocumentExistsException as error:
        return [isinstance(error, CouchbaseException), error.message is not None]


def get_of_nothing(c):
    try:
        c.collection.get(c.key)
    except DocumentNotFoundException as error:
        return [type(error).__name__, error.error_code is not None, error.context is not None]


def errors_have_a_context(c):
    try:
        c.collection.get(c.key)
    except DocumentNotFoundException as error:
        return [error.context.key == c.key, error.context.bucket_name, error.context.scope_name, error.context.collection_name]


def replace_with_its_cas(c):
    cas = c.collection.upsert(c.key, {"n": 1}).cas
    result = c.collection.replace(c.key, {"n": 2}, ReplaceOptions(cas=cas))
    return [c.collection.get(c.key).value, result.cas != cas]


def replace_with_an_old_cas(c):
    cas = c.collection.upsert(c.key, {"n": 1}).cas
    c.collection.upsert(c.key, {"n": 2})
    try:
        c.collection.replace(c.key, {"n": 3}, cas=cas)
    except CASMismatchException as error:
        return [type(error).__name__, c.collection.get(c.key).value]


def replace_needs_a_document(c):
    return c.fails(c.collection.replace, c.key, 1)


def remove_and_get(c):
    c.collection.upsert(c.key, 1)
    removed = c.collection.remove(c.key, RemoveOptions(timeout=timedelta(seconds=5)))
    return [removed.cas > 0, c.fails(c.collection.get, c.key), c.fails(c.collection.remove, c.key)]


def remove_with_an_old_cas(c):
    cas = c.collection.upsert(c.key, 1).cas
    c.collection.upsert(c.key, 2)
    return [c.fails(c.collection.remove, c.key, RemoveOptions(cas=cas)), c.collection.exists(c.key).exists]


def exists_and_not(c):
    before = c.collection.exists(c.key, ExistsOptions())
    c.collection.upsert(c.key, 1)
    after = c.collection.exists(c.key)
    return [before.exists, after.exists, after.cas > 0]


def options_and_keywords(c):
    c.collection.upsert(c.key, 1, UpsertOptions(expiry=timedelta(hours=1)), expiry=timedelta(0))
    return c.collection.get(c.key, with_expiry=True).expiry_time


def expiry_is_told(c):
    c.collection.upsert(c.key, 1, UpsertOptions(expiry=timedelta(hours=1)))
    result = c.collection.get(c.key, GetOptions(with_expiry=True))
    return [type(result.expiryTime).__name__, result.value]


def expiry_is_preserved(c):
    c.collection.upsert(c.key, 1, expiry=timedelta(hours=1))
    c.collection.upsert(c.key, 2, preserve_expiry=True)
    kept = c.collection.get(c.key, with_expiry=True).expiryTime
    c.collection.replace(c.key, 3, preserve_expiry=True)
    again = c.collection.get(c.key, with_expiry=True).expiryTime
    c.collection.upsert(c.key, 4)
    return [kept is not None, again == kept, c.collection.get(c.key, with_expiry=True).expiryTime is None]


def preserve_expiry_and_expiry(c):
    c.collection.upsert(c.key, 1)
    return c.fails(c.collection.replace, c.key, 2, preserve_expiry=True, expiry=timedelta(hours=1))


def projections(c):
    c.collection.upsert(c.key, {"name": {"first": "A", "last": "B"}, "age": 3, "tags": [1, 2]})
    return c.collection.get(c.key, GetOptions(project=["name.first", "tags"])).value


def projections_of_what_is_not_there(c):
    c.collection.upsert(c.key, {"a": 1})
    return c.collection.get(c.key, project=["a", "none"]).value


def projections_of_many_paths(c):
    c.collection.upsert(c.key, {f"field{number}": number for number in range(24)})
    return c.collection.get(c.key, project=[f"field{number}" for number in range(17)]).value


def touch_sets_an_expiry(c):
    c.collection.upsert(c.key, 1)
    touched = c.collection.touch(c.key, timedelta(hours=1), TouchOptions())
    return [touched.cas > 0, c.collection.get(c.key, with_expiry=True).expiryTime is not None]


def get_and_touch(c):
    c.collection.upsert(c.key, {"a": 1})
    result = c.collection.get_and_touch(c.key, timedelta(hours=1), GetAndTouchOptions())
    return [result.value, c.collection.get(c.key, with_expiry=True).expiryTime is not None]


def touch_of_nothing(c):
    touched = c.fails(c.collection.touch, c.key, timedelta(seconds=1))
    return [touched, c.fails(c.collection.get_and_touch, c.key, timedelta(seconds=1))]


def lock_and_unlock(c):
    c.collection.upsert(c.key, {"a": 1})
    locked = c.collection.get_and_lock(c.key, timedelta(seconds=15), GetAndLockOptions())
    c.collection.unlock(c.key, locked.cas, UnlockOptions())
    c.collection.upsert(c.key, {"a": 2})
    return [locked.value, c.collection.get(c.key).value]


def lock_and_replace(c):
    c.collection.upsert(c.key, 1)
    locked = c.collection.get_and_lock(c.key, timedelta(seconds=15))
    c.collection.replace(c.key, 2, cas=locked.cas)
    return c.collection.get(c.key).value


def unlock_of_what_is_not_locked(c):
    cas = c.collection.upsert(c.key, 1).cas
    return c.fails(c.collection.unlock, c.key, cas)


def replicas(c):
    c.collection.upsert(c.key, {"a": 1})
    any_one = c.collection.get_any_replica(c.key, GetAnyReplicaOptions())
    every = list(c.collection.get_all_replicas(c.key, GetAllReplicasOptions()))
    return [any_one.value, type(any_one.is_replica).__name__, [each.value for each in every]]


def replicas_of_nothing(c):
    return c.fails(c.collection.get_any_replica, c.key)


def durability_of_the_server(c):
    level = ServerDurability(DurabilityLevel.MAJORITY)
    c.collection.upsert(c.key, 1, UpsertOptions(durability=level, timeout=timedelta(seconds=10)))
    level = ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY)
    c.collection.replace(c.key, 2, durability=level, timeout=timedelta(seconds=10))
    return c.collection.get(c.key).value


def many_at_once(c):
    pairs = {f"{c.key}-{number}": {"n": number} for number in range(10)}
    written = c.collection.upsert_multi(pairs, UpsertMultiOptions())
    read = c.collection.get_multi(list(pairs), GetMultiOptions())
    total = sum(result.value["n"] for result in read.results.values())
    return [written.all_ok, read.all_ok, len(written.results), total, written.exceptions]


def many_with_failures(c):
    c.collection.upsert(f"{c.key}-1", 1)
    read = c.collection.get_multi([f"{c.key}-1", f"{c.key}-2"])
    names = [type(error).__name__ for error in read.exceptions.values()]
    return [read.all_ok, len(read.results), names]


def many_inserted_and_removed(c):
    pairs = {f"{c.key}-{number}": number for number in range(4)}
    inserted = c.collection.insert_multi(pairs, InsertMultiOptions())
    again = c.collection.insert_multi(pairs)
    removed = c.collection.remove_multi(list(pairs))
    there = c.collection.exists_multi(list(pairs))
    return [inserted.all_ok, again.all_ok, removed.all_ok, [each.exists for each in there.results.values()]]


def many_that_raise(c):
    return c.fails(c.collection.get_multi, [f"{c.key}-1"], return_exceptions=False)


def many_touched_and_locked(c):
    pairs = {f"{c.key}-{number}": number for number in range(3)}
    c.collection.upsert_multi(pairs)
    touched = c.collection.touch_multi(list(pairs), timedelta(hours=1))
    locked = c.collection.lock_multi(list(pairs), timedelta(seconds=10))
    c.collection.unlock_multi(locked)
    c.collection.upsert_multi(pairs)
    return [touched.all_ok, locked.all_ok]


def keys_in_every_script(c):
    keys = [f"{c.key}-é", f"{c.key}-日本", f"{c.key} with spaces", f"{c.key}/%2F?"]
    for key in keys:
        c.collection.upsert(key, len(key))
    return [c.collection.get(key).value == len(key) for key in keys]


def large_documents(c):
    text = "x" * 2_000_000
    c.collection.upsert(c.key, {"text": text}, timeout=timedelta(seconds=10))
    return c.collection.get(c.key, timeout=timedelta(seconds=10)).value["text"] == text


def writes_repeated_after_a_race(c):
    c.collection.upsert(c.key, {"n": 0})
    for _ in range(5):
        while True:
            found = c.collection.get(c.key)
            try:
                c.collection.replace(c.key, {"n": found.value["n"] + 1}, cas=found.cas)
                break
            except CASMismatchException:
                continue
    return c.collection.get(c.key).value


def names_on_the_way(c):
    other = c.bucket.scope("s").collection("c")
    return [c.bucket.name, c.collection.name, c.bucket.default_scope().name, other.name, c.cluster.bucket(c.bucket.name).name]


def short_timeouts(c):
    error = c.fails(c.collection.upsert, c.key, "x" * 5_000_000, timeout=timedelta(milliseconds=1))
    return error in ("AmbiguousTimeoutException", "UnAmbiguousTimeoutException")
