"""Analytics: statements over the copies of collections that the analytics service keeps."""

from typing import Any

from .. import analytics as _analytics
from ..analytics import (
    AnalyticsError,
    AnalyticsMetaData,
    AnalyticsMetrics,
    AnalyticsOptions,
    AnalyticsProblem,
    AnalyticsScanConsistency,
    AnalyticsStatus,
    AnalyticsWarning,
)
from . import _Rows

__all__ = [
    "AnalyticsError",
    "AnalyticsMetaData",
    "AnalyticsMetrics",
    "AnalyticsOptions",
    "AnalyticsProblem",
    "AnalyticsResult",
    "AnalyticsScanConsistency",
    "AnalyticsStatus",
    "AnalyticsWarning",
]


class AnalyticsResult(_Rows[_analytics.AnalyticsResult, Any]):
    """The rows of a statement of the analytics service."""

    def metadata(self) -> AnalyticsMetaData:
        """Returns the metadata, once all rows were read."""
        return self._wrapped.metadata()
