"""Options of the operations, as typed dictionaries: ``GetOptions(with_expiry=True)`` or keywords.

Durations are `datetime.timedelta`. The operations describe their options.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from enum import Enum, IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from ._instruments import Instruments, OrphanReporter, span_in
from ._record import dataclass
from .auth import CertificateAuthenticator, PasswordAuthenticator, TokenAuthenticator
from .durability import ClientDurability, ServerDurability
from .exceptions import FeatureUnavailableException, InvalidArgumentException
from .observability.metrics import LoggingMeter, Meter
from .observability.tracing import RequestSpan, RequestTracer, ThresholdLoggingTracer
from .transcoder import Serializer, Transcoder

if TYPE_CHECKING:
    from .analytics import AnalyticsScanConsistency
    from .diagnostics import ClusterState, ServiceType
    from .mutation_state import MutationState
    from .n1ql import QueryProfile, QueryScanConsistency
    from .search import Facet, HighlightStyle, SearchScanConsistency, Sort
    from .vector_search import VectorQueryCombination


class StoreSemantics(IntEnum):
    """Requirements of `mutate_in` for the document itself."""

    REPLACE = 0
    """It must exist."""
    UPSERT = 1
    """It is created when missing."""
    INSERT = 2
    """It must not exist."""


class KnownConfigProfiles(Enum):
    """Profiles of timeouts."""

    WanDevelopment = "wan_development"
    """A network with long ways, such as from a developer's machine to a cloud."""


class TLSVerifyMode(Enum):
    """Verification of the nodes' certificates."""

    NONE = "none"
    NO_VERIFY = "none"
    PEER = "peer"


class ReadPreference(IntEnum):
    """The copies of a document that may be read."""

    NO_PREFERENCE = 0
    """All."""
    SELECTED_SERVER_GROUP = 1
    """Those on nodes of the server group that `ClusterOptions.preferred_server_group` names."""


@dataclass(slots=True)
class ClusterTimeoutOptions:
    """Default timeouts of operations."""

    kv_timeout: timedelta = timedelta(seconds=2.5)
    kv_durable_timeout: timedelta = timedelta(seconds=10)
    kv_scan_timeout: timedelta = timedelta(seconds=75)
    query_timeout: timedelta = timedelta(seconds=75)
    search_timeout: timedelta = timedelta(seconds=75)
    views_timeout: timedelta = timedelta(seconds=75)
    management_timeout: timedelta = timedelta(seconds=75)
    connect_timeout: timedelta = timedelta(seconds=10)
    bootstrap_timeout: timedelta | None = None
    """How long connecting to a cluster or bucket may take, in place of ``connect_timeout``."""
    analytics_timeout: timedelta = timedelta(seconds=75)
    resolve_timeout: timedelta | None = None
    """Taken for the sake of programs for the official SDK; the system decides for names."""
    dns_srv_timeout: timedelta | None = None
    """The same."""
    idle_http_connection_timeout: timedelta | None = None
    """The same: a request over HTTP that finds its connection closed makes another one."""
    config_idle_redial_timeout: timedelta | None = None
    """The same: the servers say when there is another map."""
    config_total_timeout: timedelta | None = None
    """The same."""

    @property
    def connecting(self) -> timedelta:
        """Returns the timeout of connecting to a cluster or bucket."""
        return self.bootstrap_timeout or self.connect_timeout


class ClusterTracingOptions(TypedDict, total=False):
    """Options of reports about slow operations; see `tracing.ThresholdLoggingTracer`."""

    enable_tracing: bool
    """Whether there are such reports; with these options there are, unless this is False."""
    tracing_threshold_kv: timedelta
    """Operations on documents that take longer are reported; half a second if not given."""
    tracing_threshold_view: timedelta
    """The same for views; a second if not given, as for all that follow."""
    tracing_threshold_query: timedelta
    tracing_threshold_search: timedelta
    tracing_threshold_analytics: timedelta
    tracing_threshold_eventing: timedelta
    tracing_threshold_management: timedelta
    tracing_threshold_queue_size: int
    """How many operations of a service a report has at most: the slowest; 64 if not given."""
    tracing_threshold_queue_flush_interval: timedelta
    """Time between reports; 10 seconds if not given."""
    tracing_orphaned_queue_size: int
    """The same as `ClusterOrphanReportingOptions.sample_size`."""
    tracing_orphaned_queue_flush_interval: timedelta
    """The same as `ClusterOrphanReportingOptions.emit_interval`."""


