"""The state of a cluster and of the connections to it."""

import asyncio
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import field
from datetime import timedelta
from enum import Enum
from typing import Any

from ._client import KvClient
from ._connection import AGENT, Connection, ConnectionLost
from ._connstr import Address
from ._frame import Request
from ._http import HttpClient, HttpRequest, HttpResponse
from ._opcodes import Opcode
from ._record import dataclass
from .exceptions import (
    AuthenticationException,
    CouchbaseException,
    DecodingFailureException,
    ErrorContext,
    InvalidArgumentException,
    ServiceUnavailableException,
    TimeoutException,
    UnAmbiguousTimeoutException,
)
from .options import DiagnosticsOptions, PingOptions, WaitUntilReadyOptions

_REPORT_VERSION = 2
_PAUSE_FIRST, _PAUSE_MAX = 0.01, 0.5


class ServiceType(Enum):
    """A service of a cluster."""

    KeyValue = "key_value"
    Query = "query"
    Search = "search"
    Analytics = "analytics"
    View = "view"
    Management = "management"
    Eventing = "eventing"


_REPORT_NAMES = {
    ServiceType.KeyValue: "kv",
    ServiceType.View: "views",
    ServiceType.Management: "mgmt",
}
"""Names in reports, which all SDKs share, where the enumeration has others."""


class ClusterState(Enum):
    """The availability of a cluster."""

    Online = "online"
    """All its nodes are connected to."""
    Degraded = "degraded"
    """Some are."""
    Offline = "offline"
    """None is."""


class EndpointState(Enum):
    """The state of a connection."""

    Connected = "connected"
    Connecting = "connecting"
    Disconnected = "disconnected"
    Disconnecting = "disconnecting"


class PingState(Enum):
    """The result of a ping."""

    OK = "ok"
    TIMEOUT = "timeout"
    ERROR = "error"


_NAMES = {
    ServiceType.Query: "n1ql",
    ServiceType.Search: "fts",
    ServiceType.Analytics: "cbas",
    ServiceType.View: "capi",
    ServiceType.Management: "mgmt",
    ServiceType.Eventing: "eventingAdminPort",
}
"""Services over HTTP, by their names in the map."""
_PATHS = {
    ServiceType.Query: "/admin/ping",
    ServiceType.Search: "/api/ping",
    ServiceType.Analytics: "/admin/ping",
    ServiceType.View: "/",
    ServiceType.Management: "/pools",
    ServiceType.Eventing: "/api/v1/status",
}


