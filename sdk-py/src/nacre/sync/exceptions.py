"""Exceptions."""

from ..exceptions import *  # noqa: F403