class ClusterMetricsOptions(TypedDict, total=False):
    """Options of reports about durations; see `metrics.LoggingMeter`."""

    enable_metrics: bool
    """Whether there are such reports; with these options there are, unless this is False."""
    emit_interval: timedelta
    """Time between reports; 10 minutes if not given."""


class ClusterOrphanReportingOptions(TypedDict, total=False):
    """Options of reports about orphan responses."""

    enable_orphan_reporting: bool
    """Whether there are such reports; with these options there are, unless this is False."""
    sample_size: int
    """How many answers a report has at most: the last ones; 64 if not given."""
    emit_interval: timedelta
    """Time between reports; 10 seconds if not given."""


@dataclass(slots=True, kw_only=True)
class TuningOptions:
    """Options that tune the native core of the official SDK.

    This package has no such core: it accepts the options, so that programs need no change, but they
    have no effect that a program can see.
    """

    enable_mutation_tokens: bool | None = None
    enable_tcp_keep_alive: bool | None = None
    enable_dns_srv: bool | None = None
    enable_unordered_execution: bool | None = None
    enable_clustermap_notification: bool | None = None
    enable_compression: bool | None = None
    enable_lazy_connections: bool | None = None
    enable_app_telemetry: bool | None = None
    app_telemetry_endpoint: str | None = None
    app_telemetry_backoff: timedelta | None = None
    app_telemetry_ping_interval: timedelta | None = None
    app_telemetry_ping_timeout: timedelta | None = None
    show_queries: bool | None = None
    ip_protocol: Any = None
    tcp_keep_alive_interval: timedelta | None = None
    config_poll_interval: timedelta | None = None
    config_poll_floor: timedelta | None = None
    max_http_connections: int | None = None
    user_agent_extra: str | None = None
    log_redaction: bool | None = None
    compression: Any = None
    compression_min_size: int | None = None
    compression_min_ratio: float | None = None
    lockmode: Any = None
    dns_nameserver: str | None = None
    dns_port: int | None = None
    disable_mozilla_ca_certificates: bool | None = None
    dump_configuration: bool | None = None
    allow_enterprise_analytics: bool | None = None


