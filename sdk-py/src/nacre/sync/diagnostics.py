"""The state of a cluster and of the connections to it."""

from ..diagnostics import *  # noqa: F403
