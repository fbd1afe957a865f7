"""Transactions over documents."""

from ..transactions import (
    TransactionConfig,
    TransactionGetResult,
    TransactionKeyspace,
    TransactionOptions,
    TransactionQueryOptions,
    TransactionQueryResults,
    TransactionResult,
)
from . import AttemptContext, Transactions

__all__ = [
    "AttemptContext",
    "TransactionConfig",
    "TransactionGetResult",
    "TransactionKeyspace",
    "TransactionOptions",
    "TransactionQueryOptions",
    "TransactionQueryResults",
    "TransactionResult",
    "Transactions",
]
