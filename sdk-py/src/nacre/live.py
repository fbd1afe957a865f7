"""Live results of queries.

    async for update in cluster.live("SELECT RAW name FROM shop WHERE open"):
        print(update.added, update.removed)

The client reruns the query when a document of its collections changes. This is specific to nacre.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ._record import dataclass
from .changes import NOW, Changes
from .exceptions import CollectionNotFoundException, InvalidArgumentException
from .n1ql import QueryResult, QueryScanConsistency
from .options import LiveOptions, QueryOptions, seconds_of

if TYPE_CHECKING:
    from .cluster import Cluster

Keyspace = tuple[str, str, str]
_INTERVAL = timedelta(milliseconds=100)
_NAME = r"`((?:[^`]|``)+)`"
_TERM = re.compile(rf"(?:\b(?:from|join|nest)|,) {_NAME}(?:\.{_NAME}\.{_NAME})?(?![.\w(])", re.I)


@dataclass(frozen=True, slots=True)
class LiveUpdate:
    """The result of a query, and the changes since the previous update."""

    rows: list[Any] = field(repr=False)
    """The whole result, in the order of the query."""
    added: list[Any]
    """Rows that are new, or were changed: all of them in the first update."""
    removed: list[Any]
    """Rows that are gone, or as they were before they were changed."""


class Live:
    """An asynchronous iterator over the updates of a query. Changes during a wait form one update.
    """

    def __init__(
        self,
        cluster: "Cluster",
        ask: Callable[[str, QueryOptions], QueryResult],
        statement: str,
        options: LiveOptions,
    ) -> None:
        if not isinstance(statement, str) or not statement:
            raise InvalidArgumentException("a statement is a text")
        self._cluster = cluster
        self._ask = ask
        self._statement = statement
        self._interval = seconds_of(options.get("min_interval"), _INTERVAL)
        self._options = QueryOptions(
            read_only=True, scan_consistency=QueryScanConsistency.REQUEST_PLUS
        )
        if "positional_parameters" in options:
            self._options["positional_parameters"] = options["positional_parameters"]
        if "named_parameters" in options:
            self._options["named_parameters"] = options["named_parameters"]
        if "timeout" in options:
            self._options["timeout"] = options["timeout"]
        given = options.get("keyspaces")
        self._keyspaces = None if given is None else [_keyspace(name) for name in given]

    async def __aiter__(self) -> AsyncIterator[LiveUpdate]:
        changed = asyncio.Event()
        watchers = [
            asyncio.create_task(_watch(changes, changed)) for changes in await self._changes()
        ]
        try:
            rows: list[Any] = await self._rows()
            yield LiveUpdate(rows, rows, [])
            while True:
                await self._wait(changed, watchers)
                changed.clear()
                before, rows = rows, await self._rows()
                if rows != before:
                    yield LiveUpdate(rows, _without(rows, before), _without(before, rows))
                await asyncio.sleep(self._interval)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    async def _wait(self, changed: asyncio.Event, watchers: "list[asyncio.Task[None]]") -> None:
        """Returns after a change; raises the error of a failed watcher."""
        waiting = asyncio.create_task(changed.wait())
        try:
            await asyncio.wait([waiting, *watchers], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        for watcher in watchers:
            if watcher.done():
                watcher.result()

    async def _rows(self) -> list[Any]:
        return await self._ask(self._statement, QueryOptions(**self._options)).execute()

    async def _changes(self) -> list[Changes]:
        """Follows the collections from before the first run of the query, so that no change is
        missed.
        """
        found: list[Changes] = []
        surely, perhaps = await self._places()
        for place in (*surely, *perhaps):
            bucket, scope, collection = place
            source = self._cluster.bucket(bucket).scope(scope).collection(collection)
            changes = source.changes(since=NOW, include_docs=False)
            try:
                await changes.mark()
            except CollectionNotFoundException:
                # What looks like the name of a collection may be another name.
                if place in surely:
                    raise
                continue
            found.append(changes)
        return found

    async def _places(self) -> tuple[set[Keyspace], set[Keyspace]]:
        """Returns the collections that the query reads, and those that it may read."""
        if self._keyspaces is not None:
            return set(self._keyspaces), set()
        (explained,) = await self._ask(f"EXPLAIN {self._statement}", self._options).execute()
        surely = set(_keyspaces_of(explained.get("plan")))
        if not surely:
            raise InvalidArgumentException("the statement reads no collection: name keyspaces")
        buckets = {bucket for bucket, _, _ in surely}
        perhaps: set[Keyspace] = set()
        # The plan omits subqueries in expressions; its text contains them, with all names quoted.
        for names in _TERM.findall(str(explained.get("text", ""))):
            first, scope, collection = (name.replace("``", "`") for name in names)
            if scope:
                perhaps.add((first, scope, collection))
            elif first in buckets:
                perhaps.add((first, "_default", "_default"))
            else:
                perhaps |= {(bucket, place, first) for bucket, place, _ in surely}
        return surely, perhaps - surely


async def _watch(changes: Changes, changed: asyncio.Event) -> None:
    async for _ in changes:
        changed.set()


def _keyspace(name: str) -> Keyspace:
    parts = name.split(".")
    if len(parts) == 1:
        return parts[0], "_default", "_default"
    if len(parts) != 3 or not all(parts):
        raise InvalidArgumentException("a keyspace is bucket or bucket.scope.collection")
    return parts[0], parts[1], parts[2]


def _keyspaces_of(plan: object) -> Iterable[Keyspace]:
    """Returns the collections that the operators of a plan name."""
    if isinstance(plan, list):
        for part in plan:
            yield from _keyspaces_of(part)
    elif isinstance(plan, dict):
        names = [plan.get(name) for name in ("bucket", "scope", "keyspace")]
        bucket, scope, keyspace = names
        if plan.get("namespace") == "default" and keyspace:
            if bucket and scope:
                yield str(bucket), str(scope), str(keyspace)
            else:
                yield str(keyspace), "_default", "_default"
        for part in plan.values():
            yield from _keyspaces_of(part)


def _without(rows: list[Any], others: list[Any]) -> list[Any]:
    """Returns the multiset difference of the rows."""
    rest = Counter(map(_text, others))
    left = []
    for row in rows:
        text = _text(row)
        if rest[text]:
            rest[text] -= 1
        else:
            left.append(row)
    return left


def _text(row: Any) -> str:
    return json.dumps(row, sort_keys=True)
