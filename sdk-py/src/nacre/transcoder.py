"""Encoding and decoding of values. The flags of a document determine the format of its bytes."""

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
    """Encodes values into bytes and flags, and decodes them."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Returns the bytes and flags to store."""
        ...

    def decode_value(self, value: bytes, flags: int) -> Any:
        """Returns the value of stored bytes."""
        ...


class Serializer(Protocol):
    """Serialises values as JSON, and parses them."""

    def serialize(self, value: Any) -> bytes:
        """Returns the JSON of a value."""
        ...

    def deserialize(self, value: bytes) -> Any:
        """Returns the value of JSON."""
        ...


class DefaultJsonSerializer:
    """The module ``json``, with compact output."""

    def serialize(self, value: Any) -> bytes:
        """Returns the JSON of a value.

        Raises:
            ValueFormatException: if JSON cannot represent the value.
        """
        return encode_json(value)

    def deserialize(self, value: bytes) -> Any:
        """Returns the value of JSON.

        Raises:
            ValueFormatException: if it is not JSON.
        """
        return decode_json(value)


class JSONTranscoder:
    """Stores JSON values; the default. Another serializer may be faster."""

    def __init__(self, serializer: Serializer | None = None) -> None:
        self._serializer = serializer or DefaultJsonSerializer()

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Returns compact JSON.

        Raises:
            ValueFormatException: if JSON cannot represent the value.
        """
        return self._serializer.serialize(value), JSON_FLAGS

    def decode_value(self, value: bytes, flags: int) -> Any:
        """Parses JSON. Documents without flags count as JSON.

        Raises:
            ValueFormatException: if the document is not JSON.
        """
        if flags >> 24 not in (0, JSON_FLAGS >> 24):
            raise ValueFormatException(f"the flags 0x{flags:08x} do not say JSON")
        return self._serializer.deserialize(value)


class SchemaTranscoder:
    """Stores values that fit a schema of any library: it needs a function that validates parsed
    JSON.

    ``load`` receives parsed JSON and returns a value, or raises; ``dump`` converts a value back,
    and is unnecessary if the values are JSON. For pydantic these are `model_validate` and ``lambda
    hotel: hotel.model_dump(mode="json")``.
    """

    def __init__(
        self,
        load: Callable[[Any], Any],
        dump: Callable[[Any], Any] | None = None,
        inner: Transcoder | None = None,
    ) -> None:
        """``inner`` encodes JSON."""
        self._load, self._dump = load, dump
        self._inner = inner or JSONTranscoder()

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Encodes a value that `load` accepts.

        Raises:
            ValidationException: if `load` does not accept it.
        """
        plain = value if self._dump is None else self._checked(self._dump, value)
        self._checked(self._load, plain)
        return self._inner.encode_value(plain)

    def decode_value(self, value: bytes, flags: int) -> Any:
        """Returns the result of `load` for the stored value.

        Raises:
            ValidationException: if `load` does not accept it.
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
    """Stores JSON that the program serialises and parses itself, as bytes or text."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Returns the bytes themselves, or the UTF-8 of the text.

        Raises:
            ValueFormatException: if it is neither.
        """
        if isinstance(value, str):
            return value.encode(), JSON_FLAGS
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value), JSON_FLAGS
        raise ValueFormatException(f"{type(value).__name__} is neither bytes nor a string")

    def decode_value(self, value: bytes, flags: int) -> bytes:
        """Returns the bytes themselves.

        Raises:
            ValueFormatException: if the flags do not indicate JSON.
        """
        if flags >> 24 not in (0, JSON_FLAGS >> 24):
            raise ValueFormatException(f"the flags 0x{flags:08x} do not say JSON")
        return value


class LegacyTranscoder:
    """Stores text, bytes or JSON by the type of the value, like second-generation clients.

    Pickled Python objects, which such clients also stored, are refused: reading one would execute
    code that the document's author has chosen.
    """

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Encodes text as UTF-8, bytes unchanged, and everything else as JSON.

        Raises:
            ValueFormatException: if JSON cannot represent the value.
        """
        if isinstance(value, str):
            return value.encode(), STRING_FLAGS | _LEGACY_STRING
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value), BINARY_FLAGS | _LEGACY_BINARY
        return encode_json(value), JSON_FLAGS

    def decode_value(self, value: bytes, flags: int) -> Any:
        """Decodes according to the flags.

        Raises:
            ValueFormatException: if the flags indicate none of the three.
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
    """Stores bytes unchanged."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Returns the bytes themselves.

        Raises:
            ValueFormatException: if it is not bytes.
        """
        if not isinstance(value, bytes | bytearray | memoryview):
            raise ValueFormatException(f"{type(value).__name__} is not bytes")
        return bytes(value), BINARY_FLAGS

    def decode_value(self, value: bytes, flags: int) -> bytes:
        """Returns the bytes themselves, with any flags."""
        return value


class RawStringTranscoder:
    """Stores text as UTF-8."""

    def encode_value(self, value: Any) -> tuple[bytes, int]:
        """Returns the UTF-8 of the text.

        Raises:
            ValueFormatException: if it is not text.
        """
        if not isinstance(value, str):
            raise ValueFormatException(f"{type(value).__name__} is not a string")
        return value.encode(), STRING_FLAGS

    def decode_value(self, value: bytes, flags: int) -> str:
        """Returns the text.

        Raises:
            ValueFormatException: if it is not UTF-8.
        """
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueFormatException(f"the document is not UTF-8: {error}") from None


def encode_json(value: Any) -> bytes:
    """Serialises a value as compact JSON. NaN and infinities are refused, because JSON has none.

    Raises:
        ValueFormatException: if JSON cannot represent the value.
    """
    try:
        return _ENCODER.encode(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueFormatException(f"the value is not JSON: {error}") from None


def decode_json(value: bytes) -> Any:
    """Returns the value of JSON.

    Raises:
        ValueFormatException: if it is not JSON.
    """
    try:
        try:
            return _DECODER.decode(value.decode())
        except ValueError:
            # The text is JSON in UTF-16 or UTF-32, or not JSON.
            return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueFormatException(f"the document is not JSON: {error}") from None


DEFAULT_TRANSCODER = JSONTranscoder()
"""Of clusters that name no other one."""
