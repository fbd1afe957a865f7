"""Counters, bytes, transcoders, data structures, scans, states of mutations."""

from datetime import timedelta

from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.mutation_state import MutationState
from couchbase.options import (
    AppendOptions,
    DecrementOptions,
    DeltaValue,
    GetOptions,
    IncrementOptions,
    PrependOptions,
    ScanOptions,
    SignedInt64,
    UpsertOptions,
)
from couchbase.transcoder import (
    JSONTranscoder,
    LegacyTranscoder,
    RawBinaryTranscoder,
    RawJSONTranscoder,
    RawStringTranscoder,
    Transcoder,
)


def counter_begins(c):
    options = IncrementOptions(initial=SignedInt64(10), delta=DeltaValue(5))
    return c.collection.binary().increment(c.key, options).content


def counter_goes_up_and_down(c):
    binary = c.collection.binary()
    binary.increment(c.key, IncrementOptions(initial=SignedInt64(10)))
    up = binary.increment(c.key, IncrementOptions(delta=DeltaValue(5))).content
    down = binary.decrement(c.key, DecrementOptions(delta=DeltaValue(3))).content
    return [up, down, c.collection.get(c.key).value]


def counter_stops_at_zero(c):
    c.collection.binary().increment(c.key, IncrementOptions(initial=SignedInt64(2)))
    return c.collection.binary().decrement(c.key, DecrementOptions(delta=DeltaValue(100))).content


def counter_without_a_beginning(c):
    return c.fails(c.collection.binary().increment, c.key, IncrementOptions(initial=SignedInt64(-1)))


def counter_of_an_object(c):
    c.collection.upsert(c.key, {"no": "number"})
    return c.fails(c.collection.binary().increment, c.key)


def counter_numbers_are_checked(c):
    return [c.fails(DeltaValue, -1), c.fails(SignedInt64, 1 << 65)]


def append_and_prepend(c):
    options = UpsertOptions(transcoder=RawStringTranscoder())
    c.collection.upsert(c.key, "b", options)
    c.collection.binary().append(c.key, "c", AppendOptions())
    c.collection.binary().prepend(c.key, b"a", PrependOptions())
    return c.collection.get(c.key, GetOptions(transcoder=RawStringTranscoder())).value


def append_to_nothing(c):
    return [c.fails(c.collection.binary().append, c.key, "x"), c.fails(c.collection.binary().prepend, c.key, "x")]


def raw_json(c):
    c.collection.upsert(c.key, '{"a": 1}', UpsertOptions(transcoder=RawJSONTranscoder()))
    raw = c.collection.get(c.key, GetOptions(transcoder=RawJSONTranscoder())).value
    return [raw.decode() if isinstance(raw, bytes) else raw, c.collection.get(c.key).value]


def raw_strings(c):
    c.collection.upsert(c.key, "hällo", UpsertOptions(transcoder=RawStringTranscoder()))
    return c.collection.get(c.key, GetOptions(transcoder=RawStringTranscoder())).value


def raw_bytes(c):
    c.collection.upsert(c.key, b"\x00\xff", UpsertOptions(transcoder=RawBinaryTranscoder()))
    return c.collection.get(c.key, GetOptions(transcoder=RawBinaryTranscoder())).value.hex()


def raw_transcoders_refuse_others(c):
    binary = c.fails(c.collection.upsert, c.key, "x", UpsertOptions(transcoder=RawBinaryTranscoder()))
    return [binary, c.fails(c.collection.upsert, c.key, b"x", UpsertOptions(transcoder=RawStringTranscoder()))]


def json_refuses_bytes(c):
    return c.fails(c.collection.upsert, c.key, b"x")


def legacy_values(c):
    read = []
    for value in ({"a": 1}, "text", b"bytes"):
        c.collection.upsert(c.key, value, UpsertOptions(transcoder=LegacyTranscoder()))
        found = c.collection.get(c.key, GetOptions(transcoder=LegacyTranscoder())).value
        read.append(found == value)
    return read


