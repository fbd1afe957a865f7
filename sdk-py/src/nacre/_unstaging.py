"""The end of an attempt for its documents: their new bodies, or their previous state.

Attempts do this themselves. Abandoned ones are finished by others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ._records import LISTS, Entry, Names, Place, Seen, Staged, restore, see, unstage
from .durability import DurabilityLevel
from .exceptions import (
    AmbiguousTimeoutException,
    CASMismatchException,
    DocumentExistsException,
    DocumentNotFoundException,
    DurabilitySyncWriteAmbiguousException,
    DurabilitySyncWriteInProgressException,
    PathExistsException,
    PathNotFoundException,
    RequestCanceledException,
    TemporaryFailException,
)

if TYPE_CHECKING:
    from .cluster import Cluster

_PAUSE_FIRST, _PAUSE_MAX = 0.005, 0.25
_SAFETY_NS = 1_500_000_000
"""How long an entry must have been over before somebody else finishes it."""
AMBIGUOUS = (
    AmbiguousTimeoutException,
    RequestCanceledException,
    DurabilitySyncWriteAmbiguousException,
)
"""Errors of a request that may have taken effect."""
PASSING = (TemporaryFailException, DurabilitySyncWriteInProgressException)
"""Errors of a request that may succeed when it is sent again."""


async def finish(cluster: "Cluster", record: Place, entry: Entry, timeout: float) -> bool:
    """Finishes an expired attempt. Returns False if there is nothing to do, or not yet.

    Committed documents get their new bodies; others are reverted.
    """
    aged = Entry(entry.attempt, entry.members, entry.now_ns - _SAFETY_NS)
    if not aged.is_over or entry.is_of_newer:
        return False
    places = [
        (kind, _listed(cluster, one))
        for kind, name in LISTS.items()
        for one in entry.members.get(name) or ()
    ]
    names = Names(str(entry.members.get("tid", "")), entry.attempt, record, entry.level)
    try:
        if entry.state == "PENDING":
            # Its documents are not listed. Without an entry, their staged changes count as rolled
            # back.
            await names.forget(timeout, was_pending=True)
            return True
        for kind, place in places:
            staged = Staged(place, kind, 0)
            if entry.state == "COMMITTED":
                await settle(staged, entry.attempt, timeout, entry.level)
            elif entry.state == "ABORTED":
                await put_back(staged, entry.attempt, timeout, entry.level)
        await names.forget(timeout)
    except (PathNotFoundException, PathExistsException, DocumentNotFoundException):
        # Another client was first.
        return True
    return True


async def settle(staged: Staged, attempt: str, timeout: float, level: DurabilityLevel) -> None:
    """Unstages a document of a committed attempt, unless this is done already."""
    await _repeat(staged, attempt, timeout, lambda one, left: unstage(one, left, level))


async def put_back(staged: Staged, attempt: str, timeout: float, level: DurabilityLevel) -> None:
    """Removes the staged change of an attempt from a document, if it still exists."""
    await _repeat(staged, attempt, timeout, lambda one, left: restore(one, left, level))


async def _repeat(
    staged: Staged,
    attempt: str,
    timeout: float,
    step: Callable[[Staged, float], Awaitable[None]],
) -> None:
    """Repeats a step on a staged document until this or another client has completed it."""
    clock = asyncio.get_running_loop()
    deadline = clock.time() + timeout
    pause = _PAUSE_FIRST
    one = staged
    while True:
        try:
            if one.cas:
                await step(one, max(deadline - clock.time(), 0.05))
                return
        except (DocumentNotFoundException, PathNotFoundException):
            # Another client has done it.
            return
        except (CASMismatchException, DocumentExistsException, *AMBIGUOUS, *PASSING):
            if clock.time() + pause > deadline:
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)
        seen = await see(staged.place, max(deadline - clock.time(), 0.05))
        if seen is None or seen.attempt != attempt:
            return
        one = Staged(staged.place, seen.kind or staged.kind, seen.cas)


def record_of(cluster: "Cluster", seen: Seen) -> Place | None:
    """Returns the record with the entry of the attempt that has staged something."""
    told = (seen.txn or {}).get("atr")
    if not isinstance(told, dict) or not told.get("bkt") or not told.get("id"):
        return None
    scope, collection = told.get("scp", "_default"), told.get("coll", "_default")
    return Place(cluster.bucket(told["bkt"]).client, scope, collection, told["id"])


def _listed(cluster: "Cluster", told: Mapping[str, str]) -> Place:
    return Place(
        cluster.bucket(told["bkt"]).client,
        told.get("scp", "_default"),
        told.get("col", "_default"),
        told["id"],
    )
