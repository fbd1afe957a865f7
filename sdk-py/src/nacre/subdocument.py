"""Specs of `lookup_in` and `mutate_in`: operations at paths of a document.

    await collection.mutate_in("order", [SD.upsert("total", 9), SD.increment("revision", 1)])

``xattr`` addresses the extended attributes that are stored with the document. ``create_parents``
creates the missing parents of the path.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from ._opcodes import Opcode, Status
from ._record import dataclass
from .exceptions import DecodingFailureException, InvalidArgumentException
from .options import StoreSemantics as StoreSemantics
from .transcoder import encode_json

SPECS_MAX = 16
PATH_BYTES_MAX = 1024
_CREATE_PARENTS, _XATTR, _MACROS = 0x01, 0x04, 0x10
REPLICA_READ, ACCESS_DELETED = 0x20, 0x04
"""Flags of a request: from a copy, and also of a removed document."""
"""Extras of a lookup that reads a replica."""
_MACRO_MARKS = ("${Mutation.", "${$document")


@dataclass(frozen=True, slots=True)
class Spec:
    """An operation at a path, created by the functions of this module."""

    opcode: int
    path: str
    xattr: bool = False
    create_parents: bool = False
    value: bytes = b""
    expands_macro: bool = False

    @property
    def flags(self) -> int:
        """Returns the flags of the path in wire format."""
        flags = _CREATE_PARENTS if self.create_parents else 0
        flags |= _XATTR if self.xattr else 0
        return flags | (_MACROS if self.expands_macro else 0)


class LookupInMacro:
    """Paths of the virtual attributes of a document: ``get(LookupInMacro.cas(), xattr=True)``."""

    @staticmethod
    def document() -> str:
        """Returns the path of all attributes."""
        return "$document"

    @staticmethod
    def expiry_time() -> str:
        """Returns the path of the expiry, in seconds since 1970; 0 means never."""
        return "$document.exptime"

    @staticmethod
    def cas() -> str:
        """Returns the path of the CAS, in hexadecimal."""
        return "$document.CAS"

    @staticmethod
    def seq_no() -> str:
        """Returns the path of the last mutation's seqno, in hexadecimal."""
        return "$document.seqno"

    @staticmethod
    def last_modified() -> str:
        """Returns the path of the last change's time, in seconds since 1970."""
        return "$document.last_modified"

    @staticmethod
    def is_deleted() -> str:
        """Returns the path of the flag for deleted documents."""
        return "$document.deleted"

    @staticmethod
    def value_size_bytes() -> str:
        """Returns the path of the value's size."""
        return "$document.value_bytes"

    @staticmethod
    def rev_id() -> str:
        """Returns the path of the number of changes."""
        return "$document.revid"


@dataclass(frozen=True, slots=True)
class MutationMacro:
    """A placeholder for a value that the server computes, in extended attributes only."""

    value: str

    @classmethod
    def cas(cls) -> "MutationMacro":
        """Returns the placeholder for the CAS of the mutation: see `convert_macro_cas_to_cas`."""
        return cls("${Mutation.CAS}")

    @classmethod
    def seq_no(cls) -> "MutationMacro":
        """Returns the placeholder for the seqno of the mutation."""
        return cls("${Mutation.seqno}")

    @classmethod
    def value_crc32c(cls) -> "MutationMacro":
        """Returns the placeholder for the checksum of the document."""
        return cls("${Mutation.value_crc32c}")


def convert_macro_cas_to_cas(cas: str) -> int:
    """Converts the CAS of the macro, whose bytes the server writes in reverse order, into a number.

    Raises:
        InvalidArgumentException: if the macro cannot have written it.
    """
    try:
        return int.from_bytes(bytes.fromhex(cas.removeprefix("0x")), "little")
    except ValueError:
        raise InvalidArgumentException(f"{cas!r} is not a CAS") from None


class LookupSpec(Spec):
    """A spec of `lookup_in`."""


class MutationSpec(Spec):
    """A spec of `mutate_in`."""


