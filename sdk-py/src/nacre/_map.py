"""The cluster map: the node of each vBucket, and the addresses of all services."""

import json
from typing import Any

from ._connstr import Address
from ._record import dataclass
from .exceptions import DecodingFailureException

_MAP_BYTES_MAX = 8 * 1024 * 1024
_VBUCKETS_MAX = 65536
_SECURE = {
    "kvSSL": "kv",
    "mgmtSSL": "mgmt",
    "capiSSL": "capi",
    "n1qlSSL": "n1ql",
    "ftsSSL": "fts",
    "cbasSSL": "cbas",
    "eventingSSL": "eventingAdminPort",
}
"""Names of services with TLS, and without."""


@dataclass(frozen=True, slots=True)
class Network:
    """Selects the addresses of the nodes."""

    uses_tls: bool = False
    name: str = "auto"
    """``default``; ``external``; or ``auto``, by the address that the client first reached."""

    def is_external(self, nodes: list[dict[str, Any]], host: str) -> bool:
        """Returns True if the client must use the alternate addresses."""
        if self.name != "auto":
            return self.name == "external"
        named = {node.get("hostname") for node in nodes}
        alternate = {
            node.get("alternateAddresses", {}).get("external", {}).get("hostname") for node in nodes
        }
        return host in alternate - named


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """A cluster map from the server. The client uses the map with the highest `version`."""

    version: tuple[int, int]
    """(epoch, revision), compared in this order."""
    kv: tuple[Address, ...]
    """Nodes that hold documents, in the order that `vbuckets` refers to."""
    vbuckets: tuple[tuple[int, ...], ...]
    """A row for each vBucket: number of the active node, then of the replicas; -1 is none."""
    services: tuple[tuple[str, Address], ...]
    """Name and address of every service of every node."""
    groups: tuple[str | None, ...] = ()
    """Server group of each node in ``kv``, as far as the map names them."""

    @classmethod
    def parse(cls, text: bytes, host: str, network: Network | None = None) -> "ClusterMap":
        """Parses a map received from ``host``, which is the name of nodes without a host name in
        the map.

        Raises:
            DecodingFailureException: if it is not JSON, is incomplete, or is too large.
        """
        if len(text) > _MAP_BYTES_MAX:
            raise DecodingFailureException(
                f"a cluster's map of {len(text)} bytes is over the limit"
            )
        try:
            return _read(json.loads(text), host, network or Network())
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise DecodingFailureException(f"the cluster's map cannot be read: {error}") from error

    def node_of(self, vbid: int, copy: int = 0) -> Address | None:
        """Returns the node with a copy of a vBucket, or None. Copy 0 is the active copy."""
        row = self.vbuckets[vbid]
        number = row[copy] if copy < len(row) else -1
        return self.kv[number] if number >= 0 else None

    def copies(self, vbid: int, group: str | None = None) -> list[int]:
        """Returns the numbers of the available copies of a vBucket; 0 is the active copy.

        With a group, only copies in that server group.
        """
        return [
            copy
            for copy, node in enumerate(self.vbuckets[vbid])
            if node >= 0
            and (group is None or (node < len(self.groups) and self.groups[node] == group))
        ]

    def nodes(self, service: str) -> tuple[Address, ...]:
        """Returns the nodes that run a service, for example ``mgmt`` or ``capi``."""
        return tuple(address for name, address in self.services if name == service)

    @property
    def members(self) -> tuple[Address, ...]:
        """Returns the nodes that can return the map; nodes with documents of the bucket come first.
        """
        return (*dict.fromkeys(self.kv + self.nodes("kv")),)

    @property
    def replica_count(self) -> int:
        """Returns the configured number of replicas of the bucket."""
        return len(self.vbuckets[0]) - 1 if self.vbuckets else 0


def _read(config: dict[str, Any], host: str, network: Network) -> ClusterMap:
    nodes: list[dict[str, Any]] = config["nodesExt"]
    external = network.is_external(nodes, host)
    reached = [_services(node, host, network.uses_tls, external) for node in nodes]
    buckets = config.get("vBucketServerMap")
    kv: tuple[Address, ...] = ()
    vbuckets: tuple[tuple[int, ...], ...] = ()
    if buckets is not None:
        servers = buckets["serverList"]
        if network.uses_tls or external:
            # The list has other ports. Its nodes are the first nodes of the map, in the same order.
            kv = tuple(reached[number]["kv"] for number in range(len(servers)))
        else:
            kv = tuple(_server(text, host) for text in servers)
        vbuckets = tuple(tuple(int(number) for number in row) for row in buckets["vBucketMap"])
        if not 1 <= len(vbuckets) <= _VBUCKETS_MAX:
            raise ValueError(f"there are no {len(vbuckets)} vBuckets")
        if any(not row or max(row) >= len(kv) for row in vbuckets):
            raise ValueError("a vBucket is on a node that is not listed")
    version = (int(config.get("revEpoch", 0)), int(config["rev"]))
    services = tuple(pair for node in reached for pair in node.items())
    groups = tuple(node.get("serverGroup") for node in nodes[: len(kv)])
    return ClusterMap(version, kv, vbuckets, services, groups)


def _services(
    node: dict[str, Any], host: str, uses_tls: bool, external: bool
) -> dict[str, Address]:
    """Returns the address of each service of a node, by the service's name without TLS."""
    name, ports = node.get("hostname"), node["services"]
    if external:
        alternate = node.get("alternateAddresses", {}).get("external")
        if alternate is not None:
            name, ports = alternate["hostname"], alternate.get("ports") or ports
    named = _host(name, host)
    if uses_tls:
        return {
            plain: Address(named, int(ports[secure]))
            for secure, plain in _SECURE.items()
            if secure in ports
        }
    return {service: Address(named, int(port)) for service, port in ports.items()}


def _server(text: str, host: str) -> Address:
    name, _, port = text.rpartition(":")
    return Address(_host(name, host), int(port))


def _host(name: str | None, host: str) -> str:
    return host if not name or name == "$HOST" else name.strip("[]")
