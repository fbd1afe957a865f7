"""See `nacre.observability.otel_tracing`."""

from ...observability.otel_tracing import *  # noqa: F403
