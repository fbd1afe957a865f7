"""A host for tests: a service as plain Python, fed by a script, with a clock that only the test
moves.

    seen = Harness(Seen)
    seen.put("a", {"n": 1}).put("b", {"n": 2}).feed()
    seen.advance(3600)
    assert seen.state_text() == "a = 1\\nb = 2\\n"

Like the host, it gives every call a new instance, so that nothing that must survive can hide in the
service, and drops what a failed call wrote. What a service does outside (documents, requests) is
not taken back; that of the documents and timers before one that fails is not done again. Nothing
has to be granted.

    python3 nacre_plugin_testing.py

plays the scripts of a project, in its folder and without building it: `tests/*.json`, as `nacre
plugin test` does in WebAssembly.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nacre_plugin import (
    DATATYPE_JSON,
    MAGIC,
    Document,
    DocumentError,
    Event,
    EventKind,
    Events,
    Request,
    Response,
    Retry,
    Service,
    Timer,
    kv,
    outside,
)
from nacre_plugin._kv import document_of
from nacre_plugin._outside import Err
from nacre_plugin._plugins import fired, handled

BEGIN_US = 1_767_225_600_000_000
"""The clock of a new harness and of every script: 2026-01-01 00:00:00 UTC, in microseconds since
the Unix epoch.
"""
VBUCKETS = 4
"""vBuckets of a harness."""
COLLECTION = 8
"""The collection of its documents."""
OWN_KEYSPACE = "_default._default"

T = TypeVar("T")


def pack(events: list[Event], now_us: int) -> bytes:
    """The buffer of ``events`` as the host packs it; keys must fit 65,535 bytes, and the whole 4
    GiB.
    """
    arena_start = 32 + 64 * len(events)
    records, arena = b"", b""
    for event in events:
        at, value = len(arena), len(arena) + len(event.key)
        records += struct.pack(
            "<QQQIIIIIIIHHBB6x",
            *event[:6],
            at,
            value,
            len(event.xattrs) + len(event.body),
            len(event.xattrs),
            event.vb,
            len(event.key),
            event.kind,
            event.datatype,
        )
        arena += event.key + event.xattrs + event.body
    total = arena_start + len(arena)
    header = struct.pack("<4sIQII8x", MAGIC, len(events), now_us, arena_start, total)
    return header + records + arena


class _Entry(NamedTuple):
    key: bytes
    value: bytes


class _State:
    """The capability `state` in a test."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.is_writable = False

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._check(key)
        self.entries[key] = value

    def delete(self, key: bytes) -> None:
        self._check(key)
        self.entries.pop(key, None)

    def scan(self, start: bytes, end: bytes, limit: int, reverse: bool) -> list[_Entry]:
        keys = (key for key in self.entries if key >= start and (not end or key < end))
        return [_Entry(key, self.entries[key]) for key in sorted(keys, reverse=reverse)[:limit]]

    def _check(self, key: bytes) -> None:
        if not self.is_writable:
            raise RuntimeError("the state can only be read here, which ends the call")
        if not 1 <= len(key) <= 65_536:
            raise RuntimeError(f"a key has 1 to 65536 bytes, not {len(key)}, which ends the call")


class _Stored(NamedTuple):
    body: bytes
    cas: int
    flags: int
    expiry: int
    datatype: int


class _Content(NamedTuple):
    body: bytes
    flags: int
    expiry: int


class _Counted(NamedTuple):
    value: int
    cas: int


class _Found(NamedTuple):
    value: _Stored | bytes


def _refused(name: str, *values: str) -> Exception:
    """Returns an error as the component raises it: a variant case with its name."""
    case = type(f"Error_{name}", (), {"value": values[0]} if values else {})
    error: Exception = Err(case())
    return error


class _LookupSpec(NamedTuple):
    operation: Enum
    path: str
    xattr: bool


class _MutateSpec(NamedTuple):
    operation: Enum
    path: str
    value: bytes
    xattr: bool
    create_path: bool
    expand_macros: bool


class _MutateOptions(NamedTuple):
    mode: Enum
    cas: int | None
    expiry: int | None
    flags: int | None


class _Looked(NamedTuple):
    cas: int
    results: list[Any]


_MutateOperation = Enum("_MutateOperation", "INSERT UPSERT REPLACE REMOVE ARRAY_APPEND COUNTER")


