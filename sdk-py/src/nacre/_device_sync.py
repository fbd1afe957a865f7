"""Synchronises an embedded database with a bucket of a cluster.

    DeviceSync -> nacre_sync_start() -> a thread of the library, which waits for the network
                  status(), wait_in_step(), events() <- what it reports

The application continues to read and write its database, with or without a network.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from ctypes import POINTER, byref, c_char_p, c_int, c_uint64, c_void_p
from datetime import timedelta
from typing import Any, Self

from ._embedded import Database, _Buffer, _Library
from .cluster import Cluster
from .exceptions import CouchbaseException, InvalidArgumentException, UnAmbiguousTimeoutException

_OK = 0
_NOTHING = 24
_POLL_MS = 500
"""How long a thread waits for an event before it looks whether somebody still wants one."""

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nacre_sync_start": (c_void_p, c_char_p, POINTER(c_void_p)),
    "nacre_sync_status": (c_void_p, POINTER(_Buffer)),
    "nacre_sync_wait": (c_void_p, c_uint64),
    "nacre_sync_next_event": (c_void_p, c_uint64, POINTER(_Buffer)),
    "nacre_sync_retry": (c_void_p,),
}


def _library(database: Database) -> _Library:
    functions = database.library._functions
    try:
        for name, arguments in _SIGNATURES.items():
            function = getattr(functions, name)
            function.argtypes, function.restype = arguments, c_int
        functions.nacre_sync_free.argtypes, functions.nacre_sync_free.restype = (c_void_p,), None
    except AttributeError:
        raise InvalidArgumentException("this libnacre was built without sync") from None
    return database.library


class DeviceSync:
    """A running sync, from `start` to `stop`."""

    def __init__(self, database: Database, handle: c_void_p) -> None:
        self._database = database
        self._handle: c_void_p | None = handle
        self._calls: set[asyncio.Future[int]] = set()

    @classmethod
    async def start(
        cls,
        cluster: Cluster,
        url: str,
        *,
        user: str,
        password: str,
        collections: Iterable[str],
        conflicts: str = "log",
        direction: str = "both",
        certificates: str | None = None,
        device: str = "device",
        allow_plain: bool = False,
    ) -> Self:
        """Keeps the database of `cluster` (``connect("nacre:///folder")``) in step with a bucket.

        Args:
            url: the bucket, as ``https://host:18091/bucket``.
            collections: as ``scope.collection``; of the same name on both sides.
            conflicts: ``log`` parks the loser on the device, ``server`` drops it.
            direction: ``both``, or ``pull`` from the hub only.
            certificates: certificate authorities in PEM; the public ones by default.
            device: a name for the hub's lists.
            allow_plain: allows ``http`` over a network.

        Raises:
            InvalidArgumentException: if the cluster is not an embedded database, or an option
                is invalid.
        """
        carrier = cluster.security.carrier
        if carrier is None:
            raise InvalidArgumentException("sync needs a database: connect('nacre:///folder')")
        own = carrier.database()
        options: dict[str, Any] = {
            "url": url,
            "user": user,
            "password": password,
            "collections": list(collections),
            "conflicts": conflicts,
            "direction": direction,
            "device": device,
            "allow_plain": allow_plain,
        }
        if certificates is not None:
            options["certificates"] = certificates
        library, handle = _library(own), c_void_p()
        text = json.dumps(options).encode()
        if status := library.call("nacre_sync_start", own.handle, text, byref(handle)):
            failure = library.failure(status)
            raise InvalidArgumentException(str(failure)) if status == 9 else failure
        return cls(own, handle)

    def _running(self) -> c_void_p:
        if self._handle is None:
            raise InvalidArgumentException("sync was stopped")
        return self._handle

    async def _call(self, name: str, *arguments: Any) -> int:
        """Runs a blocking call on a separate thread. `stop` waits for it."""
        handle = self._running()
        call = asyncio.ensure_future(
            asyncio.to_thread(self._database.library.call, name, handle, *arguments)
        )
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await asyncio.shield(call)

    def status(self) -> dict[str, Any]:
        """Returns figures: ``state`` (offline, connecting, catching_up, live, stopped), ``pulled``,
        ``pushed``, ``conflicts``, ``parked``, ``remaining``, ``on_the_way``, ``trouble``,
        ``reason``.
        """
        buffer, library = _Buffer(), self._database.library
        library.require("nacre_sync_status", self._running(), byref(buffer))
        status: dict[str, Any] = json.loads(library.take(buffer))
        return status

    async def wait_in_step(self, timeout: timedelta = timedelta(seconds=60)) -> None:
        """Waits until each side has everything that the other side has now.

        Raises:
            UnAmbiguousTimeoutException: if that takes too long.
            CouchbaseException: if the sync has stopped; the message contains the reason.
        """
        left_ms = timeout // timedelta(milliseconds=1)
        while True:
            piece_ms = min(left_ms, _POLL_MS)
            status = await self._call("nacre_sync_wait", piece_ms)
            left_ms -= piece_ms
            if status == _OK:
                return
            if status != _NOTHING:
                raise CouchbaseException(f"sync has stopped: {self.status()['reason']}")
            if left_ms <= 0:
                raise UnAmbiguousTimeoutException(f"not in step: {self.status()}")

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yields events with their members, until sync stops:
        ``{"event": "state" | "conflict" | "parked" | "no_collection" | "again"}``.
        """
        library = self._database.library
        while self._handle is not None:
            buffer = _Buffer()
            status = await self._call("nacre_sync_next_event", _POLL_MS, byref(buffer))
            if status == _OK:
                yield json.loads(library.take(buffer))
            elif self._handle is None or self.status()["state"] == "stopped":
                return

    def retry_now(self) -> None:
        """Connects immediately, for instance when the network is back."""
        self._database.library.require("nacre_sync_retry", self._running())

    async def stop(self) -> None:
        """Ends sync; the next sync sends what was not sent. Call it before the cluster is
        closed.
        """
        handle, self._handle = self._handle, None
        if handle is None:
            return
        if self._calls:
            await asyncio.wait(self._calls)
        await asyncio.to_thread(self._database.library._functions.nacre_sync_free, handle)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
