"""Connection strings."""

import unittest

from nacre._connstr import Address, ConnectionString
from nacre.exceptions import InvalidArgumentException


class ConnectionStringTest(unittest.TestCase):
    def test_hosts_have_the_default_port_unless_they_name_one(self) -> None:
        parsed = ConnectionString.parse("couchbase://a,b:21010,[::1]:7/travel")
        self.assertEqual(
            parsed.seeds, (Address("a", 11210), Address("b", 21010), Address("::1", 7))
        )
        self.assertEqual(parsed.bucket, "travel")

    def test_tls_has_a_port_of_its_own(self) -> None:
        parsed = ConnectionString.parse("couchbases://a,b:7?network=external&tls_verify=none")
        self.assertEqual(parsed.seeds, (Address("a", 11207), Address("b", 7)))
        self.assertTrue(parsed.uses_tls)
        self.assertEqual(parsed.options, {"network": "external", "tls_verify": "none"})

    def test_addresses_print_as_they_are_written(self) -> None:
        self.assertEqual(str(Address("::1", 7)), "[::1]:7")
        self.assertEqual(str(Address("a", 7)), "a:7")

    def test_an_address_of_http_has_the_port_of_management(self) -> None:
        for text, port, uses_tls in (
            ("http://a", 8091, False),
            ("https://a", 18091, True),
            ("http://a:1", 1, False),
        ):
            parsed = ConnectionString.parse(text)
            found = (parsed.seeds[0].port, parsed.uses_tls, parsed.is_http)
            self.assertEqual(found, (port, uses_tls, True))
        self.assertFalse(ConnectionString.parse("couchbase://a").is_http)

    def test_what_cannot_be_connected_to_is_refused(self) -> None:
        for text in (
            "",
            "localhost",
            "couchbase://",
            "couchbase://a,,b",
            "couchbase://a:0",
            "couchbase://a:65536",
            "couchbase://a:b",
            "couchbase://a b",
            "ftp://a:8091",
            "couchbase://a?no_such=option",
        ):
            with self.subTest(text=text), self.assertRaises(InvalidArgumentException):
                ConnectionString.parse(text)