def get(path: str, xattr: bool = False) -> LookupSpec:
    """Reads the value at a path. The empty path means the whole document."""
    return LookupSpec(Opcode.GET if path == "" else Opcode.SUBDOC_GET, path, xattr)


def get_full() -> LookupSpec:
    """Reads the whole document."""
    return get("")


def with_expiry() -> LookupSpec:
    """Returns the path of the expiry, in seconds since 1970; 0 means never."""
    return get(LookupInMacro.expiry_time(), xattr=True)


def exists(path: str, xattr: bool = False) -> LookupSpec:
    """Checks whether a path exists."""
    return LookupSpec(Opcode.SUBDOC_EXISTS, path, xattr)


def count(path: str, xattr: bool = False) -> LookupSpec:
    """Counts the elements or members of the array or object at a path."""
    return LookupSpec(Opcode.SUBDOC_GET_COUNT, path, xattr)


def upsert(
    path: str, value: Any, create_parents: bool = False, xattr: bool = False
) -> MutationSpec:
    """Sets a member of an object."""
    return _mutation(Opcode.SUBDOC_DICT_UPSERT, path, value, create_parents, xattr)


def insert(
    path: str, value: Any, create_parents: bool = False, xattr: bool = False
) -> MutationSpec:
    """Adds a member to an object, which must not have it yet."""
    return _mutation(Opcode.SUBDOC_DICT_ADD, path, value, create_parents, xattr)


def replace(path: str, value: Any, xattr: bool = False) -> MutationSpec:
    """Replaces the value at a path. The empty path means the whole document."""
    if path == "" and not xattr:
        return MutationSpec(Opcode.SET, "", value=encode_json(value))
    return _mutation(Opcode.SUBDOC_REPLACE, path, value, False, xattr)


def remove(path: str, xattr: bool = False) -> MutationSpec:
    """Removes the value at a path. The empty path means the whole document."""
    return MutationSpec(Opcode.DELETE if path == "" else Opcode.SUBDOC_DELETE, path, xattr)


def array_append(
    path: str, *values: Any, create_parents: bool = False, xattr: bool = False
) -> MutationSpec:
    """Appends values to an array. The empty path means a document that is an array."""
    return _array(Opcode.SUBDOC_ARRAY_PUSH_LAST, path, values, create_parents, xattr)


def array_prepend(
    path: str, *values: Any, create_parents: bool = False, xattr: bool = False
) -> MutationSpec:
    """Prepends values to an array."""
    return _array(Opcode.SUBDOC_ARRAY_PUSH_FIRST, path, values, create_parents, xattr)


def array_insert(
    path: str, *values: Any, create_parents: bool = False, xattr: bool = False
) -> MutationSpec:
    """Inserts values before an element, whose index is the end of the path, as in ``tags[2]``."""
    return _array(Opcode.SUBDOC_ARRAY_INSERT, path, values, create_parents, xattr)


def array_addunique(
    path: str, value: Any, create_parents: bool = False, xattr: bool = False
) -> MutationSpec:
    """Adds a string, number, boolean or null to an array that must not contain it."""
    return _mutation(Opcode.SUBDOC_ARRAY_ADD_UNIQUE, path, value, create_parents, xattr)


def counter(
    path: str, delta: int, xattr: bool = False, create_parents: bool = False
) -> MutationSpec:
    """Adds to the number at a path, and creates a missing one. The result contains the new value.
    """
    if not isinstance(delta, int) or not -(1 << 63) <= delta < 1 << 63 or delta == 0:
        raise InvalidArgumentException("the delta is a 64-bit integer other than 0")
    return _mutation(Opcode.SUBDOC_COUNTER, path, delta, create_parents, xattr)


def increment(
    path: str, delta: int = 1, xattr: bool = False, create_parents: bool = False
) -> MutationSpec:
    """Adds to the number at a path."""
    return counter(path, delta, xattr, create_parents)


def decrement(
    path: str, delta: int = 1, xattr: bool = False, create_parents: bool = False
) -> MutationSpec:
    """Subtracts from the number at a path."""
    return counter(path, -delta, xattr, create_parents)


