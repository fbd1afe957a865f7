"""The Python guest kit: everything a plugin needs to fold the change stream into a state and answer
from it.

A plugin derives from `Service` and is named in `export`::

    from nacre_plugin import Event, Request, Response, Service, export, state

    @export
    class Cities(Service):
        name = "cities"

        def on_update(self, doc, meta: Event) -> None:
            state.put(meta.key, doc["city"])

        def on_delete(self, meta: Event) -> None:
            state.delete(meta.key)

        def handle(self, request: Request) -> Response:
            return Response.json(200, {"city": state.get_text(request.path[1:])})

A plugin that derives from `Functions` has functions for queries in place of that. The same class
runs as plain Python in `nacre_plugin_testing.Harness`, which is how its logic is tested; the WebAssembly component adds nothing but the sandbox. It has no clock and no chance:
`time` fails, `random` gives the same numbers in each instance, and the time is that of the events,
the request or the timer. What is outside is reached through `state`, `kv`, `timer`, `http`,
`metrics` and `log`, each a capability; `kv` and `http` only when plugin.toml asks for them.

One file without dependencies: a copy lies in each project.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import parse_qsl

MAGIC = b"NEB1"
"""The first four bytes of an event buffer."""
DATATYPE_JSON = 1
"""Datatype bit: the body is JSON."""

_HEADER = struct.Struct("<4sIQII8x")
_EVENT = struct.Struct("<QQQIIIIIIIHHBB6x")
_SCAN_ENTRIES = 256

T = TypeVar("T")
S = TypeVar("S", bound="type[Plugin]")


class Fault(Exception):
    """Why a call as a whole did not succeed, by who must act."""


class Retry(Fault):
    """The same call may succeed later: the host calls again."""


class Reject(Fault):
    """The caller asked for something that cannot be."""


class Fatal(Fault):
    """The plugin cannot go on with this state."""


class DecodeError(ValueError):
    """Why a buffer is no batch of events."""


class EventKind(IntEnum):
    """What happened to a document."""

    UPSERT = 1
    DELETE = 2
    EXPIRE = 3


class Event(NamedTuple):
    """One change of one document."""

    seqno: int
    """Position in the history of the vBucket."""
    cas: int
    """The version of the document."""
    rev: int
    """How often the key was changed."""
    flags: int
    """Opaque to the server."""
    expiry: int
    """Unix second of expiry, 0 for never; of deletion for a tombstone."""
    collection: int
    """The number of the collection."""
    vb: int
    """The vBucket of the document."""
    kind: EventKind
    """What happened."""
    datatype: int
    """JSON, snappy and extended-attribute bits."""
    key: bytes
    """The key as the application knows it."""
    xattrs: bytes
    """The extended-attribute section, its length word included; empty when there is none."""
    body: bytes
    """The document body; empty for a deletion."""
    now_us: int
    """When the batch was made, in microseconds since the Unix epoch: the only clock a plugin has.
    """

    @property
    def id(self) -> str:
        """The key as text.

        Raises:
            UnicodeDecodeError: it is none.
        """
        return self.key.decode()

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON."""
        return bool(self.datatype & DATATYPE_JSON)

    def json(self) -> Any:
        """The body, parsed.

        Raises:
            ValueError: it is no JSON.
        """
        return json.loads(self.body)


