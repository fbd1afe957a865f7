"""Capability `kv`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._events import DATATYPE_JSON
from ._faults import Retry
from ._outside import Err, bytes_of, named, outside
from ._turns import turns

_READS = ("get", "get_many", "lookup_in")


class Document(NamedTuple):
    """A document that was read."""

    body: bytes
    """The body, without extended attributes."""
    cas: int
    """The version."""
    flags: int = 0
    """What clients say about the format of the body."""
    expiry: int = 0
    """Seconds since the Unix epoch; 0 for never."""
    is_json: bool = True
    """Whether the body is JSON."""

    def json(self) -> Any:
        """Returns the parsed body.

        Raises:
            ValueError: if it is not JSON.
        """
        return json.loads(self.body)


class Counted(NamedTuple):
    """A counter after its change."""

    value: int
    """Its value."""
    cas: int
    """The version of its document."""


class Kv:
    """Capability `kv`: documents.

    A keyspace is ``scope.collection``, or ``bucket.scope.collection`` in another bucket; the empty
    string is the deployment's own. A body of bytes or text is stored unchanged, everything else as
    JSON. An ``expiry`` is in seconds from now up to 30 days, or since the Unix epoch; 0 means
    never. Writes take effect immediately: if a call is repeated for the same document or timer,
    because it or the node has failed, it writes again.
    """

    class Error(Exception):
        """Why there is no answer."""

    class NotFound(Error):
        """There is no such document."""

    class Exists(Error):
        """There is one already."""

    class CasMismatch(Error):
        """The document has another version."""

    class TooLarge(Error):
        """Key or body are larger than the bucket allows."""

    class Locked(Error, Retry):
        """A client holds the lock of the document. Not caught, it has the call made again."""

    class Temporary(Error, Retry):
        """Not now: memory or disk are full, or the time of the call is over. Not caught, it has the
        call made again.
        """

    class Denied(Error):
        """The keyspace does not exist or is not granted, or not for writing."""

    class Invalid(Error):
        """The document is not of the kind that the call needs: no counter, no key."""

    class Path(Error):
        """A part of a mutation cannot be done: why, and which one."""

    def get(self, keyspace: str, key: bytes | str) -> Document:
        """Returns the document at ``key``.

        Raises:
            NotFound: if it does not exist. For other errors see their docstrings; this is so for
                all methods.
        """
        return document_of(self._ask("get", keyspace, bytes_of(key)))

    def get_many(self, keyspace: str, keys: Sequence[bytes | str]) -> list[Document | None]:
        """Returns the documents at ``keys``, at most 1024, in that order; None for missing ones."""
        found = self._ask("get_many", keyspace, [bytes_of(key) for key in keys])
        return [self._found(result) for result in found]

    def insert(
        self, keyspace: str, key: bytes | str, body: Any, flags: int = 0, expiry: int = 0
    ) -> int:
        """Stores a document that must not exist. Returns its CAS.

        Raises:
            Exists: if it exists already.
        """
        return int(self._ask("insert", keyspace, bytes_of(key), _content(body, flags, expiry)))

    def upsert(
        self, keyspace: str, key: bytes | str, body: Any, flags: int = 0, expiry: int = 0
    ) -> int:
        """Stores a document, whether it exists or not. Returns its CAS."""
        return int(self._ask("upsert", keyspace, bytes_of(key), _content(body, flags, expiry)))

    def replace(
        self,
        keyspace: str,
        key: bytes | str,
        body: Any,
        cas: int | None = None,
        flags: int = 0,
        expiry: int = 0,
    ) -> int:
        """Replaces an existing document, with the CAS ``cas`` if that is given. Returns its new
        CAS.

        Raises:
            NotFound: if it does not exist.
            CasMismatch: if it has another CAS.
        """
        content = _content(body, flags, expiry)
        return int(self._ask("replace", keyspace, bytes_of(key), content, cas))

    def remove(self, keyspace: str, key: bytes | str, cas: int | None = None) -> int:
        """Deletes a document, with the CAS ``cas`` if that is given. Returns the CAS of its
        tombstone.

        Raises:
            NotFound: if it does not exist.
            CasMismatch: if it has another CAS.
        """
        return int(self._ask("remove", keyspace, bytes_of(key), cas))

    def counter(
        self,
        keyspace: str,
        key: bytes | str,
        delta: int,
        initial: int | None = None,
        expiry: int = 0,
    ) -> Counted:
        """Adds ``delta`` to a counter, whose minimum is 0. A missing counter starts at ``initial``.

        Raises:
            NotFound: if it does not exist, and ``initial`` is not set.
            Invalid: if the document is not a counter.
        """
        counted = self._ask("counter", keyspace, bytes_of(key), delta, initial, expiry)
        return Counted(counted.value, counted.cas)

    def touch(self, keyspace: str, key: bytes | str, expiry: int) -> int:
        """Sets the expiry of a document. Returns its new CAS.

        Raises:
            NotFound: if it does not exist.
        """
        return int(self._ask("touch", keyspace, bytes_of(key), expiry))

    def lookup_in(
        self, keyspace: str, key: bytes | str, paths: Sequence[str], xattr: bool = False
    ) -> list[Any]:
        """Returns the JSON values at up to 16 ``paths``, None for missing ones. With ``xattr``, the
        paths refer to extended attributes.

        Raises:
            NotFound: if the document does not exist.
        """
        kv = outside.get("kv")
        get = kv.LookupOperation.GET if kv else None
        specs = [kv.LookupSpec(get, path, xattr) for path in paths] if kv else []
        looked = self._ask("lookup_in", keyspace, bytes_of(key), specs)
        return [
            None if isinstance(result, Err) else json.loads(result.value)
            for result in looked.results
        ]

    def mutate_in(
        self,
        keyspace: str,
        key: bytes | str,
        changes: Sequence[tuple[str, str, Any]],
        cas: int | None = None,
        xattr: bool = False,
    ) -> int:
        """Changes up to 16 parts of a document atomically. Returns its new CAS.

        A change is an operation of `mutate-operation`, such as ``"upsert"`` or ``"array-append"``,
        a path, and a value; missing parents are created.

        Raises:
            NotFound: if the document does not exist.
            CasMismatch: if it has another CAS.
            Path: if a change is impossible.
        """
        kv = outside.get("kv")
        specs = [_mutate_spec(kv, change, xattr) for change in changes] if kv else []
        options = kv.MutateOptions(kv.StoreMode.REPLACE, cas, None, None) if kv else None
        return int(self._ask("mutate_in", keyspace, bytes_of(key), specs, options).cas)

    def _ask(self, function: str, *arguments: Any) -> Any:
        if "kv" not in outside:
            raise Kv.Denied("plugin.toml does not ask for the capability kv")
        if function not in _READS:
            turns.act()
        try:
            return getattr(outside["kv"], function)(*arguments)
        except Err as error:
            raise named(Kv, error.value) from None

    def _found(self, result: Any) -> Document | None:
        if not isinstance(result, Err):
            return document_of(result.value)
        error = named(Kv, result.value)
        if isinstance(error, Kv.NotFound):
            return None
        raise error


def document_of(found: Any) -> Document:
    is_json = bool(found.datatype & DATATYPE_JSON)
    return Document(found.body, found.cas, found.flags, found.expiry, is_json)


def _mutate_spec(kv: Any, change: tuple[str, str, Any], xattr: bool) -> Any:
    operation, path, value = change
    # These operations need an existing value.
    makes_parents = operation not in ("remove", "replace", "array-insert")
    text = b"" if operation == "remove" else json.dumps(value).encode()
    kind = getattr(kv.MutateOperation, operation.upper().replace("-", "_"))
    return kv.MutateSpec(kind, path, text, xattr, makes_parents, False)


def _content(body: Any, flags: int, expiry: int) -> Any:
    return outside["kv"].Content(bytes_of(body), flags, expiry) if "kv" in outside else None


kv = Kv()