@dataclass(slots=True)
class ClusterOptions(TuningOptions):
    """Options of connecting to a cluster."""

    authenticator: PasswordAuthenticator | CertificateAuthenticator | TokenAuthenticator
    timeout_options: ClusterTimeoutOptions = field(default_factory=ClusterTimeoutOptions)
    preferred_server_group: str | None = None
    """Server group for `ReadPreference.SELECTED_SERVER_GROUP`."""
    transaction_config: "TransactionConfig | None" = None
    network: str = "auto"
    """Which addresses of the nodes are used: ``default``, ``external``, or ``auto``, which is those
    that the host of the connection string belongs to."""
    tls_verify: "TLSVerifyMode | None" = None
    """Whether the certificates of nodes are checked; they are, unless this says otherwise."""
    trust_store_path: str | None = None
    """File with the certificates of the authorities that the client trusts, in PEM."""
    trust_pem: str | None = None
    """The same as text."""
    transcoder: Transcoder | None = None
    """Turns values into bytes where an operation names no other one; JSON if not given."""
    enable_tls: bool | None = None
    """Whether connections are encrypted; if it is true, the connection string must say so too."""
    serializer: Serializer | None = None
    """Refused: give a transcoder."""
    tracer: RequestTracer | None = None
    """Makes the spans of operations; see `nacre.observability`."""
    meter: Meter | None = None
    """Takes the durations of operations."""
    tracing_options: ClusterTracingOptions | None = None
    """Reports about slow operations, where there is no tracer."""
    metrics_options: ClusterMetricsOptions | None = None
    """Reports about durations, where there is no meter."""
    orphan_reporting_options: ClusterOrphanReportingOptions | None = None
    """Reports about answers that came too late."""
    enable_tracing: bool | None = None
    """True has slow operations reported, and False has them not, whatever the other options say."""
    enable_metrics: bool | None = None
    """The same for durations."""
    enable_orphan_reporting: bool | None = None
    """The same for answers that came too late."""
    logging_meter_emit_interval: timedelta | None = None
    """The same as `ClusterMetricsOptions.emit_interval`."""
    key: bytes | str | None = field(default=None, repr=False)
    """Key of an encrypted embedded database: 32 bytes, or a passphrase."""

    def check(self, uses_tls: bool) -> None:
        """Refuses unsupported options.

        Raises:
            FeatureUnavailableException: for a serializer, or a tracer with the old interface.
            InvalidArgumentException: if TLS is requested but the connection string has none, or
                a tracer or meter is invalid.
        """
        if self.serializer is not None:
            raise FeatureUnavailableException("ClusterOptions has no serializer yet")
        if hasattr(self.tracer, "start_span") and not hasattr(self.tracer, "request_span"):
            raise FeatureUnavailableException("a tracer has request_span, not start_span")
        for name, method in (("tracer", "request_span"), ("meter", "value_recorder")):
            given = getattr(self, name)
            if given is not None and not callable(getattr(given, method, None)):
                raise InvalidArgumentException(f"a {name} has a method {method}")
        if self.enable_tls and not uses_tls:
            raise InvalidArgumentException(
                "enable_tls needs a connection string of couchbases:// or https://"
            )

    def instruments(self) -> Instruments:
        """Returns the instruments of a cluster's operations.

        Raises:
            InvalidArgumentException: if an interval or a size is not positive.
        """
        tracing = _known("tracing_options", ClusterTracingOptions, self.tracing_options)
        metrics = _known("metrics_options", ClusterMetricsOptions, self.metrics_options)
        orphans = _known(
            "orphan_reporting_options", ClusterOrphanReportingOptions, self.orphan_reporting_options
        )
        found = Instruments(self.tracer, self.meter)
        traces = _wanted(
            self.enable_tracing, tracing.get("enable_tracing"), self.tracing_options is not None
        )
        if traces and self.tracer is None:
            thresholds = {
                service: tracing[option]
                for service, option in _THRESHOLDS.items()
                if option in tracing
            }
            size = _positive(tracing.get("tracing_threshold_queue_size", 64))
            found.tracer = ThresholdLoggingTracer(thresholds, size)
            interval = tracing.get("tracing_threshold_queue_flush_interval")
            found.intervals["tracer"] = seconds_of(interval, timedelta(seconds=10))
        measures = _wanted(
            self.enable_metrics, metrics.get("enable_metrics"), self.metrics_options is not None
        )
        if measures and self.meter is None:
            found.meter = LoggingMeter()
            interval = metrics.get("emit_interval", self.logging_meter_emit_interval)
            found.intervals["meter"] = seconds_of(interval, timedelta(minutes=10))
        of_tracing = {"tracing_orphaned_queue_size", "tracing_orphaned_queue_flush_interval"}
        given = self.orphan_reporting_options is not None or bool(of_tracing & tracing.keys())
        if _wanted(self.enable_orphan_reporting, orphans.get("enable_orphan_reporting"), given):
            size = orphans.get("sample_size", tracing.get("tracing_orphaned_queue_size", 64))
            found.orphans = OrphanReporter(_positive(size))
            interval = orphans.get(
                "emit_interval", tracing.get("tracing_orphaned_queue_flush_interval")
            )
            found.intervals["orphans"] = seconds_of(interval, timedelta(seconds=10))
        return found

    def apply_profile(self, profile_name: KnownConfigProfiles | str) -> None:
        """Applies the timeouts of a profile.

        Raises:
            InvalidArgumentException: if the profile does not exist.
        """
        try:
            KnownConfigProfiles(profile_name)
        except ValueError:
            raise InvalidArgumentException(f"there is no profile {profile_name!r}") from None
        own = self.timeout_options
        own.kv_timeout = own.kv_durable_timeout = own.connect_timeout = timedelta(seconds=20)
        own.views_timeout = own.query_timeout = own.search_timeout = timedelta(seconds=120)
        own.management_timeout = own.analytics_timeout = timedelta(seconds=120)


