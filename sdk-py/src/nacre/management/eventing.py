"""Management of eventing functions."""

from collections.abc import Callable
from dataclasses import field
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote, urlencode

from .. import exceptions as e
from .._http import HttpResponse
from .._instruments import watched
from .._record import dataclass
from ..n1ql import QueryScanConsistency
from ..options import TimeoutOptions, options_of
from ._base import JsonManager, read, require_success

if TYPE_CHECKING:
    from ..cluster import Cluster

EventingFunctionOptions = TimeoutOptions


class EventingFunctionBucketAccess(Enum):
    """Access of a function to documents."""

    ReadOnly = "r"
    ReadWrite = "rw"


class EventingFunctionDcpBoundary(Enum):
    """The changes that a newly deployed function receives."""

    Everything = "everything"
    FromNow = "from_now"


class EventingFunctionDeploymentStatus(Enum):
    """Whether a function is deployed."""

    Undeployed = False
    Deployed = True


class EventingFunctionProcessingStatus(Enum):
    """Whether a deployed function runs."""

    Paused = False
    Running = True


class EventingFunctionLogLevel(Enum):
    """Log level of a function."""

    Info = "INFO"
    Error = "ERROR"
    Warning = "WARNING"
    Debug = "DEBUG"
    Trace = "TRACE"


class EventingFunctionLanguageCompatibility(Enum):
    """Language version of a function."""

    Version_6_0_0 = "6.0.0"
    Version_6_5_0 = "6.5.0"
    Version_6_6_2 = "6.6.2"
    Version_7_2_0 = "7.2.0"


class EventingFunctionState(Enum):
    """The state of a function."""

    Undeployed = "undeployed"
    Deployed = "deployed"
    Deploying = "deploying"
    Undeploying = "undeploying"
    Paused = "paused"
    Pausing = "pausing"


@dataclass(frozen=True, slots=True)
class EventingFunctionKeyspace:
    """A collection."""

    bucket: str
    scope: str | None = None
    collection: str | None = None

    def as_dict(self) -> dict[str, str]:
        """Returns the members that are set."""
        members = {"bucket": self.bucket, "scope": self.scope, "collection": self.collection}
        return {name: value for name, value in members.items() if value}

    @classmethod
    def from_server(
        cls, bucket: str, scope: str | None = None, collection: str | None = None
    ) -> "EventingFunctionKeyspace":
        """Returns a collection whose default names are None."""
        named = (None if name == "_default" else name or None for name in (scope, collection))
        return cls(bucket, *named)


@dataclass(frozen=True, slots=True)
class EventingFunctionBucketBinding:
    """A name by which a function accesses a collection."""

    alias: str
    name: EventingFunctionKeyspace
    access: EventingFunctionBucketAccess = EventingFunctionBucketAccess.ReadOnly

    def as_dict(self) -> dict[str, str]:
        """Returns the binding in the format of the service."""
        names = _names("", "_name", self.name)
        return {"alias": self.alias, "access": self.access.value, **names}

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "EventingFunctionBucketBinding":
        """Parses a binding from the service."""
        access = EventingFunctionBucketAccess(members.get("access", "r"))
        return cls(members["alias"], _keyspace("", "_name", members), access)


@dataclass(frozen=True, slots=True)
class EventingFunctionUrlAuth:
    """Authentication of a function at a host."""

    def as_dict(self) -> dict[str, str]:
        """Returns the members of a definition."""
        return {"auth_type": "no-auth"}


@dataclass(frozen=True, slots=True)
class EventingFunctionUrlNoAuth(EventingFunctionUrlAuth):
    """No authentication."""


@dataclass(frozen=True, slots=True)
class EventingFunctionUrlAuthBasic(EventingFunctionUrlAuth):
    """Authentication by user and password."""

    username: str = ""
    password: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, str]:
        """Returns the members of a definition."""
        return {"auth_type": "basic", "username": self.username, "password": self.password}


@dataclass(frozen=True, slots=True)
class EventingFunctionUrlAuthDigest(EventingFunctionUrlAuth):
    """Digest authentication: the password itself is not sent."""

    username: str = ""
    password: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, str]:
        """Returns the members of a definition."""
        return {"auth_type": "digest", "username": self.username, "password": self.password}


