"""Views."""

from ..views import *  # noqa: F403
