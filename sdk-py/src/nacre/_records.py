"""The storage format of transactions: entries of records, and changes staged in documents.

    _txn:atr-9-#0   {"attempts": {"<attempt>": {"st": "PENDING", "tid": "<transaction>",
                     "tst": "<CAS>", "exp": 14998, "d": "m", "ins": […], "rep": […], "rem": […]}}}
    a document      {"txn": {"id": {…}, "atr": {…}, "op": {"type": "replace", "stgd": <new body>},
                     "aux": {…}, "restore": {…}}}

Both are extended attributes, in the format of the official clients (protocol 2): these finish
transactions that this client abandons, and vice versa.
"""

import asyncio
import json
import struct
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

from ._client import KvClient, Operation
from ._documents import cancel_all
from ._frame import Request, framing_extras
from ._keys import vbucket_of
from ._opcodes import Opcode, Status
from ._record import dataclass
from ._statuses import exception_of
from .durability import DurabilityLevel
from .exceptions import (
    CouchbaseException,
    DecodingFailureException,
    DocumentNotFoundException,
    DocumentUnretrievableException,
    ErrorContext,
)
from .subdocument import REPLICA_READ, decode_lookup, decode_mutation
from .transcoder import JSON_FLAGS, decode_json

RECORD_COUNT = 1024
_PARENTS, _XATTR, _MACRO = 0x01, 0x04, 0x10
_MAKE, _ADD, _ACCESS_DELETED, _CREATE_DELETED, _REVIVE = 0x01, 0x02, 0x04, 0x08, 0x10
_CAS = b'"${Mutation.CAS}"'
_LOOKUP_ANSWERS = frozenset(
    {Status.MULTI_PATH_FAILURE, Status.SUCCESS_DELETED, Status.MULTI_PATH_FAILURE_DELETED}
)
_MUTATION_ANSWERS = frozenset({Status.MULTI_PATH_FAILURE, Status.SUCCESS_DELETED})
DURABILITY_NAMES = {
    DurabilityLevel.NONE: "n",
    DurabilityLevel.MAJORITY: "m",
    DurabilityLevel.MAJORITY_AND_PERSIST_TO_ACTIVE: "pa",
    DurabilityLevel.PERSIST_TO_MAJORITY: "pm",
}
LISTS = {"insert": "ins", "replace": "rep", "remove": "rem"}


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a document."""

    client: KvClient
    scope: str
    collection: str
    key: str

    @property
    def bucket(self) -> str:
        """Returns the name of the bucket."""
        return str(self.client.bucket)

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Returns bucket, scope, collection and key."""
        return self.bucket, self.scope, self.collection, self.key

    def as_listed(self) -> dict[str, str]:
        """Returns the address in the format of entries."""
        bucket, scope, collection, key = self.names
        return {"bkt": bucket, "scp": scope, "col": collection, "id": key}

    def context(self, operation: str) -> ErrorContext:
        """Returns the context of errors."""
        bucket, scope, collection, key = self.names
        return ErrorContext(key, bucket, scope, collection, operation)


@dataclass(frozen=True, slots=True)
class Part:
    """A spec of a change."""

    opcode: int
    path: str
    value: bytes = b""
    flags: int = _XATTR

    def encode(self) -> bytes:
        """Encodes the spec."""
        path = self.path.encode()
        head = struct.pack(">BBHI", self.opcode, self.flags, len(path), len(self.value))
        return head + path + self.value


def _set(path: str, value: Any) -> Part:
    return Part(Opcode.SUBDOC_DICT_UPSERT, path, json.dumps(value).encode(), _XATTR | _PARENTS)


def _add(path: str, value: Any) -> Part:
    return Part(Opcode.SUBDOC_DICT_ADD, path, json.dumps(value).encode(), _XATTR | _PARENTS)


def _computed(path: str, macro: bytes) -> Part:
    return Part(Opcode.SUBDOC_DICT_UPSERT, path, macro, _XATTR | _PARENTS | _MACRO)


def _remove(path: str) -> Part:
    return Part(Opcode.SUBDOC_DELETE, path)