_THRESHOLDS: dict[str, Any] = {
    "kv": "tracing_threshold_kv",
    "views": "tracing_threshold_view",
    "query": "tracing_threshold_query",
    "search": "tracing_threshold_search",
    "analytics": "tracing_threshold_analytics",
    "eventing": "tracing_threshold_eventing",
    "management": "tracing_threshold_management",
}
"""Options for how long operations of a service may take."""


def _wanted(switch: bool | None, own: object, are_given: bool) -> bool:
    """Returns True if reports are enabled: by the cluster's option, their own, or other options."""
    if switch is not None:
        return switch
    return are_given if own is None else bool(own)


def _known(name: str, kind: type[Any], given: Any) -> Any:
    return options_of(name, kind, given)


def _positive(size: int) -> int:
    if not isinstance(size, int) or size < 1:
        raise InvalidArgumentException("the size of a report is a positive number")
    return size


if TYPE_CHECKING:
    from .transactions import TransactionConfig as TransactionConfig
    from .transactions import TransactionGetMultiOptions as TransactionGetMultiOptions
    from .transactions import (
        TransactionGetMultiReplicasFromPreferredServerGroupOptions as TransactionGetMultiReplicasFromPreferredServerGroupOptions,  # noqa: E501
    )
    from .transactions import TransactionGetOptions as TransactionGetOptions
    from .transactions import (
        TransactionGetReplicaFromPreferredServerGroupOptions as TransactionGetReplicaFromPreferredServerGroupOptions,  # noqa: E501
    )
    from .transactions import TransactionInsertOptions as TransactionInsertOptions
    from .transactions import TransactionOptions as TransactionOptions
    from .transactions import TransactionQueryOptions as TransactionQueryOptions
    from .transactions import TransactionReplaceOptions as TransactionReplaceOptions
    from .views import ViewOptions as ViewOptions

_ELSEWHERE = {
    "TransactionConfig": "transactions",
    "TransactionGetMultiOptions": "transactions",
    "TransactionGetMultiReplicasFromPreferredServerGroupOptions": "transactions",
    "TransactionGetOptions": "transactions",
    "TransactionGetReplicaFromPreferredServerGroupOptions": "transactions",
    "TransactionInsertOptions": "transactions",
    "TransactionOptions": "transactions",
    "TransactionQueryOptions": "transactions",
    "TransactionReplaceOptions": "transactions",
    "ViewOptions": "views",
}
"""Modules of options that the official SDK has here as well."""


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_ELSEWHERE[name]}", __package__), name)


class TimeoutOptions(TypedDict, total=False):
    """Options of every operation."""

    timeout: timedelta
    parent_span: RequestSpan
    """Span that the span of the operation is a child of."""
    span: RequestSpan
    """An older name of ``parent_span``."""


class GetOptions(TimeoutOptions, total=False):
    """Options of ``get``."""

    with_expiry: bool
    project: Sequence[str]
    transcoder: Transcoder


class ReadOptions(TimeoutOptions, total=False):
    """Options of operations that read a whole document."""

    transcoder: Transcoder


class ReplicaOptions(TimeoutOptions, total=False):
    """Options of operations that read parts of copies of a document."""

    read_preference: ReadPreference


class GetReplicaOptions(ReplicaOptions, total=False):
    """Options of operations that read whole copies of a document."""

    transcoder: Transcoder


class LookupInReplicaOptions(ReplicaOptions, total=False):
    """Options of operations that read parts of copies of a document."""

    serializer: Serializer
    """Turns the parts into values; JSON if not given."""


class LookupInOptions(TimeoutOptions, total=False):
    """Options of ``lookup_in``."""

    access_deleted: bool
    """Attributes of a removed document are read too, while the server has them."""
    serializer: Serializer
    """Turns the parts into values; JSON if not given."""


