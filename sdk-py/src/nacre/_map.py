"""The cluster's map: which node serves which vBucket, and where its other services are."""

import json
from dataclasses import dataclass
from typing import Any

from ._connstr import Address
from .exceptions import DecodingFailureException


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """A map as the server gave it; of two maps the one with the higher `version` counts."""

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
    def parse(cls, text: bytes, host: str) -> "ClusterMap":
        """Reads a map that was received from ``host``, which stands in where it names none.

        Raises:
            DecodingFailureException: it is not JSON or lacks what a map has.
        """
        try:
            return _read(json.loads(text), host)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DecodingFailureException(f"the cluster's map cannot be read: {error}") from error

    def node_of(self, vbid: int, copy: int = 0) -> Address | None:
        """Node with a copy of a vBucket, 0 being the active one; None while there is none."""
        row = self.vbuckets[vbid]
        number = row[copy] if copy < len(row) else -1
        return self.kv[number] if number >= 0 else None

    def copies(self, vbid: int, group: str | None = None) -> list[int]:
        """Numbers of the copies of a vBucket that nodes have, 0 being the active one.

        With a group, those on nodes of that server group.
        """
        return [
            copy
            for copy, node in enumerate(self.vbuckets[vbid])
            if node >= 0
            and (group is None or (node < len(self.groups) and self.groups[node] == group))
        ]

    def nodes(self, service: str) -> tuple[Address, ...]:
        """Nodes that run the service, for example ``mgmt`` or ``capi``."""
        return tuple(address for name, address in self.services if name == service)

    @property
    def members(self) -> tuple[Address, ...]:
        """Nodes that can be asked for the map; those that hold documents of the bucket first."""
        return (*dict.fromkeys(self.kv + self.nodes("kv")),)

    @property
    def replica_count(self) -> int:
        """How many replicas the bucket is configured for."""
        return len(self.vbuckets[0]) - 1 if self.vbuckets else 0


def _read(config: dict[str, Any], host: str) -> ClusterMap:
    services = tuple(
        (name, Address(_host(node.get("hostname"), host), int(port)))
        for node in config["nodesExt"]
        for name, port in node["services"].items()
    )
    buckets = config.get("vBucketServerMap")
    kv: tuple[Address, ...] = ()
    vbuckets: tuple[tuple[int, ...], ...] = ()
    if buckets is not None:
        kv = tuple(_server(text, host) for text in buckets["serverList"])
        vbuckets = tuple(tuple(int(number) for number in row) for row in buckets["vBucketMap"])
        if not vbuckets or any(not row or max(row) >= len(kv) for row in vbuckets):
            raise ValueError("a vBucket is on a node that is not listed")
    version = (int(config.get("revEpoch", 0)), int(config["rev"]))
    groups = tuple(node.get("serverGroup") for node in config["nodesExt"][: len(kv)])
    return ClusterMap(version, kv, vbuckets, services, groups)


def _server(text: str, host: str) -> Address:
    name, _, port = text.rpartition(":")
    return Address(_host(name, host), int(port))


def _host(name: str | None, host: str) -> str:
    return host if not name or name == "$HOST" else name.strip("[]")
