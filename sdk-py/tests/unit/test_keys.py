"""Keys: which vBucket they belong to and which are allowed."""

import unittest

from nacre._keys import check_key, leb128, vbucket_of
from nacre.exceptions import InvalidArgumentException

# As official clients route them with 1,024 vBuckets.
ROUTES = {"k1": 526, "k2": 775, "g1": 699, "raw": 691, "kd": 271, "cnt": 454}


class KeysTest(unittest.TestCase):
    def test_keys_go_where_official_clients_send_them(self) -> None:
        for key, vbid in ROUTES.items():
            with self.subTest(key=key):
                self.assertEqual(vbucket_of(key.encode(), 1024), vbid)
                self.assertEqual(vbucket_of(key.encode(), 128), vbid % 128)

    def test_leb128_takes_seven_bits_a_byte(self) -> None:
        self.assertEqual(
            [leb128(number).hex() for number in (0, 8, 127, 128, 0x555, 0xFFFFFFFF)],
            ["00", "08", "7f", "8001", "d50a", "ffffffff0f"],
        )

    def test_keys_are_limited_in_utf8_bytes(self) -> None:
        self.assertEqual(len(check_key("é" * 125, True)), 250)
        for key, in_default in (("", True), ("é" * 126, True), ("k" * 247, False)):
            with self.subTest(key=key), self.assertRaises(InvalidArgumentException):
                check_key(key, in_default)
        with self.assertRaises(InvalidArgumentException):
            check_key(7, True)  # type: ignore[arg-type]
