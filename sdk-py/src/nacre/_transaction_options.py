"""Options of transactions: for a cluster, for one transaction, and for its operations."""

from datetime import timedelta
from typing import Any, TypedDict

from ._record import dataclass
from .durability import DurabilityLevel, ServerDurability
from .n1ql import QueryScanConsistency
from .options import QueryOptions
from .transcoder import Transcoder

_TIMEOUT = timedelta(seconds=15)
_MAJORITY = ServerDurability(DurabilityLevel.MAJORITY)


@dataclass(frozen=True, slots=True)
class TransactionKeyspace:
    """A collection for records."""

    bucket: str
    scope: str = "_default"
    collection: str = "_default"


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Options of all transactions of a cluster."""

    timeout: timedelta = _TIMEOUT
    """How long a transaction may take, with all its attempts."""
    durability: ServerDurability = _MAJORITY
    metadata_collection: TransactionKeyspace | None = None
    """Where records are, in place of the default collection of the first document's bucket."""
    scan_consistency: QueryScanConsistency | None = None
    expiration_time: timedelta | None = None
    """Older name of ``timeout``."""
    kv_timeout: timedelta | None = None
    """Taken for the sake of programs for the official SDK: one operation has the time of all."""
    cleanup_window: timedelta | None = None
    """The same: servers finish what others have left."""
    cleanup_lost_attempts: bool | None = None
    """The same."""
    cleanup_client_attempts: bool | None = None
    """The same."""


class TransactionOptions(TypedDict, total=False):
    """Options of one transaction, which override those of the cluster."""

    timeout: timedelta
    durability: ServerDurability
    metadata_collection: TransactionKeyspace
    scan_consistency: QueryScanConsistency
    expiration_time: timedelta
    """Older name of ``timeout``."""
    kv_timeout: timedelta
    """Taken for the sake of programs for the official SDK: one operation has the time of all."""


class TransactionGetOptions(TypedDict, total=False):
    """Options of ``get`` in a transaction."""

    transcoder: Transcoder
    """Turns the document into a value; that of JSON if not given."""


class TransactionInsertOptions(TypedDict, total=False):
    """Options of ``insert`` in a transaction."""

    transcoder: Transcoder
    """Turns the value into JSON, as other bytes cannot be staged; that of JSON if not given."""


TransactionReplaceOptions = TransactionInsertOptions


class TransactionQueryOptions(QueryOptions, total=False):
    """Options of a query within a transaction."""

    scope: Any
    """Scope in which names of collections are looked up."""
