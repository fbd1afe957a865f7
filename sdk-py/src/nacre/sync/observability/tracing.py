"""See `nacre.observability.tracing`."""

from ...observability.tracing import *  # noqa: F403
