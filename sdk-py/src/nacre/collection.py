"""Access to the documents of a collection by key."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from . import _projection as projection
from . import options as o
from . import subdocument as sd
from ._documents import Documents, cancel_all, check_cas, flags_of
from ._frame import Request, Response
from ._instruments import watched
from ._keys import check_key
from ._multi import MultiOperations
from ._opcodes import DATATYPE_JSON, Opcode, Status
from ._statuses import exception_of
from .exceptions import (
    CouchbaseException,
    DecodingFailureException,
    DocumentNotFoundException,
    DocumentUnretrievableException,
    ErrorContext,
    InvalidArgumentException,
)
from .result import (
    Entry,
    ExistsResult,
    GetReplicaResult,
    GetResult,
    LookupInReplicaResult,
    LookupInResult,
    MutateInResult,
    MutationResult,
)
from .transcoder import JSON_FLAGS, SchemaTranscoder, Serializer, decode_json

if TYPE_CHECKING:
    from ._records import Place
    from .binary import BinaryCollection
    from .changes import Changes, ChangesOptions
    from .datastructures import CouchbaseList, CouchbaseMap, CouchbaseQueue, CouchbaseSet
    from .kv_range_scan import ScanResultIterable, ScanType
    from .management.queries import CollectionQueryIndexManager

_SOME_FAILED = frozenset({Status.MULTI_PATH_FAILURE})
_OF_DELETED = _SOME_FAILED | {Status.SUCCESS_DELETED, Status.MULTI_PATH_FAILURE_DELETED}
_METADATA = (sd.with_expiry(), sd.get("$document.flags", xattr=True))
R = TypeVar("R")


@watched
class Collection(Documents, MultiOperations):
    """Documents of one collection. Operations take an options dictionary, keywords, or both."""

    @staticmethod
    def default_name() -> str:
        """Returns the name of the default collection, which every bucket has."""
        return "_default"

    def with_schema(
        self, load: Callable[[Any], Any], dump: Callable[[Any], Any] | None = None
    ) -> "Collection":
        """Returns the same collection with a schema for all its documents: see `SchemaTranscoder`.

        Other documents raise `ValidationException`, before they are stored and when they are read.
        Parts of documents, projections, changes and transactions are not checked::

            hotels = collection.with_schema(Hotel.model_validate, Hotel.model_dump)
            hotel = (await hotels.get("hotel:1")).content_as[Hotel]
        """
        collection = Collection(self._scope, self._name)
        collection._default_transcoder = SchemaTranscoder(load, dump, self._default_transcoder)
        return collection

    def binary(self) -> "BinaryCollection":
        """Returns the binary operations of the collection, for counters and binary documents."""
        from .binary import BinaryCollection

        return BinaryCollection(self._scope, self._name)

    def query_indexes(self) -> "CollectionQueryIndexManager":
        """Creates, builds, drops and lists indexes of the collection."""
        return self._scope.bucket.query_indexes(self._scope.name, self._name)

    async def get(
        self, key: str, options: o.GetOptions | None = None, **kwargs: Unpack[o.GetOptions]
    ) -> GetResult:
        """Reads a document. With ``with_expiry`` the result contains its expiry.

        With ``project``, a list of paths, the content consists of these parts only.

        Raises:
            DocumentNotFoundException: if it does not exist.
        """
        merged = o.options_of("get", o.GetOptions, options, kwargs)
        if merged.get("project") is not None:
            return await self._get_projected(key, merged)
        if merged.get("with_expiry"):
            return await self._get_with_expiry(key, merged)
        operation = self._operation(Request(Opcode.GET), key, reads=True)
        return self._document(key, await self._read(operation, merged), merged)

    async def get_any_replica(
        self,
        key: str,
        options: o.GetReplicaOptions | None = None,
        **kwargs: Unpack[o.GetReplicaOptions],
    ) -> GetReplicaResult:
        """Reads a document from the copy that answers first.

        Raises:
            DocumentUnretrievableException: if no copy can be read.
        """
        merged = o.options_of("get_any_replica", o.GetReplicaOptions, options, kwargs)
        return await self._any(key, lambda copy: self._get_copy(key, copy, merged), merged)

    async def get_all_replicas(
        self,
        key: str,
        options: o.GetReplicaOptions | None = None,
        **kwargs: Unpack[o.GetReplicaOptions],
    ) -> list[GetReplicaResult]:
        """Reads all available copies of a document, in no particular order.

        Raises:
            DocumentUnretrievableException: if no copy can be read.
        """
        merged = o.options_of("get_all_replicas", o.GetReplicaOptions, options, kwargs)
        return await self._all(key, lambda copy: self._get_copy(key, copy, merged), merged)

    async def get_and_touch(
        self,
        key: str,
        expiry: timedelta,
        options: o.ReadOptions | None = None,
        **kwargs: Unpack[o.ReadOptions],
    ) -> GetResult:
        """Reads a document and sets its expiry (0: never)."""
        merged = o.options_of("get_and_touch", o.ReadOptions, options, kwargs)
        extras = struct.pack(">I", o.wire_expiry(expiry))
        operation = self._operation(Request(Opcode.GET_AND_TOUCH, extras=extras), key)
        return self._document(key, await self._read(operation, merged), merged)

    async def get_and_lock(
        self,
        key: str,
        lock_time: timedelta,
        options: o.ReadOptions | None = None,
        **kwargs: Unpack[o.ReadOptions],
    ) -> GetResult:
        """Reads a document and locks it for 1 to 30 s. Meanwhile, writes require the returned CAS.

        Raises:
            DocumentLockedException: if the document stays locked until the timeout.
        """
        merged = o.options_of("get_and_lock", o.ReadOptions, options, kwargs)
        seconds = int(lock_time.total_seconds())
        if not 1 <= seconds <= 30:
            raise InvalidArgumentException("a lock holds 1 to 30 seconds")
        extras = struct.pack(">I", seconds)
        operation = self._operation(Request(Opcode.GET_LOCKED, extras=extras), key)
        return self._document(key, await self._read(operation, merged), merged)

    async def unlock(
        self,
        key: str,
        cas: int,
        options: o.TimeoutOptions | None = None,
        **kwargs: Unpack[o.TimeoutOptions],
    ) -> None:
        """Unlocks a document with the CAS from `get_and_lock`.

        Raises:
            CASMismatchException: if the document is locked with another CAS.
            DocumentNotLockedException: if the document is not locked.
        """
        if check_cas(cas) == 0:
            raise InvalidArgumentException("unlocking needs the CAS of the lock")
        operation = self._operation(Request(Opcode.UNLOCK, cas=cas), key)
        merged = o.options_of("unlock", o.TimeoutOptions, options, kwargs)
        await self._read(operation, merged)

    async def exists(
        self,
        key: str,
        options: o.TimeoutOptions | None = None,
        **kwargs: Unpack[o.TimeoutOptions],
    ) -> ExistsResult:
        """Reports whether a document exists."""
        request = Request(Opcode.GET_META, extras=b"\x02")
        absent = frozenset({Status.KEY_NOT_FOUND})
        operation = self._operation(request, key, reads=True, accepted=absent)
        merged = o.options_of("exists", o.TimeoutOptions, options, kwargs)
        response = await self._read(operation, merged)
        if response.status == Status.KEY_NOT_FOUND:
            return ExistsResult(0, False, key=key)
        if len(response.extras) < 4:
            raise DecodingFailureException("the answer about the document is cut off")
        deleted = response.extras[:4] != bytes(4)
        return ExistsResult(0 if deleted else response.cas, not deleted, key=key)

    async def touch(
        self,
        key: str,
        expiry: timedelta,
        options: o.TimeoutOptions | None = None,
        **kwargs: Unpack[o.TimeoutOptions],
    ) -> MutationResult:
        """Sets the expiry of a document (0: never)."""
        extras = struct.pack(">I", o.wire_expiry(expiry))
        operation = self._operation(Request(Opcode.TOUCH, extras=extras), key)
        merged = o.options_of("touch", o.TimeoutOptions, options, kwargs)
        response = await self._read(operation, merged)
        return MutationResult(response.cas, self._token(key, response), key=key)

    async def insert(
        self,
        key: str,
        value: Any,
        options: o.InsertOptions | None = None,
        **kwargs: Unpack[o.InsertOptions],
    ) -> MutationResult:
        """Stores a document that must not exist yet.

        Raises:
            DocumentExistsException: if the document exists already.
        """
        merged = o.options_of("insert", o.InsertOptions, options, kwargs)
        return await self._store(Opcode.ADD, key, value, cast(o.ReplaceOptions, merged))

    async def upsert(
        self,
        key: str,
        value: Any,
        options: o.UpsertOptions | None = None,
        **kwargs: Unpack[o.UpsertOptions],
    ) -> MutationResult:
        """Stores a document, whether it exists or not. ``preserve_expiry`` keeps its expiry."""
        merged = o.options_of("upsert", o.UpsertOptions, options, kwargs)
        return await self._store(Opcode.SET, key, value, cast(o.ReplaceOptions, merged))

    async def replace(
        self,
        key: str,
        value: Any,
        options: o.ReplaceOptions | None = None,
        **kwargs: Unpack[o.ReplaceOptions],
    ) -> MutationResult:
        """Replaces an existing document. With ``cas``, the document must still have this version.

        Raises:
            DocumentNotFoundException: if the document does not exist.
            CASMismatchException: if the document has changed.
        """
        merged = o.options_of("replace", o.ReplaceOptions, options, kwargs)
        if merged.get("expiry") and merged.get("preserve_expiry"):
            raise InvalidArgumentException("expiry and preserve_expiry exclude each other")
        return await self._store(Opcode.REPLACE, key, value, merged)

    async def remove(
        self, key: str, options: o.RemoveOptions | None = None, **kwargs: Unpack[o.RemoveOptions]
    ) -> MutationResult:
        """Removes a document. With ``cas``, the document must still have this version."""
        merged = o.options_of("remove", o.RemoveOptions, options, kwargs)
        request = Request(Opcode.DELETE, cas=check_cas(merged.get("cas")))
        response, token = await self._mutate(self._operation(request, key), merged)
        return MutationResult(response.cas, token, key=key)

    async def lookup_in(
        self,
        key: str,
        specs: Sequence[sd.LookupSpec],
        options: o.LookupInOptions | None = None,
        **kwargs: Unpack[o.LookupInOptions],
    ) -> LookupInResult:
        """Reads up to 16 parts of a document. Accessing a failed part raises its error."""
        merged = o.options_of("lookup_in", o.LookupInOptions, options, kwargs)
        flags = sd.ACCESS_DELETED if merged.get("access_deleted") else 0
        response, parts = await self._lookup(key, specs, merged, flags=flags)
        entries = self._entries(key, specs, parts, merged.get("serializer"))
        return LookupInResult(response.cas, tuple(entries), key=key)

    async def lookup_in_any_replica(
        self,
        key: str,
        specs: Sequence[sd.LookupSpec],
        options: o.LookupInReplicaOptions | None = None,
        **kwargs: Unpack[o.LookupInReplicaOptions],
    ) -> LookupInReplicaResult:
        """Reads parts of a document from the copy that answers first.

        Raises:
            DocumentUnretrievableException: if no copy can be read.
        """
        merged = o.options_of("lookup_in_any_replica", o.LookupInReplicaOptions, options, kwargs)
        return await self._any(key, lambda c: self._lookup_copy(key, specs, c, merged), merged)

    async def lookup_in_all_replicas(
        self,
        key: str,
        specs: Sequence[sd.LookupSpec],
        options: o.LookupInReplicaOptions | None = None,
        **kwargs: Unpack[o.LookupInReplicaOptions],
    ) -> list[LookupInReplicaResult]:
        """Reads parts of all available copies of a document, in no particular order.

        Raises:
            DocumentUnretrievableException: if no copy can be read.
        """
        merged = o.options_of("lookup_in_all_replicas", o.LookupInReplicaOptions, options, kwargs)
        return await self._all(key, lambda c: self._lookup_copy(key, specs, c, merged), merged)

    def scan(
        self,
        scan_type: "ScanType",
        options: o.ScanOptions | None = None,
        **kwargs: Unpack[o.ScanOptions],
    ) -> "ScanResultIterable":
        """Scans the collection: ``async for found in collection.scan(PrefixScan("order:"))``.

        With ``ids_only``, the scan returns keys only. ``consistent_with`` names mutations that it
        must reflect. ``concurrency`` is the number of vBuckets that are scanned concurrently.
        """
        from .kv_range_scan import ScanResultIterable

        merged = o.options_of("scan", o.ScanOptions, options, kwargs)
        return ScanResultIterable(
            self._client,
            self._operation(Request(Opcode.RANGE_SCAN_CREATE), ""),
            scan_type,
            merged,
            self._transcoder(merged),
            o.seconds_of(merged.get("timeout"), self._timeouts.kv_scan_timeout),
        )

    def changes(
        self, options: "ChangesOptions | None" = None, **kwargs: "Unpack[ChangesOptions]"
    ) -> "Changes":
        """Changes of the collection: ``async for change in collection.changes(since=token)``.

        They start with all present changes, or with ``since`` at a token or at `changes.NOW`. They
        continue forever unless ``follow=False``. See `nacre.changes`.
        """
        from .changes import Changes, ChangesOptions

        merged = o.options_of("changes", ChangesOptions, options, kwargs)
        return Changes(self._scope, self._name, merged)

    def place(self, key: str) -> "Place":
        """Returns the address of a document in the collection."""
        from ._records import Place

        check_key(key, True)
        return Place(self._client, self._scope.name, self._name, key)

    def couchbase_list(self, key: str) -> "CouchbaseList":
        """Returns a list that is stored in a document."""
        from .datastructures import CouchbaseList

        return CouchbaseList(self, key)

    def couchbase_map(self, key: str) -> "CouchbaseMap":
        """Returns a map that is stored in a document."""
        from .datastructures import CouchbaseMap

        return CouchbaseMap(self, key)

    def couchbase_set(self, key: str) -> "CouchbaseSet":
        """Returns a set that is stored in a document."""
        from .datastructures import CouchbaseSet

        return CouchbaseSet(self, key)

    def couchbase_queue(self, key: str) -> "CouchbaseQueue":
        """Returns a queue that is stored in a document."""
        from .datastructures import CouchbaseQueue

        return CouchbaseQueue(self, key)

    async def mutate_in(
        self,
        key: str,
        specs: Sequence[sd.MutationSpec],
        options: o.MutateInOptions | None = None,
        **kwargs: Unpack[o.MutateInOptions],
    ) -> MutateInResult:
        """Changes up to 16 parts of a document atomically.

        ``store_semantics`` states whether the document must, may, or must not exist.

        Raises:
            PathNotFoundException, PathExistsException, PathMismatchException, …: if a spec fails.
        """
        merged = o.options_of("mutate_in", o.MutateInOptions, options, kwargs)
        semantics = merged.get("store_semantics", o.StoreSemantics.REPLACE)
        value, order = sd.encode_specs(specs, sd.MutationSpec)
        extras = b""
        if "expiry" in merged:
            extras = struct.pack(">I", o.wire_expiry(merged["expiry"]))
        flags = semantics | (sd.ACCESS_DELETED if merged.get("access_deleted") else 0)
        if flags:
            extras += bytes([flags])
        request = Request(
            Opcode.SUBDOC_MULTI_MUTATION,
            extras=extras,
            value=value,
            cas=check_cas(merged.get("cas")),
        )
        adds = semantics == o.StoreSemantics.INSERT
        accepted = _OF_DELETED if flags & sd.ACCESS_DELETED else _SOME_FAILED
        operation = self._operation(request, key, adds=adds, accepted=accepted)
        response, token = await self._mutate(operation, merged)
        entries = [Entry(spec.path, True) for spec in specs]
        for number, status, content in sd.decode_mutation(response.value, len(specs)):
            index = order[number]
            path = specs[index].path
            if status != Status.SUCCESS:
                raise self._path_error(key, path, status)
            entries[index] = Entry(path, True, decode_json(content))
        if response.status in _SOME_FAILED:
            raise DecodingFailureException("a spec failed, but the answer does not say which")
        return MutateInResult(response.cas, token, tuple(entries), key=key)

    async def _store(
        self, opcode: Opcode, key: str, value: Any, options: o.ReplaceOptions
    ) -> MutationResult:
        content, flags = self._encoded(value, options)
        request = Request(
            opcode,
            extras=struct.pack(">II", flags, o.wire_expiry(options.get("expiry"))),
            value=content,
            cas=check_cas(options.get("cas")),
            datatype=DATATYPE_JSON if flags == JSON_FLAGS else 0,
        )
        operation = self._operation(request, key, adds=opcode == Opcode.ADD)
        response, token = await self._mutate(operation, options)
        return MutationResult(response.cas, token, key=key)

    async def _lookup(
        self,
        key: str,
        specs: Sequence[sd.LookupSpec],
        options: o.TimeoutOptions,
        copy: int = 0,
        flags: int = 0,
    ) -> tuple[Response, list[tuple[int, bytes]]]:
        value, order = sd.encode_specs(specs, sd.LookupSpec)
        flags |= sd.REPLICA_READ if copy else 0
        extras = bytes([flags]) if flags else b""
        request = Request(Opcode.SUBDOC_MULTI_LOOKUP, value=value, extras=extras)
        accepted = _OF_DELETED if flags & sd.ACCESS_DELETED else _SOME_FAILED
        operation = self._operation(request, key, reads=True, accepted=accepted, copy=copy)
        response = await self._read(operation, options)
        sent = sd.decode_lookup(response.value, len(specs))
        parts = [(0, b"")] * len(specs)
        for number, part in enumerate(sent):
            parts[order[number]] = part
        return response, parts

    async def _get_with_expiry(self, key: str, options: o.GetOptions) -> GetResult:
        response, parts = await self._lookup(key, (*_METADATA, sd.get("")), options)
        flags, when = self._metadata(key, parts)
        status, value = parts[2]
        if status != Status.SUCCESS:
            raise self._path_error(key, "", status)
        content = self._transcoder(options).decode_value(value, flags)
        return GetResult(response.cas, content, when, key=key, flags=flags)

    async def _get_projected(self, key: str, options: o.GetOptions) -> GetResult:
        paths = options["project"]
        if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
            raise InvalidArgumentException("a projection is a list of paths")
        if not paths:
            raise InvalidArgumentException("a projection has at least one path")
        if len(paths) + len(_METADATA) > sd.SPECS_MAX:
            # One request cannot ask for so many paths: read the whole document and keep these
            # parts.
            whole = await self._get_with_expiry(key, options)
            content = projection.of_document(whole.content, paths)
            when = whole.expiry_time if options.get("with_expiry") else None
            return GetResult(whole.cas, content, when, key=key, flags=whole.flags)
        response, parts = await self._lookup(key, (*_METADATA, *map(sd.get, paths)), options)
        flags, when = self._metadata(key, parts)
        found: dict[str, Any] = {}
        for path, (status, value) in zip(paths, parts[len(_METADATA) :], strict=True):
            if status == Status.SUCCESS:
                projection.put(found, path, decode_json(value))
            elif status != Status.PATH_NOT_FOUND:
                raise self._path_error(key, path, status)
        when = when if options.get("with_expiry") else None
        return GetResult(response.cas, found, when, key=key, flags=flags)

    def _metadata(self, key: str, parts: list[tuple[int, bytes]]) -> tuple[int, datetime | None]:
        """Returns flags and expiry, from the parts for `_METADATA`."""
        for (status, _), path in zip(parts, ("$document.exptime", "$document.flags"), strict=False):
            if status != Status.SUCCESS:
                raise self._path_error(key, path, status)
        expiry, flags = decode_json(parts[0][1]), decode_json(parts[1][1])
        if not isinstance(expiry, int) or not isinstance(flags, int):
            raise DecodingFailureException("expiry and flags are not numbers")
        return flags, datetime.fromtimestamp(expiry, UTC) if expiry else None

    async def _get_copy(
        self, key: str, copy: int, options: o.GetReplicaOptions
    ) -> GetReplicaResult:
        opcode = Opcode.GET_REPLICA if copy else Opcode.GET
        operation = self._operation(Request(opcode), key, reads=True, copy=copy)
        response = await self._read(operation, options)
        flags = flags_of(response)
        content = self._transcoder(options).decode_value(response.value, flags)
        return GetReplicaResult(response.cas, content, key=key, flags=flags, is_replica=copy > 0)

    async def _lookup_copy(
        self, key: str, specs: Sequence[sd.LookupSpec], copy: int, options: o.LookupInReplicaOptions
    ) -> LookupInReplicaResult:
        response, parts = await self._lookup(key, specs, options, copy)
        entries = self._entries(key, specs, parts, options.get("serializer"))
        return LookupInReplicaResult(response.cas, tuple(entries), key=key, is_replica=copy > 0)

    async def _copies(self, key: str, options: o.ReplicaOptions) -> list[int]:
        check_key(key, True)
        group = None
        if options.get("read_preference"):
            group = self._scope.bucket.preferred_server_group
            if group is None:
                raise InvalidArgumentException("the cluster has no preferred_server_group")
        timeout = o.seconds_of(options.get("timeout"), self._timeouts.kv_timeout)
        copies = await self._client.copies(key, group, timeout)
        if not copies:
            raise self._unretrievable(key)
        return copies

    async def _any(
        self, key: str, read: Callable[[int], Coroutine[Any, Any, R]], options: o.ReplicaOptions
    ) -> R:
        """Returns the result of the copy that answers first."""
        errors: list[CouchbaseException] = []
        tasks = [asyncio.create_task(read(copy)) for copy in await self._copies(key, options)]
        try:
            for task in asyncio.as_completed(tasks):
                try:
                    return await task
                except CouchbaseException as error:
                    errors.append(error)
        finally:
            await cancel_all(tasks)
        raise self._error_of_copies(key, errors)

    async def _all(
        self, key: str, read: Callable[[int], Coroutine[Any, Any, R]], options: o.ReplicaOptions
    ) -> list[R]:
        """Yields the results of all copies that have the document."""
        tasks = [asyncio.create_task(read(copy)) for copy in await self._copies(key, options)]
        try:
            await asyncio.wait(tasks)
        finally:
            await cancel_all(tasks)
        errors: list[CouchbaseException] = []
        found: list[R] = []
        for task in tasks:
            try:
                found.append(task.result())
            except CouchbaseException as error:
                errors.append(error)
        if not found:
            raise self._error_of_copies(key, errors)
        return found

    def _error_of_copies(self, key: str, errors: list[CouchbaseException]) -> CouchbaseException:
        """Returns the error if no copy has a result. There is a separate error if no copy has the
        document.
        """
        others = [error for error in errors if not isinstance(error, DocumentNotFoundException)]
        return others[0] if others else self._unretrievable(key)

    def _unretrievable(self, key: str) -> DocumentUnretrievableException:
        return DocumentUnretrievableException(
            context=ErrorContext(
                key=key,
                bucket=self._scope.bucket.name,
                scope=self._scope.name,
                collection=self._name,
            )
        )

    def _document(self, key: str, response: Response, options: object) -> GetResult:
        flags = flags_of(response)
        content = self._transcoder(options).decode_value(response.value, flags)
        return GetResult(response.cas, content, key=key, flags=flags)

    def _entries(
        self,
        key: str,
        specs: Sequence[sd.LookupSpec],
        parts: list[tuple[int, bytes]],
        serializer: Serializer | None,
    ) -> list[Entry]:
        decode = decode_json if serializer is None else serializer.deserialize
        return [
            self._entry(key, spec, status, content, decode)
            for spec, (status, content) in zip(specs, parts, strict=True)
        ]

    def _entry(
        self, key: str, spec: sd.Spec, status: int, content: bytes, decode: Callable[[bytes], Any]
    ) -> Entry:
        if spec.opcode == Opcode.SUBDOC_EXISTS and status in (
            Status.SUCCESS,
            Status.PATH_NOT_FOUND,
        ):
            there = status == Status.SUCCESS
            return Entry(spec.path, there, there)
        if status == Status.SUCCESS:
            return Entry(spec.path, True, decode(content))
        return Entry(spec.path, False, error=self._path_error(key, spec.path, status))

    def _path_error(self, key: str, path: str, status: int) -> CouchbaseException:
        context = ErrorContext(
            key=key,
            bucket=self._scope.bucket.name,
            scope=self._scope.name,
            collection=self._name,
            status=status,
            detail=f"path {path!r}",
        )
        return exception_of(status, Opcode.SUBDOC_MULTI_LOOKUP, context)
