"""Shared helpers: the environment of the operations, their discovery, and checks."""

import time
from contextlib import contextmanager

from couchbase.exceptions import CouchbaseException


class Environment:
    """A bucket for the cases, and names that belong only to this run."""

    def __init__(self, cluster, log_in, bucket, run):
        self.cluster = cluster
        #: Returns the cluster as seen by another user: takes a name and a password.
        self.log_in = log_in
        self.bucket_name = bucket
        self.bucket = cluster.bucket(bucket)
        self.collection = self.bucket.default_collection()
        self.run = run
        self._undo = []
        self._names = 0

    def name(self, of="doc"):
        """Returns an unused name."""
        self._names += 1
        return f"{self.run}-{of}-{self._names}"

    def key(self):
        """Returns the key of a document that does not exist and is removed at the end."""
        key = self.name()
        self.later(lambda: self.collection.remove(key))
        return key

    def document(self, value):
        """Stores a new document; returns its key and the result."""
        key = self.key()
        return key, self.collection.insert(key, value)

    def later(self, undo):
        """Calls `undo` at the end of the run."""
        self._undo.append(undo)

    def clean(self):
        """Removes the objects of the run; objects that an operation has already removed are not an error."""
        for undo in reversed(self._undo):
            try:
                undo()
            except CouchbaseException:
                pass


def cases(*modules):
    """Returns the functions of the modules that take an environment, in source order."""
    for module in modules:
        for name, value in vars(module).items():
            if callable(value) and getattr(value, "__module__", "") == module.__name__ and not name.startswith("_"):
                yield value


@contextmanager
def refused(*errors):
    """Requires that the operation within raises one of `errors`."""
    try:
        yield
    except errors:
        return
    raise AssertionError(f"expected {' or '.join(error.__name__ for error in errors)}")


def eventually(condition, seconds=10):
    """Waits until `condition` is true; an exception counts as false."""
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
            problem = None
        except CouchbaseException as error:
            problem = error
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {problem or 'the condition stayed false'}")
        time.sleep(0.02)