GetAnyReplicaOptions = GetAllReplicasOptions = GetReplicaOptions
LookupInAnyReplicaOptions = LookupInAllReplicasOptions = LookupInReplicaOptions


class ScanOptions(TimeoutOptions, total=False):
    """Options of ``scan``; the timeout is that of each request of the scan."""

    ids_only: bool
    consistent_with: "MutationState"
    batch_byte_limit: int
    batch_item_limit: int
    batch_time_limit: timedelta
    """How long the server may work on a batch, where it has such a limit; nacre does not."""
    concurrency: int
    transcoder: Transcoder


class QueryOptions(TimeoutOptions, total=False):
    """Options of ``query``."""

    read_only: bool
    scan_consistency: "QueryScanConsistency"
    consistent_with: "MutationState"
    adhoc: bool
    client_context_id: str
    max_parallelism: int
    positional_parameters: Sequence[Any]
    named_parameters: Mapping[str, Any]
    pipeline_batch: int
    pipeline_cap: int
    scan_cap: int
    scan_wait: timedelta
    profile: "QueryProfile"
    query_context: str
    metrics: bool
    flex_index: bool
    preserve_expiry: bool
    use_replica: bool
    send_to_node: str
    """Host and port of the query service that is to answer; the nodes take turns if not given."""
    serializer: Serializer
    raw: Mapping[str, Any]


class AnalyticsOptions(TimeoutOptions, total=False):
    """Options of ``analytics_query``."""

    read_only: bool
    scan_consistency: "AnalyticsScanConsistency"
    client_context_id: str
    positional_parameters: Sequence[Any]
    named_parameters: Mapping[str, Any]
    priority: bool
    """The service starts the statement before others that wait."""
    query_context: str
    metrics: bool
    """For programs for the official SDK: the service always sends metrics."""
    serializer: Serializer
    raw: Mapping[str, Any]


class SearchOptions(TimeoutOptions, total=False):
    """Options of ``search``."""

    limit: int
    skip: int
    explain: bool
    fields: Sequence[str]
    highlight_style: "HighlightStyle"
    highlight_fields: Sequence[str]
    scan_consistency: "SearchScanConsistency"
    consistent_with: "MutationState"
    facets: "Mapping[str, Facet]"
    client_context_id: str
    disable_scoring: bool
    include_locations: bool
    sort: "Sequence[Sort | str]"
    collections: Sequence[str]
    serializer: Serializer
    raw: Mapping[str, Any]
    show_request: bool
    vector_query_combination: "VectorQueryCombination"


class VectorSearchOptions(TypedDict, total=False):
    """Options of a `VectorSearch`."""

    vector_query_combination: "VectorQueryCombination"


class LiveOptions(TimeoutOptions, total=False):
    """Options of ``live``; the timeout is that of each query."""

    positional_parameters: Sequence[Any]
    named_parameters: Mapping[str, Any]
    keyspaces: Sequence[str]
    """Collections that the query reads, as ``bucket.scope.collection``; asked of the server if
    they are not given."""
    min_interval: timedelta
    """The least time between two queries."""


GetAndTouchOptions = GetAndLockOptions = ReadOptions
ExistsOptions = TouchOptions = UnlockOptions = TimeoutOptions


class DurableOptions(TimeoutOptions, total=False):
    """Options of operations that change documents."""

    durability: ClientDurability | ServerDurability


class InsertOptions(DurableOptions, total=False):
    """Options of ``insert``."""

    expiry: timedelta
    transcoder: Transcoder


class UpsertOptions(InsertOptions, total=False):
    """Options of ``upsert``."""

    preserve_expiry: bool


class ReplaceOptions(UpsertOptions, total=False):
    """Options of ``replace``."""

    cas: int


class RemoveOptions(DurableOptions, total=False):
    """Options of ``remove``."""

    cas: int


class MutateInOptions(DurableOptions, total=False):
    """Options of ``mutate_in``."""

    cas: int
    expiry: timedelta
    preserve_expiry: bool
    store_semantics: StoreSemantics
    access_deleted: bool
    """Attributes of a removed document may be changed, while the server has them."""