@dataclass(frozen=True, slots=True)
class EventingFunctionUrlAuthBearer(EventingFunctionUrlAuth):
    """Authentication by bearer token."""

    key: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, str]:
        """Returns the members of a definition."""
        return {"auth_type": "bearer", "bearer_key": self.key}


@dataclass(frozen=True, slots=True)
class EventingFunctionUrlBinding:
    """A name by which a function accesses a host."""

    hostname: str
    alias: str
    allow_cookies: bool = False
    validate_ssl_certificate: bool = True
    auth: EventingFunctionUrlAuth = EventingFunctionUrlNoAuth()

    def as_dict(self) -> dict[str, Any]:
        """Returns the binding in the format of the service."""
        return {
            "hostname": self.hostname,
            "value": self.alias,
            "allow_cookies": self.allow_cookies,
            "validate_ssl_certificate": self.validate_ssl_certificate,
            **self.auth.as_dict(),
        }

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "EventingFunctionUrlBinding":
        """Parses a binding from the service."""
        return cls(
            members["hostname"],
            members["value"],
            bool(members.get("allow_cookies")),
            bool(members.get("validate_ssl_certificate")),
            _auth(members),
        )


@dataclass(frozen=True, slots=True)
class EventingFunctionConstantBinding:
    """A constant: a name, and its value as an expression."""

    alias: str
    literal: str

    def as_dict(self) -> dict[str, str]:
        """Returns the binding in the format of the service."""
        return {"value": self.alias, "literal": self.literal}

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "EventingFunctionConstantBinding":
        """Parses a binding from the service."""
        return cls(members["value"], members["literal"])


