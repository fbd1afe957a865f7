"""Operations on parts of documents and on their extended attributes."""

from datetime import timedelta

import couchbase.subdocument as sub
from couchbase.exceptions import (CasMismatchException, DocumentExistsException, DocumentNotFoundException,
                                  InvalidArgumentException, PathExistsException, PathMismatchException,
                                  PathNotFoundException)
from couchbase.options import LookupInOptions, MutateInOptions
from couchbase.subdocument import MutationMacro, StoreSemantics

from support import refused


def _lookup(env, key, *specs):
    return env.collection.lookup_in(key, specs)


def _mutate(env, key, *specs, **options):
    return env.collection.mutate_in(key, specs, MutateInOptions(**options))


def _document(env, value):
    return env.document(value)[0]


def _content(env, key):
    return env.collection.get(key).content_as[dict]


def lookups_get_exist_and_count(env):
    key = _document(env, {"a": {"b": [1, 2, 3]}, "n": None, "t": "x"})
    found = _lookup(env, key, sub.get("a.b"), sub.get("a.b[-1]"), sub.exists("t"), sub.exists("missing"),
                    sub.count("a.b"), sub.get("n"), sub.get_full())
    assert found.content_as[list](0) == [1, 2, 3]
    assert found.content_as[int](1) == 3
    assert found.exists(2) and not found.exists(3)
    assert found.content_as[int](4) == 3
    assert found.content_as[lambda value: value](5) is None
    assert found.content_as[dict](6)["t"] == "x"


def a_failed_lookup_leaves_the_others(env):
    key = _document(env, {"a": 1})
    found = _lookup(env, key, sub.get("missing"), sub.get("a.b"), sub.get("a"))
    with refused(PathNotFoundException):
        found.content_as[int](0)
    with refused(PathMismatchException):
        found.content_as[int](1)
    assert found.content_as[int](2) == 1


def lookups_need_a_document(env):
    with refused(DocumentNotFoundException):
        _lookup(env, env.name(), sub.get("a"))


def more_than_sixteen_lookups_are_refused(env):
    key = _document(env, {"a": 1})
    assert _lookup(env, key, *[sub.get("a")] * 16).content_as[int](15) == 1
    with refused(InvalidArgumentException):
        _lookup(env, key, *[sub.get("a")] * 17)


def dictionary_fields_are_inserted_upserted_replaced_and_removed(env):
    key = _document(env, {"a": 1, "b": {"c": 2}})
    result = _mutate(env, key, sub.insert("new", {"x": [1]}), sub.upsert("a", 10), sub.replace("b.c", "two"),
                     sub.upsert("gone", True), sub.remove("gone"))
    assert result.cas == env.collection.get(key).cas
    assert _content(env, key) == {"a": 10, "b": {"c": "two"}, "new": {"x": [1]}}


def insert_refuses_a_path_that_exists_and_replace_one_that_does_not(env):
    key = _document(env, {"a": 1})
    with refused(PathExistsException):
        _mutate(env, key, sub.insert("a", 2))
    with refused(PathNotFoundException):
        _mutate(env, key, sub.replace("b", 2))
    with refused(PathNotFoundException):
        _mutate(env, key, sub.remove("b"))
    assert _content(env, key) == {"a": 1}


def mutations_happen_as_a_whole(env):
    key = _document(env, {"a": 1})
    with refused(PathMismatchException):
        _mutate(env, key, sub.upsert("b", 2), sub.upsert("a.c", 3))
    assert _content(env, key) == {"a": 1}


def parents_are_created_on_request(env):
    key = _document(env, {})
    with refused(PathNotFoundException):
        _mutate(env, key, sub.upsert("a.b.c", 1))
    _mutate(env, key, sub.upsert("a.b.c", 1, create_parents=True),
            sub.array_append("list.deep", 1, 2, create_parents=True), sub.increment("n.m", 3, create_parents=True))
    assert _content(env, key) == {"a": {"b": {"c": 1}}, "list": {"deep": [1, 2]}, "n": {"m": 3}}


def arrays_take_elements_everywhere(env):
    key = _document(env, {"l": [3]})
    _mutate(env, key, sub.array_append("l", 4, 5), sub.array_prepend("l", 1), sub.array_insert("l[1]", 2))
    assert _content(env, key) == {"l": [1, 2, 3, 4, 5]}


def add_unique_refuses_what_is_there(env):
    key = _document(env, {"l": [1, "x"]})
    _mutate(env, key, sub.array_addunique("l", 2))
    with refused(PathExistsException):
        _mutate(env, key, sub.array_addunique("l", "x"))
    assert _content(env, key) == {"l": [1, "x", 2]}


def counters_count_in_documents(env):
    key = _document(env, {"n": 5})
    result = _mutate(env, key, sub.increment("n", 10), sub.decrement("n", 3), sub.increment("m", 1))
    assert [result.content_as[int](index) for index in range(3)] == [15, 12, 1]
    with refused(PathMismatchException):
        _mutate(env, _document(env, {"n": "text"}), sub.increment("n", 1))


