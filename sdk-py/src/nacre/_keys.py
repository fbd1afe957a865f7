"""The vBucket of a key, and its encoding."""

import zlib

from .exceptions import InvalidArgumentException

_KEY_BYTES_MAX = 250
_KEY_BYTES_MAX_IN_COLLECTION = 246


def vbucket_of(key: bytes, vbucket_count: int) -> int:
    """Returns the vBucket of a key: bits 16..30 of its CRC-32, modulo the number of vBuckets.

    The key does not include the collection ID.
    """
    return (zlib.crc32(key) >> 16 & 0x7FFF) % vbucket_count


def leb128(number: int) -> bytes:
    """Encodes a number as unsigned LEB128, as the collection ID before a key."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def check_key(key: str, in_default_collection: bool) -> bytes:
    """Returns the bytes of a valid key: 1..=250 bytes of UTF-8, 246 outside the default collection.

    Raises:
        InvalidArgumentException: if it is not a string, is empty, or is too long.
    """
    if not isinstance(key, str):
        raise InvalidArgumentException(f"a key is a string, not {type(key).__name__}")
    encoded = key.encode()
    limit = _KEY_BYTES_MAX if in_default_collection else _KEY_BYTES_MAX_IN_COLLECTION
    if not 1 <= len(encoded) <= limit:
        raise InvalidArgumentException(f"a key has 1 to {limit} bytes, not {len(encoded)}")
    return encoded
