"""Parts of documents, extended attributes, macros."""

from datetime import timedelta

import couchbase.subdocument as SD
from couchbase.options import LookupInOptions, MutateInOptions

PERSON = {"name": "Ada", "tags": ["x", "y"], "address": {"city": "Ulm"}, "visits": 3}


def lookup_of_several(c):
    c.collection.upsert(c.key, PERSON)
    specs = [SD.get("address.city"), SD.count("tags"), SD.get("tags[-1]")]
    result = c.collection.lookup_in(c.key, specs, LookupInOptions())
    return [result.content_as[str](0), result.content_as[int](1), result.content_as[str](2), result.cas > 0]


def lookup_of_existence(c):
    c.collection.upsert(c.key, PERSON)
    result = c.collection.lookup_in(c.key, (SD.exists("name"), SD.exists("none")))
    return [result.exists(0), result.exists(1)]


def lookup_of_what_is_not_there(c):
    c.collection.upsert(c.key, PERSON)
    result = c.collection.lookup_in(c.key, [SD.get("none"), SD.get("name")])
    return [c.fails(result.content_as[str], 0), result.content_as[str](1)]


def lookup_of_a_mismatch(c):
    c.collection.upsert(c.key, PERSON)
    result = c.collection.lookup_in(c.key, [SD.get("name.first"), SD.count("name"), SD.get("a..b")])
    return [c.fails(result.content_as[str], number) for number in range(3)]


def lookup_in_nothing(c):
    return c.fails(c.collection.lookup_in, c.key, [SD.get("a")])


def lookup_of_xattrs(c):
    c.collection.upsert(c.key, PERSON)
    c.collection.mutate_in(c.key, [SD.upsert("audit.by", "me", xattr=True, create_parents=True)])
    result = c.collection.lookup_in(c.key, [SD.get("audit", xattr=True), SD.get("name")])
    return [result.content_as[dict](0), result.content_as[str](1), c.collection.get(c.key).value == PERSON]


def lookup_of_virtual_xattrs(c):
    c.collection.upsert(c.key, PERSON)
    result = c.collection.lookup_in(c.key, [SD.get("$document.exptime", xattr=True), SD.get("$document", xattr=True)])
    return [result.content_as[int](0), "CAS" in result.content_as[dict](1)]


def lookup_in_replicas(c):
    c.collection.upsert(c.key, PERSON)
    any_one = c.collection.lookup_in_any_replica(c.key, [SD.get("name")])
    every = list(c.collection.lookup_in_all_replicas(c.key, [SD.get("name")]))
    return [any_one.content_as[str](0), type(any_one.is_replica).__name__, [each.content_as[str](0) for each in every]]


def mutate_several(c):
    c.collection.upsert(c.key, PERSON)
    c.collection.mutate_in(
        c.key,
        [
            SD.replace("address.city", "Bonn"),
            SD.insert("address.street", "A"),
            SD.remove("tags[0]"),
            SD.upsert("name", "Bob"),
        ],
        MutateInOptions(),
    )
    return c.collection.get(c.key).value


def mutate_arrays(c):
    c.collection.upsert(c.key, {"list": [2]})
    c.collection.mutate_in(
        c.key,
        [
            SD.array_append("list", 3, 4),
            SD.array_prepend("list", 0, 1),
            SD.array_insert("list[1]", "between"),
            SD.array_addunique("list", 9),
        ],
    )
    return c.collection.get(c.key).value


def mutate_counters(c):
    c.collection.upsert(c.key, {"n": 40})
    result = c.collection.mutate_in(c.key, [SD.increment("n", 3), SD.decrement("n", 1)])
    return [result.content_as[int](0), result.content_as[int](1), c.collection.get(c.key).value]


def mutate_with_new_paths(c):
    c.collection.upsert(c.key, {})
    specs = [
        SD.upsert("a.b.c", 1, create_parents=True),
        SD.array_append("x.list", 1, create_parents=True),
        SD.increment("n.count", 5, create_parents=True),
    ]
    c.collection.mutate_in(c.key, specs)
    return c.collection.get(c.key).value


