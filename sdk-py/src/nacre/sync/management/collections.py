"""Scopes and collections."""

from ...management.collections import (
    CollectionSpec,
    CreateCollectionSettings,
    ScopeSpec,
    UpdateCollectionSettings,
)
from .. import CollectionManager

__all__ = [
    "CollectionManager",
    "CollectionSpec",
    "CreateCollectionSettings",
    "ScopeSpec",
    "UpdateCollectionSettings",
]
