"""Answers with rows, in pieces."""

import json
import random
import unittest
from typing import Any

from nacre._rows import RowParser
from nacre.exceptions import DecodingFailureException
from nacre.n1ql import QueryMetrics


def parse(text: bytes, sizes: list[int] | None = None) -> tuple[list[Any], dict[str, Any]]:
    parser = RowParser("rows")
    rows: list[Any] = []
    at = 0
    for size in [*(sizes or []), len(text)]:
        rows += parser.feed(text[at : at + size])
        at += size
    last, members = parser.finish()
    return rows + last, members


class RowsTest(unittest.TestCase):
    def test_pieces_of_any_size_give_the_same_rows(self) -> None:
        chance = random.Random(7)
        rows = [1, -2.5e3, None, True, 'é\\"]}', [], {}, {"a": [{"b": "\U0001f600"}]}, 12345]
        answer = {"before": {"rows": [0]}, "rows": rows, "after": 1.5, "last": "x"}
        for indent in (None, 2):
            text = json.dumps(answer, indent=indent, ensure_ascii=False).encode()
            for _ in range(300):
                sizes = [chance.randrange(0, 9) for _ in range(len(text))]
                found, members = parse(text, sizes)
                self.assertEqual(found, rows)
                self.assertEqual(members, {k: v for k, v in answer.items() if k != "rows"})

    def test_answers_without_rows_are_answers(self) -> None:
        for text in (b"{}", b' { "a" : 1 } ', b'{"rows":[]}', b'{"rows":null,"a":[2]}'):
            self.assertEqual(parse(text)[0], [])

    def test_rows_come_before_the_answer_has_ended(self) -> None:
        parser = RowParser("rows")
        self.assertEqual(parser.feed(b'{"rows":[1,22'), [1])
        self.assertEqual(parser.feed(b"3,{"), [223])
        self.assertEqual(parser.feed(b"}]"), [{}])
        self.assertEqual(parser.feed(b"}"), [])
        self.assertEqual(parser.finish(), ([], {}))

    def test_what_is_no_answer_is_an_error(self) -> None:
        for text in (
            b"",
            b"[]",
            b"rows",
            b"{",
            b'{"rows"',
            b'{"rows":[',
            b'{"rows":[1',
            b'{"rows":[1}',
            b'{"rows":[1 2]}',
            b'{"rows":[x]}',
            b'{"rows":[1]]',
            b"{1:2}",
            b'{"a" 1}',
            b'{"a":"\xff"}',
            b'{"rows":[' + b"[" * 100_000,
        ):
            with self.subTest(text[:30]), self.assertRaises(DecodingFailureException):
                parse(text)

    def test_a_long_row_is_not_read_anew_with_each_piece(self) -> None:
        text = b'{"rows":["' + b"x" * 8_000_000 + b'"]}'
        rows, _ = parse(text, [4096] * (len(text) // 4096))
        self.assertEqual(len(rows[0]), 8_000_000)

    def test_durations_are_those_of_go(self) -> None:
        for text, seconds in (("1m2.5s", 62.5), ("1.5ms", 0.0015), ("250µs", 0.00025), ("", 0.0)):
            elapsed = QueryMetrics({"elapsedTime": text}).elapsed_time()
            self.assertAlmostEqual(elapsed.total_seconds(), seconds)
