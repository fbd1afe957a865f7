"""An embedded database instead of a cluster: ``connect("nacre:///path/to/folder")``.

    Connection -> CarrierTransport -> nacre_session_receive() -> the database, on the same thread
                  data_received()  <- responses, most of them before the call of write() returns;
                                      later ones ring the descriptor of the loop

The classes of this package talk to the database as to a server: the frames are the same, but they
do not cross a network. The library is ``libnacre.so``. The environment variable ``NACRE_LIBRARY``
names the file; by default, it is in the package nacre-embedded or the system's search path.

The library uses one thread per database; this package uses none.
"""

import asyncio
import ctypes
import importlib
import os
import threading
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import field
from typing import Any, ClassVar
from urllib.parse import unquote

from ._record import dataclass
from .exceptions import (
    CouchbaseException,
    InternalServerFailureException,
    InvalidArgumentException,
    RequestCanceledException,
)

IN_MEMORY = ":memory:"
_TURN_REQUESTS = 64
"""So many calls of write() are answered within one turn of the loop, so that other tasks run too."""
_OK = 0
_IN_USE = 13
_KEY_STATUSES = {25, 26, 27}
"""The key is wrong, missing, or given for a folder that is not encrypted."""
_KEY_BYTES, _KEY_PASSPHRASE = 0, 1
_KEY_SIZE = 32
_SYNCS = {"after": 0, "always": 1, "never": 2}
_STORES = {"log": 0, "sled": 1}


class DatabaseInUseException(CouchbaseException):
    """Another process has the folder open; the message has its number."""


class DatabaseKeyException(CouchbaseException):
    """The key does not open the folder, is missing, or is given for a folder without encryption."""


class _Buffer(ctypes.Structure):
    _fields_: ClassVar = [("data", c_void_p), ("size", c_size_t)]


class _Options(ctypes.Structure):
    _fields_: ClassVar = [
        ("size", c_size_t),
        ("sync", c_int),
        ("store", c_int),
        ("sync_delay_us", c_uint64),
        ("quota_mib", c_uint64),
        ("vbuckets", c_uint32),
        ("segment_bytes", c_uint32),
        ("no_thread", c_int),
        ("no_create", c_int),
    ]


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nacre_open": (c_char_p, POINTER(_Options), POINTER(c_void_p)),
    "nacre_open_with_key": (
        c_char_p,
        POINTER(_Options),
        c_int,
        c_char_p,
        c_size_t,
        POINTER(c_void_p),
    ),
    "nacre_rekey": (c_void_p, c_int, c_char_p, c_size_t),
    "nacre_close": (c_void_p,),
    "nacre_flush": (c_void_p,),
    "nacre_wake_fd": (c_void_p,),
    "nacre_wake_clear": (c_void_p,),
    "nacre_manage": (
        c_void_p,
        c_char_p,
        c_char_p,
        c_char_p,
        c_size_t,
        POINTER(c_int),
        POINTER(_Buffer),
    ),
    "nacre_session_open": (c_void_p, POINTER(c_void_p)),
    "nacre_session_receive": (c_void_p, c_char_p, c_size_t, POINTER(_Buffer)),
    "nacre_session_poll": (c_void_p, POINTER(_Buffer)),
}


