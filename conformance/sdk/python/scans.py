"""Scans of a collection by key."""

from couchbase.exceptions import InvalidArgumentException
from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.options import ScanOptions

from support import refused


def _documents(env, count):
    """Creates `count` documents with a unique prefix; returns their keys, and the prefix."""
    prefix = env.name("scan") + "-"
    keys = [f"{prefix}{n:03}" for n in range(count)]
    for n, key in enumerate(keys):
        env.collection.upsert(key, {"n": n})
        env.later(lambda key=key: env.collection.remove(key))
    return keys, prefix


def a_scan_of_a_prefix_gives_each_document_once(env):
    keys, prefix = _documents(env, 60)
    found = {result.id: result.content_as[dict]["n"] for result in env.collection.scan(PrefixScan(prefix))}
    assert found == {key: n for n, key in enumerate(keys)}, found


def a_scan_of_a_range_can_give_keys_alone(env):
    keys, prefix = _documents(env, 20)
    terms = ScanTerm(f"{prefix}005"), ScanTerm(f"{prefix}010", exclusive=True)
    found = env.collection.scan(RangeScan(*terms), ScanOptions(ids_only=True))
    assert sorted(result.id for result in found) == keys[5:10]


def a_scan_sees_what_was_written_before_it(env):
    keys, prefix = _documents(env, 5)
    env.collection.remove(keys[0])
    env.collection.upsert(keys[1], {"n": "new"})
    found = {result.id: result.content_as[dict]["n"] for result in env.collection.scan(PrefixScan(prefix))}
    assert keys[0] not in found and found[keys[1]] == "new", found


def a_sample_has_the_size_that_was_asked_for(env):
    _documents(env, 30)
    found = [result.id for result in env.collection.scan(SamplingScan(10, seed=7))]
    assert len(found) == len(set(found)) == 10, found


def a_sample_of_nothing_is_refused(env):
    with refused(InvalidArgumentException):
        list(env.collection.scan(SamplingScan(0)))
