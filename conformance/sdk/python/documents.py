"""Operations on whole documents."""

import time
from datetime import timedelta

from couchbase.durability import ClientDurability, DurabilityLevel, PersistToExtended, ServerDurability
from couchbase.exceptions import (AmbiguousTimeoutException, CasMismatchException, CouchbaseException,
                                  DocumentExistsException, DocumentLockedException, DocumentNotFoundException,
                                  DocumentNotLockedException, UnAmbiguousTimeoutException)
from couchbase.options import (AppendOptions, DecrementOptions, DeltaValue, GetOptions, IncrementOptions,
                               InsertOptions, RemoveOptions, ReplaceOptions, SignedInt64, UpsertOptions)
from couchbase.transcoder import RawBinaryTranscoder, RawStringTranscoder

from support import eventually, refused

SHORT = timedelta(milliseconds=400)
# The SDK retries a locked document until its timeout.
LOCKED = (DocumentLockedException, AmbiguousTimeoutException, UnAmbiguousTimeoutException)


def _expiry(env, key):
    """Returns the Unix time at which the document expires; 0 for never."""
    moment = env.collection.get(key, GetOptions(with_expiry=True)).expiryTime
    return int(moment.timestamp()) if moment else 0


def an_inserted_document_is_read_back(env):
    key, stored = env.document({"name": "pearl", "n": [1, 2.5, None, True], "text": "Perle mère 真珠"})
    found = env.collection.get(key)
    assert found.content_as[dict] == {"name": "pearl", "n": [1, 2.5, None, True], "text": "Perle mère 真珠"}
    assert found.cas == stored.cas != 0


def a_missing_document_is_not_found(env):
    with refused(DocumentNotFoundException):
        env.collection.get(env.name())


def insert_refuses_a_document_that_exists(env):
    key, _ = env.document(1)
    with refused(DocumentExistsException):
        env.collection.insert(key, 2)


def upsert_creates_and_overwrites(env):
    key = env.key()
    first = env.collection.upsert(key, {"v": 1})
    second = env.collection.upsert(key, {"v": 2})
    assert second.cas > first.cas
    assert env.collection.get(key).content_as[dict] == {"v": 2}


def replace_needs_a_document(env):
    with refused(DocumentNotFoundException):
        env.collection.replace(env.name(), 1)


def replace_with_the_current_cas_is_taken(env):
    key, stored = env.document(1)
    replaced = env.collection.replace(key, 2, ReplaceOptions(cas=stored.cas))
    assert replaced.cas not in (0, stored.cas)
    assert env.collection.get(key).content_as[int] == 2


def a_stale_cas_is_refused(env):
    key, stored = env.document(1)
    env.collection.upsert(key, 2)
    with refused(CasMismatchException):
        env.collection.replace(key, 3, ReplaceOptions(cas=stored.cas))
    with refused(CasMismatchException):
        env.collection.remove(key, RemoveOptions(cas=stored.cas))
    assert env.collection.get(key).content_as[int] == 2


def a_removed_document_is_gone(env):
    key, stored = env.document(1)
    assert env.collection.remove(key, RemoveOptions(cas=stored.cas)).cas != 0
    assert not env.collection.exists(key).exists
    with refused(DocumentNotFoundException):
        env.collection.remove(key)


def a_removed_document_can_be_inserted_again(env):
    key, _ = env.document(1)
    env.collection.remove(key)
    env.collection.insert(key, 2)
    assert env.collection.get(key).content_as[int] == 2


def exists_tells_and_gives_the_cas(env):
    key, stored = env.document(1)
    result = env.collection.exists(key)
    assert result.exists and result.cas == stored.cas
    assert not env.collection.exists(env.name()).exists


def counters_begin_with_their_initial_value(env):
    binary, up, down = env.collection.binary(), env.key(), env.key()
    assert binary.increment(up, IncrementOptions(initial=SignedInt64(40), delta=DeltaValue(2))).content == 40
    assert binary.increment(up, IncrementOptions(delta=DeltaValue(2))).content == 42
    assert binary.decrement(down, DecrementOptions(initial=SignedInt64(5))).content == 5
    assert binary.decrement(down, DecrementOptions(delta=DeltaValue(3))).content == 2
    assert env.collection.get(up).content_as[int] == 42


