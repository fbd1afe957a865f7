"""SQL++ queries."""

from ..n1ql import *  # noqa: F403
