"""Connection strings: ``couchbase://host[:port][,host[:port]…][/bucket]``."""

import re
from dataclasses import dataclass

from .exceptions import FeatureUnavailableException, InvalidArgumentException

DEFAULT_PORT = 11210
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s\[\]:/?#@]+)(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Host and port of a service."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """Nodes to ask for the cluster's map, in order, and the bucket after the slash, if any."""

    seeds: tuple[Address, ...]
    bucket: str | None = None

    @classmethod
    def parse(cls, text: str) -> "ConnectionString":
        """Reads a connection string; the port is that of the key-value service (default 11210).

        Raises:
            InvalidArgumentException: it has another scheme, no host, or options: those are
                arguments of ``connect`` here.
            FeatureUnavailableException: it asks for TLS.
        """
        scheme, separator, rest = text.partition("://")
        if not separator or scheme != "couchbase":
            if scheme == "couchbases":
                raise FeatureUnavailableException(
                    "TLS (couchbases://) is not available yet: connect with couchbase://"
                )
            raise InvalidArgumentException(f"{text!r} does not start with couchbase://")
        if "?" in rest:
            raise InvalidArgumentException("options are arguments of connect, not of its address")
        hosts, _, bucket = rest.partition("/")
        return cls(tuple(_address(host) for host in hosts.split(",")), bucket or None)


def _address(text: str) -> Address:
    match = _HOST.fullmatch(text)
    if match is None:
        raise InvalidArgumentException(f"{text!r} is no host or host:port")
    port = int(match[2] or DEFAULT_PORT)
    if not 1 <= port <= 65535:
        raise InvalidArgumentException(f"{port} is no port")
    return Address(match[1].strip("[]"), port)
