"""See `nacre.observability.otel_metrics`."""

from ...observability.otel_metrics import *  # noqa: F403
