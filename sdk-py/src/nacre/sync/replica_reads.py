"""Which copies of a document may be read."""

from ..replica_reads import *  # noqa: F403