def transcoders_alone(c):
    encoded, flags = JSONTranscoder().encode_value({"a": 1})
    return [type(encoded).__name__, flags, JSONTranscoder().decode_value(encoded, flags)]


def a_transcoder_of_ones_own(c):
    class Reversed(Transcoder):
        def encode_value(self, value):
            return value[::-1].encode(), 1234

        def decode_value(self, value, flags):
            return [bytes(value).decode()[::-1], flags]

    c.collection.upsert(c.key, "abc", UpsertOptions(transcoder=Reversed()))
    return c.collection.get(c.key, GetOptions(transcoder=Reversed())).value


def lists(c):
    values = c.collection.couchbase_list(c.key)
    values.append("b")
    values.append("c")
    values.prepend("a")
    values.set_at(1, "B")
    found = [values.get_all(), values.get_at(1), values.size(), values.index_of("c"), list(values)]
    values.remove_at(0)
    return [found, values.get_all()]


def lists_of_nothing(c):
    values = c.collection.couchbase_list(c.key)
    values.append(1)
    return c.fails(values.remove_at, 9)


def maps(c):
    values = c.collection.couchbase_map(c.key)
    values.add("a", 1)
    values.add("b", {"c": 2})
    found = [values.get("b"), values.size(), values.exists("a"), values.exists("z"), sorted(values.keys()), values.items()]
    values.remove("a")
    return [found[:5], sorted(map(str, found[5])), values.get_all(), values.exists("a")]


def queues(c):
    values = c.collection.couchbase_queue(c.key)
    for value in (1, 2, 3):
        values.push(value)
    size = values.size()
    return [size, values.pop(), values.pop(), values.pop()]


def sets(c):
    values = c.collection.couchbase_set(c.key)
    values.add("a")
    values.add("b")
    values.add("a")
    found = [values.contains("a"), values.contains("z"), values.size()]
    values.remove("a")
    return [found, values.values()]


def filled(context):
    collection = context.scope.collection("scanned")
    collection.upsert_multi({f"{context.key}-{number:02}": {"n": number} for number in range(12)})
    return collection


def scan_of_a_prefix(c):
    found = filled(c).scan(PrefixScan(f"{c.key}-"), ScanOptions(timeout=timedelta(seconds=50)))
    return sorted([result.id[len(c.key) :], result.value["n"]] for result in found)


def scan_of_a_range(c):
    scan = RangeScan(ScanTerm(f"{c.key}-03"), ScanTerm(f"{c.key}-06", exclusive=True))
    found = filled(c).scan(scan, ScanOptions(timeout=timedelta(seconds=50)))
    return sorted(result.id[len(c.key) :] for result in found)


def scan_of_keys_alone(c):
    options = ScanOptions(ids_only=True, timeout=timedelta(seconds=50))
    return sorted(result.id[len(c.key) :] for result in filled(c).scan(PrefixScan(f"{c.key}-"), options))


def scan_of_a_sample(c):
    found = filled(c).scan(SamplingScan(5, seed=42), ScanOptions(timeout=timedelta(seconds=50)))
    return len(list(found))


def scan_of_nothing(c):
    return list(filled(c).scan(PrefixScan("none-of-them-at-all")))


def scan_after_writes(c):
    collection = c.scope.collection("scanned")
    written = [collection.upsert(f"{c.key}-{number}", number) for number in range(3)]
    options = ScanOptions(consistent_with=MutationState(*written), timeout=timedelta(seconds=50))
    return len(list(collection.scan(PrefixScan(f"{c.key}-"), options)))


def sample_of_less_than_one(c):
    return c.fails(lambda: list(filled(c).scan(SamplingScan(0))))


def states_of_mutations(c):
    collection = c.scope.collection("scanned")
    state = MutationState(collection.upsert(f"{c.key}-1", 1))
    state.add_mutation_token(collection.upsert(f"{c.key}-2", 1).mutation_token())
    options = ScanOptions(consistent_with=state, timeout=timedelta(seconds=50))
    return len(list(collection.scan(PrefixScan(f"{c.key}-"), options)))