@dataclass(frozen=True, slots=True)
class EndpointPingReport:
    """The result of pinging one node."""

    service_type: ServiceType
    id: str
    remote: str
    state: PingState
    latency: timedelta
    error: str | None = None
    local: str | None = None
    namespace: str | None = None
    """The bucket that the connection is for."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as JSON objects."""
        members = {
            "id": self.id,
            "latency_us": self.latency // timedelta(microseconds=1),
            "remote": self.remote,
            "local": self.local,
            "state": self.state.value,
            "error": self.error,
            "namespace": self.namespace,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class EndpointDiagnosticsReport:
    """The state of one connection."""

    type: ServiceType
    id: str
    local: str | None
    remote: str
    state: EndpointState
    last_activity: timedelta | None
    """How long ago something was received."""
    namespace: str | None = None
    """The bucket that the connection is for."""

    @property
    def service_type(self) -> ServiceType:
        """Equivalent to ``type``."""
        return self.type

    @property
    def last_activity_us(self) -> int | None:
        """Returns the time since data was last received, in microseconds."""
        if self.last_activity is None:
            return None
        return self.last_activity // timedelta(microseconds=1)

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as JSON objects."""
        ago = self.last_activity_us
        members = {
            "id": self.id,
            "local": self.local,
            "remote": self.remote,
            "state": self.state.value,
            "last_activity_us": ago,
            "namespace": self.namespace,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PingResult:
    """The results of pinging the nodes, by service."""

    id: str
    endpoints: dict[ServiceType, list[EndpointPingReport]] = field(default_factory=dict)
    sdk: str = AGENT
    version: int = _REPORT_VERSION

    def as_json(self) -> str:
        """Returns the report as JSON."""
        return _json(self)


@dataclass(frozen=True, slots=True)
class DiagnosticsResult:
    """The states of the connections, by service."""

    id: str
    endpoints: dict[ServiceType, list[EndpointDiagnosticsReport]] = field(default_factory=dict)
    sdk: str = AGENT
    version: int = _REPORT_VERSION

    @property
    def state(self) -> ClusterState:
        """Returns the availability of the cluster, according to the present connections."""
        reports = [report for reports in self.endpoints.values() for report in reports]
        up = sum(report.state == EndpointState.Connected for report in reports)
        if up == 0:
            return ClusterState.Offline
        return ClusterState.Online if up == len(reports) else ClusterState.Degraded

    def as_json(self) -> str:
        """Returns the report as JSON."""
        return _json(self)


def _json(result: PingResult | DiagnosticsResult) -> str:
    services = {
        _REPORT_NAMES.get(service, service.value): [report.as_dict() for report in reports]
        for service, reports in result.endpoints.items()
    }
    members = {
        "id": result.id,
        "sdk": result.sdk,
        "version": result.version,
        "services": services,
    }
    return json.dumps(members)


@dataclass(frozen=True, slots=True)
class ClusterInfoResult:
    """The nodes of a cluster, and the version of its server."""

    nodes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def server_version_full(self) -> str | None:
        """Returns the version in the server's format: ``7.6.0-1234-enterprise``."""
        return self.nodes[0].get("version") if self.nodes else None

    @property
    def server_version(self) -> str | None:
        """Returns the version with the build number."""
        return "-".join((self.server_version_full or "").split("-")[:2]) or None

    @property
    def server_version_short(self) -> float | None:
        """Returns the first two numbers of the version."""
        try:
            return float(".".join((self.server_version_full or "").split(".")[:2]))
        except ValueError:
            return None

    @property
    def server_version_build(self) -> int | None:
        """Returns the build number."""
        parts = (self.server_version_full or "").split("-")
        return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else None

    @property
    def is_enterprise(self) -> bool | None:
        """Returns True if the server reports an enterprise edition."""
        full = self.server_version_full
        return None if full is None else full.endswith("enterprise")

    @property
    def is_community(self) -> bool | None:
        """Returns True if the server reports a community edition."""
        full = self.server_version_full
        return None if full is None else full.endswith("community")


def cluster_info(response: HttpResponse) -> ClusterInfoResult:
    """Returns the management service's description of the cluster.

    Raises:
        DecodingFailureException: if it cannot be parsed.
    """
    try:
        return ClusterInfoResult(list(json.loads(response.body)["nodes"]))
    except (ValueError, LookupError, TypeError):
        raise DecodingFailureException("the nodes cannot be read", response.context) from None


async def ping(
    client: KvClient, http: HttpClient, options: PingOptions, timeout: float
) -> PingResult:
    """Pings each node once for each of its services."""
    asked = services_of(options.get("service_types"))
    cluster_map = await client.refresh(timeout)
    pings = []
    for service in asked:
        if service is ServiceType.KeyValue:
            addresses = cluster_map.kv if client.bucket else cluster_map.nodes("kv")
            pings += [_ping_kv(client, address, timeout) for address in addresses]
        else:
            addresses = cluster_map.nodes(_NAMES[service])
            pings += [_ping_http(client, http, service, node, timeout) for node in addresses]
    result = PingResult(options.get("report_id") or os.urandom(16).hex())
    for report in await asyncio.gather(*pings):
        result.endpoints.setdefault(report.service_type, []).append(report)
    return result


def services_of(given: Iterable[ServiceType] | None) -> Sequence[ServiceType]:
    """Returns the services to ping; by default all services.

    Raises:
        InvalidArgumentException: if one is not a service.
    """
    services = list(ServiceType if given is None else given)
    if not all(isinstance(service, ServiceType) for service in services):
        raise InvalidArgumentException("service_types are members of ServiceType")
    return services


async def _ping_kv(client: KvClient, address: Address, timeout: float) -> EndpointPingReport:
    begun = time.perf_counter()
    connection: Connection | None = None
    state, error = PingState.OK, None
    try:
        async with asyncio.timeout(timeout):
            connection = await client.connection_to(address)
            await connection.ask(Request(Opcode.NOOP))
    except TimeoutError:
        state, error = PingState.TIMEOUT, f"there was no answer within {timeout} s"
    except (OSError, ConnectionLost, CouchbaseException) as raised:
        state, error = PingState.ERROR, str(raised)
    return EndpointPingReport(
        ServiceType.KeyValue,
        connection.id if connection else "",
        str(address),
        state,
        timedelta(seconds=time.perf_counter() - begun),
        error,
        connection.local if connection else None,
        client.bucket,
    )


async def _ping_http(
    client: KvClient, http: HttpClient, service: ServiceType, node: Address, timeout: float
) -> EndpointPingReport:
    begun = time.perf_counter()
    state, error = PingState.OK, None
    request = HttpRequest("GET", _PATHS[service], reads=True)
    try:
        async with http.stream(client, _NAMES[service], request, timeout, node=node) as answer:
            await answer.body()
            if answer.status >= 500:
                state, error = PingState.ERROR, f"the service answers {answer.status}"
    except TimeoutException as raised:
        state, error = PingState.TIMEOUT, str(raised)
    except CouchbaseException as raised:
        state, error = PingState.ERROR, str(raised)
    latency = timedelta(seconds=time.perf_counter() - begun)
    return EndpointPingReport(service, "", str(node), state, latency, error)


def diagnostics(clients: Iterable[KvClient], options: DiagnosticsOptions) -> DiagnosticsResult:
    """Describes the connections, without sending requests."""
    reports = []
    now = asyncio.get_running_loop().time()
    for client in clients:
        for address, connection in client.connections():
            if connection is None:
                state, ident, local, ago = EndpointState.Connecting, "", None, None
            else:
                up = not connection.lost
                state = EndpointState.Connected if up else EndpointState.Disconnected
                ident, local = connection.id, connection.local
                ago = timedelta(seconds=now - connection.last_activity)
            reports.append(
                EndpointDiagnosticsReport(
                    ServiceType.KeyValue, ident, local, str(address), state, ago, client.bucket
                )
            )
    endpoints = {ServiceType.KeyValue: reports} if reports else {}
    return DiagnosticsResult(options.get("report_id") or os.urandom(16).hex(), endpoints)


async def wait_until_ready(
    client: KvClient, http: HttpClient, timeout: timedelta, options: WaitUntilReadyOptions
) -> None:
    """Returns when all nodes answer, or with ``Degraded`` one node of each service.

    Raises:
        UnAmbiguousTimeoutException: if they do not answer in time.
        AuthenticationException: if the user or password is wrong.
    """
    desired = options.get("desired_state", ClusterState.Online)
    if desired is ClusterState.Offline:
        raise InvalidArgumentException("nobody waits for a cluster to be offline")
    wanted = None if "service_types" not in options else services_of(options["service_types"])
    client.check_loop()
    clock = asyncio.get_running_loop()
    deadline = clock.time() + timeout.total_seconds()
    pause = _PAUSE_FIRST
    reason = "no node answered"
    while (left := deadline - clock.time()) > 0:
        try:
            asked = PingOptions() if wanted is None else PingOptions(service_types=wanted)
            result = await ping(client, http, asked, left)
            missing = set(wanted or ()) - result.endpoints.keys()
            if missing:
                names = ", ".join(sorted(service.value for service in missing))
                raise ServiceUnavailableException(f"no node runs {names}")
            failed = [
                report
                for reports in result.endpoints.values()
                for report in reports
                if report.state is not PingState.OK
                and (
                    desired is ClusterState.Online
                    or all(other.state is not PingState.OK for other in reports)
                )
            ]
            if not failed:
                return
            reason = f"{failed[0].service_type.value} at {failed[0].remote}: {failed[0].error}"
        except AuthenticationException:
            raise
        except CouchbaseException as error:
            reason = str(error)
        await asyncio.sleep(min(pause, max(deadline - clock.time(), 0)))
        pause = min(pause * 2, _PAUSE_MAX)
    context = ErrorContext(bucket=client.bucket, operation="wait_until_ready")
    raise UnAmbiguousTimeoutException(f"the cluster is not ready: {reason}", context)
