"""Transactions over documents, by the protocol of the official clients.

    async def move(ctx: AttemptContext) -> None:
        source = await ctx.get(collection, "a")
        target = await ctx.get(collection, "b")
        await ctx.replace(source, {"sum": source.content_as[dict]["sum"] - 1})
        await ctx.replace(target, {"sum": target.content_as[dict]["sum"] + 1})

    await cluster.transactions.run(move)

An attempt stages its changes in an extended attribute of each document. One write to a record
decides for all of them. A function is repeated after a conflict with another transaction, so it
must have no other effects. Abandoned transactions are finished by the servers, by other clients
that come across them, and by `Transactions.cleanup`.
"""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from dataclasses import replace as with_members
from typing import TYPE_CHECKING, Any, Unpack, cast

from ._client import Attempt
from ._connstr import Address
from ._keys import vbucket_of
from ._record import dataclass
from ._records import (
    RECORD_COUNT,
    Entry,
    Names,
    Place,
    Seen,
    Staged,
    entries_of,
    record_key,
    restore,
    see,
    see_near,
)
from ._together import (
    Read,
    find,
    last_read,
    read_together,
)
from ._together import TransactionGetMultiMode as TransactionGetMultiMode
from ._together import TransactionGetMultiOptions as TransactionGetMultiOptions
from ._together import TransactionGetMultiResult as TransactionGetMultiResult
from ._together import TransactionGetMultiSpec as TransactionGetMultiSpec
from ._transaction_options import TransactionConfig as TransactionConfig
from ._transaction_options import TransactionGetOptions as TransactionGetOptions
from ._transaction_options import TransactionInsertOptions as TransactionInsertOptions
from ._transaction_options import TransactionKeyspace as TransactionKeyspace
from ._transaction_options import TransactionOptions as TransactionOptions
from ._transaction_options import TransactionQueryOptions as TransactionQueryOptions
from ._transaction_options import TransactionReplaceOptions as TransactionReplaceOptions
from ._unstaging import AMBIGUOUS, PASSING, finish, put_back, record_of, settle
from .durability import DurabilityLevel
from .exceptions import (
    CASMismatchException,
    CouchbaseException,
    DocumentExistsException,
    DocumentNotFoundException,
    DocumentUnretrievableException,
    ErrorContext,
    FeatureUnavailableException,
    InvalidArgumentException,
    PathExistsException,
    PathNotFoundException,
    TimeoutException,
    TransactionCommitAmbiguous,
    TransactionExpired,
    TransactionFailed,
    TransactionOperationFailed,
)
from .n1ql import PreparedStatements, QueryResult, QueryScanConsistency
from .options import QueryOptions, options_of, seconds_of
from .result import ContentAs
from .transcoder import JSON_FLAGS, decode_json, encode_json

if TYPE_CHECKING:
    from .cluster import Cluster
    from .collection import Collection

# Names that the official SDK has for reads of copies.
TransactionGetMultiReplicasFromPreferredServerGroupMode = TransactionGetMultiMode
TransactionGetMultiReplicasFromPreferredServerGroupOptions = TransactionGetMultiOptions
TransactionGetMultiReplicasFromPreferredServerGroupResult = TransactionGetMultiResult
TransactionGetMultiReplicasFromPreferredServerGroupSpec = TransactionGetMultiSpec
TransactionGetReplicaFromPreferredServerGroupOptions = TransactionGetOptions

_PAUSE_FIRST, _PAUSE_MAX = 0.005, 0.25
_BLOCKED_SECONDS_MAX = 1.0
"""How long an operation waits for another transaction before the whole one is tried again."""
_OVERTIME_SECONDS = 2.0
"""How long a transaction whose time has passed may take to put back what it has staged."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The result of a committed transaction."""

    transaction_id: str
    unstaging_complete: bool
    """Whether all documents have their new bodies. If not, the servers go on with it."""


@dataclass(frozen=True, slots=True)
class TransactionGetResult:
    """A document in a transaction."""

    id: str
    cas: int
    content: Any
    _place: Place = field(repr=False)
    _seen: Seen | None = field(default=None, repr=False)

    @property
    def content_as(self) -> ContentAs:
        """``content_as[dict]`` is the content, with a check of its type."""
        return ContentAs(self.content)


