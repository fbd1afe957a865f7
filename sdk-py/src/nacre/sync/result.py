"""Results of operations."""

from ..diagnostics import ClusterInfoResult as ClusterInfoResult
from ..diagnostics import DiagnosticsResult as DiagnosticsResult
from ..diagnostics import PingResult as PingResult
from ..result import *  # noqa: F403
from . import QueryResult as QueryResult
from . import ScanResultIterable as ScanResultIterable
from . import SearchResult as SearchResult
from . import ViewResult as ViewResult
from .analytics import AnalyticsResult as AnalyticsResult
