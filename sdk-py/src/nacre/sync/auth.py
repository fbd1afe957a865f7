"""Credentials of clients."""

from ..auth import *  # noqa: F403
