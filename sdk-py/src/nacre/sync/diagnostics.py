"""How a cluster and the connections to it are."""

from ..diagnostics import *  # noqa: F403