def counters_do_not_fall_below_zero(env):
    binary, key = env.collection.binary(), env.key()
    binary.increment(key, IncrementOptions(initial=SignedInt64(1)))
    assert binary.decrement(key, DecrementOptions(delta=DeltaValue(10))).content == 0


def counters_without_an_initial_value_need_a_document(env):
    with refused(DocumentNotFoundException):
        env.collection.binary().increment(env.name(), IncrementOptions(initial=SignedInt64(-1)))


def append_and_prepend_extend_bytes(env):
    key = env.key()
    env.collection.insert(key, b"b", InsertOptions(transcoder=RawBinaryTranscoder()))
    env.collection.binary().append(key, b"c")
    env.collection.binary().prepend(key, b"a")
    assert env.collection.get(key, GetOptions(transcoder=RawBinaryTranscoder())).value == b"abc"


def append_needs_a_document_and_the_current_cas(env):
    with refused(DocumentNotFoundException):
        env.collection.binary().append(env.name(), b"x")
    key = env.key()
    stored = env.collection.insert(key, b"b", InsertOptions(transcoder=RawBinaryTranscoder()))
    env.collection.binary().append(key, b"c")
    with refused(CasMismatchException):
        env.collection.binary().append(key, b"d", AppendOptions(cas=stored.cas))


def raw_strings_keep_their_form(env):
    key = env.key()
    env.collection.upsert(key, "not \"json", UpsertOptions(transcoder=RawStringTranscoder()))
    assert env.collection.get(key, GetOptions(transcoder=RawStringTranscoder())).value == "not \"json"


def a_document_expires(env):
    key = env.key()
    env.collection.insert(key, 1, InsertOptions(expiry=timedelta(seconds=1)))
    assert env.collection.exists(key).exists
    eventually(lambda: not env.collection.exists(key).exists)
    with refused(DocumentNotFoundException):
        env.collection.get(key)


def get_gives_the_expiry(env):
    key = env.key()
    env.collection.insert(key, {"v": 1}, InsertOptions(expiry=timedelta(hours=1)))
    assert abs(_expiry(env, key) - (time.time() + 3600)) < 10
    plain, _ = env.document({"v": 1})
    assert _expiry(env, plain) == 0


def touch_sets_and_removes_the_expiry(env):
    key, stored = env.document({"v": 1})
    touched = env.collection.touch(key, timedelta(hours=2))
    assert touched.cas not in (0, stored.cas)
    assert abs(_expiry(env, key) - (time.time() + 7200)) < 10
    env.collection.touch(key, timedelta(seconds=0))
    assert _expiry(env, key) == 0
    with refused(DocumentNotFoundException):
        env.collection.touch(env.name(), timedelta(hours=2))


def get_and_touch_reads_and_sets_the_expiry(env):
    key, _ = env.document({"v": 1})
    assert env.collection.get_and_touch(key, timedelta(days=40)).content_as[dict] == {"v": 1}
    assert abs(_expiry(env, key) - (time.time() + 40 * 86400)) < 10


def a_write_removes_the_expiry_unless_it_is_preserved(env):
    key = env.key()
    env.collection.insert(key, {"v": 1}, InsertOptions(expiry=timedelta(hours=1)))
    before = _expiry(env, key)
    env.collection.upsert(key, {"v": 2}, UpsertOptions(preserve_expiry=True))
    assert _expiry(env, key) == before
    env.collection.replace(key, {"v": 3}, ReplaceOptions(preserve_expiry=True))
    assert _expiry(env, key) == before
    env.collection.upsert(key, {"v": 4})
    assert _expiry(env, key) == 0


def get_reads_only_the_named_paths(env):
    key, _ = env.document({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 3})
    found = env.collection.get(key, GetOptions(project=["a.b", "d"])).content_as[dict]
    assert found == {"a": {"b": 1}, "d": [1, 2]}, found


def a_locked_document_is_only_written_with_its_cas(env):
    key, stored = env.document(1)
    locked = env.collection.get_and_lock(key, timedelta(seconds=15))
    assert locked.content_as[int] == 1 and locked.cas != stored.cas
    with refused(*LOCKED):
        env.collection.upsert(key, 2, UpsertOptions(timeout=SHORT))
    assert env.collection.get(key).content_as[int] == 1
    env.collection.replace(key, 3, ReplaceOptions(cas=locked.cas))
    env.collection.upsert(key, 4)