@dataclass(slots=True)
class Seen:
    """A document or tombstone with its transaction attributes."""

    cas: int
    deleted: bool
    body: bytes | None
    flags: int
    txn: dict[str, Any] | None
    """What is staged."""

    @property
    def attempt(self) -> str | None:
        """Returns the ID of the attempt that has staged the change."""
        return self._text("id", "atmpt")

    @property
    def kind(self) -> str | None:
        """Returns the kind of the staged change: insert, replace or remove."""
        return self._text("op", "type")

    @property
    def staged(self) -> Any:
        """Returns the staged body."""
        return self._member("op", "stgd")

    def _member(self, part: str, name: str) -> Any:
        members = (self.txn or {}).get(part)
        return members.get(name) if isinstance(members, dict) else None

    def _text(self, part: str, name: str) -> str | None:
        text = self._member(part, name)
        return text if isinstance(text, str) else None


async def see(place: Place, timeout: float, copy: int = 0) -> Seen | None:
    """Reads a copy of a document with its staged change; copy 0 is the active one. Returns None if
    there is not even a tombstone.
    """
    paths = ("txn", "$document.flags", "")
    specs = b"".join(
        struct.pack(
            ">BBH", Opcode.SUBDOC_GET if path else Opcode.GET, _XATTR if path else 0, len(path)
        )
        + path.encode()
        for path in paths
    )
    extras = bytes([_ACCESS_DELETED | (REPLICA_READ if copy else 0)])
    request = Request(Opcode.SUBDOC_MULTI_LOOKUP, extras=extras, value=specs)
    operation = Operation(
        request,
        place.key,
        place.scope,
        place.collection,
        reads=True,
        accepted=_LOOKUP_ANSWERS,
        copy=copy,
    )
    try:
        response = await place.client.execute(operation, timeout)
    except DocumentNotFoundException:
        return None
    deleted = response.status in (Status.SUCCESS_DELETED, Status.MULTI_PATH_FAILURE_DELETED)
    (txn_status, txn), (_, flags), (body_status, body) = decode_lookup(response.value, len(paths))
    staged = decode_json(txn) if txn_status == Status.SUCCESS else None
    return Seen(
        response.cas,
        deleted,
        body if body_status == Status.SUCCESS and not deleted else None,
        int(decode_json(flags)) if flags else 0,
        staged if isinstance(staged, dict) and staged else None,
    )


async def see_near(place: Place, group: str | None, timeout: float) -> Seen | None:
    """Like `see`, of the copy that answers first: of those in a server group, or of all copies if
    the group has none. Copies other than the active one may lag behind.

    Raises:
        DocumentUnretrievableException: if no copy can be read.
    """
    near = await place.client.copies(place.key, group, timeout) if group else []
    copies = near or await place.client.copies(place.key, None, timeout)
    errors: list[CouchbaseException] = []
    tasks = [asyncio.create_task(see(place, timeout, copy)) for copy in copies]
    try:
        for task in asyncio.as_completed(tasks):
            try:
                seen = await task
            except CouchbaseException as error:
                errors.append(error)
                continue
            if seen is not None:
                return seen
    finally:
        await cancel_all(tasks)
    if errors and len(errors) == len(tasks):
        raise DocumentUnretrievableException(context=place.context("get")) from errors[0]
    return None


async def change(
    place: Place,
    parts: Sequence[Part],
    timeout: float,
    level: DurabilityLevel,
    flags: int = 0,
    cas: int = 0,
) -> int:
    """Changes parts of a document atomically. Returns the new CAS.

    Raises:
        CouchbaseException: of the class for the response, or for the first failed part.
    """
    request = Request(
        Opcode.SUBDOC_MULTI_MUTATION,
        extras=bytes([flags]) if flags else b"",
        value=b"".join(part.encode() for part in parts),
        cas=cas,
        framing=framing_extras(durability_level=level, seconds=timeout),
    )
    operation = Operation(
        request,
        place.key,
        place.scope,
        place.collection,
        adds=bool(flags & _ADD),
        accepted=_MUTATION_ANSWERS,
    )
    response = await place.client.execute(operation, timeout)
    if response.status == Status.MULTI_PATH_FAILURE:
        for index, status, _ in decode_mutation(response.value, len(parts)):
            context = place.context(f"change at {parts[index].path}")
            context.status = status
            raise exception_of(status, Opcode.SUBDOC_MULTI_MUTATION, context)
        raise DecodingFailureException("a spec failed, but the answer does not say which")
    return response.cas


