"""Waits until enough nodes have a mutation, by polling the seqno of the vBucket on each (0x91).

A response is a format byte, vBucket u16, history u64, persisted seqno u64 and current seqno u64.
After a failover, format 1 adds the old history and the last seqno received in it.
"""

import asyncio
import struct

from ._client import KvClient
from ._frame import Request
from ._opcodes import Opcode, Status
from ._record import dataclass
from .durability import ClientDurability
from .exceptions import (
    AmbiguousTimeoutException,
    DecodingFailureException,
    DocumentMutationLostException,
    DurabilityImpossibleException,
    ErrorContext,
    FeatureUnavailableException,
)
from .result import MutationToken

_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class _Seen:
    """The progress of one copy of a vBucket."""

    persisted: int
    current: int


def check(client: KvClient, durability: ClientDurability) -> None:
    """Refuses durability that the bucket can never provide, before the write.

    Raises:
        DurabilityImpossibleException: if it has fewer copies.
    """
    replicas = client.map.replica_count if client.map else 0
    if durability.persist_to > replicas + 1 or durability.replicate_to > replicas:
        raise DurabilityImpossibleException(
            f"the bucket has {replicas} replicas", ErrorContext(bucket=client.bucket)
        )


async def wait(
    client: KvClient, token: MutationToken | None, durability: ClientDurability, timeout: float
) -> None:
    """Returns when the mutation is as durable as required.

    Raises:
        AmbiguousTimeoutException: if it is not durable in time. The mutation has taken effect.
        DocumentMutationLostException: if a failover has lost it.
    """
    if token is None:
        raise FeatureUnavailableException("the server does not say where its mutations are")
    seqno = token.sequence_number
    seen: list[_Seen | None] = [None] * (1 + (client.map.replica_count if client.map else 0))

    async def watch(copy: int) -> None:
        """Returns when the progress of all copies suffices. A copy without a node is awaited."""
        while True:
            seen[copy] = await _ask(client, token, copy)
            persisted = sum(s is not None and s.persisted >= seqno for s in seen)
            replicated = sum(s is not None and s.current >= seqno for s in seen[1:])
            if persisted >= durability.persist_to and replicated >= durability.replicate_to:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    watchers = [asyncio.create_task(watch(copy)) for copy in range(len(seen))]
    try:
        async with asyncio.timeout(timeout):
            done, _ = await asyncio.wait(watchers, return_when=asyncio.FIRST_COMPLETED)
            for watcher in done:
                watcher.result()
    except TimeoutError:
        raise AmbiguousTimeoutException(
            "the mutation is not yet as durable as asked", ErrorContext(bucket=client.bucket)
        ) from None
    finally:
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)


async def _ask(client: KvClient, token: MutationToken, copy: int) -> _Seen | None:
    response = await client.ask_copy(
        Request(
            Opcode.OBSERVE_SEQNO,
            vbid=token.partition_id,
            value=struct.pack(">Q", token.partition_uuid),
        ),
        copy,
    )
    if response.status != Status.SUCCESS:
        return None
    if len(response.value) < 27:
        raise DecodingFailureException("the answer about sequence numbers is cut off")
    form, _, _, persisted, current = struct.unpack_from(">BHQQQ", response.value)
    if form == 1:
        if len(response.value) < 43:
            raise DecodingFailureException("the answer about sequence numbers is cut off")
        (last_received,) = struct.unpack_from(">Q", response.value, 35)
        if last_received < token.sequence_number:
            raise DocumentMutationLostException(context=ErrorContext(bucket=client.bucket))
    return _Seen(persisted, current)
