"""See `nacre.observability.metrics`."""

from ...observability.metrics import *  # noqa: F403
