"""Credentials of clients."""

from dataclasses import field
from enum import Enum

from ._record import dataclass


class AuthDomain(Enum):
    """The domain of a user."""

    Local = "local"
    External = "external"


@dataclass(frozen=True, slots=True)
class PasswordAuthenticator:
    """A user and password."""

    username: str
    password: str = field(repr=False)
    cert_path: str | None = None
    """File with the certificates of the authorities that the client trusts, in PEM."""
    allowed_sasl_mechanisms: tuple[str, ...] | None = None
    """Ways to log in, the best first; None is SCRAM, and with TLS also PLAIN."""

    @classmethod
    def ldap_compatible(
        cls, username: str, password: str, cert_path: str | None = None
    ) -> "PasswordAuthenticator":
        """A user in a directory service, to which the server forwards the password. Use it with TLS
        only.
        """
        return cls(username, password, cert_path, ("PLAIN",))


@dataclass(frozen=True, slots=True)
class CertificateAuthenticator:
    """A client certificate that identifies the user. Requires ``couchbases://``."""

    cert_path: str
    """File with the certificate and the chain behind it, in PEM."""
    key_path: str
    """File with the private key, in PEM."""
    trust_store_path: str | None = None
    """File with the certificates of the authorities that the client trusts, in PEM."""


@dataclass(frozen=True, slots=True)
class TokenAuthenticator:
    """A token of `nacre token create`, for services over HTTP: ``http://host:8091``.

    Key-value does not accept tokens, so programs read and change documents by queries.
    """

    token: str = field(repr=False)
    cert_path: str | None = None
    """File with the certificates of the authorities that the client trusts, in PEM."""


Authenticator = PasswordAuthenticator | CertificateAuthenticator | TokenAuthenticator