def mutations_create_documents_on_request(env):
    key = env.key()
    with refused(DocumentNotFoundException):
        _mutate(env, key, sub.upsert("a", 1))
    _mutate(env, key, sub.upsert("a", 1), store_semantics=StoreSemantics.INSERT)
    with refused(DocumentExistsException):
        _mutate(env, key, sub.upsert("a", 2), store_semantics=StoreSemantics.INSERT)
    _mutate(env, key, sub.upsert("b", 2), store_semantics=StoreSemantics.UPSERT)
    assert _content(env, key) == {"a": 1, "b": 2}


def mutations_with_a_stale_cas_are_refused(env):
    key, stored = env.document({"a": 1})
    _mutate(env, key, sub.upsert("a", 2), cas=stored.cas)
    with refused(CasMismatchException):
        _mutate(env, key, sub.upsert("a", 3), cas=stored.cas)


def mutations_set_and_preserve_the_expiry(env):
    key = _document(env, {"a": 1})
    _mutate(env, key, sub.upsert("a", 2), expiry=timedelta(hours=1))
    first = _lookup(env, key, sub.get("$document.exptime", xattr=True)).content_as[int](0)
    assert first > 0
    _mutate(env, key, sub.upsert("a", 3), preserve_expiry=True)
    assert _lookup(env, key, sub.get("$document.exptime", xattr=True)).content_as[int](0) == first


def attributes_are_kept_beside_the_document(env):
    key = _document(env, {"a": 1})
    _mutate(env, key, sub.upsert("meta.tags", ["x"], xattr=True, create_parents=True), sub.upsert("a", 2))
    found = _lookup(env, key, sub.get("meta", xattr=True), sub.get("meta.tags[0]", xattr=True), sub.get("a"))
    assert found.content_as[dict](0) == {"tags": ["x"]}
    assert found.content_as[str](1) == "x" and found.content_as[int](2) == 2
    assert _content(env, key) == {"a": 2}
    env.collection.upsert(key, {"a": 3})
    assert _lookup(env, key, sub.exists("meta", xattr=True)).exists(0)


def attributes_count_and_are_removed(env):
    key = _document(env, {})
    _mutate(env, key, sub.increment("stat.n", 2, xattr=True, create_parents=True))
    _mutate(env, key, sub.increment("stat.n", 5, xattr=True))
    assert _lookup(env, key, sub.get("stat.n", xattr=True)).content_as[int](0) == 7
    _mutate(env, key, sub.remove("stat", xattr=True))
    assert not _lookup(env, key, sub.exists("stat", xattr=True)).exists(0)


def macros_write_the_cas_and_the_seqno(env):
    key = _document(env, {})
    result = _mutate(env, key, sub.upsert("cas", MutationMacro.cas(), xattr=True),
                     sub.upsert("seqno", MutationMacro.seq_no(), xattr=True),
                     sub.upsert("crc", MutationMacro.value_crc32c(), xattr=True))
    found = _lookup(env, key, sub.get("cas", xattr=True), sub.get("seqno", xattr=True), sub.get("crc", xattr=True))
    assert sub.convert_macro_cas_to_cas(found.content_as[str](0)) == result.cas
    assert int(found.content_as[str](1), 16) == result.mutation_token().sequence_number
    assert found.content_as[str](2).startswith("0x")


def the_virtual_attribute_describes_the_document(env):
    key, stored = env.document({"a": 1})
    document = _lookup(env, key, sub.get("$document", xattr=True)).content_as[dict](0)
    assert int(document["CAS"], 16) == stored.cas
    assert document["exptime"] == 0 and document["deleted"] is False and "json" in document["datatype"]
    assert document["value_bytes"] == len('{"a": 1}')


def tombstones_keep_attributes_of_the_system(env):
    key = _document(env, {"a": 1})
    _mutate(env, key, sub.upsert("_sys", 1, xattr=True), sub.upsert("user", 1, xattr=True))
    env.collection.remove(key)
    with refused(DocumentNotFoundException):
        _lookup(env, key, sub.get("_sys", xattr=True))
    found = env.collection.lookup_in(key, [sub.get("_sys", xattr=True), sub.exists("user", xattr=True)],
                                     LookupInOptions(access_deleted=True))
    assert found.content_as[int](0) == 1 and not found.exists(1)


def the_data_structures_of_the_sdk_work(env):
    listed, mapped, members, queued = (env.key() for _ in range(4))
    items = env.collection.couchbase_list(listed)
    items.append("b")
    items.prepend("a")
    assert [item for item in items] == ["a", "b"] and items.index_of("b") == 1 and items.size() == 2
    fields = env.collection.couchbase_map(mapped)
    fields.add("k", {"v": 1})
    assert fields.get("k") == {"v": 1} and fields.exists("k") and fields.size() == 1
    unique = env.collection.couchbase_set(members)
    unique.add("x")
    unique.add("x")
    assert unique.size() == 1 and unique.contains("x")
    queue = env.collection.couchbase_queue(queued)
    queue.push(1)
    queue.push(2)
    assert queue.pop() == 1 and queue.size() == 1
