"""Values to bytes and back. The flags stored with a document say what its bytes are."""

import json
from typing import Any, Protocol

from .exceptions import ValueFormatException

JSON_FLAGS = 0x02000000
BINARY_FLAGS = 0x03000000
STRING_FLAGS = 0x04000000


class Transcoder(Protocol):
    """Turns values into bytes and flags, and back."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Bytes and flags to store."""
        ...

    def decode_value(self, value: bytes, flags: int) -> Any:
        """Value of stored bytes."""
        ...


class JSONTranscoder:
    """Values that JSON can express; the default."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Compact JSON.

        Raises:
            ValueFormatException: JSON has no such value.
        """
        return encode_json(value), JSON_FLAGS

    def decode_value(self, value: bytes, flags: int) -> Any:
        """What the JSON says; documents without flags count as JSON.

        Raises:
            ValueFormatException: the document is not JSON.
        """
        if flags >> 24 not in (0, JSON_FLAGS >> 24):
            raise ValueFormatException(f"the flags 0x{flags:08x} do not say JSON")
        return decode_json(value)


class RawBinaryTranscoder:
    """Bytes as they are."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """The bytes themselves.

        Raises:
            ValueFormatException: it is something else than bytes.
        """
        if not isinstance(value, bytes | bytearray | memoryview):
            raise ValueFormatException(f"{type(value).__name__} is not bytes")
        return bytes(value), BINARY_FLAGS

    def decode_value(self, value: bytes, flags: int) -> bytes:
        """The bytes themselves, whatever the flags."""
        return value


class RawStringTranscoder:
    """Text as UTF-8."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """The text's UTF-8.

        Raises:
            ValueFormatException: it is no text.
        """
        if not isinstance(value, str):
            raise ValueFormatException(f"{type(value).__name__} is not a string")
        return value.encode(), STRING_FLAGS

    def decode_value(self, value: bytes, flags: int) -> str:
        """The text.

        Raises:
            ValueFormatException: it is not UTF-8.
        """
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueFormatException(f"the document is not UTF-8: {error}") from None


def encode_json(value: Any) -> bytes:
    """Compact JSON of a value; NaN and infinities are refused, as JSON has none.

    Raises:
        ValueFormatException: JSON has no such value.
    """
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueFormatException(f"the value is not JSON: {error}") from None


def decode_json(value: bytes) -> Any:
    """Value of JSON.

    Raises:
        ValueFormatException: it is not JSON.
    """
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueFormatException(f"the document is not JSON: {error}") from None