class DeltaValue(int):
    """A number to add to a counter: an unsigned 64-bit integer."""

    def __new__(cls, value: int) -> "DeltaValue":
        if not 0 <= value < 1 << 64:
            raise InvalidArgumentException(f"{value} is no unsigned 64-bit integer")
        return super().__new__(cls, value)


class SignedInt64(int):
    """The initial value of a counter. A negative one means that the counter is not created."""

    def __new__(cls, value: int) -> "SignedInt64":
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidArgumentException(f"{value} is no signed 64-bit integer")
        return super().__new__(cls, value)


class CounterOptions(DurableOptions, total=False):
    """Options of ``increment`` and ``decrement``."""

    delta: int
    initial: int | None
    expiry: timedelta


IncrementOptions = DecrementOptions = CounterOptions


class AppendOptions(DurableOptions, total=False):
    """Options of ``append`` and ``prepend``."""

    cas: int


PrependOptions = AppendOptions


class MultiOptions(TypedDict, total=False):
    """Options of all operations on several documents."""

    per_key_options: Mapping[str, Mapping[str, Any]]
    """Options that differ for a document, by its key."""
    return_exceptions: bool
    """Whether errors are part of the result (the default), or the first one is raised."""


class GetMultiOptions(GetOptions, MultiOptions, total=False):
    """Options of ``get_multi``."""


class ReadMultiOptions(ReadOptions, MultiOptions, total=False):
    """Options of operations that read and change several documents."""


class ReplicaMultiOptions(GetReplicaOptions, MultiOptions, total=False):
    """Options of operations that read copies of several documents."""


class TimeoutMultiOptions(TimeoutOptions, MultiOptions, total=False):
    """Options of operations on several documents that have none of their own."""


class InsertMultiOptions(InsertOptions, MultiOptions, total=False):
    """Options of ``insert_multi``."""


class UpsertMultiOptions(UpsertOptions, MultiOptions, total=False):
    """Options of ``upsert_multi``."""


class ReplaceMultiOptions(ReplaceOptions, MultiOptions, total=False):
    """Options of ``replace_multi``."""


class RemoveMultiOptions(RemoveOptions, MultiOptions, total=False):
    """Options of ``remove_multi``."""


class CounterMultiOptions(CounterOptions, MultiOptions, total=False):
    """Options of ``increment_multi`` and ``decrement_multi``."""


class AppendMultiOptions(AppendOptions, MultiOptions, total=False):
    """Options of ``append_multi`` and ``prepend_multi``."""


IncrementMultiOptions = DecrementMultiOptions = CounterMultiOptions
PrependMultiOptions = AppendMultiOptions
ExistsMultiOptions = TouchMultiOptions = UnlockMultiOptions = TimeoutMultiOptions
GetAndLockMultiOptions = LockMultiOptions = ReadMultiOptions
GetAnyReplicaMultiOptions = GetAllReplicasMultiOptions = ReplicaMultiOptions


class PingOptions(TimeoutOptions, total=False):
    """Options of ``ping``."""

    report_id: str
    service_types: Iterable["ServiceType"]


class DiagnosticsOptions(TypedDict, total=False):
    """Options of ``diagnostics``."""

    report_id: str


class WaitUntilReadyOptions(TypedDict, total=False):
    """Options of ``wait_until_ready``."""

    desired_state: "ClusterState"
    service_types: Iterable["ServiceType"]


OFFICIAL_NAMES = frozenset(
    {
        # Documents.
        "upsert_doc",
        "insert_doc",
        # Search.
        "log_request",
        "log_response",
        # Transactions.
        "mode",
        # Views.
        "include_docs",
        "query_string",
        "validate_key",
        "stale",
    }
)
"""What the official SDK has under these names, and this package has not."""

Chosen = TypeVar("Chosen")