class Events(Sequence[Event]):
    """A decoded buffer: the events of a batch, in history order within each vBucket. No JSON is
    parsed.

    Its layout is in the documentation of the plugin ABI. Every offset is checked once, so that
    reading an event cannot fail.
    """

    def __init__(self, buffer: bytes) -> None:
        """Reads a buffer and checks all of it.

        Raises:
            DecodeError: by the first thing that is wrong.
        """
        if buffer[:4] != MAGIC:
            raise DecodeError("not an event buffer: the magic number is missing")
        wrong = DecodeError(f"the header of the event buffer does not fit its {len(buffer)} bytes")
        if len(buffer) < _HEADER.size:
            raise wrong
        _, count, self.now_us, arena, total = _HEADER.unpack_from(buffer)
        end = _HEADER.size + count * _EVENT.size
        if total != len(buffer) or not end <= arena <= total:
            raise wrong
        self._buffer, self._arena = buffer, arena
        self._records = list(_EVENT.iter_unpack(memoryview(buffer)[_HEADER.size : end]))
        arena_bytes = total - arena
        for index, record in enumerate(self._records):
            key, value, value_bytes, xattr_bytes, _, key_bytes, kind, _ = record[6:]
            inside = max(key + key_bytes, value + value_bytes) <= arena_bytes
            if not inside or xattr_bytes > value_bytes or kind not in (1, 2, 3):
                raise DecodeError(f"event {index} of the event buffer is malformed")

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Event]:
        return map(self._event, self._records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._event(record) for record in self._records[index]]
        return self._event(self._records[index])

    def _event(self, record: tuple[int, ...]) -> Event:
        seqno, cas, rev, flags, expiry, collection, key, value, value_bytes = record[:9]
        xattr_bytes, vb, key_bytes, kind, datatype = record[9:]
        key, value = self._arena + key, self._arena + value
        body = value + xattr_bytes
        return Event(
            seqno=seqno,
            cas=cas,
            rev=rev,
            flags=flags,
            expiry=expiry,
            collection=collection,
            vb=vb,
            kind=EventKind(kind),
            datatype=datatype,
            key=self._buffer[key : key + key_bytes],
            xattrs=self._buffer[value:body],
            body=self._buffer[body : value + value_bytes],
            now_us=self.now_us,
        )


@dataclass(frozen=True)
class DocumentError:
    """A document that could not be processed; the feed goes on."""

    index: int
    """Position of the event within the batch, from 0."""
    message: str
    """What went wrong, for the author of the code that failed."""


class Timer(NamedTuple):
    """A timer that is due."""

    name: str
    """Its name."""
    due_us: int
    """When it was to fire, in microseconds since the Unix epoch."""
    payload: bytes
    """What was given when it was set."""


Header = tuple[str, str]
"""Name and value of a header of HTTP."""


