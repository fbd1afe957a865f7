"""Sub-document specs, transcoders and expiries: from values to bytes."""

import unittest
from datetime import UTC, datetime, timedelta

from nacre import JSONTranscoder, RawBinaryTranscoder, RawStringTranscoder
from nacre import subdocument as sd
from nacre.exceptions import (
    DecodingFailureException,
    InvalidArgumentException,
    ValueFormatException,
)
from nacre.options import seconds_of, wire_expiry

DAY = timedelta(days=1)


class SubdocumentTest(unittest.TestCase):
    def test_lookup_specs_are_operation_flags_and_path(self) -> None:
        encoded, order = sd.encode_specs([sd.get("a.b"), sd.exists("x", xattr=True)], sd.LookupSpec)
        # Attributes go first on the wire, whatever the order of the caller.
        self.assertEqual(encoded.hex(), "c6040001" + b"x".hex() + "c5000003" + b"a.b".hex())
        self.assertEqual(order, (1, 0))

    def test_mutation_specs_carry_json(self) -> None:
        spec = sd.array_append("t", 1, "é", create_parents=True)
        encoded, _ = sd.encode_specs([spec], sd.MutationSpec)
        self.assertEqual(encoded, bytes.fromhex("cb01000100000006") + 't1,"é"'.encode())

    def test_macros_are_expanded_in_attributes_only(self) -> None:
        self.assertEqual(sd.upsert("t", "${Mutation.CAS}", xattr=True).flags, 0x14)
        self.assertEqual(sd.upsert("t", "${Mutation.CAS}").flags, 0)

    def test_specs_of_the_wrong_kind_or_number_are_refused(self) -> None:
        for specs in ([], [sd.get("a")] * 17, [sd.remove("a")], [sd.get("a" * 1025)], ["a"]):
            with self.subTest(specs=specs), self.assertRaises(InvalidArgumentException):
                sd.encode_specs(specs, sd.LookupSpec)  # type: ignore[arg-type]
        with self.assertRaises(InvalidArgumentException):
            sd.counter("a", 0)
        with self.assertRaises(InvalidArgumentException):
            sd.array_append("a")

    def test_answers_that_are_cut_off_are_refused(self) -> None:
        lookup = bytes.fromhex("0000000000013100c000000000")
        self.assertEqual(sd.decode_lookup(lookup, 2), [(0, b"1"), (0xC0, b"")])
        for end in range(len(lookup)):
            with self.subTest(end=end), self.assertRaises(DecodingFailureException):
                sd.decode_lookup(lookup[:end], 2)
        mutation = bytes.fromhex("010000000000023432")
        self.assertEqual(list(sd.decode_mutation(mutation, 2)), [(1, 0, b"42")])
        for end in range(1, len(mutation)):
            with self.subTest(end=end), self.assertRaises(DecodingFailureException):
                list(sd.decode_mutation(mutation[:end], 2))
        with self.assertRaises(DecodingFailureException):
            list(sd.decode_mutation(mutation, 1))


class TranscoderTest(unittest.TestCase):
    def test_json_is_compact_and_keeps_unicode(self) -> None:
        encoded = JSONTranscoder().encode_value({"a": [1, "é"]})
        self.assertEqual(encoded, ('{"a":[1,"é"]}'.encode(), 0x02000000))

    def test_what_json_cannot_express_is_refused(self) -> None:
        for value in (b"bytes", {1, 2}, float("nan"), object()):
            with self.subTest(value=value), self.assertRaises(ValueFormatException):
                JSONTranscoder().encode_value(value)

    def test_documents_that_are_not_json_are_refused_by_flags_or_content(self) -> None:
        for value, flags in ((b"1", 0x03000000), (b"\xff", 0x02000000), (b"{", 0)):
            with self.subTest(value=value), self.assertRaises(ValueFormatException):
                JSONTranscoder().decode_value(value, flags)

    def test_bytes_and_text_pass_unchanged(self) -> None:
        self.assertEqual(RawBinaryTranscoder().encode_value(b"\xff"), (b"\xff", 0x03000000))
        self.assertEqual(RawStringTranscoder().encode_value("é"), ("é".encode(), 0x04000000))
        with self.assertRaises(ValueFormatException):
            RawBinaryTranscoder().encode_value("text")
        with self.assertRaises(ValueFormatException):
            RawStringTranscoder().decode_value(b"\xff", 0)


class ExpiryTest(unittest.TestCase):
    def test_expiries_beyond_thirty_days_are_sent_as_a_time(self) -> None:
        self.assertEqual(wire_expiry(None), 0)
        self.assertEqual(wire_expiry(timedelta(0)), 0)
        self.assertEqual(wire_expiry(30 * DAY), 30 * 86400)
        self.assertEqual(wire_expiry(31 * DAY, now=1000), 31 * 86400 + 1000)
        self.assertEqual(wire_expiry(datetime(2030, 1, 1, tzinfo=UTC)), 1893456000)

    def test_expiries_that_mean_nothing_are_refused(self) -> None:
        for expiry in (-DAY, timedelta(milliseconds=1), 60, 365 * 200 * DAY, datetime(1970, 1, 2)):
            with self.subTest(expiry=expiry), self.assertRaises(InvalidArgumentException):
                wire_expiry(expiry)  # type: ignore[arg-type]

    def test_time_outs_are_positive_durations(self) -> None:
        self.assertEqual(seconds_of(None, DAY), 86400)
        for timeout in (timedelta(0), -DAY, 5):
            with self.subTest(timeout=timeout), self.assertRaises(InvalidArgumentException):
                seconds_of(timeout, DAY)  # type: ignore[arg-type]
