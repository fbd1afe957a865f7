"""Values to bytes and back. The flags stored with a document say what its bytes are."""

import json
from collections.abc import Callable
from typing import Any, Protocol

from .exceptions import ValidationException, ValueFormatException

JSON_FLAGS = 0x02000000
BINARY_FLAGS = 0x03000000
STRING_FLAGS = 0x04000000
_LEGACY_MASK, _LEGACY_BINARY, _LEGACY_STRING = 0x07, 0x02, 0x04
_LEGACY_KINDS = {0: JSON_FLAGS, _LEGACY_BINARY: BINARY_FLAGS, _LEGACY_STRING: STRING_FLAGS}
"""Kinds of documents that were stored before the highest byte of the flags had a meaning."""


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
"""Made once: the module makes a new one for each call with options."""
_DECODER = json.JSONDecoder()


class Transcoder(Protocol):
    """Turns values into bytes and flags, and back."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Bytes and flags to store."""
        ...

    def decode_value(self, value: bytes, flags: int) -> Any:
        """Value of stored bytes."""
        ...


class Serializer(Protocol):
    """Turns values into JSON and back."""

    def serialize(self, value: Any) -> bytes:
        """JSON of a value."""
        ...

    def deserialize(self, value: bytes) -> Any:
        """Value of JSON."""
        ...


class DefaultJsonSerializer:
    """The module ``json``, with compact output."""

    def serialize(self, value: Any) -> bytes:
        """JSON of a value.

        Raises:
            ValueFormatException: JSON has no such value.
        """
        return encode_json(value)

    def deserialize(self, value: bytes) -> Any:
        """Value of JSON.

        Raises:
            ValueFormatException: it is not JSON.
        """
        return decode_json(value)


class JSONTranscoder:
    """Values that JSON can express; the default. Another serializer may be faster."""

    def __init__(self, serializer: Serializer | None = None) -> None:
        self._serializer = serializer or DefaultJsonSerializer()

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Compact JSON.

        Raises:
            ValueFormatException: JSON has no such value.
        """
        return self._serializer.serialize(value), JSON_FLAGS

    def decode_value(self, value: bytes, flags: int) -> Any:
        """What the JSON says; documents without flags count as JSON.

        Raises:
            ValueFormatException: the document is not JSON.
        """
        if flags >> 24 not in (0, JSON_FLAGS >> 24):
            raise ValueFormatException(f"the flags 0x{flags:08x} do not say JSON")
        return self._serializer.deserialize(value)


class SchemaTranscoder:
    """Values that fit a schema, of whatever library: it needs a function that makes a value of JSON.

    ``load`` takes what was read as JSON and gives a value, or raises; ``dump`` makes JSON of a
    value again, and is left out where values are JSON. For pydantic these are `model_validate` and
    ``lambda hotel: hotel.model_dump(mode="json")``.
    """

    def __init__(
        self,
        load: Callable[[Any], Any],
        dump: Callable[[Any], Any] | None = None,
        inner: Transcoder | None = None,
    ) -> None:
        """``inner`` turns JSON into bytes."""
        self._load, self._dump = load, dump
        self._inner = inner or JSONTranscoder()

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """The bytes of a value, which `load` would take.

        Raises:
            ValidationException: it would not.
        """
        plain = value if self._dump is None else self._checked(self._dump, value)
        self._checked(self._load, plain)
        return self._inner.encode_value(plain)

    def decode_value(self, value: bytes, flags: int) -> Any:
        """What `load` makes of the stored value.

        Raises:
            ValidationException: it takes no such value.
        """
        return self._checked(self._load, self._inner.decode_value(value, flags))

    @staticmethod
    def _checked(function: Callable[[Any], Any], value: Any) -> Any:
        try:
            return function(value)
        except Exception as error:
            text = f"the document does not fit the schema: {error}"
            raise ValidationException(text) from error


class RawJSONTranscoder:
    """JSON that the program writes and reads itself, as bytes or text."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """The bytes themselves, or the text's UTF-8.

        Raises:
            ValueFormatException: it is neither.
        """
        if isinstance(value, str):
            return value.encode(), JSON_FLAGS
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value), JSON_FLAGS
        raise ValueFormatException(f"{type(value).__name__} is neither bytes nor a string")

    def decode_value(self, value: bytes, flags: int) -> bytes:
        """The bytes themselves.

        Raises:
            ValueFormatException: the flags do not say JSON.
        """
        if flags >> 24 not in (0, JSON_FLAGS >> 24):
            raise ValueFormatException(f"the flags 0x{flags:08x} do not say JSON")
        return value


class LegacyTranscoder:
    """Text, bytes and JSON by the type of the value, as clients of the second generation did it.

    Python objects as pickles, which such clients also stored, are refused: to read one runs code
    that whoever wrote the document has chosen.
    """

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """UTF-8 of text, bytes as they are, JSON of everything else.

        Raises:
            ValueFormatException: JSON has no such value.
        """
        if isinstance(value, str):
            return value.encode(), STRING_FLAGS | _LEGACY_STRING
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value), BINARY_FLAGS | _LEGACY_BINARY
        return encode_json(value), JSON_FLAGS

    def decode_value(self, value: bytes, flags: int) -> Any:
        """What the flags say it is.

        Raises:
            ValueFormatException: the flags say none of the three.
        """
        kind = flags & 0xFF000000 or _LEGACY_KINDS.get(flags & _LEGACY_MASK, 0)
        if kind == JSON_FLAGS:
            return decode_json(value)
        if kind == BINARY_FLAGS:
            return value
        if kind == STRING_FLAGS:
            return RawStringTranscoder().decode_value(value, flags)
        raise ValueFormatException(f"the flags 0x{flags:08x} do not say JSON, text or bytes")


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
        return _ENCODER.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueFormatException(f"the value is not JSON: {error}") from None


def decode_json(value: bytes) -> Any:
    """Value of JSON.

    Raises:
        ValueFormatException: it is not JSON.
    """
    try:
        try:
            return _DECODER.decode(value.decode())
        except ValueError:
            # JSON in UTF-16 or UTF-32, or none.
            return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueFormatException(f"the document is not JSON: {error}") from None


DEFAULT_TRANSCODER = JSONTranscoder()
"""Of clusters that name no other one."""
