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


@dataclass(frozen=True, slots=True)
class CertificateAuthenticator:
    """A certificate of the client, which the server knows a user by. Needs ``couchbases://``."""

    cert_path: str
    """File with the certificate and the chain behind it, in PEM."""
    key_path: str
    """File with the private key, in PEM."""
    trust_store_path: str | None = None
    """File with the certificates of the authorities that the client trusts, in PEM."""


Authenticator = PasswordAuthenticator | CertificateAuthenticator
