"""Encodes and decodes frames of the binary protocol.

A frame is 24 bytes of header and a body: framing extras, extras, key and value. Numbers are
big-endian:

    0 magic | 1 opcode | 2..3 key length | 4 extras length | 5 datatype | 6..7 vBucket or status
    8..11 body length | 12..15 opaque | 16..23 CAS

The flexible magics (0x08 for requests, 0x18 for responses) split bytes 2..3 into the length of the
framing extras and that of the key. Lengths come from the peer, so each is checked against the body
before it is used.
"""

import struct
from collections.abc import Iterator

from ._record import dataclass
from .exceptions import DecodingFailureException

HEADER = struct.Struct(">BBHBBHIIQ")
BODY_BYTES_MAX = 31 * 1024 * 1024
"""A little above what servers accept (20 MiB of document and its extended attributes)."""

_ASK, _ASK_FLEXIBLE, _ANSWER, _ANSWER_FLEXIBLE = 0x80, 0x08, 0x81, 0x18
_PUSH = 0x82
_ANSWERS = (_ANSWER, _ANSWER_FLEXIBLE, _PUSH)
_PRESERVE_EXPIRY = b"\x50"
"""Framing extras that keep a document's expiry when it is written (id 5, length 0)."""
_DURABILITY_HEAD = 0x13
"""Head of framing extras with a durability level and a time-out (id 1, length 3)."""
_DURABILITY_SHARE = 0.9
"""Part of an operation's time that the server may take for durability: its answer then comes
before the client gives up, and says what became of the change."""


def framing_extras(
    preserve_expiry: bool = False, durability_level: int = 0, seconds: float = 0
) -> bytes:
    """Returns the framing extras of a change; ``seconds`` is the timeout of the operation."""
    extras = _PRESERVE_EXPIRY if preserve_expiry else b""
    if durability_level:
        milliseconds = min(max(int(seconds * 1000 * _DURABILITY_SHARE), 1), 0xFFFE)
        extras += struct.pack(">BBH", _DURABILITY_HEAD, durability_level, milliseconds)
    return extras


@dataclass(slots=True)
class Request:
    """A request without its opaque, which the connection assigns.

    A request is immutable after its creation. Neither requests nor responses are frozen
    dataclasses: creating a frozen one, as each operation would, takes three times as long.
    """

    opcode: int
    key: bytes = b""
    extras: bytes = b""
    value: bytes = b""
    vbid: int = 0
    cas: int = 0
    datatype: int = 0
    framing: bytes = b""

    def to(self, key: bytes, vbid: int) -> "Request":
        """Returns the same request for a key."""
        return Request(
            self.opcode, key, self.extras, self.value, vbid, self.cas, self.datatype, self.framing
        )

    def encode(self, opaque: int) -> bytes:
        """Encodes the request. The frame is flexible only if there are framing extras."""
        magic, lengths = _ASK, len(self.key)
        if self.framing:
            magic, lengths = _ASK_FLEXIBLE, len(self.framing) << 8 | len(self.key)
        body = b"".join((self.framing, self.extras, self.key, self.value))
        header = HEADER.pack(
            magic, self.opcode, lengths, len(self.extras), self.datatype,
            self.vbid, len(body), opaque, self.cas,
        )  # fmt: skip
        return header + body


@dataclass(slots=True)
class Response:
    """A decoded response."""

    opcode: int
    status: int
    opaque: int
    cas: int
    datatype: int
    extras: bytes
    key: bytes
    value: bytes
    is_push: bool = False
    """The server sent it of its own accord, and expects no answer."""


class FrameReader:
    """Collects bytes as they arrive, and returns complete responses."""

    def __init__(self) -> None:
        self._pending = bytearray()
        """The beginning of a frame."""
        self._wanted = HEADER.size
        """Bytes of it without which nothing is to be done."""

    def feed(self, data: bytes) -> Iterator[Response]:
        """Returns the responses that ``data`` completes.

        Raises:
            DecodingFailureException: if the peer does not speak this protocol.
        """
        if self._pending:
            self._pending += data
            if len(self._pending) < self._wanted:
                return
            data, self._pending = bytes(self._pending), bytearray()
        at, size = 0, len(data)
        self._wanted = HEADER.size
        while size - at >= HEADER.size:
            body_bytes = int.from_bytes(data[at + 8 : at + 12], "big")
            if body_bytes > BODY_BYTES_MAX:
                raise DecodingFailureException(f"frame of {body_bytes} bytes is over the limit")
            if data[at] not in _ANSWERS:
                raise DecodingFailureException(f"no answer starts with 0x{data[at]:02x}")
            end = at + HEADER.size + body_bytes
            if end > size:
                self._wanted = end - at
                break
            yield decode(data, at, end)
            at = end
        if at < size:
            self._pending += data[at:]


def decode(data: bytes, at: int = 0, end: int | None = None) -> Response:
    """Decodes a complete frame within ``data``.

    Raises:
        DecodingFailureException: if its lengths contradict each other.
    """
    end = len(data) if end is None else end
    if end - at < HEADER.size:
        raise DecodingFailureException(f"{end - at} bytes are no frame")
    magic, opcode, lengths, extras_bytes, datatype, status, body_bytes, opaque, cas = (
        HEADER.unpack_from(data, at)
    )
    framing_bytes, key_bytes = 0, lengths
    if magic == _ANSWER_FLEXIBLE:
        framing_bytes, key_bytes = lengths >> 8, lengths & 0xFF
    extras_at = at + HEADER.size + framing_bytes
    key_at = extras_at + extras_bytes
    value_at = key_at + key_bytes
    if end - at != HEADER.size + body_bytes or value_at > end:
        parts = value_at - at - HEADER.size
        raise DecodingFailureException(
            f"a body of {body_bytes} bytes cannot hold {parts} bytes of parts"
        )
    return Response(
        opcode, status, opaque, cas, datatype,
        data[extras_at:key_at], data[key_at:value_at], data[value_at:end], magic == _PUSH,
    )  # fmt: skip
