"""Codes of the binary protocol: opcodes, statuses and features."""

from enum import IntEnum


class Opcode(IntEnum):
    """Opcode of a request, which its response repeats."""

    GET = 0x00
    SET = 0x01
    ADD = 0x02
    REPLACE = 0x03
    DELETE = 0x04
    INCREMENT = 0x05
    DECREMENT = 0x06
    NOOP = 0x0A
    APPEND = 0x0E
    PREPEND = 0x0F
    TOUCH = 0x1C
    GET_AND_TOUCH = 0x1D
    HELLO = 0x1F
    SASL_LIST_MECHS = 0x20
    SASL_AUTH = 0x21
    SASL_STEP = 0x22
    GET_REPLICA = 0x83
    SELECT_BUCKET = 0x89
    OBSERVE_SEQNO = 0x91
    GET_LOCKED = 0x94
    UNLOCK = 0x95
    GET_META = 0xA0
    GET_CLUSTER_CONFIG = 0xB5
    GET_COLLECTION_ID = 0xBB
    SUBDOC_GET = 0xC5
    SUBDOC_EXISTS = 0xC6
    SUBDOC_DICT_ADD = 0xC7
    SUBDOC_DICT_UPSERT = 0xC8
    SUBDOC_DELETE = 0xC9
    SUBDOC_REPLACE = 0xCA
    SUBDOC_ARRAY_PUSH_LAST = 0xCB
    SUBDOC_ARRAY_PUSH_FIRST = 0xCC
    SUBDOC_ARRAY_INSERT = 0xCD
    SUBDOC_ARRAY_ADD_UNIQUE = 0xCE
    SUBDOC_COUNTER = 0xCF
    SUBDOC_MULTI_LOOKUP = 0xD0
    SUBDOC_MULTI_MUTATION = 0xD1
    SUBDOC_GET_COUNT = 0xD2
    SUBDOC_REPLACE_BODY = 0xD3
    RANGE_SCAN_CREATE = 0xDA
    RANGE_SCAN_CONTINUE = 0xDB
    RANGE_SCAN_CANCEL = 0xDC


class Status(IntEnum):
    """Status of a response, as far as this client distinguishes statuses."""

    SUCCESS = 0x00
    KEY_NOT_FOUND = 0x01
    KEY_EXISTS = 0x02
    TOO_BIG = 0x03
    INVALID = 0x04
    NOT_STORED = 0x05
    DELTA_BAD_VALUE = 0x06
    NOT_MY_VBUCKET = 0x07
    NO_BUCKET = 0x08
    LOCKED = 0x09
    NOT_LOCKED = 0x0E
    AUTH_STALE = 0x1F
    AUTH_ERROR = 0x20
    AUTH_CONTINUE = 0x21
    ACCESS = 0x24
    UNKNOWN_COMMAND = 0x81
    NO_MEMORY = 0x82
    NOT_SUPPORTED = 0x83
    INTERNAL = 0x84
    BUSY = 0x85
    TEMPORARY_FAILURE = 0x86
    XATTR_INVALID = 0x87
    UNKNOWN_COLLECTION = 0x88
    UNKNOWN_SCOPE = 0x8C
    DURABILITY_INVALID_LEVEL = 0xA0
    DURABILITY_IMPOSSIBLE = 0xA1
    SYNC_WRITE_IN_PROGRESS = 0xA2
    SYNC_WRITE_AMBIGUOUS = 0xA3
    SYNC_WRITE_RECOMMIT = 0xA4
    SCAN_CANCELLED = 0xA5
    SCAN_MORE = 0xA6
    SCAN_COMPLETE = 0xA7
    SCAN_HISTORY_DIFFERS = 0xA8
    PATH_NOT_FOUND = 0xC0
    PATH_MISMATCH = 0xC1
    PATH_INVALID = 0xC2
    PATH_TOO_BIG = 0xC3
    DOCUMENT_TOO_DEEP = 0xC4
    VALUE_CANNOT_INSERT = 0xC5
    DOCUMENT_NOT_JSON = 0xC6
    NUMBER_RANGE = 0xC7
    DELTA_INVALID = 0xC8
    PATH_EXISTS = 0xC9
    VALUE_TOO_DEEP = 0xCA
    INVALID_COMBINATION = 0xCB
    MULTI_PATH_FAILURE = 0xCC
    SUCCESS_DELETED = 0xCD
    XATTR_UNKNOWN_MACRO = 0xD0
    XATTR_UNKNOWN_VIRTUAL = 0xD1
    XATTR_CANNOT_MODIFY_VIRTUAL = 0xD2
    MULTI_PATH_FAILURE_DELETED = 0xD3
    INVALID_XATTR_ORDER = 0xD4


class Feature(IntEnum):
    """Features that HELLO negotiates. The client never requests Snappy: values are uncompressed."""

    TCP_NODELAY = 0x03
    MUTATION_SEQNO = 0x04
    XATTR = 0x06
    XERROR = 0x07
    SELECT_BUCKET = 0x08
    JSON = 0x0B
    DUPLEX = 0x0C
    MAP_CHANGE_NOTIFICATION = 0x0D
    UNORDERED_EXECUTION = 0x0E
    ALT_REQUEST = 0x10
    SYNC_REPLICATION = 0x11
    COLLECTIONS = 0x12
    PRESERVE_TTL = 0x14
    SUBDOC_CREATE_AS_DELETED = 0x17
    SUBDOC_DOCUMENT_MACRO = 0x18
    SUBDOC_REPLACE_BODY = 0x19
    SUBDOC_REPLICA_READ = 0x1C
    SUBDOC_BINARY_XATTR = 0x21


DATATYPE_JSON = 0x01
"""Bit of a frame's datatype: the value is JSON."""


def status_name(code: int) -> str:
    """Returns the name of a status for messages, for example ``KEY_NOT_FOUND (0x01)``."""
    name = Status(code).name if code in Status._value2member_map_ else "status"
    return f"{name} (0x{code:02x})"


def operation_name(code: int) -> str:
    """Returns the name of an opcode for messages."""
    return Opcode(code).name if code in Opcode._value2member_map_ else f"0x{code:02x}"
