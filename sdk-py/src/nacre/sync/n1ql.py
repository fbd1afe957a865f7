"""Queries in SQL++."""

from ..n1ql import *  # noqa: F403
