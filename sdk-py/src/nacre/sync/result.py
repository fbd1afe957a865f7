"""What operations give back."""

from ..result import *  # noqa: F403
