"""Design documents."""

from ...management.views import (
    DesignDocument,
    DesignDocumentNamespace,
    View,
)
from .. import ViewIndexManager

__all__ = [
    "DesignDocument",
    "DesignDocumentNamespace",
    "View",
    "ViewIndexManager",
]
