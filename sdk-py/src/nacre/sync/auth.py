"""Who a client is."""

from ..auth import *  # noqa: F403