@dataclass
class Request:
    """A request, in the words of HTTP."""

    method: str = "GET"
    """`GET`, `POST`, …."""
    path: str = "/"
    """The path below the deployment, starting with `/`, percent-decoded."""
    query: str = ""
    """The query string as it came, without `?`."""
    headers: list[Header] = field(default_factory=list)
    """Headers that the host passes on, their names in lower case."""
    body: bytes = b""
    """The body."""
    now_us: int = 0
    """When the request arrived, in microseconds since the Unix epoch."""

    @property
    def args(self) -> dict[str, str]:
        """The query string, decoded; of a name that comes twice the last value."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    def json(self) -> Any:
        """The body, parsed.

        Raises:
            ValueError: it is no JSON.
        """
        return json.loads(self.body)


@dataclass
class Response:
    """The answer to a request, or its beginning."""

    status: int = 200
    """An HTTP status."""
    headers: list[Header] = field(default_factory=list)
    """Headers."""
    body: bytes = b""
    """The body, or the first piece of it."""
    cursor: bytes | None = None
    """When there is more of the body: what `Service.more` is called with."""

    @classmethod
    def json(cls, status: int, value: Any) -> Response:
        """A JSON answer."""
        body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        return cls(status, [("content-type", "application/json")], body)


class Chunk(NamedTuple):
    """A piece of a body."""

    body: bytes
    """The bytes."""
    cursor: bytes | None = None
    """When there is more: what `Service.more` is called with."""


def successor(prefix: bytes) -> bytes:
    """The smallest byte string above all that start with ``prefix``; empty (no bound) when there is
    none.
    """
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b""


def _encoded(value: Any) -> bytes:
    """Bytes and text as they are, everything else as JSON."""
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case _:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


outside: dict[str, Any] = {}
"""The interfaces that the plugin imports, by name: modules of the component, or what a test puts in
their place.
"""

for _name in ("state", "log", "kv", "timer", "http_out", "metrics"):
    try:
        outside[_name] = importlib.import_module(f"wit_world.imports.{_name}")
    except ImportError:
        continue
try:
    _Err: Any = importlib.import_module("componentize_py_types").Err
except ImportError:

    class _Err(Exception):  # type: ignore[no-redef]
        """As the component has it: a result that is an error."""

        def __init__(self, value: Any) -> None:
            self.value = value


class State:
    """Capability `state`: the plugin's own ordered key space. Keys are compared as bytes and are
    not empty.

    A key is bytes or text. So is a value; everything else is stored as JSON. Nothing is visible to
    others before the call of the host ends well.
    """

    def __init__(self) -> None:
        self._before: dict[bytes, bytes | None] | None = None

    def get(self, key: bytes | str) -> bytes | None:
        """The value at ``key``; None when there is no such entry."""
        value: bytes | None = outside["state"].get(_encoded(key))
        return value

    def get_text(self, key: bytes | str) -> str | None:
        """The value at ``key`` as text; None when there is no such entry."""
        value = self.get(key)
        return None if value is None else value.decode()

    def get_json(self, key: bytes | str, default: Any = None) -> Any:
        """The value at ``key``, parsed; ``default`` when there is no such entry."""
        value = self.get(key)
        return default if value is None else json.loads(value)

    def put(self, key: bytes | str, value: Any) -> None:
        """Stores ``value`` at ``key``, in place of what was there."""
        encoded = _encoded(key)
        self._remember(encoded)
        outside["state"].put(encoded, _encoded(value))

    def delete(self, key: bytes | str) -> None:
        """Removes the entry at ``key``, if there is one."""
        encoded = _encoded(key)
        self._remember(encoded)
        outside["state"].delete(encoded)

    def scan(
        self,
        start: bytes | str,
        end: bytes | str = b"",
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries with ``start <= key < end`` (an empty ``end`` is no bound), at most
        ``limit``.

        Ascending or, with ``reverse``, descending from the end of the range. They are fetched as
        they are asked for: what is written meanwhile is seen if it lies ahead.
        """
        first, last = _encoded(start), _encoded(end)
        left = sys.maxsize if limit is None else limit
        while left > 0:
            page = outside["state"].scan(first, last, min(left, _SCAN_ENTRIES), reverse)
            if not page:
                return
            for entry in page:
                yield entry.key, entry.value
            left -= len(page)
            if reverse:
                last = page[-1].key
            else:
                first = page[-1].key + b"\0"

    def scan_prefix(
        self, prefix: bytes | str, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys start with ``prefix``, as `scan` gives them."""
        start = _encoded(prefix)
        return self.scan(start, successor(start), limit, reverse)

    def _remember(self, key: bytes) -> None:
        if self._before is not None and key not in self._before:
            self._before[key] = self.get(key)

    def _hold(self) -> None:
        self._before = {}

    def _settle(self, keep: bool) -> None:
        before, self._before = self._before or {}, None
        for key, value in () if keep else before.items():
            if value is None:
                outside["state"].delete(key)
            else:
                outside["state"].put(key, value)


class Document(NamedTuple):
    """A document as it was read."""

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
        """The body, parsed.

        Raises:
            ValueError: it is no JSON.
        """
        return json.loads(self.body)


class Counted(NamedTuple):
    """A counter after it was changed."""

    value: int
    """Its value."""
    cas: int
    """The version of its document."""


class Kv:
    """Capability `kv`: documents.

    A keyspace is ``scope.collection``, or ``bucket.scope.collection`` in another bucket; the empty
    string is the deployment's own. A body is bytes or
    text; everything else is stored as JSON. An ``expiry`` is in seconds from now up to 30 days, or
    since the Unix epoch; 0 is never. What is written takes effect at once: a call that is made
    again, because it failed or the node did, writes again.
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
        """The document at ``key``.

        Raises:
            NotFound: there is none. Other errors as their docstrings say; so for all methods.
        """
        return _document(self._ask("get", keyspace, _encoded(key)))

    def get_many(self, keyspace: str, keys: Sequence[bytes | str]) -> list[Document | None]:
        """The documents at ``keys``, at most 1024, in that order; None where there is none."""
        found = self._ask("get_many", keyspace, [_encoded(key) for key in keys])
        return [self._found(result) for result in found]

    def insert(
        self, keyspace: str, key: bytes | str, body: Any, flags: int = 0, expiry: int = 0
    ) -> int:
        """Stores a document where there is none; gives its version.

        Raises:
            Exists: there is one.
        """
        return int(self._ask("insert", keyspace, _encoded(key), _content(body, flags, expiry)))

    def upsert(
        self, keyspace: str, key: bytes | str, body: Any, flags: int = 0, expiry: int = 0
    ) -> int:
        """Stores a document, whatever is there; gives its version."""
        return int(self._ask("upsert", keyspace, _encoded(key), _content(body, flags, expiry)))

    def replace(
        self,
        keyspace: str,
        key: bytes | str,
        body: Any,
        cas: int | None = None,
        flags: int = 0,
        expiry: int = 0,
    ) -> int:
        """Stores a document where there is one, of the version ``cas`` when that is given; gives
        its new version.

        Raises:
            NotFound: there is none.
            CasMismatch: it has another version.
        """
        content = _content(body, flags, expiry)
        return int(self._ask("replace", keyspace, _encoded(key), content, cas))

    def remove(self, keyspace: str, key: bytes | str, cas: int | None = None) -> int:
        """Deletes a document, of the version ``cas`` when that is given; gives the version of its
        tombstone.

        Raises:
            NotFound: there is none.
            CasMismatch: it has another version.
        """
        return int(self._ask("remove", keyspace, _encoded(key), cas))

    def counter(
        self,
        keyspace: str,
        key: bytes | str,
        delta: int,
        initial: int | None = None,
        expiry: int = 0,
    ) -> Counted:
        """Adds ``delta`` to a counter, which stops at 0. Where there is none, ``initial`` becomes
        one.

        Raises:
            NotFound: there is none, and no ``initial``.
            Invalid: the document is no counter.
        """
        counted = self._ask("counter", keyspace, _encoded(key), delta, initial, expiry)
        return Counted(counted.value, counted.cas)

    def touch(self, keyspace: str, key: bytes | str, expiry: int) -> int:
        """Sets when a document expires; gives its new version.

        Raises:
            NotFound: there is none.
        """
        return int(self._ask("touch", keyspace, _encoded(key), expiry))

    def lookup_in(
        self, keyspace: str, key: bytes | str, paths: Sequence[str], xattr: bool = False
    ) -> list[Any]:
        """The JSON values at ``paths``, at most 16, None where there is none; with ``xattr``
        those of extended attributes.

        Raises:
            NotFound: there is no document.
        """
        kv = outside.get("kv")
        get = kv.LookupOperation.GET if kv else None
        specs = [kv.LookupSpec(get, path, xattr) for path in paths] if kv else []
        looked = self._ask("lookup_in", keyspace, _encoded(key), specs)
        return [
            None if isinstance(result, _Err) else json.loads(result.value)
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
        """Changes parts of a document, at most 16: all of them or none; gives its new version.

        A change is an operation of `mutate-operation`, such as ``"upsert"`` or ``"array-append"``,
        a path, and a value; missing parents are made.

        Raises:
            NotFound: there is no document.
            CasMismatch: it has another version.
            Path: a change cannot be made.
        """
        kv = outside.get("kv")
        specs = [_mutate_spec(kv, change, xattr) for change in changes] if kv else []
        options = kv.MutateOptions(kv.StoreMode.REPLACE, cas, None, None) if kv else None
        return int(self._ask("mutate_in", keyspace, _encoded(key), specs, options).cas)

    def _ask(self, function: str, *arguments: Any) -> Any:
        if "kv" not in outside:
            raise Kv.Denied("plugin.toml does not ask for the capability kv")
        try:
            return getattr(outside["kv"], function)(*arguments)
        except _Err as error:
            raise _named(Kv, error.value) from None

    def _found(self, result: Any) -> Document | None:
        if not isinstance(result, _Err):
            return _document(result.value)
        error = _named(Kv, result.value)
        if isinstance(error, Kv.NotFound):
            return None
        raise error


def _named(errors: type, value: Any) -> Exception:
    """The error of ``errors`` that a variant case is called after: ``Error_NotFound``."""
    kind: type[Exception] = getattr(errors, type(value).__name__.removeprefix("Error_"))
    return kind(getattr(value, "value", kind.__doc__))


def _document(found: Any) -> Document:
    is_json = bool(found.datatype & DATATYPE_JSON)
    return Document(found.body, found.cas, found.flags, found.expiry, is_json)


def _mutate_spec(kv: Any, change: tuple[str, str, Any], xattr: bool) -> Any:
    operation, path, value = change
    # These work on what is there.
    makes_parents = operation not in ("remove", "replace", "array-insert")
    text = b"" if operation == "remove" else json.dumps(value).encode()
    kind = getattr(kv.MutateOperation, operation.upper().replace("-", "_"))
    return kv.MutateSpec(kind, path, text, xattr, makes_parents, False)


def _content(body: Any, flags: int, expiry: int) -> Any:
    return outside["kv"].Content(_encoded(body), flags, expiry) if "kv" in outside else None


class Timers:
    """Capability `timer`: calls of `Service.on_timer` at a later time.

    Timers belong to the state: they are set, and removed when they fire, together with what the
    call writes.
    """

    def __init__(self) -> None:
        self._held: list[Callable[[], Any]] | None = None

    def set(self, name: str, due_us: int, payload: Any = b"") -> None:
        """Sets a timer, in place of one of the same name (1 to 1024 bytes), for a time in µs since
        the Unix epoch.

        The payload is bytes or text; everything else is kept as JSON.
        """
        content = _encoded(payload)
        self._do(lambda: outside["timer"].set(name, due_us, content))

    def is_set(self, name: str) -> bool:
        """Whether a timer of that name was set by an earlier call."""
        return bool(outside["timer"].is_set(name))

    def cancel(self, name: str) -> None:
        """Removes a timer, if there is one of that name."""
        self._do(lambda: outside["timer"].cancel(name))

    def _do(self, call: Callable[[], Any]) -> None:
        if self._held is None:
            call()
        else:
            self._held.append(call)

    def _hold(self) -> None:
        self._held = []

    def _settle(self, keep: bool) -> None:
        held, self._held = self._held or [], None
        for call in held if keep else ():
            call()


class Http:
    """Capability `http-out`: HTTP requests to the hosts that the deployment names."""

    class Error(Exception):
        """Why there is no answer."""

    class Denied(Error):
        """The host of the URL is not granted, or the URL is none."""

    class Timeout(Error, Retry):
        """The answer did not come before the deadline of the call. Not caught, it has the call made
        again.
        """

    class TooLarge(Error):
        """The answer is larger than is granted."""

    class Failed(Error, Retry):
        """There is no connection, or it broke. Not caught, it has the call made again."""

    def send(
        self, method: str, url: str, body: Any = b"", headers: Sequence[Header] = ()
    ) -> Response:
        """Sends a request and waits for its answer, whatever its status.

        The body is bytes or text; everything else is sent as JSON.

        Raises:
            Http.Error: why there is no answer.
        """
        if "http_out" not in outside:
            raise Http.Denied("plugin.toml does not ask for the capability http-out")
        wit = outside["http_out"]
        sent = [wit.types.Header(name, value) for name, value in headers]
        try:
            answer = wit.send(wit.Request(method, url, sent, _encoded(body)))
        except _Err as error:
            raise _named(Http, error.value) from None
        return Response(answer.status, _headers(answer.headers), answer.body)


class Metrics:
    """Capability `metrics`: numbers for the operator.

    A name has 1 to 64 of the characters `a-z`, `0-9` and `_`, and a deployment at most 64 of them;
    others are dropped.
    """

    def add(self, name: str, delta: float = 1) -> None:
        """Adds to a number, 0 at first."""
        outside["metrics"].add(name, float(delta))

    def set(self, name: str, value: float) -> None:
        """Sets a number."""
        outside["metrics"].set(name, float(value))


class Log:
    """Capability `log`: lines in the log of the deployment. The host keeps 100 of a call, 2000
    characters each.
    """

    def debug(self, message: str) -> None:
        """For the author of the plugin."""
        self._write("DEBUG", message)

    def info(self, message: str) -> None:
        """For the operator, nothing to do."""
        self._write("INFO", message)

    def warn(self, message: str) -> None:
        """For the operator, something may have to be done."""
        self._write("WARN", message)

    def error(self, message: str) -> None:
        """Something went wrong."""
        self._write("ERROR", message)

    def _write(self, level: str, message: str) -> None:
        wit = outside["log"]
        wit.write(wit.Level[level], message)


state, kv, timer, http, metrics, log = State(), Kv(), Timers(), Http(), Metrics(), Log()


def _attempt(call: Callable[[], None]) -> None:
    """Runs ``call``; when it raises, state and timers are as they were before."""
    state._hold()
    timer._hold()
    kept = False
    try:
        call()
        kept = True
    finally:
        state._settle(kept)
        timer._settle(kept)


class Plugin:
    """What plugins of every world have."""

    name: ClassVar[str] = ""
    """What it is called; without one as its class."""
    version: ClassVar[str] = "0.1.0"
    """Its version."""

    def __init__(self, config: Any) -> None:
        """Prepares an instance for the deployment with that configuration, parsed JSON.

        Raises:
            Reject: the configuration cannot be deployed; the message is for its author.
        """
        self.config = config

    @classmethod
    def describe(cls) -> str:
        """What this plugin is: a JSON object with at least ``name``, ``version`` and ``limits``."""
        name = cls.name or cls.__name__.lower()
        return json.dumps({"name": name, "version": cls.version, "limits": {}})


class Functions(Plugin):
    """Functions for queries: each method whose name has no underscore in front is one.

    Equal arguments give equal results. A call may use nothing but `log`, and has what the deployment
    allows of 50 ms and 64 MiB.
    """

    def _call(self, name: str, arguments: list[Any]) -> Any:
        """Calls a function; gives what JSON can say.

        Raises:
            Reject: there is none of that name.
        """
        is_own = not name.startswith("_") and not hasattr(Functions, name)
        function = getattr(self, name, None) if is_own else None
        if not callable(function):
            raise Reject("there is no such function")
        return function(*arguments)


class Service(Plugin):
    """A fold over the change stream, plus answers from its state.

    The host relies on this: nothing that must survive lies outside the state, since an instance may
    be replaced between any two calls; ``__init__`` uses no capability but `log`; equal calls give
    equal writes.

    A plugin has `on_update` and `on_delete`, or `on_batch` to see all events of a batch at once.
    """

    def on_update(self, doc: Any, meta: Event) -> None:
        """Takes a document that was created or changed: its parsed JSON, or the bytes of what is
        none.

        When it raises, what it did to state and timers is taken back, the document is reported, and
        the feed goes on; a `Fault` is one of the whole batch. What it did outside stays.
        """

    def on_delete(self, meta: Event) -> None:
        """Takes a document that was deleted or expired. When it raises, then as for `on_update`."""

    def on_batch(self, events: Events) -> list[DocumentError]:
        """Folds a batch into the state; gives the documents that failed. Unless overridden, calls
        `on_update` and `on_delete`.

        Raises:
            Fault: the batch as a whole could not be taken; its writes are dropped then.
        """
        errors = []
        for index, event in enumerate(events):
            try:
                _attempt(lambda event=event: self._on_event(event))  # type: ignore[misc]
            except Fault:
                raise
            except Exception as error:
                errors.append(DocumentError(index, _said(error)))
        return errors

    def _on_event(self, event: Event) -> None:
        if event.kind != EventKind.UPSERT:
            self.on_delete(event)
        else:
            self.on_update(event.json() if event.is_json else event.body, event)

    def rollback(self, vb: int, seqno: int) -> int | None:
        """Removes what came from vBucket ``vb`` after ``seqno``; gives the seqno (at most that)
        reached.

        None has it called again for the rest; a call that gives None must have removed something.
        Without it, the host builds the state anew from the first document on.

        Raises:
            Fault: the state could not be cut back.
        """
        raise Fatal(f"vBucket {vb} was cut back to {seqno}, and this plugin cannot be")

    def handle(self, request: Request) -> Response:
        """Answers a request from a snapshot of the state. Without it, there is nothing to be found.

        When it raises another error than a `Fault`, the answer has the status 500 and names it.

        Raises:
            Fault: there is no answer; an HTTP error status is an answer.
        """
        return Response.json(404, {"error": "not_found", "reason": "missing"})

    def more(self, cursor: bytes) -> Chunk:
        """The next piece of an answer that had a cursor: on the same snapshot, in the same
        instance.

        Raises:
            Fault: the answer cannot go on.
        """
        raise Reject("this plugin gives its answers whole")

    def merge(self, request: Request, partials: list[Response]) -> Response:
        """Makes one answer from the answers of several partitions.

        Raises:
            Fault: they cannot be merged.
        """
        raise Reject("this plugin cannot merge answers")

    def on_timer(self, now_us: int, timers: list[Timer]) -> None:
        """Takes timers that are due. They are gone, and may be set again.

        Raises:
            Fault: they could not be taken; nothing has happened then.
        """


def _said(error: Exception) -> str:
    """An error in a line, with the place in the plugin that raised it: ``KeyError: 'city'
    (app.py:9)``.
    """
    message = f"{type(error).__name__}: {error}"
    place, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename.rpartition("/")[2]
        if name != "nacre_plugin.py":
            place = f" ({name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return message + place


def _headers(headers: list[Any]) -> list[Header]:
    return [(header.name, header.value) for header in headers]


def _request(asked: Any) -> Request:
    headers = _headers(asked.headers)
    return Request(asked.method, asked.path, asked.query, headers, asked.body, asked.now_us)


def _handled(service: Service, request: Request) -> Response:
    """What a service answers; of one that fails, as the request then does."""
    try:
        return service.handle(request)
    except Fault:
        raise
    except Exception as error:
        return Response.json(500, {"error": "exception", "reason": _said(error)})


def export(plugin: S) -> S:
    """Exports a `Service`, or `Functions`, as the component that its module is built to. Does nothing
    outside of WebAssembly.
    """
    try:
        types = importlib.import_module("wit_world.imports.types")
    except ImportError:
        return plugin

    def answer(call: Callable[[], T]) -> T:
        try:
            return call()
        except Fault as fault:
            kind = next(kind for kind in (Retry, Reject, Fatal) if isinstance(fault, kind))
            raise _Err(getattr(types, f"Fault_{kind.__name__}")(str(fault))) from fault
        except Exception as error:
            raise _Err(types.Fault_Reject(_said(error))) from error

    if issubclass(plugin, Functions):
        component, interfaces = _component_of_functions(plugin, answer), ("Lifecycle", "Scalar")
    else:
        component = _component_of_service(plugin, answer, types)
        interfaces = ("Lifecycle", "Feed", "Reader", "TimerHandler")
    # The names that componentize-py looks for, one an interface.
    for interface in interfaces:
        setattr(sys.modules[plugin.__module__], interface, component)
    return plugin


def _component_of_functions(functions: Any, answer: Callable[..., Any]) -> type:
    class Component:
        running: ClassVar[Functions]

        def describe(self) -> str:
            return functions.describe()

        def init(self, config: str) -> None:
            Component.running = answer(lambda: functions(json.loads(config)))

        def call(self, name: str, arguments: str) -> str:
            given = json.loads(arguments)
            return answer(lambda: json.dumps(Component.running._call(name, given), allow_nan=False))

    return Component


def _component_of_service(service: Any, answer: Callable[..., Any], types: Any) -> type:
    feed = importlib.import_module("wit_world.exports.feed")
    reader = importlib.import_module("wit_world.exports.reader")

    def lowered(response: Response) -> Any:
        headers = [types.Header(name, value) for name, value in response.headers]
        return reader.Response(response.status, headers, response.body, response.cursor)

    class Component:
        running: ClassVar[Service]

        def describe(self) -> str:
            return service.describe()

        def init(self, config: str) -> None:
            Component.running = answer(lambda: service(json.loads(config)))

        def on_batch(self, buffer: bytes) -> Any:
            errors = answer(lambda: Component.running.on_batch(Events(buffer)))
            told = [feed.DocumentError(error.index, error.message) for error in errors or ()]
            return feed.Outcome(told)

        def rollback(self, vb: int, seqno: int) -> int | None:
            return answer(lambda: Component.running.rollback(vb, seqno))

        def on_timer(self, now_us: int, timers: list[Any]) -> None:
            due = [Timer(timer.name, timer.due_us, timer.payload) for timer in timers]
            answer(lambda: Component.running.on_timer(now_us, due))

        def handle(self, request: Any) -> Any:
            return answer(lambda: lowered(_handled(Component.running, _request(request))))

        def more(self, cursor: bytes) -> Any:
            return answer(lambda: reader.Chunk(*Component.running.more(cursor)))

        def merge(self, request: Any, partials: list[Any]) -> Any:
            whole = [Response(part.status, _headers(part.headers), part.body) for part in partials]
            return answer(lambda: lowered(Component.running.merge(_request(request), whole)))

    return Component