def options_of(operation: str, kind: type[Chosen], *given: Mapping[str, Any] | None) -> Chosen:
    """Merges the options of an operation from a dictionary and keywords. The latter take
    precedence.

    Every operation reads its options through this function, so that no unknown option is silently
    ignored: the names are those of ``kind``, which is a typed dictionary.

    Raises:
        FeatureUnavailableException: if only the official SDK has the option.
        InvalidArgumentException: if a span is invalid.
        TypeError: if the option does not exist.
    """
    merged: dict[str, Any] = {}
    for options in given:
        if options:
            merged.update(options)
    names = cast(Any, kind).__optional_keys__
    for name in merged:
        if name in names:
            continue
        if name in OFFICIAL_NAMES:
            raise FeatureUnavailableException(f"{operation} does not offer the option {name} yet")
        known = ", ".join(sorted(names))
        raise TypeError(f"{operation}() has no option {name!r}; it has {known}")
    span_in(merged)
    return cast(Chosen, merged)


def query_options_of(given: Sequence[Any], kwargs: Mapping[str, Any]) -> QueryOptions:
    """Returns the options of a query; see `statement_options_of`."""
    return statement_options_of("query", QueryOptions, given, kwargs)


def analytics_options_of(given: Sequence[Any], kwargs: Mapping[str, Any]) -> AnalyticsOptions:
    """Returns the options of a statement of analytics; see `statement_options_of`."""
    return statement_options_of("analytics_query", AnalyticsOptions, given, kwargs)


def statement_options_of(
    operation: str, kind: type[Chosen], given: Sequence[Any], kwargs: Mapping[str, Any]
) -> Chosen:
    """Returns the options of a statement, with the conventions of the official SDK.

    A value in ``given`` that is not a dictionary is a positional parameter of the statement. A
    keyword that is not an option is a named parameter. Type checkers know neither.

    Raises:
        FeatureUnavailableException: if only the official SDK has an option.
    """
    known = cast(Any, kind).__optional_keys__ | OFFICIAL_NAMES
    options = [each for each in given if isinstance(each, Mapping)]
    named = {name: value for name, value in kwargs.items() if name in known}
    merged = cast(dict[str, Any], options_of(operation, kind, *options, named))
    positional = [each for each in given if each is not None and not isinstance(each, Mapping)]
    if positional:
        merged["positional_parameters"] = [*merged.get("positional_parameters", ()), *positional]
    named = {name: value for name, value in kwargs.items() if name not in known}
    if named:
        merged["named_parameters"] = {**merged.get("named_parameters", {}), **named}
    return cast(Chosen, merged)


_RELATIVE_SECONDS_MAX = 30 * 86400


def wire_expiry(expiry: timedelta | datetime | None, now: float | None = None) -> int:
    """Returns an expiry in the format of the protocol: 0 for never, relative up to 30 days, else
    Unix time.

    Raises:
        InvalidArgumentException: if it is negative, below a second, or exceeds 32 bits.
    """
    if expiry is None:
        return 0
    now = time.time() if now is None else now
    if isinstance(expiry, datetime):
        seconds = int(expiry.timestamp())
        if seconds <= _RELATIVE_SECONDS_MAX:
            raise InvalidArgumentException(f"{expiry} is too long ago to be an expiry")
    elif isinstance(expiry, timedelta):
        if expiry and expiry < timedelta(seconds=1):
            raise InvalidArgumentException("an expiry is at least a second")
        seconds = int(expiry.total_seconds())
        if seconds > _RELATIVE_SECONDS_MAX:
            seconds += int(now)
    else:
        raise InvalidArgumentException(f"an expiry is a timedelta, not {type(expiry).__name__}")
    if seconds > 0xFFFFFFFF:
        raise InvalidArgumentException("the expiry is too far away")
    return seconds


def seconds_of(timeout: timedelta | None, default: timedelta) -> float:
    """Returns the timeout of an operation in seconds.

    Raises:
        InvalidArgumentException: if the timeout is not a positive duration.
    """
    timeout = default if timeout is None else timeout
    if not isinstance(timeout, timedelta) or timeout <= timedelta():
        raise InvalidArgumentException("a time-out is a positive timedelta")
    return timeout.total_seconds()
