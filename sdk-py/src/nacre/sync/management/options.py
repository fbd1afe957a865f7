"""Options of the operations of managers."""

from ...management.options import *  # noqa: F403
