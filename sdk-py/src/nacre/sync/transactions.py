"""Transactions over documents."""

from ..transactions import (
    TransactionConfig,
    TransactionGetMultiMode,
    TransactionGetMultiOptions,
    TransactionGetMultiReplicasFromPreferredServerGroupMode,
    TransactionGetMultiReplicasFromPreferredServerGroupResult,
    TransactionGetMultiResult,
    TransactionGetResult,
    TransactionKeyspace,
    TransactionOptions,
    TransactionQueryOptions,
    TransactionQueryResults,
    TransactionResult,
)
from . import AttemptContext, TransactionGetMultiSpec, Transactions

TransactionGetMultiReplicasFromPreferredServerGroupSpec = TransactionGetMultiSpec

__all__ = [
    "AttemptContext",
    "TransactionConfig",
    "TransactionGetMultiMode",
    "TransactionGetMultiOptions",
    "TransactionGetMultiReplicasFromPreferredServerGroupMode",
    "TransactionGetMultiReplicasFromPreferredServerGroupResult",
    "TransactionGetMultiReplicasFromPreferredServerGroupSpec",
    "TransactionGetMultiResult",
    "TransactionGetMultiSpec",
    "TransactionGetResult",
    "TransactionKeyspace",
    "TransactionOptions",
    "TransactionQueryOptions",
    "TransactionQueryResults",
    "TransactionResult",
    "Transactions",
]