class TransactionQueryResults:
    """The rows of a query in a transaction."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def rows(self) -> list[Any]:
        """Returns all rows."""
        return list(self._rows)


class Again(Exception):
    """The whole transaction has to be tried again: another one was first, or a write is unsure."""


Look = Callable[[Place, float], Awaitable[Seen | None]]
"""Reads a copy of a document; None if there is not even a tombstone."""
Logic = Callable[["AttemptContext"], Awaitable[Any]]


class Transactions:
    """Transactions of a cluster: ``await cluster.transactions.run(logic)``."""

    def __init__(self, cluster: "Cluster", config: TransactionConfig) -> None:
        self._cluster = cluster
        self._config = config

    async def run(
        self,
        logic: Logic,
        options: TransactionOptions | None = None,
        **kwargs: Unpack[TransactionOptions],
    ) -> TransactionResult:
        """Runs a function in a transaction, and repeats it after conflicts with other transactions.

        Raises:
            TransactionFailed: if the function raised the ``__cause__``; nothing has changed.
            TransactionExpired: if it has timed out; nothing has changed.
            TransactionCommitAmbiguous: if it may have committed.
        """
        merged = options_of("run", TransactionOptions, options, kwargs)
        clock = asyncio.get_running_loop()
        chosen = merged.get("timeout", merged.get("expiration_time"))
        timeout = seconds_of(chosen, self._config.expiration_time or self._config.timeout)
        settings = _Settings(
            str(uuid.uuid4()),
            clock.time() + timeout,
            merged.get("durability", self._config.durability).level,
            merged.get("metadata_collection", self._config.metadata_collection),
            merged.get("scan_consistency", self._config.scan_consistency),
        )
        pause = _PAUSE_FIRST
        while True:
            attempt = AttemptContext(self._cluster, settings)
            try:
                try:
                    await logic(attempt)
                    attempt.check()
                    await attempt.commit()
                except BaseException:
                    if not attempt.is_decided:
                        await attempt.rollback()
                    raise
                return TransactionResult(settings.id, attempt.is_complete)
            except (TransactionExpired, TransactionCommitAmbiguous):
                raise
            except Exception as error:
                if not attempt.wants_again:
                    cause = (
                        error.__cause__ if isinstance(error, TransactionOperationFailed) else None
                    )
                    raise TransactionFailed(
                        f"the transaction has failed: {cause or error}", _context_of(error)
                    ) from (cause or error)
                last = error
            if clock.time() + pause > settings.deadline:
                raise TransactionExpired(
                    "other transactions were first, until time ran out"
                ) from last
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, _PAUSE_MAX)

    async def cleanup(self, keyspace: TransactionKeyspace) -> int:
        """Finishes abandoned transactions in the records of a collection, and returns their number.

        nacre servers do so by themselves; for other servers, official clients do.
        """
        finished = 0
        client = self._cluster.bucket(keyspace.bucket).client
        timeout = self._cluster.timeouts.kv_durable_timeout.total_seconds()
        for number in range(RECORD_COUNT):
            record = Place(client, keyspace.scope, keyspace.collection, record_key(number))
            for entry in await entries_of(record, timeout):
                finished += await finish(self._cluster, record, entry, timeout)
        return finished

    async def close(self) -> None:
        """Does nothing: a transaction ends with its function."""


@dataclass(frozen=True, slots=True)
class _Settings:
    id: str
    deadline: float
    level: DurabilityLevel
    records: TransactionKeyspace | None
    scan_consistency: QueryScanConsistency | None


def _body(value: Any, options: TransactionInsertOptions) -> tuple[bytes, Any]:
    """Returns the JSON of a document, and its value.

    Raises:
        FeatureUnavailableException: if the transcoder does not produce JSON.
    """
    transcoder = options.get("transcoder")
    if transcoder is None:
        return encode_json(value), value
    body, flags = transcoder.encode_value(value)
    if flags != JSON_FLAGS:
        raise FeatureUnavailableException("a transaction stages JSON, and nothing else yet")
    return body, decode_json(body)


def _decoded(found: TransactionGetResult, options: TransactionGetOptions) -> TransactionGetResult:
    """Returns a document whose content the transcoder in the options has decoded."""
    transcoder = options.get("transcoder")
    if transcoder is None:
        return found
    content = transcoder.decode_value(encode_json(found.content), JSON_FLAGS)
    return with_members(found, content=content)


class AttemptContext:
    """The argument of a transaction's function, which reads and changes documents."""

    def __init__(self, cluster: "Cluster", settings: _Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._attempt = str(uuid.uuid4())
        self._staged: dict[tuple[str, str, str, str], Staged] = {}
        self._names: Names | None = None
        """Whose the writes are; None before the first one."""
        self._turn = asyncio.Lock()
        """One operation at a time changes what is staged."""
        self._failure: BaseException | None = None
        self._query: _QueryMode | None = None
        self._clock = asyncio.get_running_loop()
        self.wants_again = False
        self.is_decided = False
        """The commit was written, or may have been: there is no way back."""
        self.is_complete = True

    # Methods for functions.

    async def get(
        self,
        collection: "Collection",
        key: str,
        options: TransactionGetOptions | None = None,
        **kwargs: Unpack[TransactionGetOptions],
    ) -> TransactionGetResult:
        """Reads a document, including the changes of this transaction.

        Raises:
            DocumentNotFoundException: if it does not exist.
        """
        merged = options_of("get", TransactionGetOptions, options, kwargs)
        return _decoded(await self._get(collection, key), merged)

    async def get_multi(
        self,
        specs: Sequence[TransactionGetMultiSpec],
        options: TransactionGetMultiOptions | None = None,
        **kwargs: Unpack[TransactionGetMultiOptions],
    ) -> TransactionGetMultiResult:
        """Reads documents so that they show every other transaction atomically.

        The mode determines the effort. A missing document counts as not existing.
        """
        merged = options_of("get_multi", TransactionGetMultiOptions, options, kwargs)
        return await self._get_multi(specs, merged, see)

    async def get_replica_from_preferred_server_group(
        self,
        collection: "Collection",
        key: str,
        options: TransactionGetOptions | None = None,
        **kwargs: Unpack[TransactionGetOptions],
    ) -> TransactionGetResult:
        """Reads a document like `get`, from a copy in the server group
        `ClusterOptions.preferred_server_group`, or from any copy if the group has none.

        The copy may be older than the active one: then changing the document fails, and the
        transaction is tried again. After a query, the attempt fails with
        `FeatureUnavailableException`.

        Raises:
            DocumentUnretrievableException: if no copy can be read.
        """
        name = "get_replica_from_preferred_server_group"
        merged = options_of(name, TransactionGetOptions, options, kwargs)
        try:
            found = await self._get(collection, key, self._see_near)
        except DocumentNotFoundException as error:
            raise DocumentUnretrievableException(context=error.context) from error
        return _decoded(found, merged)

    async def get_multi_replicas_from_preferred_server_group(
        self,
        specs: Sequence[TransactionGetMultiSpec],
        options: TransactionGetMultiOptions | None = None,
        **kwargs: Unpack[TransactionGetMultiOptions],
    ) -> TransactionGetMultiResult:
        """Reads documents like `get_multi`, from copies in the preferred server group."""
        name = "get_multi_replicas_from_preferred_server_group"
        merged = options_of(name, TransactionGetMultiOptions, options, kwargs)
        return await self._get_multi(specs, merged, self._see_near)

    async def _see_near(self, place: Place, timeout: float) -> Seen | None:
        return await see_near(place, self._cluster.preferred_server_group, timeout)

    async def _get_multi(
        self,
        specs: Sequence[TransactionGetMultiSpec],
        options: TransactionGetMultiOptions,
        look: Look,
    ) -> TransactionGetMultiResult:
        if not specs:
            raise InvalidArgumentException("there is nothing to read")
        places = [spec.collection.place(spec.id) for spec in specs]
        until = last_read(options.get("mode"), self._clock.time(), self._settings.deadline)
        async with self._operation():
            reads: list[Read] = []
            if self._query is None:
                reads = await read_together(
                    places, self._attempt, self._entry_of, self._left, until, look
                )

            async def content(index: int) -> Any:
                place = places[index]
                if reads and place.names not in self._staged:
                    return await reads[index].content(place)
                return (await self._own(place, look)).content

            found = [await find(spec, content(index)) for index, spec in enumerate(specs)]
            return TransactionGetMultiResult(found)

    async def _get(
        self, collection: "Collection", key: str, look: Look = see
    ) -> TransactionGetResult:
        place = collection.place(key)
        async with self._operation():
            return await self._own(place, look)

    async def _own(self, place: Place, look: Look) -> TransactionGetResult:
        """Returns a document including the changes of this transaction."""
        if self._query is not None:
            if look is not see:
                raise FeatureUnavailableException("after a query, only active copies can be read")
            return await self._query.get(place)
        own = self._staged.get(place.names)
        if own is not None:
            if own.kind == "remove":
                raise DocumentNotFoundException(context=place.context("get"))
            return TransactionGetResult(place.key, own.cas, own.content, place)
        return await self._read(place, look)

    async def insert(
        self,
        collection: "Collection",
        key: str,
        value: Any,
        options: TransactionInsertOptions | None = None,
        **kwargs: Unpack[TransactionInsertOptions],
    ) -> TransactionGetResult:
        """Stores a document that must not exist.

        Raises:
            DocumentExistsException: if the document exists already.
            FeatureUnavailableException: if the transcoder does not produce JSON.
        """
        merged = options_of("insert", TransactionInsertOptions, options, kwargs)
        place = collection.place(key)
        body, value = _body(value, merged)
        async with self._operation():
            if self._query is not None:
                return await self._query.insert(place, value)
            own = self._staged.get(place.names)
            if own is not None and own.kind != "remove":
                raise DocumentExistsException(context=place.context("insert"))
            await self._begin(place)
            if own is not None:
                cas = await self._stage(place, "replace", body, value, own.cas)
            else:
                cas = await self._stage_insert(place, body, value)
            return TransactionGetResult(key, cas, value, place)

    async def replace(
        self,
        document: TransactionGetResult,
        value: Any,
        options: TransactionReplaceOptions | None = None,
        **kwargs: Unpack[TransactionReplaceOptions],
    ) -> TransactionGetResult:
        """Replaces a document that was read in this transaction.

        Raises:
            FeatureUnavailableException: if the transcoder does not produce JSON.
        """
        merged = options_of("replace", TransactionReplaceOptions, options, kwargs)
        place = document._place
        body, value = _body(value, merged)
        async with self._operation():
            if self._query is not None:
                return await self._query.replace(document, value)
            own = self._staged.get(place.names)
            if own is not None and own.kind == "remove":
                raise DocumentNotFoundException(context=place.context("replace"))
            if own is None:
                await self._check_blocking(place, document._seen)
            await self._begin(place)
            kind = own.kind if own else "replace"
            cas = await self._stage(place, kind, body, value, own.cas if own else document.cas)
            return TransactionGetResult(document.id, cas, value, place)

    async def remove(self, document: TransactionGetResult) -> None:
        """Removes a document that was read in this transaction."""
        place = document._place
        async with self._operation():
            if self._query is not None:
                return await self._query.remove(document)
            own = self._staged.get(place.names)
            if own is not None and own.kind == "remove":
                raise DocumentNotFoundException(context=place.context("remove"))
            if own is not None and own.kind == "insert":
                await self._write(restore(own, self._left(), self._settings.level))
                del self._staged[place.names]
                return None
            if own is None:
                await self._check_blocking(place, document._seen)
            await self._begin(place)
            await self._stage(place, "remove", b"", None, own.cas if own else document.cas)
            return None

    async def query(
        self,
        statement: str,
        options: TransactionQueryOptions | None = None,
        **kwargs: Unpack[TransactionQueryOptions],
    ) -> TransactionQueryResults:
        """Executes a SQL++ statement, which sees the changes of the transaction and adds to them.

        From the first query on, the query service runs the transaction.
        """
        merged = options_of("query", TransactionQueryOptions, options, kwargs)
        scope = merged.pop("scope", None)
        if scope is not None:
            # A scope of the synchronous API wraps an asynchronous one.
            scope = getattr(scope, "_wrapped", scope)
            merged.setdefault("query_context", scope._query_context)
        if self._settings.scan_consistency is not None:
            merged.setdefault("scan_consistency", self._settings.scan_consistency)
        async with self._operation():
            if self._query is None:
                self._query = await self._hand_over()
            return TransactionQueryResults(await self._query.ask(statement, merged))

    # Methods for the transaction.

    def check(self) -> None:
        """Raises the error of a failed operation, even if the function has caught it."""
        if self._failure is not None:
            raise self._failure

    async def commit(self) -> None:
        """Commits the transaction.

        Raises:
            TransactionCommitAmbiguous: if it may have committed.
        """
        if self._query is not None:
            self.is_decided = True
            await self._query.commit(self)
            return
        if self._names is None:
            return
        staged = list(self._staged.values())
        if not staged:
            await self.rollback()
            return
        self._left()
        await self._decide(self._names, staged)
        # The transaction is committed. If this client fails now, others do the remaining work.
        timeout = self._grace()
        done = await asyncio.gather(
            *(settle(one, self._attempt, timeout, self._settings.level) for one in staged),
            return_exceptions=True,
        )
        self.is_complete = not any(isinstance(one, BaseException) for one in done)
        if self.is_complete:
            with suppress(CouchbaseException):
                await self._names.forget(timeout)

    async def rollback(self) -> None:
        """Rolls back staged changes. The servers do what this client cannot do."""
        if self._query is not None:
            with suppress(CouchbaseException):
                await self._query.rollback()
            return
        if self._names is None:
            return
        timeout = self._grace()
        staged = list(self._staged.values())
        with suppress(CouchbaseException, Again):
            await self._names.abort(staged, timeout)
            for one in staged:
                await put_back(one, self._attempt, timeout, self._settings.level)
            await self._names.forget(timeout)

    async def _decide(self, names: Names, staged: Sequence[Staged]) -> None:
        """Writes the commit. If the response is lost, reads the record."""
        is_unsure = False
        pause = _PAUSE_FIRST
        while True:
            self.is_decided = True
            try:
                await names.commit(staged, max(self._settings.deadline - self._clock.time(), 0.05))
                return
            except (*AMBIGUOUS, *PASSING, TimeoutException) as error:
                is_unsure = is_unsure or not isinstance(error, PASSING)
                if self._clock.time() > self._settings.deadline:
                    if is_unsure:
                        raise TransactionCommitAmbiguous(
                            "nobody knows whether the transaction has committed"
                        ) from error
                    self.is_decided = False
                    raise TransactionExpired("time ran out before the commit") from error
            except (PathExistsException, PathNotFoundException, DocumentNotFoundException) as error:
                # Either an earlier write of the commit has arrived after all, or another client has
                # rolled back.
                found = [
                    entry
                    for entry in await entries_of(names.record, self._grace())
                    if entry.attempt == self._attempt
                ]
                if found and found[0].state == "COMMITTED":
                    return
                if is_unsure and not found:
                    raise TransactionCommitAmbiguous(
                        "nobody knows whether the transaction has committed"
                    ) from error
                self.is_decided = False
                raise TransactionExpired("others have given up the transaction") from error
            except CouchbaseException:
                self.is_decided = is_unsure
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    # Operations.

    def _operation(self) -> "_Operation":
        return _Operation(self)

    def _left(self) -> float:
        """Returns the remaining time in seconds, at most the durable timeout."""
        left = self._settings.deadline - self._clock.time()
        if left <= 0:
            raise TransactionExpired("time ran out; nothing is changed")
        return min(left, self._cluster.timeouts.kv_durable_timeout.total_seconds())

    def _grace(self) -> float:
        return max(self._settings.deadline - self._clock.time(), _OVERTIME_SECONDS)

    async def _write(self, writing: Awaitable[Any]) -> Any:
        """Waits for a write before the commit. An ambiguous write restarts the transaction."""
        try:
            return await writing
        except (*AMBIGUOUS, *PASSING, CASMismatchException) as error:
            raise Again(str(error)) from error

    async def _begin(self, first: Place) -> None:
        """Writes the entry, before the first document is staged."""
        if self._names is not None:
            return
        number = vbucket_of(first.key.encode(), RECORD_COUNT)
        records = self._settings.records
        client, scope, collection = first.client, "_default", "_default"
        if records is not None:
            client = self._cluster.bucket(records.bucket).client
            scope, collection = records.scope, records.collection
        record = Place(client, scope, collection, record_key(number))
        names = Names(self._settings.id, self._attempt, record, self._settings.level)
        left_ms = int((self._settings.deadline - self._clock.time()) * 1000)
        # This happens before the write, so that a write with a lost response is rolled back too.
        self._names = names
        await self._write(names.begin(max(left_ms, 1), self._left()))

    async def _stage(self, place: Place, kind: str, body: bytes, content: Any, cas: int) -> int:
        assert self._names is not None
        operation = str(uuid.uuid4())
        try:
            new = await self._names.stage(place, kind, body, operation, cas, self._left())
        except (*AMBIGUOUS, *PASSING, CASMismatchException, DocumentNotFoundException) as error:
            if isinstance(error, AMBIGUOUS):
                # The write may have happened: the rollback then finds it by the ID of the attempt.
                self._staged[place.names] = Staged(place, kind, cas, body, content)
            raise Again(str(error)) from error
        self._staged[place.names] = Staged(place, kind, new, body, content)
        return new

    async def _stage_insert(self, place: Place, body: bytes, content: Any) -> int:
        cas = 0
        deadline = self._clock.time() + _BLOCKED_SECONDS_MAX
        while True:
            assert self._names is not None
            try:
                new = await self._names.stage(
                    place, "insert", body, str(uuid.uuid4()), cas, self._left()
                )
                self._staged[place.names] = Staged(place, "insert", new, body, content)
                return new
            except (DocumentExistsException, CASMismatchException, PathExistsException):
                found = await see(place, self._left())
                if found is None:
                    cas = 0
                elif not found.deleted:
                    raise DocumentExistsException(context=place.context("insert")) from None
                else:
                    await self._check_blocking(place, found)
                    cas = found.cas
            except DocumentNotFoundException:
                cas = 0
            except (*AMBIGUOUS, *PASSING) as error:
                self._staged[place.names] = Staged(place, "insert", cas, body, content)
                raise Again(str(error)) from error
            if self._clock.time() > deadline:
                raise Again("others insert the same document")

    async def _read(self, place: Place, look: Look) -> TransactionGetResult:
        """Reads the committed state of a document."""
        unresolved: str | None = None
        while True:
            seen = await look(place, self._left())
            if seen is None:
                raise DocumentNotFoundException(context=place.context("get"))
            other = seen.attempt
            if other is None or other == unresolved:
                break
            entry = await self._entry_of(seen)
            if entry is None:
                # The entry was removed between the two reads, or was abandoned: the document shows
                # which.
                unresolved = other
                continue
            if entry.is_of_newer:
                raise FeatureUnavailableException("the document is staged by a newer client")
            if entry.state in ("COMMITTED", "COMPLETED"):
                if seen.kind == "remove" or seen.staged is None:
                    raise DocumentNotFoundException(context=place.context("get"))
                return TransactionGetResult(place.key, seen.cas, seen.staged, place, seen)
            break
        if seen.deleted or seen.body is None:
            raise DocumentNotFoundException(context=place.context("get"))
        return TransactionGetResult(place.key, seen.cas, decode_json(seen.body), place, seen)

    async def _entry_of(self, seen: Seen) -> Entry | None:
        record = record_of(self._cluster, seen)
        if record is None:
            return None
        entries = await entries_of(record, self._left())
        return next((entry for entry in entries if entry.attempt == seen.attempt), None)

    async def _check_blocking(self, place: Place, seen: Seen | None) -> None:
        """Waits briefly for another transaction that has staged a change of a document."""
        if seen is None or seen.attempt in (None, self._attempt):
            return
        deadline = self._clock.time() + _BLOCKED_SECONDS_MAX
        pause = _PAUSE_FIRST
        while True:
            entry = await self._entry_of(seen)
            if entry is None or entry.state in ("COMPLETED", "ROLLED_BACK"):
                return
            record = record_of(self._cluster, seen)
            if record is not None and await finish(self._cluster, record, entry, self._left()):
                # The document has changed.
                raise Again("a transaction that was left has been finished")
            if self._clock.time() + pause > deadline:
                raise Again(f"another transaction has {place.key}")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    async def _hand_over(self) -> "_QueryMode":
        """Hands over the staged changes to the query service."""
        client = self._cluster.client
        nodes = await client.nodes("n1ql", Attempt(ErrorContext(operation="query")))
        mode = _QueryMode(self._cluster, self._settings, nodes[0], self._clock)
        record = self._names.record if self._names else None
        records = self._settings.records
        place: dict[str, str] = {}
        if record is not None:
            bucket, scope, collection, key = record.names
            place = {"bkt": bucket, "scp": scope, "coll": collection, "id": key}
        elif records is not None:
            place = {"bkt": records.bucket, "scp": records.scope, "coll": records.collection}
        mutations = []
        for one in self._staged.values():
            bucket, scope, collection, key = one.place.names
            names = {"bkt": bucket, "scp": scope, "coll": collection, "id": key}
            mutations.append({**names, "cas": str(one.cas), "type": one.kind.upper()})
        data = {
            "id": {"txn": self._settings.id, "atmpt": self._attempt},
            "state": {"timeLeftMs": int(self._left() * 1000)},
            "config": {
                "kvTimeoutMs": int(
                    self._cluster.timeouts.kv_durable_timeout.total_seconds() * 1000
                ),
                "durabilityLevel": self._settings.level.name,
                "numAtrs": RECORD_COUNT,
            },
            "atr": place,
            "mutations": mutations,
        }
        await mode.begin(data)
        return mode


class _Operation:
    """Runs one operation at a time. An error that the function may not handle ends the attempt."""

    _OWN = (
        DocumentNotFoundException,
        DocumentExistsException,
        DocumentUnretrievableException,
    )

    def __init__(self, attempt: AttemptContext) -> None:
        self._attempt = attempt

    async def __aenter__(self) -> None:
        await self._attempt._turn.acquire()
        try:
            self._attempt.check()
            self._attempt._left()
        except BaseException:
            self._attempt._turn.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        attempt = self._attempt
        attempt._turn.release()
        if error is None or isinstance(error, self._OWN):
            return
        if isinstance(error, TransactionExpired):
            attempt._failure = error
            return
        attempt.wants_again = isinstance(error, Again)
        failure = TransactionOperationFailed(f"the transaction cannot go on: {error}")
        failure.__cause__ = error
        attempt._failure = failure if isinstance(error, Exception) else error
        if isinstance(error, Exception):
            raise failure from error


class _QueryMode:
    """A transaction that the query service runs."""

    _EXPIRED, _AMBIGUOUS_CODE = 17010, 17019
    _CONFLICTS = frozenset({17007, 17015})

    def __init__(
        self,
        cluster: "Cluster",
        settings: _Settings,
        node: Address,
        clock: asyncio.AbstractEventLoop,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._node = node
        self._clock = clock
        self._id = ""

    async def begin(self, data: Mapping[str, Any]) -> None:
        left_ms = int((self._settings.deadline - self._clock.time()) * 1000)
        raw = {"txdata": data, "txtimeout": f"{max(left_ms, 1)}ms"}
        if self._settings.records is not None:
            records = self._settings.records
            names = (records.bucket, records.scope, records.collection)
            raw["atrcollection"] = ".".join(f"`{name}`" for name in names)
        raw["durability_level"] = _QUERY_LEVELS[self._settings.level]
        (row,) = await self._send("BEGIN WORK", {"raw": raw})
        self._id = row["txid"]

    async def ask(self, statement: str, options: QueryOptions) -> list[Any]:
        """Returns the rows of a statement."""
        raw = {**options.get("raw", {}), "txid": self._id}
        return await self._send(statement, {**options, "raw": raw})

    async def get(self, place: Place) -> TransactionGetResult:
        return await self._one("__get", place, [])

    async def insert(self, place: Place, value: Any) -> TransactionGetResult:
        return await self._one("__insert", place, [value, {}])

    async def replace(self, document: TransactionGetResult, value: Any) -> TransactionGetResult:
        return await self._one("__update", document._place, [value, {}], document.cas)

    async def remove(self, document: TransactionGetResult) -> None:
        await self._one("__delete", document._place, [{}], document.cas)

    async def commit(self, attempt: AttemptContext) -> None:
        try:
            await self._send("COMMIT", {"raw": {"txid": self._id}})
        except CouchbaseException as error:
            code = error.context.first_error_code
            cause = error.context.errors[0].get("cause") if error.context.errors else None
            if isinstance(error, Again):
                attempt.is_decided = False
                raise
            if code == self._AMBIGUOUS_CODE or code is None:
                raise TransactionCommitAmbiguous(
                    "nobody knows whether the transaction has committed"
                ) from error
            attempt.is_decided = False
            attempt.wants_again = isinstance(cause, dict) and cause.get("retry") is True
            raise
        except Again:
            attempt.is_decided = False
            attempt.wants_again = True
            raise

    async def rollback(self) -> None:
        if self._id:
            await self._send("ROLLBACK", {"raw": {"txid": self._id}}, _OVERTIME_SECONDS)

    async def _one(
        self, name: str, place: Place, arguments: list[Any], cas: int | None = None
    ) -> TransactionGetResult:
        bucket, scope, collection, key = place.names
        data: dict[str, Any] = {"kv": True}
        if cas is not None:
            data["scas"] = str(cas)
        options: QueryOptions = {
            "positional_parameters": [
                f"default:`{bucket}`.`{scope}`.`{collection}`",
                key,
                *arguments,
            ],
            "raw": {"txid": self._id, "txdata": data},
        }
        rows = await self._send(f"EXECUTE {name}", options)
        row = rows[0] if rows and isinstance(rows[0], dict) else {}
        return TransactionGetResult(key, int(row.get("scas") or 0), row.get("doc"), place)

    async def _send(
        self, statement: str, options: QueryOptions | dict[str, Any], grace: float = 0
    ) -> list[Any]:
        left = max(self._settings.deadline - self._clock.time(), grace)
        if left <= 0:
            raise TransactionExpired("time ran out; nothing is changed")
        result = QueryResult(
            self._cluster.client,
            self._cluster.http,
            PreparedStatements(),
            statement,
            cast(QueryOptions, options),
            left,
            self._node,
        )
        try:
            return await result.execute()
        except CouchbaseException as error:
            code = error.context.first_error_code
            if code == self._EXPIRED:
                raise TransactionExpired("time ran out; nothing is changed") from error
            cause = error.context.errors[0].get("cause") if error.context.errors else None
            retries = isinstance(cause, dict) and cause.get("retry") is True
            if code in self._CONFLICTS and (retries or code != 17007):
                raise Again(str(error)) from error
            if code == 17014:
                raise DocumentNotFoundException(str(error), error.context) from None
            if code == 17012:
                raise DocumentExistsException(str(error), error.context) from None
            raise


_QUERY_LEVELS = {
    DurabilityLevel.NONE: "none",
    DurabilityLevel.MAJORITY: "majority",
    DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE: "majorityAndPersistActive",
    DurabilityLevel.PERSIST_TO_MAJORITY: "persistToMajority",
}


def _context_of(error: BaseException) -> ErrorContext | None:
    if isinstance(error, CouchbaseException):
        return error.context
    return None