def _at(document: Any, path: str) -> Any:
    """Returns the value at names joined by dots."""
    for name in path.split("."):
        if not isinstance(document, dict) or name not in document:
            return Err("path not found")
        document = document[name]
    return _Found(json.dumps(document).encode())


def _change(document: Any, spec: _MutateSpec) -> None:
    """Changes a member. Supports only operations that need no more than that."""
    *parents, last = spec.path.split(".")
    for name in parents:
        if name not in document and not spec.create_path:
            raise _refused("Path", "path not found")
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise _refused("Path", "path does not fit the document")
    operation, is_there = spec.operation, last in document
    if operation is _MutateOperation.INSERT and is_there:
        raise _refused("Path", "path exists already")
    if operation in (_MutateOperation.REPLACE, _MutateOperation.REMOVE) and not is_there:
        raise _refused("Path", "path not found")
    if operation is _MutateOperation.REMOVE:
        del document[last]
    elif operation is _MutateOperation.ARRAY_APPEND:
        document.setdefault(last, []).append(json.loads(spec.value))
    elif operation is _MutateOperation.COUNTER:
        document[last] = document.get(last, 0) + json.loads(spec.value)
    else:
        document[last] = json.loads(spec.value)


class _Kv:
    """The capability `kv` in a test: documents that do not expire and are never locked."""

    Content = _Content
    LookupSpec, MutateSpec, MutateOptions = _LookupSpec, _MutateSpec, _MutateOptions
    LookupOperation = Enum("LookupOperation", "GET EXISTS COUNT DOCUMENT")
    MutateOperation = _MutateOperation
    StoreMode = Enum("StoreMode", "INSERT UPSERT REPLACE")

    def __init__(self) -> None:
        self.documents: dict[tuple[str, bytes], _Stored] = {}
        self.attributes: dict[tuple[str, bytes], dict[str, Any]] = {}
        self._cas = 0

    def get(self, keyspace: str, key: bytes) -> _Stored:
        found = self.documents.get((keyspace or OWN_KEYSPACE, key))
        if found is None:
            raise _refused("NotFound")
        return found

    def get_many(self, keyspace: str, keys: list[bytes]) -> list[Any]:
        return [self._result(keyspace, key) for key in keys]

    def insert(self, keyspace: str, key: bytes, content: _Content) -> int:
        if (keyspace or OWN_KEYSPACE, key) in self.documents:
            raise _refused("Exists")
        return self.upsert(keyspace, key, content)

    def upsert(self, keyspace: str, key: bytes, content: _Content) -> int:
        self._cas += 1
        datatype = DATATYPE_JSON if _is_json(content.body) else 0
        stored = _Stored(content.body, self._cas, content.flags, content.expiry, datatype)
        self.documents[keyspace or OWN_KEYSPACE, key] = stored
        return self._cas

    def replace(self, keyspace: str, key: bytes, content: _Content, cas: int | None) -> int:
        self._check(keyspace, key, cas)
        return self.upsert(keyspace, key, content)

    def remove(self, keyspace: str, key: bytes, cas: int | None) -> int:
        self._check(keyspace, key, cas)
        del self.documents[keyspace or OWN_KEYSPACE, key]
        self._cas += 1
        return self._cas

    def counter(
        self, keyspace: str, key: bytes, delta: int, initial: int | None, expiry: int
    ) -> _Counted:
        found = self.documents.get((keyspace or OWN_KEYSPACE, key))
        if found is None and initial is None:
            raise _refused("NotFound")
        if found is None:
            value, flags = initial or 0, 0
        elif not found.body.isdigit():
            raise _refused("Invalid", "it is not a counter")
        else:
            value, flags, expiry = max(int(found.body) + delta, 0), found.flags, found.expiry
        content = _Content(str(value).encode(), flags, expiry)
        return _Counted(value, self.upsert(keyspace, key, content))

    def touch(self, keyspace: str, key: bytes, expiry: int) -> int:
        found = self.get(keyspace, key)
        return self.upsert(keyspace, key, _Content(found.body, found.flags, expiry))

    def lookup_in(self, keyspace: str, key: bytes, specs: list[_LookupSpec]) -> _Looked:
        found = self.get(keyspace, key)
        xattrs = self.attributes.get((keyspace or OWN_KEYSPACE, key), {})
        body = json.loads(found.body)
        results = [_at(xattrs if spec.xattr else body, spec.path) for spec in specs]
        return _Looked(found.cas, results)

    def mutate_in(
        self, keyspace: str, key: bytes, specs: list[_MutateSpec], options: _MutateOptions
    ) -> _Looked:
        self._check(keyspace, key, options.cas)
        found = self.get(keyspace, key)
        body = json.loads(found.body)
        attributes = dict(self.attributes.get((keyspace or OWN_KEYSPACE, key), {}))
        for spec in specs:
            _change(attributes if spec.xattr else body, spec)
        self.attributes[keyspace or OWN_KEYSPACE, key] = attributes
        text = json.dumps(body, separators=(",", ":")).encode()
        cas = self.upsert(keyspace, key, _Content(text, found.flags, found.expiry))
        return _Looked(cas, [])

    def _check(self, keyspace: str, key: bytes, cas: int | None) -> None:
        if cas not in (None, self.get(keyspace, key).cas):
            raise _refused("CasMismatch")

    def _result(self, keyspace: str, key: bytes) -> Any:
        try:
            return _Found(self.get(keyspace, key))
        except Err as error:
            return error


