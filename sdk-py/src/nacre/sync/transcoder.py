"""Values to bytes and back."""

from ..transcoder import *  # noqa: F403