def mutate_without_new_paths(c):
    c.collection.upsert(c.key, {})
    return c.fails(c.collection.mutate_in, c.key, [SD.upsert("a.b.c", 1)])


def mutate_existing_paths(c):
    c.collection.upsert(c.key, PERSON)
    specs = [SD.insert("name", "x"), SD.array_addunique("tags", "x"), SD.replace("none", 1), SD.remove("none")]
    return [c.fails(c.collection.mutate_in, c.key, [spec]) for spec in specs]


def mutate_what_does_not_fit(c):
    c.collection.upsert(c.key, PERSON)
    specs = [SD.increment("name", 1), SD.array_append("name", 1), SD.upsert("name.first", 1)]
    return [c.fails(c.collection.mutate_in, c.key, [spec]) for spec in specs]


def mutations_are_all_or_nothing(c):
    c.collection.upsert(c.key, PERSON)
    error = c.fails(c.collection.mutate_in, c.key, [SD.upsert("name", "Bob"), SD.replace("none", 1)])
    return [error, c.collection.get(c.key).value["name"]]


def mutate_with_a_cas(c):
    cas = c.collection.upsert(c.key, PERSON).cas
    c.collection.mutate_in(c.key, [SD.upsert("name", "B")], MutateInOptions(cas=cas))
    return c.fails(c.collection.mutate_in, c.key, [SD.upsert("name", "C")], MutateInOptions(cas=cas))


def mutate_and_upsert(c):
    options = MutateInOptions(store_semantics=SD.StoreSemantics.UPSERT)
    c.collection.mutate_in(c.key, [SD.upsert("a", 1)], options)
    c.collection.mutate_in(c.key, [SD.upsert("b", 2)], options)
    return c.collection.get(c.key).value


def mutate_and_insert(c):
    options = MutateInOptions(store_semantics=SD.StoreSemantics.INSERT)
    c.collection.mutate_in(c.key, [SD.upsert("a", 1)], options)
    return [c.fails(c.collection.mutate_in, c.key, [SD.upsert("a", 2)], options), c.collection.get(c.key).value]


def mutate_nothing(c):
    return c.fails(c.collection.mutate_in, c.key, [SD.upsert("a", 1)])


def mutate_with_an_expiry(c):
    c.collection.upsert(c.key, PERSON)
    c.collection.mutate_in(c.key, [SD.upsert("a", 1)], expiry=timedelta(hours=1))
    first = c.collection.get(c.key, with_expiry=True).expiryTime
    c.collection.mutate_in(c.key, [SD.upsert("a", 2)], preserve_expiry=True)
    return [first is not None, c.collection.get(c.key, with_expiry=True).expiryTime == first]


def mutate_with_macros(c):
    c.collection.upsert(c.key, {})
    macros = [SD.MutationMacro.cas(), SD.MutationMacro.seq_no(), SD.MutationMacro.value_crc32c()]
    specs = [SD.upsert(f"audit.m{number}", macro, create_parents=True) for number, macro in enumerate(macros)]
    c.collection.mutate_in(c.key, specs)
    found = c.collection.lookup_in(c.key, [SD.get("audit", xattr=True)]).content_as[dict](0)
    return [value.startswith("0x") for value in found.values()]


def a_whole_document_by_path(c):
    options = MutateInOptions(store_semantics=SD.StoreSemantics.UPSERT)
    c.collection.mutate_in(c.key, [SD.upsert("made", 1, xattr=True), SD.replace("", {"whole": True})], options)
    return c.collection.get(c.key).value


def names_with_dots(c):
    c.collection.upsert(c.key, {"a.b": 1, "é": 3})
    result = c.collection.lookup_in(c.key, [SD.get("`a.b`"), SD.get("é")])
    return [result.content_as[int](0), result.content_as[int](1)]