def a_locked_document_cannot_be_locked_again(env):
    key, _ = env.document(1)
    env.collection.get_and_lock(key, timedelta(seconds=15))
    with refused(*LOCKED):
        env.collection.get_and_lock(key, timedelta(seconds=15), timeout=SHORT)


def unlock_needs_the_cas_of_the_lock(env):
    key, stored = env.document(1)
    locked = env.collection.get_and_lock(key, timedelta(seconds=15))
    with refused(CasMismatchException, *LOCKED):
        env.collection.unlock(key, stored.cas, timeout=SHORT)
    env.collection.unlock(key, locked.cas)
    env.collection.upsert(key, 2)


def unlock_refuses_a_document_that_is_not_locked(env):
    key, stored = env.document(1)
    with refused(DocumentNotLockedException):
        env.collection.unlock(key, stored.cas)
    with refused(DocumentNotFoundException):
        env.collection.unlock(env.name(), stored.cas)


def a_lock_ends_by_itself(env):
    key, _ = env.document(1)
    env.collection.get_and_lock(key, timedelta(seconds=1))
    env.collection.upsert(key, 2)
    assert env.collection.get(key).content_as[int] == 2


def mutations_give_tokens_that_ascend(env):
    key, first = env.document(1)
    second = env.collection.upsert(key, 2)
    first, second = first.mutation_token(), second.mutation_token()
    assert first.bucket_name == second.bucket_name == env.bucket_name
    assert first.partition_id == second.partition_id and first.partition_uuid == second.partition_uuid != 0
    assert second.sequence_number > first.sequence_number > 0


def persist_to_waits_for_the_disk(env):
    key, durability = env.key(), ClientDurability(persist_to=PersistToExtended.ACTIVE)
    env.collection.insert(key, 1, InsertOptions(durability=durability))
    env.collection.replace(key, 2, ReplaceOptions(durability=durability))
    env.collection.remove(key, RemoveOptions(durability=durability))


def durable_writes_of_every_level_are_done(env):
    levels = DurabilityLevel.MAJORITY, DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE, DurabilityLevel.PERSIST_TO_MAJORITY
    for level in levels:
        key, durability = env.key(), ServerDurability(level)
        env.collection.insert(key, {"v": 1}, InsertOptions(durability=durability))
        replaced = env.collection.replace(key, {"v": 2}, ReplaceOptions(durability=durability))
        found = env.collection.get(key)
        assert found.content_as[dict] == {"v": 2} and found.cas == replaced.cas, level
        env.collection.remove(key, RemoveOptions(durability=durability))
        with refused(DocumentNotFoundException):
            env.collection.get(key)


def many_documents_go_in_one_call(env):
    keys = [env.key() for _ in range(200)]
    stored = env.collection.upsert_multi({key: {"n": n} for n, key in enumerate(keys)})
    assert stored.all_ok, stored.exceptions
    found = env.collection.get_multi(keys)
    assert found.all_ok and all(found.results[key].content_as[dict] == {"n": n} for n, key in enumerate(keys))
    assert env.collection.remove_multi(keys).all_ok


def large_documents_are_kept_and_too_large_ones_refused(env):
    key = env.key()
    env.collection.upsert(key, "x" * (15 << 20))
    assert len(env.collection.get(key).content_as[str]) == 15 << 20
    with refused(CouchbaseException):
        env.collection.upsert(key, "x" * (21 << 20))


def copies_have_the_document_and_one_is_the_active_one(env):
    key, _ = env.document({"v": 1})
    assert env.collection.get_any_replica(key).content_as[dict] == {"v": 1}
    found = list(env.collection.get_all_replicas(key))
    assert all(each.content_as[dict] == {"v": 1} for each in found)
    assert [each.is_replica for each in found].count(False) == 1


def ping_and_diagnostics_find_the_services(env):
    endpoints = {service.value for service in env.cluster.ping().endpoints}
    assert {"key_value", "management", "view"} <= endpoints, endpoints
    assert env.cluster.diagnostics().endpoints
