"""Connection strings: ``couchbase[s]://host[:port][,host[:port]…][/bucket][?option=value&…]``.

``http[s]://host[:port][,…]`` has the port of the management service, and everything goes over HTTP.

``nacre:///path/to/folder[?option=value&…]`` and ``nacre://:memory:`` are databases in this process.
"""

import re
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from ._record import dataclass
from .exceptions import InvalidArgumentException

if TYPE_CHECKING:
    from ._embedded import Place

DEFAULT_PORT, DEFAULT_TLS_PORT = 11210, 11207
_HTTP_PORT, _HTTPS_PORT = 8091, 18091
_OPTIONS = frozenset({"network", "trust_certificate", "tls_verify"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s\[\]:/?#@]+)(?::(\d{1,5}))?")


class Address(NamedTuple):
    """Host and port of a service. Each request hashes an address, and a tuple has the fastest hash.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The nodes that can return the cluster map, in order, and the bucket after the slash, if any.
    """

    seeds: tuple[Address, ...]
    bucket: str | None = None
    uses_tls: bool = False
    options: dict[str, str] = field(default_factory=dict)
    """``network``, ``trust_certificate`` (a file) and ``tls_verify`` (``none`` or ``peer``)."""
    is_http: bool = False
    """There is no key-value: the map comes from the management service."""
    place: "Place | None" = None
    """The database in this process, in place of a cluster."""

    @classmethod
    def parse(cls, text: str) -> "ConnectionString":
        """Parses a connection string, whose ports belong to the key-value service, or with ``http``
        to the management service.

        Raises:
            InvalidArgumentException: if it has another scheme, no host, or an unknown option.
        """
        scheme, separator, rest = text.partition("://")
        if separator and scheme == "nacre":
            path, _, query = rest.partition("?")
            # Only programs that open a database load this module.
            from ._embedded import Place

            place = Place.of(path, dict(parse_qsl(query, keep_blank_values=True)))
            return cls((Address("embedded", DEFAULT_PORT),), place=place)
        if not separator or scheme not in _DEFAULT_PORTS:
            raise InvalidArgumentException(
                f"{text!r} does not start with couchbase://, couchbases://, http://, https:// or "
                "nacre://"
            )
        rest, _, query = rest.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := options.keys() - _OPTIONS:
            raise InvalidArgumentException(
                f"options of an address are {', '.join(sorted(_OPTIONS))}, not {sorted(unknown)}"
            )
        hosts, _, bucket = rest.partition("/")
        seeds = tuple(_address(host, _DEFAULT_PORTS[scheme]) for host in hosts.split(","))
        uses_tls = scheme in ("couchbases", "https")
        return cls(seeds, bucket or None, uses_tls, options, scheme.startswith("http"))


_DEFAULT_PORTS = {
    "couchbase": DEFAULT_PORT,
    "couchbases": DEFAULT_TLS_PORT,
    "http": _HTTP_PORT,
    "https": _HTTPS_PORT,
}
"""Ports of seeds that name none, by scheme."""


def address_of(text: str) -> Address:
    """Parses an address.

    Raises:
        InvalidArgumentException: if it is not ``host:port``.
    """
    match = _HOST.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] is None:
        raise InvalidArgumentException(f"{text!r} is not host:port")
    return _address(text, 0)


def _address(text: str, default_port: int) -> Address:
    match = _HOST.fullmatch(text)
    if match is None:
        raise InvalidArgumentException(f"{text!r} is no host or host:port")
    port = int(match[2] or default_port)
    if not 1 <= port <= 65535:
        raise InvalidArgumentException(f"{port} is no port")
    return Address(match[1].strip("[]"), port)
