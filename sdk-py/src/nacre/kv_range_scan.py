"""Scans of a collection: by a range of keys, by a prefix, or a random sample."""

import asyncio
import base64
import json
import random
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ._client import Attempt, KvClient, Operation
from ._connection import Connection, ConnectionLost
from ._frame import Request, Response
from ._instruments import Labels, Watch, parent_of
from ._opcodes import Opcode, Status
from ._record import dataclass
from ._statuses import exception_of, retry_reason
from .exceptions import (
    DecodingFailureException,
    ErrorContext,
    InvalidArgumentException,
    MutationTokenOutdatedException,
    UnAmbiguousTimeoutException,
)
from .mutation_state import MutationState
from .options import ScanOptions, seconds_of
from .result import ScanResult

if TYPE_CHECKING:
    from .transcoder import Transcoder

_ITEMS, _BYTES, _CONCURRENCY = 50, 15_000, 1
"""Defaults of the options: documents and bytes of a batch, vBuckets at a time."""
_BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Largest batch that is read where fewer bytes were asked for: the last document may be large."""
_KEY_MIN, _KEY_MAX = b"\x00", b"\xff"
_META = struct.Struct(">IIQQB")
"""Flags, expiry, sequence number, CAS and data type in front of a document."""


_Found = asyncio.Queue[list[ScanResult] | Exception | None]
"""Batches; None when a worker has done its part, an error when it has failed."""


@dataclass(frozen=True, slots=True)
class ScanTerm:
    """An end of a range of keys."""

    term: str | bytes
    exclusive: bool | None = None
    """Whether a document with this key is left out."""

    @property
    def key(self) -> bytes:
        """Returns the key as bytes."""
        return self.term.encode() if isinstance(self.term, str) else self.term

    def to_dict(self) -> dict[str, Any]:
        """Returns the members by their names."""
        return {"term": self.term, "exclusive": self.exclusive}


class ScanType:
    """Base class of the selections of a scan."""

    def wire(self) -> dict[str, Any]:
        """Returns the selection in the format of the request."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RangeScan(ScanType):
    """All keys between two ends, in the order of their bytes within one vBucket."""

    start: ScanTerm | None = None
    end: ScanTerm | None = None

    def wire(self) -> dict[str, Any]:
        """Returns the range, with inclusive or exclusive ends."""
        start = self.start or ScanTerm(_KEY_MIN)
        end = self.end or ScanTerm(_KEY_MAX)
        return {
            "range": {
                "excl_start" if start.exclusive else "start": _base64(start.key),
                "excl_end" if end.exclusive else "end": _base64(end.key),
            }
        }


@dataclass(frozen=True, slots=True)
class PrefixScan(ScanType):
    """All keys with a prefix."""

    prefix: str

    def wire(self) -> dict[str, Any]:
        """Returns the range from the prefix to a bound that no UTF-8 key with the prefix reaches.
        """
        start = self.prefix.encode()
        return {"range": {"start": _base64(start), "excl_end": _base64(start + _KEY_MAX)}}


@dataclass(frozen=True, slots=True)
class SamplingScan(ScanType):
    """Random documents, at most ``limit``."""

    limit: int
    seed: int | None = None

    def wire(self) -> dict[str, Any]:
        """Returns the number of documents and the seed.

        Raises:
            InvalidArgumentException: if the limit is not a positive number.
        """
        if not isinstance(self.limit, int) or self.limit < 1:
            raise InvalidArgumentException("the limit of a sample is a positive number")
        seed = random.getrandbits(64) if self.seed is None else self.seed
        return {"sampling": {"samples": self.limit, "seed": seed}}


