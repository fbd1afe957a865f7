"""Connections, their diagnosis, options of clusters, names of errors."""

from datetime import timedelta

import couchbase.exceptions
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.diagnostics import ClusterState, EndpointState, PingState, ServiceType
from couchbase.options import (
    ClusterOptions,
    ClusterTimeoutOptions,
    DiagnosticsOptions,
    PingOptions,
    WaitUntilReadyOptions,
)
from couchbase.transcoder import RawStringTranscoder


def connect_by_constructor(c):
    cluster = Cluster(c.url, ClusterOptions(PasswordAuthenticator(c.user, c.password)))
    cluster.wait_until_ready(timedelta(seconds=10))
    collection = cluster.bucket(c.bucket.name).default_collection()
    collection.upsert(c.key, 1)
    found = collection.get(c.key).value
    cluster.close()
    return found


def connect_by_method(c):
    cluster = Cluster.connect(c.url, ClusterOptions(PasswordAuthenticator(c.user, c.password)))
    found = list(cluster.query("SELECT RAW 1"))
    cluster.close()
    return found


def a_wrong_password(c):
    return c.fails(Cluster.connect, c.url, ClusterOptions(PasswordAuthenticator(c.user, "wrong")))


def a_profile_for_far_clusters(c):
    options = ClusterOptions(PasswordAuthenticator(c.user, c.password))
    options.apply_profile("wan_development")
    cluster = Cluster.connect(c.url, options)
    cluster.close()
    return True


def timeouts_of_a_cluster(c):
    timeouts = ClusterTimeoutOptions(kv_timeout=timedelta(seconds=3), query_timeout=timedelta(seconds=4))
    options = ClusterOptions(PasswordAuthenticator(c.user, c.password), timeout_options=timeouts)
    cluster = Cluster.connect(c.url, options)
    found = list(cluster.query("SELECT RAW 1"))
    cluster.close()
    return found


def a_transcoder_for_all(c):
    options = ClusterOptions(PasswordAuthenticator(c.user, c.password), transcoder=RawStringTranscoder())
    cluster = Cluster.connect(c.url, options)
    collection = cluster.bucket(c.bucket.name).default_collection()
    collection.upsert(c.key, "x")
    found = collection.get(c.key).value
    cluster.close()
    return found


def a_closed_cluster(c):
    cluster = Cluster.connect(c.url, ClusterOptions(PasswordAuthenticator(c.user, c.password)))
    collection = cluster.bucket(c.bucket.name).default_collection()
    cluster.close()
    return c.fails(collection.get, c.key) is not None


def ping_of_a_cluster(c):
    options = PingOptions(service_types=[ServiceType.KeyValue, ServiceType.Query])
    report = c.cluster.ping(options)
    states = {each.state for endpoints in report.endpoints.values() for each in endpoints}
    names = sorted(service.value for service in report.endpoints)
    return [type(report.id).__name__, names, states == {PingState.OK}, type(report.as_json()).__name__]


def ping_of_a_bucket(c):
    report = c.bucket.ping(PingOptions(service_types=[ServiceType.KeyValue], report_id="mine"))
    return [report.id, [service.value for service in report.endpoints]]


def diagnostics_of_a_cluster(c):
    report = c.cluster.diagnostics(DiagnosticsOptions(report_id="mine"))
    states = [each.state for each in report.endpoints[ServiceType.KeyValue]]
    return [report.id, report.state == ClusterState.Online, EndpointState.Connected in states, type(report.sdk).__name__]


def waiting_for_a_cluster(c):
    options = WaitUntilReadyOptions(desired_state=ClusterState.Online, service_types=[ServiceType.KeyValue])
    c.cluster.wait_until_ready(timedelta(seconds=5), options)
    return True


def constants_of_diagnostics(c):
    kinds = (ServiceType, PingState, EndpointState, ClusterState)
    return [sorted((member.name, member.value) for member in kind) for kind in kinds]


NAMES = """AmbiguousTimeoutException AuthenticationException BucketAlreadyExistsException
BucketDoesNotExistException BucketNotFoundException CASMismatchException CollectionAlreadyExistsException
CollectionNotFoundException CouchbaseException DeltaInvalidException DesignDocumentNotFoundException
DocumentExistsException DocumentLockedException DocumentNotFoundException DocumentNotJsonException
DurabilityImpossibleException DurabilitySyncWriteAmbiguousException FeatureUnavailableException
GroupNotFoundException InternalServerFailureException InvalidArgumentException InvalidIndexException
InvalidValueException KeyspaceNotFoundException NotLockedException ParsingFailedException
PathExistsException PathMismatchException PathNotFoundException PlanningFailedException
PreparedStatementException QueryIndexAlreadyExistsException QueryIndexNotFoundException
RateLimitedException RequestCanceledException ScopeAlreadyExistsException ScopeNotFoundException
ServiceUnavailableException SubdocCantInsertValueException TemporaryFailException TimeoutException
TransactionExpired TransactionFailed TransactionCommitAmbiguous UnAmbiguousTimeoutException
UserNotFoundException ValueFormatException ViewsNotFoundException""".split()


def names_of_errors(c):
    kinds = {name: getattr(couchbase.exceptions, name, None) for name in NAMES}
    missing = [name for name, kind in kinds.items() if kind is None]
    root = couchbase.exceptions.CouchbaseException
    return [missing, [issubclass(kind, root) for kind in kinds.values() if kind]]
