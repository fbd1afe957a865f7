"""Scans of a collection."""

from ..kv_range_scan import *  # noqa: F403
