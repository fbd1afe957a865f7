"""SCRAM (RFC 5802, without channel binding): proves the password and authenticates the server.

This module uses no socket and no random numbers: the nonce is an argument, so that the test vectors
of the RFCs can be tests.
"""

import base64
import binascii
import hashlib
import hmac

from .exceptions import AuthenticationException

_ITERATIONS_MAX = 10_000_000
"""A server could otherwise keep the client computing for hours."""


class Scram:
    """One exchange: ``first()``, then ``final(...)``, then ``verify(...)``."""

    def __init__(self, username: str, password: str, nonce: str, digest: str = "sha512") -> None:
        self._password = password.encode()
        self._nonce = nonce
        self._digest = digest
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Returns the first message."""
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Returns the response to the server's challenge, with the proof. Slow on purpose (PBKDF2).

        Raises:
            AuthenticationException: if the challenge does not belong to this exchange.
        """
        fields = _fields(server_first)
        try:
            nonce, iterations = fields["r"], int(fields["i"])
            salt = base64.b64decode(fields["s"], validate=True)
        except (KeyError, ValueError, binascii.Error):
            raise AuthenticationException("the server's challenge cannot be read") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationException("the server's challenge is for another exchange")
        if not 1 <= iterations <= _ITERATIONS_MAX:
            raise AuthenticationException(f"the server asks for {iterations} iterations")
        without_proof = f"c=biws,r={nonce}"
        transcript = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        signature = self._hmac(stored_key, transcript)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), transcript)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Checks that the server knows the password too.

        Raises:
            AuthenticationException: if it does not, or reports an error.
        """
        fields = _fields(server_final)
        if "e" in fields:
            raise AuthenticationException(f"the server refuses: {fields['e']}")
        expected = base64.b64encode(self._server_signature).decode()
        given = fields.get("v", "")
        if not self._server_signature or not hmac.compare_digest(given.encode(), expected.encode()):
            raise AuthenticationException("the server could not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationException("the server's message is not text") from None
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}
