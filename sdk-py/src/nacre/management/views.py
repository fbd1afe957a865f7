"""Design documents, which define views."""

from ..views import DesignDocument, DesignDocumentNamespace, View, ViewIndexManager

__all__ = ["DesignDocument", "DesignDocumentNamespace", "View", "ViewIndexManager"]
