"""Security of connections: user, mechanisms, TLS."""

import base64
import re
import ssl
from dataclasses import field
from typing import TYPE_CHECKING

from ._record import dataclass
from .auth import (
    Authenticator,
    CertificateAuthenticator,
    PasswordAuthenticator,
    TokenAuthenticator,
)
from .exceptions import InvalidArgumentException

if TYPE_CHECKING:
    from ._embedded import Carrier

PLAIN = "PLAIN"
SCRAM_DIGESTS = {"SCRAM-SHA512": "sha512", "SCRAM-SHA256": "sha256", "SCRAM-SHA1": "sha1"}
"""Mechanisms that do not give the password away, the strongest first, with their digests."""


_TOKEN = re.compile(r"[!-~]{1,4096}")


@dataclass(slots=True)
class Security:
    """Credentials of connections. All connections of a cluster share them, so that they can change.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    mechanisms: tuple[str, ...] = tuple(SCRAM_DIGESTS)
    """What may be used, the best first."""
    tls: ssl.SSLContext | None = None
    token: str | None = field(default=None, repr=False)
    """Takes the place of user and password in requests over HTTP."""
    has_certificate: bool = False
    """The certificate says who the client is: there is no other login."""
    carrier: "Carrier | None" = field(default=None, repr=False)
    """What carries frames to a database in this process, which asks nobody who they are."""

    @classmethod
    def of(
        cls,
        authenticator: Authenticator,
        uses_tls: bool,
        trust: str | None = None,
        trust_pem: str | None = None,
        verifies: bool = True,
    ) -> "Security":
        """Creates the credentials of a user.

        Raises:
            InvalidArgumentException: a file with certificates cannot be read, or a certificate is
                to be shown without TLS.
        """
        security = cls()
        security.take(authenticator, uses_tls)
        if uses_tls:
            security.tls = _context(authenticator, trust, trust_pem, verifies)
        return security

    def take(self, authenticator: Authenticator, uses_tls: bool) -> None:
        """Replaces the user, for future connections."""
        if isinstance(authenticator, CertificateAuthenticator):
            if not uses_tls:
                raise InvalidArgumentException("a certificate is shown with couchbases:// only")
            self.username = self.password = ""
            self.has_certificate = True
            return
        if isinstance(authenticator, TokenAuthenticator):
            if not _TOKEN.fullmatch(authenticator.token):
                raise InvalidArgumentException("a token is text without spaces")
            self.token = authenticator.token
            self.username = self.password = ""
            self.has_certificate = False
            return
        if not isinstance(authenticator, PasswordAuthenticator):
            raise InvalidArgumentException(
                "an authenticator is a PasswordAuthenticator, a CertificateAuthenticator or a "
                "TokenAuthenticator"
            )
        self.token = None
        self.username, self.password = authenticator.username, authenticator.password
        self.has_certificate = False
        chosen = authenticator.allowed_sasl_mechanisms
        # A plain-text password is allowed with TLS, or if the caller has chosen it explicitly.
        fallback = (PLAIN,) if uses_tls else ()
        self.mechanisms = (*SCRAM_DIGESTS, *fallback) if chosen is None else tuple(chosen)
        unknown = set(self.mechanisms) - {*SCRAM_DIGESTS, PLAIN}
        if unknown or not self.mechanisms:
            known = ", ".join((*SCRAM_DIGESTS, PLAIN))
            raise InvalidArgumentException(f"mechanisms are {known}, not {sorted(unknown)}")

    @property
    def http_authorization(self) -> str | None:
        """Returns the header for HTTP requests, or None if the certificate suffices."""
        if self.has_certificate:
            return None
        if self.token is not None:
            return f"Bearer {self.token}"
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


def _context(
    authenticator: Authenticator, trust: str | None, trust_pem: str | None, verifies: bool
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if isinstance(authenticator, CertificateAuthenticator):
        trust = trust or authenticator.trust_store_path
    else:
        trust = trust or authenticator.cert_path
    try:
        if trust or trust_pem:
            context.load_verify_locations(cafile=trust, cadata=trust_pem)
        else:
            context.load_default_certs()
        if isinstance(authenticator, CertificateAuthenticator):
            context.load_cert_chain(authenticator.cert_path, authenticator.key_path)
    except (OSError, ValueError) as error:
        raise InvalidArgumentException(f"the certificates cannot be read: {error}") from error
    return context
