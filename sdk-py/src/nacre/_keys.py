"""From a document's key to where it lives and how it is written on the wire."""

import zlib

from .exceptions import InvalidArgumentException

_KEY_BYTES_MAX = 250
_KEY_BYTES_MAX_IN_COLLECTION = 246


def vbucket_of(key: bytes, vbucket_count: int) -> int:
    """vBucket of a key: bits 16..30 of its CRC-32, modulo the number of vBuckets.

    The key is the logical one: the id of its collection takes no part.
    """
    return (zlib.crc32(key) >> 16 & 0x7FFF) % vbucket_count


def leb128(number: int) -> bytes:
    """Unsigned LEB128, which puts a collection's id before a key."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def check_key(key: str, in_default_collection: bool) -> bytes:
    """Bytes of a key that may be sent: 1..=250 of UTF-8, 246 outside the default collection.

    Raises:
        InvalidArgumentException: it is no string, empty or too long.
    """
    if not isinstance(key, str):
        raise InvalidArgumentException(f"a key is a string, not {type(key).__name__}")
    encoded = key.encode()
    limit = _KEY_BYTES_MAX if in_default_collection else _KEY_BYTES_MAX_IN_COLLECTION
    if not 1 <= len(encoded) <= limit:
        raise InvalidArgumentException(f"a key has 1 to {limit} bytes, not {len(encoded)}")
    return encoded