async def delete(place: Place, cas: int, timeout: float, level: DurabilityLevel) -> None:
    """Removes a document with a given CAS."""
    request = Request(
        Opcode.DELETE, cas=cas, framing=framing_extras(durability_level=level, seconds=timeout)
    )
    operation = Operation(request, place.key, place.scope, place.collection)
    await place.client.execute(operation, timeout)


@lru_cache(maxsize=RECORD_COUNT)
def record_key(number: int) -> str:
    """Returns the key of the record with that number: the first key in this vBucket of 1024."""
    end = 0
    while vbucket_of(f"_txn:atr-{number}-#{end:x}".encode(), RECORD_COUNT) != number:
        end += 1
    return f"_txn:atr-{number}-#{end:x}"


@dataclass(frozen=True, slots=True)
class Staged:
    """A change that an attempt has staged in a document."""

    place: Place
    kind: str
    cas: int
    body: bytes = b""
    content: Any = None


@dataclass(frozen=True, slots=True)
class Names:
    """The IDs of the transaction and the attempt, and the durability of its writes."""

    transaction: str
    attempt: str
    record: Place
    level: DurabilityLevel

    def _path(self, name: str) -> str:
        return f"attempts.{self.attempt}.{name}"

    async def begin(self, left_ms: int, timeout: float) -> None:
        """Writes the entry before anything is staged."""
        parts = [
            _computed(self._path("tst"), _CAS),
            _add(self._path("tid"), self.transaction),
            _add(self._path("st"), "PENDING"),
            _add(self._path("exp"), left_ms),
            _add(self._path("d"), DURABILITY_NAMES[self.level]),
            Part(Opcode.SET, "", b"\0", 0),
        ]
        await change(self.record, parts, timeout, self.level, _MAKE)

    async def commit(self, staged: Sequence[Staged], timeout: float) -> None:
        """Commits the attempt: from here on, all its changes count."""
        parts = [
            _add(self._path("p"), 0),
            _set(self._path("st"), "COMMITTED"),
            _computed(self._path("tsc"), _CAS),
            *self._lists(staged),
        ]
        await change(self.record, parts, timeout, self.level)

    async def abort(self, staged: Sequence[Staged], timeout: float) -> None:
        """Aborts the attempt: from here on, none of its changes counts."""
        parts = [
            _set(self._path("st"), "ABORTED"),
            _computed(self._path("tsrs"), _CAS),
            *self._lists(staged),
        ]
        await change(self.record, parts, timeout, self.level)

    async def forget(self, timeout: float, was_pending: bool = False) -> None:
        """Removes the entry of a finished attempt.

        If the entry is pending and the attempt commits concurrently, either this call or the commit
        fails.
        """
        parts = [_add(self._path("p"), 0)] if was_pending else []
        parts.append(_remove(f"attempts.{self.attempt}"))
        await change(self.record, parts, timeout, self.level)

    def _lists(self, staged: Sequence[Staged]) -> list[Part]:
        return [
            _set(
                self._path(name),
                [one.place.as_listed() for one in staged if one.kind == kind],
            )
            for kind, name in LISTS.items()
        ]

    async def stage(
        self, place: Place, kind: str, body: bytes, operation: str, cas: int, timeout: float
    ) -> int:
        """Stages a change of a document with a given CAS; 0 means that no document exists."""
        ids = {"txn": self.transaction, "atmpt": self.attempt, "op": operation}
        bucket, scope, collection, key = self.record.names
        record = {"id": key, "bkt": bucket, "scp": scope, "coll": collection}
        head = f'{{"id":{json.dumps(ids)},"atr":{json.dumps(record)},"op":{{"type":"{kind}"'
        restore = "" if kind == "insert" else ',"restore":{}'
        attribute = head.encode()
        if kind != "remove":
            # This is JSON already, and is inserted unchanged.
            attribute += b',"stgd":' + body
        attribute += f'}},"aux":{{"uf":{JSON_FLAGS}}}{restore}}}'.encode()
        adds = kind == "insert" and cas == 0
        opcode = Opcode.SUBDOC_DICT_ADD if adds else Opcode.SUBDOC_DICT_UPSERT
        parts = [
            Part(opcode, "txn", attribute),
            _computed("txn.op.crc32", b'"${Mutation.value_crc32c}"'),
        ]
        if kind != "insert":
            parts += [
                _computed("txn.restore.CAS", b'"${$document.CAS}"'),
                _computed("txn.restore.exptime", b'"${$document.exptime}"'),
                _computed("txn.restore.revid", b'"${$document.revid}"'),
            ]
        flags = _ACCESS_DELETED
        if kind == "insert":
            flags |= _CREATE_DELETED | (_ADD if adds else 0)
        return await change(place, parts, timeout, self.level, flags, cas)