class _Timers:
    """The capability `timer` in a test."""

    def __init__(self) -> None:
        self.by_name: dict[str, Timer] = {}

    def set(self, name: str, due_us: int, payload: bytes) -> None:
        if not 1 <= len(name.encode()) <= 1024:
            raise RuntimeError("the name of a timer has 1 to 1024 bytes, which ends the call")
        self.by_name[name] = Timer(name, due_us, payload)

    def is_set(self, name: str) -> bool:
        return name in self.by_name

    def cancel(self, name: str) -> bool:
        return self.by_name.pop(name, None) is not None

    def take(self, now_us: int) -> list[Timer]:
        due = sorted(
            (timer for timer in self.by_name.values() if timer.due_us <= now_us),
            key=lambda timer: (timer.due_us, timer.name),
        )
        for timer in due:
            del self.by_name[timer.name]
        return due


@dataclass
class HttpRequest:
    """A request that a service sends."""

    method: str
    url: str
    headers: list[Any]
    body: bytes


class _Header(NamedTuple):
    name: str
    value: str


class _Http:
    """The capability `http` in a test: no request is answered, unless the test does so."""

    Request = HttpRequest

    class types:
        Header = _Header

    def __init__(self) -> None:
        self.answering: Callable[[HttpRequest], Response] | None = None

    def send(self, request: HttpRequest) -> Response:
        if self.answering is None:
            raise _refused("Denied", "there is no network here")
        answer = self.answering(request)
        return replace(
            answer, headers=[_Header(name.lower(), value) for name, value in answer.headers]
        )


class _Turn:
    """The capability `turn` in a test."""

    def __init__(self, state: _State, timers: _Timers) -> None:
        self._state, self._timers = state, timers
        self.start()

    def start(self) -> None:
        """Starts a call."""
        self.index = 0
        """The item at work: those before it are done."""
        self.errors: list[DocumentError] = []
        """The documents that failed, as far as the service has said so itself."""
        self._keep()

    def begin(self, index: int) -> None:
        self.index = index
        self._keep()

    def failed(self, index: int, message: str) -> None:
        self.errors.append(DocumentError(index, message))

    def take_back(self) -> None:
        """Reverts state and timers to the start of the current item."""
        self._state.entries, self._timers.by_name = self._kept

    def _keep(self) -> None:
        self._kept = dict(self._state.entries), dict(self._timers.by_name)


class _Log:
    """The capability `log` in a test."""

    class Level(IntEnum):
        DEBUG = 0
        INFO = 1
        WARN = 2
        ERROR = 3

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, level: Level, message: str) -> None:
        self.lines.append(f"{level.name.lower()} {message[:2000]}")