class _Library:
    """libnacre, loaded once."""

    _loaded: "ClassVar[_Library | None]" = None

    def __init__(self, file: str) -> None:
        try:
            self._functions = ctypes.CDLL(file)
        except OSError as error:
            raise InvalidArgumentException(
                f"a database in the process needs libnacre: {error}. "
                "Name its file in the environment's NACRE_LIBRARY."
            ) from error
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._functions, name)
            function.argtypes, function.restype = arguments, c_int
        self._functions.nacre_session_free.argtypes = (c_void_p,)
        self._functions.nacre_session_free.restype = None
        self._functions.nacre_buffer_free.argtypes = (POINTER(_Buffer),)
        self._functions.nacre_buffer_free.restype = None
        self._functions.nacre_error_message.argtypes = ()
        self._functions.nacre_error_message.restype = c_char_p

    @classmethod
    def load(cls) -> "_Library":
        """Loads the library.

        Raises:
            InvalidArgumentException: if it is missing.
        """
        if cls._loaded is None:
            cls._loaded = cls(os.environ.get("NACRE_LIBRARY") or _installed())
        return cls._loaded

    def call(self, name: str, *arguments: Any) -> int:
        """Makes a call, and returns its status."""
        return int(getattr(self._functions, name)(*arguments))

    def require(self, name: str, *arguments: Any) -> None:
        """Makes a call.

        Raises:
            CouchbaseException: it failed.
        """
        if status := self.call(name, *arguments):
            raise self.failure(status)

    def failure(self, status: int) -> CouchbaseException:
        """Returns the error of the last call in this thread."""
        message = self._functions.nacre_error_message().decode(errors="replace")
        if status == _IN_USE:
            return DatabaseInUseException(message)
        if status in _KEY_STATUSES:
            return DatabaseKeyException(message)
        return InternalServerFailureException(message)

    def take(self, buffer: _Buffer) -> bytes:
        """Returns the bytes of a buffer, and frees it."""
        taken = ctypes.string_at(buffer.data, buffer.size) if buffer.size else b""
        self._functions.nacre_buffer_free(byref(buffer))
        return taken

    def free_session(self, session: c_void_p) -> None:
        """Ends a session."""
        self._functions.nacre_session_free(session)


def _installed() -> str:
    """Returns the library of the package nacre-embedded, or its name in the search path."""
    try:
        return str(importlib.import_module("nacre_embedded").LIBRARY)
    except ImportError:
        return "libnacre.so"


@dataclass(frozen=True, slots=True)
class Place:
    """The path and the options of a database, from ``nacre://folder?option=value``."""

    path: str
    options: tuple[tuple[str, str], ...] = ()
    key: bytes | str | None = field(default=None, repr=False)
    """Key of an encrypted folder: 32 bytes, or a passphrase."""

    @classmethod
    def of(cls, path: str, options: Mapping[str, str]) -> "Place":
        """Validates a connection string.

        Raises:
            InvalidArgumentException: if the path or an option is invalid.
        """
        path = unquote(path)
        if path != IN_MEMORY and not path.startswith("/"):
            raise InvalidArgumentException(
                f"a database is nacre:///path/to/folder or nacre://{IN_MEMORY}, not nacre://{path}"
            )
        place = cls(path, tuple(sorted(options.items())))
        place.native()
        return place

    def with_key(self, key: bytes | str | None) -> "Place":
        """Returns this place with a key.

        Raises:
            InvalidArgumentException: if the key is neither 32 bytes nor a passphrase.
        """
        if isinstance(key, str) and key:
            return Place(self.path, self.options, key)
        if isinstance(key, bytes | bytearray | memoryview) and len(bytes(key)) == _KEY_SIZE:
            return Place(self.path, self.options, bytes(key))
        if key is None:
            return self
        raise InvalidArgumentException(f"a key has {_KEY_SIZE} bytes, or is a passphrase")

    def native_key(self) -> tuple[int, bytes]:
        """Returns the kind and the bytes of the key in the format of the library."""
        if isinstance(self.key, str):
            return _KEY_PASSPHRASE, self.key.encode()
        return _KEY_BYTES, self.key or b""

    def native(self) -> _Options:
        """Returns the options in the format of the library.

        Raises:
            InvalidArgumentException: if one is unknown or out of range.
        """
        native = _Options(size=ctypes.sizeof(_Options))
        for name, value in self.options:
            try:
                match name:
                    case "sync":
                        native.sync = _SYNCS[value]
                    case "store":
                        native.store = _STORES[value]
                    case "sync_delay_ms":
                        native.sync_delay_us = int(value) * 1000
                    case "quota_mib":
                        native.quota_mib = int(value)
                    case "vbuckets":
                        native.vbuckets = int(value)
                    case "create":
                        native.no_create = {"true": 0, "false": 1}[value]
                    case _:
                        raise InvalidArgumentException(
                            "options of a database are create, quota_mib, store, sync, "
                            f"sync_delay_ms and vbuckets, not {name}"
                        )
            except (ValueError, KeyError):
                raise InvalidArgumentException(f"{name}={value} is out of range") from None
        return native