def _mutation(opcode: int, path: str, value: Any, parents: bool, xattr: bool) -> MutationSpec:
    content, is_macro = _content(value, xattr)
    return MutationSpec(opcode, path, xattr or is_macro, parents, content, is_macro)


def _array(
    opcode: int, path: str, values: tuple[Any, ...], parents: bool, xattr: bool
) -> MutationSpec:
    if not values:
        raise InvalidArgumentException("there is no value to add")
    encoded = [_content(value, xattr) for value in values]
    macros = any(is_macro for _, is_macro in encoded)
    content = b",".join(part for part, _ in encoded)
    return MutationSpec(opcode, path, xattr or macros, parents, content, macros)


def _content(value: Any, xattr: bool) -> tuple[bytes, bool]:
    """Returns the JSON of a value, and whether it is a macro."""
    if isinstance(value, MutationMacro):
        return encode_json(value.value), True
    is_macro = xattr and isinstance(value, str) and value.startswith(_MACRO_MARKS)
    return encode_json(value), is_macro


def encode_specs(specs: Sequence[Spec], kind: type[Spec]) -> tuple[bytes, tuple[int, ...]]:
    """Encodes specs as the value of a request. Returns it with their order: attributes come first.

    Raises:
        InvalidArgumentException: if there are none or too many, one is of the other kind, or its
            path is too long.
    """
    if not 1 <= len(specs) <= SPECS_MAX:
        raise InvalidArgumentException(f"1 to {SPECS_MAX} specs are allowed, not {len(specs)}")
    for spec in specs:
        if not isinstance(spec, kind):
            raise InvalidArgumentException(f"{spec!r} is no {kind.__name__}")
    order = tuple(sorted(range(len(specs)), key=lambda index: not specs[index].xattr))
    return b"".join(_encode(specs[index], kind) for index in order), order


def _encode(spec: Spec, kind: type[Spec]) -> bytes:
    path = spec.path.encode()
    if len(path) > PATH_BYTES_MAX:
        raise InvalidArgumentException(f"a path has up to {PATH_BYTES_MAX} bytes, not {len(path)}")
    head = struct.pack(">BBH", spec.opcode, spec.flags, len(path))
    if kind is MutationSpec:
        head += struct.pack(">I", len(spec.value))
    return head + path + spec.value


def decode_lookup(value: bytes, spec_count: int) -> list[tuple[int, bytes]]:
    """Decodes the status and bytes for each spec of a lookup, in the order in which they were sent.

    Raises:
        DecodingFailureException: if the response is truncated or has another number of parts.
    """
    parts = []
    at = 0
    for _ in range(spec_count):
        status, length = _unpack(">HI", value, at)
        at += 6
        parts.append((status, _slice(value, at, length)))
        at += length
    if at != len(value):
        raise DecodingFailureException("the answer has more parts than specs")
    return parts


def decode_mutation(value: bytes, spec_count: int) -> Iterable[tuple[int, int, bytes]]:
    """Decodes number, status and bytes of the specs with a value, or of the first failed spec.

    Raises:
        DecodingFailureException: if the response is truncated or names a spec that was not sent.
    """
    at = 0
    while at < len(value):
        index, status = _unpack(">BH", value, at)
        at += 3
        if index >= spec_count:
            raise DecodingFailureException(f"the answer is about spec {index} of {spec_count}")
        content = b""
        if status == Status.SUCCESS:
            (length,) = _unpack(">I", value, at)
            content = _slice(value, at + 4, length)
            at += 4 + length
        yield index, status, content


def _unpack(layout: str, value: bytes, at: int) -> tuple[int, ...]:
    if at + struct.calcsize(layout) > len(value):
        raise DecodingFailureException(f"the answer is cut off at byte {at}")
    return struct.unpack_from(layout, value, at)


def _slice(value: bytes, at: int, length: int) -> bytes:
    if at + length > len(value):
        raise DecodingFailureException(f"the answer is cut off at byte {at}")
    return value[at : at + length]