class _Metrics:
    """The capability `metrics` in a test."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}

    def add(self, name: str, delta: float) -> None:
        self.numbers[name] = self.numbers.get(name, 0) + delta

    def set(self, name: str, value: float) -> None:
        self.numbers[name] = value


class Harness:
    """A host for one service. A process can have one host at a time."""

    def __init__(self, service: type[Service], config: Any = None) -> None:
        """Deploys the service on an empty bucket.

        Raises:
            Reject: if the service refuses its configuration.
        """
        self._service = service
        self._config = {} if config is None else config
        self._changes: list[Event] = []
        self._seqnos = dict.fromkeys(range(VBUCKETS), 0)
        self._state, self._kv, self._timers, self._http = _State(), _Kv(), _Timers(), _Http()
        self._log, self._metrics = _Log(), _Metrics()
        self._turn = _Turn(self._state, self._timers)
        self.now_us = BEGIN_US
        """The time, in microseconds since the Unix epoch."""
        outside.update(
            state=self._state,
            kv=self._kv,
            timer=self._timers,
            http_out=self._http,
            log=self._log,
            metrics=self._metrics,
            turn=self._turn,
        )
        service(self._config)

    def put(self, key: str, body: Any) -> Harness:
        """Queues a document for the next batch: bytes unchanged, everything else as JSON."""
        value = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._change(key, EventKind.UPSERT, value)

    def delete(self, key: str) -> Harness:
        """Queues a deletion for the next batch."""
        return self._change(key, EventKind.DELETE, b"")

    def expire(self, key: str) -> Harness:
        """Queues the expiry of a document for the next batch."""
        return self._change(key, EventKind.EXPIRE, b"")

    @staticmethod
    def vbucket(key: str) -> int:
        """Returns the vBucket of a key, as on the server."""
        return (zlib.crc32(key.encode()) >> 16 & 0x7FFF) % VBUCKETS

    def _change(self, key: str, kind: EventKind, body: bytes) -> Harness:
        name, vb = key.encode(), self.vbucket(key)
        self._seqnos[vb] += 1
        seqno = self._seqnos[vb]
        datatype = DATATYPE_JSON if kind == EventKind.UPSERT and _is_json(body) else 0
        cas = self.now_us * 1000 + seqno
        change = Event(
            seqno, cas, 1, 0, 0, COLLECTION, vb, kind, datatype, name, b"", body, self.now_us
        )
        self._changes.append(change)
        return self

    def feed(self) -> list[DocumentError]:
        """Feeds the queued changes as one batch. Returns the failed documents.

        Raises:
            Fault: what the service says; its writes are dropped then. After `Retry`, the documents
                that it wants again are the first of the next batch.
        """
        changes, self._changes = self._changes, []
        events = Events(pack(changes, self.now_us))
        try:
            errors = self._write(lambda service: service.on_batch(events)) or []
        except Retry:
            self._changes = changes[self._turn.index :]
            raise
        return self._turn.errors + errors

    def advance(self, seconds: float) -> None:
        """Advances the clock, and fires the timers that become due, each at its time.

        Raises:
            Fault: if the service raises it. The clock then stops at the time of the failure.
        """
        end_us = self.now_us + round(seconds * 1_000_000)
        while (due_us := min((t.due_us for t in self.timers), default=end_us + 1)) <= end_us:
            self.now_us = max(self.now_us, due_us)
            self.fire()
        self.now_us = end_us

    def fire(self) -> None:
        """Passes the due timers to the service, in one call.

        Raises:
            Fault: if the service raises it. Unfinished timers then remain set.
        """
        due = self._timers.take(self.now_us)
        try:
            self._write(lambda service: fired(service, self.now_us, due))
        except BaseException:
            for timer in due[self._turn.index :]:
                self._timers.by_name.setdefault(timer.name, timer)
            raise

    def rollback(self, vb: int, seqno: int) -> int:
        """Rolls back a vBucket to ``seqno``. Returns the seqno from which the feed continues.

        Raises:
            Fault: if the service raises it.
        """
        reached = None
        while reached is None:
            reached = self._write(lambda service: service.rollback(vb, seqno))
        return reached

    def get(self, target: str) -> Response:
        """Returns the whole response to ``GET target``, a path with or without a query string.

        Raises:
            Fault: if the service raises it.
        """
        path, _, query = target.partition("?")
        return self.ask(Request(path=path, query=query))

    def ask(self, request: Request) -> Response:
        """Returns the whole response to a request, whose time is that of the clock.

        Raises:
            Fault: if the service raises it.
        """
        service = self._service(self._config)
        response = handled(service, replace(request, now_us=self.now_us))
        body, cursor = response.body, response.cursor
        while cursor is not None:
            chunk = service.more(cursor)
            body, cursor = body + chunk.body, chunk.cursor
        return Response(response.status, response.headers, body)

    def on_http(self, answering: Callable[[HttpRequest], Response]) -> None:
        """Answers the requests that the service sends."""
        self._http.answering = answering

    def store(self, keyspace: str, key: str, body: Any) -> None:
        """Stores a document that the service can read, without adding it to the feed."""
        kv.upsert(keyspace, key, body)

    @property
    def documents(self) -> dict[tuple[str, str], Document]:
        """Returns the documents in `kv`, by keyspace and key."""
        return {
            (keyspace, key.decode()): document_of(stored)
            for (keyspace, key), stored in sorted(self._kv.documents.items())
        }

    @property
    def timers(self) -> list[Timer]:
        """Returns the timers, by name."""
        return [timer for _, timer in sorted(self._timers.by_name.items())]

    @property
    def log(self) -> list[str]:
        """Returns the lines of the log: level and text."""
        return self._log.lines

    @property
    def metrics(self) -> dict[str, float]:
        """Returns the metrics."""
        return self._metrics.numbers

    @property
    def state(self) -> dict[bytes, bytes]:
        """Returns the state, ordered by key."""
        return dict(sorted(self._state.entries.items()))

    def state_text(self) -> str:
        """Returns the state as text: one line per entry, with binary data escaped."""
        return "".join(f"{_shown(key)} = {_shown(value)}\n" for key, value in self.state.items())

    def _write(self, call: Callable[[Service], T]) -> T:
        self._turn.start()
        self._state.is_writable = True
        try:
            return call(self._service(self._config))
        except BaseException:
            self._turn.take_back()
            raise
        finally:
            self._state.is_writable = False


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def _shown(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _value(body: bytes) -> Any:
    return json.loads(body) if _is_json(body) else _shown(body)


@dataclass
class Stage:
    """Plays a script on a harness, step by step."""

    harness: Harness
    lines_seen: int = 0

    def play(self, step: dict[str, Any]) -> dict[str, Any]:
        """Runs a step. Returns the results that the step's members ask for."""
        harness = self.harness
        for key, body in step.get("upsert", {}).items():
            harness.put(key, body)
        for key in step.get("delete", []):
            harness.delete(key)
        for key in step.get("expire", []):
            harness.expire(key)
        keys = [*step.get("upsert", {}), *step.get("delete", []), *step.get("expire", [])]
        failed = harness.feed() if keys else []
        seen: dict[str, Any] = {"errors": [f"{keys[one.index]}: {one.message}" for one in failed]}
        harness.now_us += step.get("advance_ms", 0) * 1000
        while any(timer.due_us <= harness.now_us for timer in harness.timers):
            harness.fire()
        if "request" in step:
            seen["status"], seen["answer"] = self._ask(step["request"], step.get("body", ""))
        seen["state"] = {_shown(key): _value(value) for key, value in harness.state.items()}
        seen["documents"] = {}
        for (keyspace, key), document in harness.documents.items():
            seen["documents"].setdefault(keyspace, {})[key] = _value(document.body)
        if "log" in step:
            seen["log"], self.lines_seen = harness.log[self.lines_seen :], len(harness.log)
        return seen

    def _ask(self, line: str, body: Any) -> tuple[int, Any]:
        method, _, target = line.partition(" ")
        path, _, query = target.partition("?")
        sent = body if isinstance(body, str) else json.dumps(body)
        try:
            answer = self.harness.ask(Request(method, path, query, body=sent.encode()))
        except Exception as error:
            return 500, str(error)
        return answer.status, _value(answer.body)