@dataclass(slots=True)
class EventingFunctionSettings:
    """Settings of a function; None means the default of the server."""

    cpp_worker_thread_count: int | None = None
    dcp_stream_boundary: EventingFunctionDcpBoundary | None = None
    description: str | None = None
    deployment_status: EventingFunctionDeploymentStatus | None = None
    processing_status: EventingFunctionProcessingStatus | None = None
    log_level: EventingFunctionLogLevel | None = None
    language_compatibility: EventingFunctionLanguageCompatibility | None = None
    execution_timeout: timedelta | None = None
    lcb_inst_capacity: int | None = None
    lcb_retry_count: int | None = None
    lcb_timeout: timedelta | None = None
    query_consistency: QueryScanConsistency | None = None
    num_timer_partitions: int | None = None
    sock_batch_size: int | None = None
    tick_duration: timedelta | None = None
    timer_context_size: int | None = None
    user_prefix: str | None = None
    bucket_cache_size: int | None = None
    bucket_cache_age: timedelta | None = None
    curl_max_allowed_resp_size: int | None = None
    worker_count: int | None = None
    query_prepare_all: bool | None = None
    app_log_dir: str | None = None
    enable_applog_rotation: bool | None = None
    app_log_max_size: int | None = None
    app_log_max_files: int | None = None
    checkpoint_interval: timedelta | None = None
    handler_headers: list[str] | None = None
    handler_footers: list[str] | None = None

    @classmethod
    def new_settings(cls, **members: Any) -> "EventingFunctionSettings":
        """Returns the settings of a new function, which is neither deployed nor running."""
        return cls(
            **{
                "deployment_status": EventingFunctionDeploymentStatus.Undeployed,
                "processing_status": EventingFunctionProcessingStatus.Paused,
                **members,
            }
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the settings in the format of the service."""
        members: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is not None:
                encode, _ = _CODECS.get(name, _PLAIN)
                members[_SERVER_NAMES.get(name, name)] = encode(value)
        return members

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "EventingFunctionSettings":
        """Parses settings from the service. Unknown members are omitted."""
        settings = cls()
        for name in cls.__dataclass_fields__:
            value = members.get(_SERVER_NAMES.get(name, name))
            if value is not None:
                _, decode = _CODECS.get(name, _PLAIN)
                setattr(settings, name, decode(value))
        return settings


@dataclass(slots=True)
class EventingFunction:
    """Definition of a function."""

    name: str
    code: str
    source_keyspace: EventingFunctionKeyspace
    metadata_keyspace: EventingFunctionKeyspace
    version: str | None = None
    enforce_schema: bool | None = None
    handler_uuid: int | None = None
    function_instance_id: str | None = None
    bucket_bindings: list[EventingFunctionBucketBinding] = field(default_factory=list)
    url_bindings: list[EventingFunctionUrlBinding] = field(default_factory=list)
    constant_bindings: list[EventingFunctionConstantBinding] = field(default_factory=list)
    settings: EventingFunctionSettings = field(
        default_factory=EventingFunctionSettings.new_settings
    )

    def as_dict(self) -> dict[str, Any]:
        """Returns the definition in the format of the service."""
        members: dict[str, Any] = {
            "appname": self.name,
            "appcode": self.code,
            "version": self.version,
            "enforce_schema": self.enforce_schema,
            "handleruuid": self.handler_uuid,
            "function_instance_id": self.function_instance_id,
            "depcfg": {
                "buckets": [one.as_dict() for one in self.bucket_bindings],
                "curl": [one.as_dict() for one in self.url_bindings],
                "constants": [one.as_dict() for one in self.constant_bindings],
                **_names("source_", "", self.source_keyspace),
                **_names("metadata_", "", self.metadata_keyspace),
            },
            "settings": self.settings.as_dict(),
        }
        return {name: value for name, value in members.items() if value is not None}

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "EventingFunction":
        """Parses a definition from the service."""
        places = members["depcfg"]
        return cls(
            members["appname"],
            members["appcode"],
            _keyspace("source_", "", places),
            _keyspace("metadata_", "", places),
            members.get("version"),
            members.get("enforce_schema"),
            members.get("handleruuid"),
            members.get("function_instance_id"),
            [EventingFunctionBucketBinding.from_server(one) for one in places.get("buckets") or ()],
            [EventingFunctionUrlBinding.from_server(one) for one in places.get("curl") or ()],
            [
                EventingFunctionConstantBinding.from_server(one)
                for one in places.get("constants") or ()
            ],
            EventingFunctionSettings.from_server(members.get("settings") or {}),
        )


@dataclass(frozen=True, slots=True)
class EventingFunctionStatus:
    """The status of a function."""

    name: str
    num_bootstrapping_nodes: int
    num_deployed_nodes: int
    state: EventingFunctionState
    deployment_status: EventingFunctionDeploymentStatus
    processing_status: EventingFunctionProcessingStatus
    redeploy_required: bool | None = None
    function_scope: dict[str, Any] | None = None

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "EventingFunctionStatus":
        """Parses a status from the service."""
        return cls(
            members["name"],
            members.get("num_bootstrapping_nodes", 0),
            members.get("num_deployed_nodes", 0),
            EventingFunctionState(members["composite_status"]),
            EventingFunctionDeploymentStatus(bool(members.get("deployment_status"))),
            EventingFunctionProcessingStatus(bool(members.get("processing_status"))),
            members.get("redeploy_required"),
            members.get("function_scope"),
        )


@dataclass(frozen=True, slots=True)
class EventingFunctionsStatus:
    """The status of all functions."""

    num_eventing_nodes: int
    functions: list[EventingFunctionStatus] = field(default_factory=list)

    @classmethod
    def from_server(cls, members: dict[str, Any]) -> "EventingFunctionsStatus":
        """Parses a status from the service."""
        functions = [EventingFunctionStatus.from_server(one) for one in members.get("apps") or ()]
        return cls(members.get("num_eventing_nodes", 0), functions)


@watched
class EventingFunctionManager(JsonManager):
    """Manages the eventing functions of a cluster.

    Operations on a missing function raise `EventingFunctionNotFoundException`.
    """

    _SERVICE = "eventingAdminPort"
    _scope: tuple[str, str] | None = None

    async def upsert_function(
        self,
        function: EventingFunction,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Defines a function. An existing function with this name must be undeployed or paused.

        Raises:
            EventingFunctionCompilationFailureException: if the code cannot be compiled.
            EventingFunctionCollectionNotFoundException: if the collection does not exist.
        """
        merged = options_of("upsert_function", TimeoutOptions, options, kwargs)
        body = function.as_dict()
        if self._scope is not None:
            body["function_scope"] = {"bucket": self._scope[0], "scope": self._scope[1]}
        _require(await self._send("POST", self._path(function.name), merged, body))

    async def drop_function(
        self,
        name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Drops a function, which must be undeployed.

        Raises:
            EventingFunctionNotUnDeployedException: if it is deployed.
        """
        merged = options_of("drop_function", TimeoutOptions, options, kwargs)
        _require(await self._send("DELETE", self._path(name), merged))

    async def deploy_function(
        self,
        name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Starts to deploy a function.

        Raises:
            EventingFunctionAlreadyDeployedException: if it is deployed already.
        """
        merged = options_of("deploy_function", TimeoutOptions, options, kwargs)
        _require(await self._send("POST", self._path(name, "deploy"), merged))

    async def undeploy_function(
        self,
        name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Starts to undeploy a function, which deletes its state and timers.

        Raises:
            EventingFunctionNotDeployedException: if it is not deployed.
        """
        merged = options_of("undeploy_function", TimeoutOptions, options, kwargs)
        _require(await self._send("POST", self._path(name, "undeploy"), merged))

    async def pause_function(
        self,
        name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Starts to pause a function.

        Raises:
            EventingFunctionNotBootstrappedException: if its deployment has not finished.
        """
        merged = options_of("pause_function", TimeoutOptions, options, kwargs)
        _require(await self._send("POST", self._path(name, "pause"), merged))

    async def resume_function(
        self,
        name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> None:
        """Resumes a paused function at its position.

        Raises:
            EventingFunctionNotDeployedException: if it is not deployed.
        """
        merged = options_of("resume_function", TimeoutOptions, options, kwargs)
        _require(await self._send("POST", self._path(name, "resume"), merged))

    async def get_function(
        self,
        name: str,
        options: TimeoutOptions | None = None,
        **kwargs: Unpack[TimeoutOptions],
    ) -> EventingFunction:
        """Returns the definition of a function."""
        merged = options_of("get_function", TimeoutOptions, options, kwargs)
        response = await self._send("GET", self._path(name), merged)
        _require(response)
        return read(response, EventingFunction.from_server)

    async def get_all_functions(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> list[EventingFunction]:
        """Returns the definitions of all functions."""
        merged = options_of("get_all_functions", TimeoutOptions, options, kwargs)
        response = await self._send("GET", "/api/v1/functions", merged)
        _require(response)
        return read(
            response,
            lambda functions: [
                EventingFunction.from_server(function)
                for function in functions
                if self._has(function.get("function_scope"))
            ],
        )

    async def functions_status(
        self, options: TimeoutOptions | None = None, **kwargs: Unpack[TimeoutOptions]
    ) -> EventingFunctionsStatus:
        """The status of all functions."""
        merged = options_of("functions_status", TimeoutOptions, options, kwargs)
        response = await self._send("GET", "/api/v1/status", merged)
        _require(response)
        return read(response, self._statuses)

    def _statuses(self, members: dict[str, Any]) -> EventingFunctionsStatus:
        status = EventingFunctionsStatus.from_server(members)
        own = [one for one in status.functions if self._has(one.function_scope)]
        return EventingFunctionsStatus(status.num_eventing_nodes, own)

    def _has(self, scope: dict[str, Any] | None) -> bool:
        """Returns True if a function belongs to the manager's scope; None means the cluster."""
        named = (scope or {}).get("bucket", "*"), (scope or {}).get("scope", "*")
        return named == (self._scope or ("*", "*"))

    def _path(self, name: str, action: str = "") -> str:
        if not name:
            raise e.InvalidArgumentException("a function has a name")
        path = f"/api/v1/functions/{quote(name, safe='')}"
        path += f"/{action}" if action else ""
        if self._scope is None:
            return path
        return f"{path}?{urlencode({'bucket': self._scope[0], 'scope': self._scope[1]})}"


class ScopeEventingFunctionManager(EventingFunctionManager):
    """Manages the eventing functions of a scope."""

    def __init__(self, cluster: "Cluster", bucket: str, scope: str) -> None:
        super().__init__(cluster)
        self._scope = (bucket, scope)


_ERRORS: dict[str, type[e.CouchbaseException]] = {
    "ERR_APP_NOT_FOUND_TS": e.EventingFunctionNotFoundException,
    "ERR_APP_NOT_FOUND": e.EventingFunctionNotFoundException,
    "ERR_APP_NOT_DEPLOYED": e.EventingFunctionNotDeployedException,
    "ERR_APP_ALREADY_DEPLOYED": e.EventingFunctionAlreadyDeployedException,
    "ERR_APP_NOT_UNDEPLOYED": e.EventingFunctionNotUnDeployedException,
    "ERR_APP_NOT_BOOTSTRAPPED": e.EventingFunctionNotBootstrappedException,
    "ERR_HANDLER_COMPILATION": e.EventingFunctionCompilationFailureException,
    "ERR_SRC_MB_SAME": e.EventingFunctionIdenticalKeyspaceException,
    "ERR_COLLECTION_MISSING": e.EventingFunctionCollectionNotFoundException,
    "ERR_BUCKET_MISSING": e.BucketNotFoundException,
}


def _require(response: HttpResponse) -> None:
    if response.status < 300:
        return
    for name, kind in _ERRORS.items():
        if f'"{name}"' in response.text:
            raise kind(response.text, response.context)
    require_success(response)


def _names(prefix: str, suffix: str, keyspace: EventingFunctionKeyspace) -> dict[str, str]:
    return {
        f"{prefix}bucket{suffix}": keyspace.bucket,
        f"{prefix}scope{suffix}": keyspace.scope or "_default",
        f"{prefix}collection{suffix}": keyspace.collection or "_default",
    }


def _keyspace(prefix: str, suffix: str, members: dict[str, Any]) -> EventingFunctionKeyspace:
    return EventingFunctionKeyspace(
        members[f"{prefix}bucket{suffix}"],
        members.get(f"{prefix}scope{suffix}"),
        members.get(f"{prefix}collection{suffix}"),
    )


def _auth(members: dict[str, Any]) -> EventingFunctionUrlAuth:
    user, password = members.get("username", ""), members.get("password", "")
    match members.get("auth_type"):
        case "basic":
            return EventingFunctionUrlAuthBasic(user, password)
        case "digest":
            return EventingFunctionUrlAuthDigest(user, password)
        case "bearer":
            return EventingFunctionUrlAuthBearer(members.get("bearer_key", ""))
    return EventingFunctionUrlNoAuth()


Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _plain(value: Any) -> Any:
    return value


_PLAIN: Codec = (_plain, _plain)
_SECONDS: Codec = (
    lambda value: int(value.total_seconds()),
    lambda value: timedelta(seconds=value),
)
_MILLISECONDS: Codec = (
    lambda value: value // timedelta(milliseconds=1),
    lambda value: timedelta(milliseconds=value),
)


def _enum(kind: type[Enum]) -> Codec:
    return lambda value: value.value, kind


_CODECS: dict[str, Codec] = {
    "dcp_stream_boundary": _enum(EventingFunctionDcpBoundary),
    "deployment_status": _enum(EventingFunctionDeploymentStatus),
    "processing_status": _enum(EventingFunctionProcessingStatus),
    "log_level": _enum(EventingFunctionLogLevel),
    "language_compatibility": _enum(EventingFunctionLanguageCompatibility),
    "execution_timeout": _SECONDS,
    "lcb_timeout": _SECONDS,
    "checkpoint_interval": _SECONDS,
    "tick_duration": _MILLISECONDS,
    "bucket_cache_age": _MILLISECONDS,
    "query_consistency": (
        lambda value: "request" if value is QueryScanConsistency.REQUEST_PLUS else "none",
        lambda value: (
            QueryScanConsistency.REQUEST_PLUS
            if value == "request"
            else QueryScanConsistency.NOT_BOUNDED
        ),
    ),
}
_SERVER_NAMES = {
    "query_consistency": "n1ql_consistency",
    "query_prepare_all": "n1ql_prepare_all",
}