async def unstage(staged: Staged, timeout: float, level: DurabilityLevel) -> None:
    """Unstages a document: replaces its body with the staged one."""
    if staged.kind == "remove":
        await delete(staged.place, staged.cas, timeout, level)
        return
    parts = [Part(Opcode.SUBDOC_REPLACE_BODY, "txn.op.stgd"), _remove("txn")]
    flags = _ACCESS_DELETED | _REVIVE if staged.kind == "insert" else 0
    await change(staged.place, parts, timeout, level, flags, staged.cas)


async def restore(staged: Staged, timeout: float, level: DurabilityLevel) -> None:
    """Reverts a document: removes its staged change."""
    await change(staged.place, [_remove("txn")], timeout, level, _ACCESS_DELETED, staged.cas)


@dataclass(slots=True)
class Entry:
    """An entry in a record."""

    attempt: str
    members: dict[str, Any] = field(repr=False)
    now_ns: int
    """When it was read, by the clock of the record's node."""

    @property
    def state(self) -> str:
        """Returns PENDING, COMMITTED, ABORTED, COMPLETED or ROLLED_BACK."""
        return str(self.members.get("st"))

    @property
    def is_over(self) -> bool:
        """Returns True if its time is over."""
        try:
            begun = int.from_bytes(bytes.fromhex(self.members["tst"].removeprefix("0x")), "little")
            return begun + int(self.members["exp"]) * 1_000_000 < self.now_ns
        except (LookupError, TypeError, ValueError, AttributeError):
            return False

    @property
    def is_of_newer(self) -> bool:
        """Returns True if a newer protocol version has written it."""
        return bool(self.members.get("fc"))

    @property
    def level(self) -> DurabilityLevel:
        """Returns the durability of its writes."""
        names = {name: level for level, name in DURABILITY_NAMES.items()}
        return names.get(str(self.members.get("d")), DurabilityLevel.MAJORITY)


async def entries_of(record: Place, timeout: float) -> list[Entry]:
    """Returns the entries of a record, or none if it does not exist."""
    paths = ("attempts", "$vbucket.HLC")
    specs = b"".join(
        struct.pack(">BBH", Opcode.SUBDOC_GET, _XATTR, len(path)) + path.encode() for path in paths
    )
    request = Request(Opcode.SUBDOC_MULTI_LOOKUP, value=specs)
    operation = Operation(
        request, record.key, record.scope, record.collection, reads=True, accepted=_LOOKUP_ANSWERS
    )
    try:
        response = await record.client.execute(operation, timeout)
    except DocumentNotFoundException:
        return []
    (status, attempts), (_, clock) = decode_lookup(response.value, len(paths))
    if status != Status.SUCCESS:
        return []
    found, now = decode_json(attempts), decode_json(clock) if clock else {}
    if not isinstance(found, dict) or not isinstance(now, dict):
        raise DecodingFailureException("a record of transactions cannot be read")
    now_ns = int(float(now.get("now", 0)) * 1_000_000_000)
    return [
        Entry(attempt, members, now_ns)
        for attempt, members in found.items()
        if isinstance(members, dict)
    ]