def play(service: type[Service], script: dict[str, Any]) -> list[str]:
    """Plays a script. Returns the differences from its expectations, one line each."""
    stage = Stage(Harness(service, script.get("config")))
    for keyspace, documents in script.get("documents", {}).items():
        for key, body in documents.items():
            stage.harness.store(keyspace, key, json.dumps(body))
    differences = []
    for index, step in enumerate(script["steps"]):
        seen = stage.play(step)
        for member, came in seen.items():
            expected = step.get(member, [] if member == "errors" else came)
            if expected != came:
                lines = f"    expected {json.dumps(expected)}\n    came     {json.dumps(came)}"
                differences.append(f"  step {index}: {member}\n{lines}")
    return differences


def main(project: Path) -> int:
    """Plays the scripts of a project. Returns the number of failed ones."""
    sys.path.insert(0, str(project))
    app = importlib.import_module("app")
    service = next(
        found
        for found in vars(app).values()
        if isinstance(found, type) and issubclass(found, Service) and found is not Service
    )
    failed = 0
    for path in sorted((project / "tests").glob("*.json")):
        differences = play(service, json.loads(path.read_text()))
        failed += bool(differences)
        print("\n".join([f"{'FAILED ' if differences else 'ok     '} {path.stem}", *differences]))
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")) != 0)
