"""Documents used as lists, maps, sets and queues."""

from . import CouchbaseList, CouchbaseMap, CouchbaseQueue, CouchbaseSet

__all__ = [
    "CouchbaseList",
    "CouchbaseMap",
    "CouchbaseQueue",
    "CouchbaseSet",
]
