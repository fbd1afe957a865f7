"""The copies of a document that may be read."""

from ..replica_reads import *  # noqa: F403
