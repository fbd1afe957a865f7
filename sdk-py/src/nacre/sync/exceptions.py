"""What can go wrong."""

from ..exceptions import *  # noqa: F403