class ScanResultIterable:
    """The documents of a scan: ``async for found in collection.scan(PrefixScan("order:"))``.

    The scan starts and ends with the loop. The documents are in the order of the vBuckets.
    """

    def __init__(
        self,
        client: KvClient,
        place: Operation,
        scan_type: ScanType,
        options: ScanOptions,
        transcoder: "Transcoder",
        timeout: float,
    ) -> None:
        if not isinstance(scan_type, ScanType):
            raise InvalidArgumentException("a scan is a RangeScan, a PrefixScan or a SamplingScan")
        self._client = client
        self._place = place
        self._wire = scan_type.wire()
        self._limit = scan_type.limit if isinstance(scan_type, SamplingScan) else None
        self._ids_only = options.get("ids_only", False)
        self._consistent_with = options.get("consistent_with")
        self._items = _count(options.get("batch_item_limit", _ITEMS), 0)
        self._bytes = _count(options.get("batch_byte_limit", _BYTES), 0)
        self._milliseconds = _count(
            options.get("batch_time_limit", timedelta()) // timedelta(milliseconds=1), 0
        )
        self._concurrency = _count(options.get("concurrency", _CONCURRENCY), 1)
        self._transcoder = transcoder
        self._timeout = timeout
        self._is_cancelled = False
        self._parent = parent_of(options)

    def rows(self) -> AsyncIterator[ScanResult]:
        """The documents."""
        return self.__aiter__()

    def cancel_scan(self) -> None:
        """Cancels the scan: the loop over the documents stops at the next one."""
        self._is_cancelled = True

    async def __aiter__(self) -> AsyncIterator[ScanResult]:
        instruments = self._client.instruments
        if instruments is None:
            async with aclosing(self._documents_found()) as documents:
                async for document in documents:
                    yield document
            return
        labels = Labels("kv", self._client.bucket, self._place.scope, self._place.collection)
        watch = Watch(instruments, "scan", labels, self._parent)
        try:
            async with aclosing(self._documents_found()) as documents:
                async for document in documents:
                    yield document
        except GeneratorExit:
            watch.end()
            raise
        except BaseException as error:
            watch.end(error)
            raise
        watch.end()

    async def _documents_found(self) -> AsyncGenerator[ScanResult, None]:
        self._client.require_documents()
        cluster_map = self._client.map or await self._client.bootstrap(self._timeout)
        rest = iter(range(len(cluster_map.vbuckets)))
        # Bounded, so that a slow consumer applies back-pressure to the scan.
        found: _Found = asyncio.Queue(self._concurrency)

        async def work() -> None:
            try:
                for vbid in rest:
                    await self._scan_vbucket(vbid, found)
                await found.put(None)
            except Exception as error:
                await found.put(error)

        workers = [asyncio.create_task(work()) for _ in range(self._concurrency)]
        try:
            working, given = len(workers), 0
            while working and not self._is_cancelled:
                batch = await found.get()
                if batch is None:
                    working -= 1
                    continue
                if isinstance(batch, Exception):
                    raise batch
                for document in batch:
                    if self._is_cancelled:
                        return
                    yield document
                    given += 1
                    if given == self._limit:
                        return
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _scan_vbucket(self, vbid: int, found: _Found) -> None:
        wire = dict(self._wire)
        attempt = Attempt(ErrorContext(bucket=self._client.bucket, operation="RANGE_SCAN"))
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._timeout
        while True:
            begun = wire.get("range")
            try:
                async with asyncio.timeout_at(deadline):
                    place = await self._client.place(self._place, vbid, attempt)
                if await self._scan_once(*place, vbid, wire, found):
                    return
                async with asyncio.timeout_at(deadline):
                    await self._client.moved(attempt)
            except ConnectionLost:
                await attempt.again("SOCKET_CLOSED_WHILE_IN_FLIGHT")
            except TimeoutError:
                raise attempt.expired(reads=True) from attempt.cause
            if wire.get("range") is not begun:
                deadline = clock.time() + self._timeout

    async def _scan_once(
        self,
        connection: Connection,
        collection: int,
        vbid: int,
        wire: dict[str, Any],
        found: _Found,
    ) -> bool:
        """Scans to the end. Returns False if the node stops before; ``wire`` then contains the
        rest.
        """
        uuid = await self._create(connection, vbid, collection, wire)
        if uuid is None:
            return False
        completed = not uuid
        try:
            while not completed:
                batch, status = await self._continue(connection, vbid, uuid)
                if batch:
                    await found.put(batch)
                    if "range" in wire:
                        end = {k: v for k, v in wire["range"].items() if k.endswith("end")}
                        wire["range"] = {"excl_start": _base64(batch[-1].id.encode()), **end}
                if status in (Status.NOT_MY_VBUCKET, Status.SCAN_CANCELLED):
                    return False
                completed = status == Status.SCAN_COMPLETE
        except BaseException:
            connection.post(Request(Opcode.RANGE_SCAN_CANCEL, extras=uuid, vbid=vbid))
            raise
        return True

    async def _create(
        self, connection: Connection, vbid: int, collection: int, wire: dict[str, Any]
    ) -> bytes | None:
        """Starts a scan. Returns its ID, which is empty if there are no documents, or None for a
        retry.
        """
        asked = {"collection": f"{collection:x}", "key_only": self._ids_only, **wire}
        for token in self._consistent_with or MutationState():
            if token.partition_id == vbid and token.bucket_name == self._client.bucket:
                asked["snapshot_requirements"] = {
                    "vb_uuid": str(token.partition_uuid),
                    "seqno": token.sequence_number,
                    "timeout_ms": int(self._timeout * 1000),
                }
        request = Request(
            Opcode.RANGE_SCAN_CREATE, value=json.dumps(asked).encode(), datatype=1, vbid=vbid
        )
        try:
            async with asyncio.timeout(self._timeout):
                response = await connection.ask(request)
        except TimeoutError:
            raise self._timed_out(connection) from None
        if response.status == Status.SUCCESS:
            if len(response.value) != 16:
                raise DecodingFailureException("the id of a scan has 16 bytes")
            return response.value
        if response.status == Status.KEY_NOT_FOUND:
            return b""
        if response.status == Status.NOT_MY_VBUCKET or retry_reason(
            response.status, response.opcode
        ):
            return None
        raise self._refusal(response, connection)

    async def _continue(
        self, connection: Connection, vbid: int, uuid: bytes
    ) -> tuple[list[ScanResult], int]:
        """Returns the next documents, and the final status."""
        limits = struct.pack(">III", self._items, self._milliseconds, self._bytes)
        request = Request(Opcode.RANGE_SCAN_CONTINUE, extras=uuid + limits, vbid=vbid)
        batch: list[ScanResult] = []
        size, size_max = 0, max(2 * self._bytes, _BATCH_BYTES_MAX)
        try:
            async with asyncio.timeout(self._timeout), aclosing(connection.stream(request)) as all_:
                async for response in all_:
                    status = response.status
                    size += len(response.value)
                    if self._bytes and size > size_max:
                        raise DecodingFailureException("a batch of a scan is over the limit")
                    if status in (Status.SUCCESS, Status.SCAN_MORE, Status.SCAN_COMPLETE):
                        batch += self._documents(response.value)
                    if status in _ENDS:
                        return batch, status
                    if status != Status.SUCCESS:
                        raise self._refusal(response, connection)
        except TimeoutError:
            raise self._timed_out(connection) from None
        raise AssertionError("a stream ends with an error")

    def _documents(self, value: bytes) -> list[ScanResult]:
        documents = []
        at = 0
        while at < len(value):
            if self._ids_only:
                key, at = _bytes(value, at)
                documents.append(ScanResult(_text(key), True))
                continue
            if at + _META.size > len(value):
                raise DecodingFailureException("a document of a scan is cut off")
            flags, expiry, _, cas, _ = _META.unpack_from(value, at)
            key, at = _bytes(value, at + _META.size)
            content, at = _bytes(value, at)
            when = datetime.fromtimestamp(expiry, UTC) if expiry else None
            decoded = self._transcoder.decode_value(content, flags)
            documents.append(ScanResult(_text(key), False, cas, when, flags, decoded))
        return documents

    def _refusal(self, response: Response, connection: Connection) -> Exception:
        context = self._context(connection)
        context.status = response.status
        if response.status == Status.SCAN_HISTORY_DIFFERS:
            return MutationTokenOutdatedException(context=context)
        return exception_of(response.status, response.opcode, context)

    def _timed_out(self, connection: Connection) -> UnAmbiguousTimeoutException:
        return UnAmbiguousTimeoutException(context=self._context(connection))

    def _context(self, connection: Connection) -> ErrorContext:
        return ErrorContext(
            bucket=self._client.bucket,
            scope=self._place.scope,
            collection=self._place.collection,
            operation="RANGE_SCAN",
            endpoint=str(connection.address),
        )


_ENDS = frozenset(
    {Status.SCAN_MORE, Status.SCAN_COMPLETE, Status.NOT_MY_VBUCKET, Status.SCAN_CANCELLED}
)
"""Statuses of the last answer to a request for more."""


def timeout_of(options: ScanOptions, default: Any) -> float:
    """Returns the timeout of each request of a scan, in seconds."""
    return seconds_of(options.get("timeout"), default)


def _count(number: int, least: int) -> int:
    if not isinstance(number, int) or not least <= number < 1 << 32:
        raise InvalidArgumentException(f"a limit of a scan is a number from {least}")
    return number


def _base64(key: bytes) -> str:
    return base64.b64encode(key).decode()


def _bytes(value: bytes, at: int) -> tuple[bytes, int]:
    """Returns a length-prefixed byte string, and the start of the next one."""
    length = shift = 0
    while at < len(value):
        length |= (value[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not value[at - 1] & 0x80:
            if at + length > len(value):
                break
            return value[at : at + length], at + length
    raise DecodingFailureException("a document of a scan is cut off")


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise DecodingFailureException(f"the key {key!r} is no UTF-8") from None
