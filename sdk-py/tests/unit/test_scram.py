"""SCRAM against the exchanges printed in RFC 5802 (SHA-1) and RFC 7677 (SHA-256)."""

import unittest

from nacre._scram import Scram
from nacre.exceptions import AuthenticationException

RFC_5802 = (
    "sha1",
    "fyko+d2lbbFgONRv9qkxdawL",
    b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    "sha256",
    "rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


class ScramTest(unittest.TestCase):
    def test_the_exchanges_of_the_rfcs_are_reproduced(self) -> None:
        for digest, nonce, challenge, proof, signature in (RFC_5802, RFC_7677):
            with self.subTest(digest=digest):
                scram = Scram("user", "pencil", nonce, digest)
                self.assertEqual(scram.first(), f"n,,n=user,r={nonce}".encode())
                self.assertEqual(scram.final(challenge), proof)
                scram.verify(signature)

    def test_a_server_that_does_not_know_the_password_is_refused(self) -> None:
        digest, nonce, challenge, _, signature = RFC_7677
        scram = Scram("user", "another", nonce, digest)
        scram.final(challenge)
        for message in (signature, b"", b"v=", b"e=other-error", b"\xff"):
            with self.subTest(message=message), self.assertRaises(AuthenticationException):
                scram.verify(message)

    def test_a_signature_before_the_proof_is_refused(self) -> None:
        with self.assertRaises(AuthenticationException):
            Scram("user", "pencil", "abc").verify(b"v=")

    def test_challenges_for_another_exchange_are_refused(self) -> None:
        for challenge in (
            b"r=other,s=QSXCR+Q6sek8bf92,i=4096",
            b"r=abc,s=QSXCR+Q6sek8bf92,i=4096",
            b"r=abcdef,s=!,i=4096",
            b"r=abcdef,s=QSXCR+Q6sek8bf92,i=0",
            b"r=abcdef,s=QSXCR+Q6sek8bf92,i=99999999999",
            b"r=abcdef,s=QSXCR+Q6sek8bf92,i=many",
            b"r=abcdef",
            b"",
        ):
            with self.subTest(challenge=challenge), self.assertRaises(AuthenticationException):
                Scram("user", "pencil", "abc").final(challenge)

    def test_names_with_separators_are_escaped(self) -> None:
        self.assertEqual(Scram("a=b,c", "p", "n").first(), b"n,,n=a=3Db=2Cc,r=n")
