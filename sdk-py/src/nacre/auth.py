"""Who a client is."""

from dataclasses import dataclass, field
from enum import Enum


class AuthDomain(Enum):
    """Where a user is known."""

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
        """A user of a directory, to which the server gives the password: use it with TLS only."""
        return cls(username, password, cert_path, ("PLAIN",))


@dataclass(frozen=True, slots=True)
class CertificateAuthenticator:
    """A certificate of the client, which the server knows a user by. Needs ``couchbases://``."""

    cert_path: str
    """File with the certificate and the chain behind it, in PEM."""
    key_path: str
    """File with the private key, in PEM."""
    trust_store_path: str | None = None
    """File with the certificates of the authorities that the client trusts, in PEM."""


@dataclass(frozen=True, slots=True)
class TokenAuthenticator:
    """A token of `nacre token create`, for services over HTTP: ``http://host:8091``.

    Key-value takes no tokens, so documents are read and changed by queries.
    """

    token: str = field(repr=False)
    cert_path: str | None = None
    """File with the certificates of the authorities that the client trusts, in PEM."""


Authenticator = PasswordAuthenticator | CertificateAuthenticator | TokenAuthenticator
