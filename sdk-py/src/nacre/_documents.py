"""Common parts of operations on documents: sending, waiting for durability, parsing tokens."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from . import _observe
from ._client import KvClient, Operation
from ._frame import Request, Response, framing_extras
from ._instruments import CURRENT, Instruments, Labels
from ._keys import vbucket_of
from .durability import ClientDurability, DurabilityLevel, ServerDurability
from .exceptions import DecodingFailureException, InvalidArgumentException
from .options import DurableOptions, TimeoutOptions, seconds_of
from .result import MutationToken
from .transcoder import Transcoder

if TYPE_CHECKING:
    from .bucket import Scope


class Documents:
    """Base class for operations on the documents of a collection."""

    def __init__(self, scope: "Scope", name: str) -> None:
        self._scope = scope
        self._name = name
        self._timeouts = scope.bucket.timeouts
        self._default_transcoder = scope.bucket.transcoder
        self._instruments: Instruments | None = scope.bucket.client.instruments

    def _labels(self) -> Labels:
        """Returns the labels of an operation."""
        return Labels("kv", self._scope.bucket.name, self._scope.name, self._name)

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self._name

    @property
    def _client(self) -> KvClient:
        return self._scope.bucket.client

    def _operation(
        self,
        request: Request,
        key: str,
        *,
        reads: bool = False,
        adds: bool = False,
        accepted: frozenset[int] = frozenset(),
        copy: int = 0,
    ) -> Operation:
        return Operation(request, key, self._scope.name, self._name, reads, adds, accepted, copy)

    async def _read(self, operation: Operation, options: TimeoutOptions) -> Response:
        timeout = seconds_of(options.get("timeout"), self._timeouts.kv_timeout)
        return await self._client.execute(operation, timeout)

    async def _mutate(
        self, operation: Operation, options: DurableOptions
    ) -> tuple[Response, MutationToken | None]:
        """Sends a change, and waits until it is as durable as the options require."""
        durability = options.get("durability")
        default = self._timeouts.kv_durable_timeout if durability else self._timeouts.kv_timeout
        timeout = seconds_of(options.get("timeout"), default)
        preserves = bool(cast(dict[str, object], options).get("preserve_expiry"))
        if isinstance(durability, ClientDurability):
            return await self._mutate_and_observe(operation, durability, preserves, timeout)
        level = DurabilityLevel.NONE
        if isinstance(durability, ServerDurability):
            level = DurabilityLevel(durability.level)
        elif durability is not None:
            raise InvalidArgumentException("a durability is a ServerDurability or ClientDurability")
        operation = _framed(operation, framing_extras(preserves, level, timeout))
        response = await self._client.execute(operation, timeout)
        return response, self._token(operation.key, response)

    async def _mutate_and_observe(
        self, operation: Operation, durability: ClientDurability, preserves: bool, timeout: float
    ) -> tuple[Response, MutationToken | None]:
        self._client.require_documents()
        operation = _framed(operation, framing_extras(preserves))
        clock = asyncio.get_running_loop()
        deadline = clock.time() + timeout
        if self._client.map is None:
            await self._client.bootstrap(timeout)
        _observe.check(self._client, durability)
        response = await self._client.execute(operation, deadline - clock.time())
        token = self._token(operation.key, response)
        await _observe.wait(self._client, token, durability, deadline - clock.time())
        return response, token

    def _encoded(self, value: Any, options: object) -> tuple[bytes, int]:
        """Returns the bytes and the flags of a value."""
        transcoder = self._transcoder(options)
        parent = CURRENT.get() if self._instruments is not None else None
        if parent is None or self._instruments is None or self._instruments.tracer is None:
            return transcoder.encode_value(value)
        span = self._instruments.tracer.request_span("request_encoding", parent)
        try:
            return transcoder.encode_value(value)
        finally:
            span.end(None)

    def _token(self, key: str, response: Response) -> MutationToken | None:
        if len(response.extras) != 16 or self._client.map is None:
            return None
        history, seqno = struct.unpack(">QQ", response.extras)
        vbid = vbucket_of(key.encode(), len(self._client.map.vbuckets))
        return MutationToken(vbid, history, seqno, self._scope.bucket.name)

    def _transcoder(self, options: object) -> Transcoder:
        named = cast(dict[str, object], options).get("transcoder", self._default_transcoder)
        return cast(Transcoder, named)


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancels tasks, and waits for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _framed(operation: Operation, framing: bytes) -> Operation:
    if not framing:
        return operation
    return replace(operation, request=replace(operation.request, framing=framing))


def check_cas(cas: int | None) -> int:
    """Returns a CAS for the wire; 0 means any version.

    Raises:
        InvalidArgumentException: if it is not an unsigned 64-bit number.
    """
    if cas is None:
        return 0
    if not isinstance(cas, int) or not 0 <= cas < 1 << 64:
        raise InvalidArgumentException("a CAS is a number that a result carried")
    return cas


def flags_of(response: Response) -> int:
    """Returns the flags of a document.

    Raises:
        DecodingFailureException: if the response has none.
    """
    if len(response.extras) < 4:
        raise DecodingFailureException("the document's flags are missing")
    return int.from_bytes(response.extras[:4], "big")
