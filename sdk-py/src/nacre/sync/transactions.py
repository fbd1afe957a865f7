"""Transactions over documents."""

from ..transactions import (
    TransactionConfig,
    TransactionGetMultiMode,
    TransactionGetMultiOptions,
    TransactionGetMultiResult,
    TransactionGetResult,
    TransactionKeyspace,
    TransactionOptions,
    TransactionQueryOptions,
    TransactionQueryResults,
    TransactionResult,
)
from . import AttemptContext, TransactionGetMultiSpec, Transactions

__all__ = [
    "AttemptContext",
    "TransactionConfig",
    "TransactionGetMultiMode",
    "TransactionGetMultiOptions",
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