@dataclass(slots=True, eq=False)
class Database:
    """An open database. All clusters in this process with the same folder share it."""

    place: Place
    library: _Library
    handle: c_void_p
    users: int = 0

    @classmethod
    def open(cls, place: Place) -> "Database":
        """Opens the database, or returns the open one.

        Raises:
            DatabaseInUseException: if another process has opened it, or this one with another key.
            DatabaseKeyException: if the key is wrong or missing.
            CouchbaseException: if it cannot be opened.
        """
        with _LOCK:
            database = _OPEN.get(place) if place.path != IN_MEMORY else None
            if database is None:
                library = _Library.load()
                handle = c_void_p()
                options = place.native()
                path = os.fsencode(place.path)
                if place.key is None:
                    library.require("nacre_open", path, byref(options), byref(handle))
                else:
                    kind, key = place.native_key()
                    arguments = (path, byref(options), kind, key, len(key), byref(handle))
                    library.require("nacre_open_with_key", *arguments)
                database = cls(place, library, handle)
                if place.path != IN_MEMORY:
                    _OPEN[place] = database
            database.users += 1
            return database

    def manage(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Returns the status and body of the response to an HTTP request.

        Raises:
            CouchbaseException: if the database refuses it.
        """
        status, answer = c_int(), _Buffer()
        arguments = (method.encode(), path.encode(), body, len(body), byref(status), byref(answer))
        self.library.require("nacre_manage", self.handle, *arguments)
        return status.value, self.library.take(answer)

    def manage_open(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Like `manage`, on any thread. The database stays open until the response.

        Raises:
            CouchbaseException: if the database refuses it, or was closed before.
        """
        with _LOCK:
            if not self.users:
                raise RequestCanceledException("the database is closed")
            self.users += 1
        try:
            return self.manage(method, path, body)
        finally:
            self.leave()

    def rekey(self, key: bytes | str) -> None:
        """Replaces the key. Call it on any thread; the derivation from a passphrase takes a while.

        Raises:
            InvalidArgumentException: if the key is neither 32 bytes nor a passphrase.
            DatabaseKeyException: if the folder is not encrypted.
            CouchbaseException: if the database was closed before, or cannot store the key.
        """
        place = self.place.with_key(key)
        kind, content = place.native_key()
        with _LOCK:
            if not self.users:
                raise RequestCanceledException("the database is closed")
            self.library.require("nacre_rekey", self.handle, kind, content, len(content))
            # From now on, the open folder is found under its new key.
            if _OPEN.pop(self.place, None) is not None:
                _OPEN[place] = self
            self.place = place

    def leave(self) -> None:
        """Leaves the database. The last leaver closes it.

        Raises:
            CouchbaseException: if something could not be persisted.
        """
        with _LOCK:
            self.users -= 1
            if self.users:
                return
            _OPEN.pop(self.place, None)
            self.library.require("nacre_close", self.handle)


_OPEN: dict[Place, Database] = {}
"""The databases in folders that this process has open."""
_LOCK = threading.Lock()


@dataclass(slots=True, eq=False)
class Carrier:
    """Carries frames between the connections of a cluster and a database."""

    place: Place
    _database: Database | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _descriptor: int = -1
    _transports: "set[CarrierTransport]" = field(default_factory=set)
    _closed: bool = False

    def database(self) -> Database:
        """Returns the database, and opens it on first use.

        Raises:
            CouchbaseException: if it cannot be opened.
        """
        if self._database is None:
            if self._closed:
                raise InvalidArgumentException("the cluster is closed")
            self._database = Database.open(self.place)
        return self._database

    def connect(self, protocol: asyncio.Protocol) -> None:
        """Opens a session for ``protocol``.

        Raises:
            CouchbaseException: if the database cannot be opened.
        """
        database = self.database()
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._descriptor = database.library.call("nacre_wake_fd", database.handle)
            self._loop.add_reader(self._descriptor, self._woken)
        session = c_void_p()
        database.library.require("nacre_session_open", database.handle, byref(session))
        transport = CarrierTransport(self, database, session, protocol, self._loop)
        self._transports.add(transport)
        protocol.connection_made(transport)

    def forget(self, transport: "CarrierTransport") -> None:
        """Forgets a session that has ended."""
        self._transports.discard(transport)

    def manage(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Returns the status and body of the response to a request about scopes and collections.

        Raises:
            CouchbaseException: if the database refuses it.
        """
        return self.database().manage(method, path, body)

    async def manage_later(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Like `manage`, on another thread, for requests about views and for SQL++.

        Raises:
            CouchbaseException: if the database refuses it, or is closed first.
        """
        return await asyncio.to_thread(self.database().manage_open, method, path, body)

    async def rekey(self, key: bytes | str) -> None:
        """Replaces the key of the folder, on another thread.

        Raises:
            CouchbaseException: if the database refuses it; see `Database.rekey`.
        """
        database = self.database()
        await asyncio.to_thread(database.rekey, key)
        self.place = database.place

    def _woken(self) -> None:
        if self._database is not None:
            self._database.library.call("nacre_wake_clear", self._database.handle)
        # Sessions of other clusters on this database share the wake-up descriptor.
        for carrier in list(_CARRIERS):
            if carrier._database is not self._database or carrier._loop is None:
                continue
            if carrier._loop is self._loop:
                carrier._ask()
            elif not carrier._loop.is_closed():
                carrier._loop.call_soon_threadsafe(carrier._ask)

    def _ask(self) -> None:
        for transport in list(self._transports):
            transport.ask()

    def close(self) -> None:
        """Ends the sessions, and closes the database if no other cluster uses it."""
        self._closed = True
        _CARRIERS.discard(self)
        for transport in list(self._transports):
            transport.abort()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
        database, self._database = self._database, None
        if database is not None:
            database.leave()

    def __post_init__(self) -> None:
        _CARRIERS.add(self)


_CARRIERS: set[Carrier] = set()


class CarrierTransport(asyncio.Transport):
    """A session in the form of an asyncio transport."""

    def __init__(
        self,
        carrier: Carrier,
        database: Database,
        session: c_void_p,
        protocol: asyncio.Protocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._carrier = carrier
        self._database = database
        self._session: c_void_p | None = session
        self._protocol = protocol
        self._loop = loop
        self._requests = bytearray()
        # Durable writes wait for each other, and share one sync of the disk.
        self._gathers = ("sync", "always") in carrier.place.options
        self._answered = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns the default, because there is no socket."""
        return default

    def is_closing(self) -> bool:
        """Returns True if the session has ended."""
        return self._session is None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Passes requests on immediately, or combines those of one turn of the event loop."""
        if self._requests:
            self._requests += data
        elif self._gathers or self._answered >= _TURN_REQUESTS:
            self._requests += data
            self._later(self._hand_over)
        else:
            if not self._answered:
                self._later(self._begin_turn)
            self._answered += 1
            self._receive(bytes(data))

    def _begin_turn(self) -> None:
        self._answered = 0

    def _hand_over(self) -> None:
        requests = bytes(self._requests)
        self._requests.clear()
        self._receive(requests)

    def _receive(self, requests: bytes) -> None:
        if self._session is not None:
            self._handed("nacre_session_receive", _Buffer(), requests, len(requests))

    def ask(self) -> None:
        """Receives the responses that are ready."""
        if self._session is not None:
            self._handed("nacre_session_poll", _Buffer())

    def _handed(self, name: str, buffer: _Buffer, *arguments: Any) -> None:
        library = self._database.library
        status = library.call(name, self._session, *arguments, byref(buffer))
        error = library.failure(status) if status != _OK else None
        if responses := library.take(buffer):
            self._protocol.data_received(responses)
        if error is not None:
            self._end(error)

    def _later(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon(call, *arguments)

    def close(self) -> None:
        """Ends the session."""
        self._end(None)

    def abort(self) -> None:
        """Ends the session."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._database.library.free_session(session)
            self._carrier.forget(self)
            self._later(self._protocol.connection_lost, error)
