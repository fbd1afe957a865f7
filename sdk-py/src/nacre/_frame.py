"""Bytes of the binary protocol to frames and back.

A frame is 24 bytes of header and a body: framing extras, extras, key and value. Numbers are
big-endian:

    0 magic | 1 opcode | 2..3 key length | 4 extras length | 5 datatype | 6..7 vBucket or status
    8..11 body length | 12..15 opaque | 16..23 CAS

The flexible magics (0x08 asks, 0x18 answers) split bytes 2..3 into the length of the framing extras
and of the key. Lengths come from the peer, so each is checked against the body before it is used.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .exceptions import DecodingFailureException

HEADER = struct.Struct(">BBHBBHIIQ")
BODY_BYTES_MAX = 31 * 1024 * 1024
"""A little above what servers accept (20 MiB of document and its extended attributes)."""

_ASK, _ASK_FLEXIBLE, _ANSWER, _ANSWER_FLEXIBLE = 0x80, 0x08, 0x81, 0x18
_PUSH = 0x82
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
    """Framing extras of a change; ``seconds`` are the time that the operation may take."""
    extras = _PRESERVE_EXPIRY if preserve_expiry else b""
    if durability_level:
        milliseconds = min(max(int(seconds * 1000 * _DURABILITY_SHARE), 1), 0xFFFE)
        extras += struct.pack(">BBH", _DURABILITY_HEAD, durability_level, milliseconds)
    return extras


@dataclass(frozen=True, slots=True)
class Request:
    """A request without its opaque, which belongs to the connection that sends it."""

    opcode: int
    key: bytes = b""
    extras: bytes = b""
    value: bytes = b""
    vbid: int = 0
    cas: int = 0
    datatype: int = 0
    framing: bytes = b""

    def encode(self, opaque: int) -> bytes:
        """The request as bytes; flexible only when there are framing extras."""
        magic, lengths = _ASK, len(self.key)
        if self.framing:
            magic, lengths = _ASK_FLEXIBLE, len(self.framing) << 8 | len(self.key)
        body = b"".join((self.framing, self.extras, self.key, self.value))
        header = HEADER.pack(
            magic, self.opcode, lengths, len(self.extras), self.datatype,
            self.vbid, len(body), opaque, self.cas,
        )  # fmt: skip
        return header + body


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, taken apart."""

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
    """Collects bytes as they arrive and gives the answers that are complete."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[Response]:
        """Answers completed by ``data``.

        Raises:
            DecodingFailureException: the peer does not speak this protocol; the stream is useless.
        """
        self._pending += data
        while len(self._pending) >= HEADER.size:
            body_bytes = int.from_bytes(self._pending[8:12], "big")
            if body_bytes > BODY_BYTES_MAX:
                raise DecodingFailureException(f"frame of {body_bytes} bytes is over the limit")
            frame_bytes = HEADER.size + body_bytes
            if self._pending[0] not in (_ANSWER, _ANSWER_FLEXIBLE, _PUSH):
                raise DecodingFailureException(f"no answer starts with 0x{self._pending[0]:02x}")
            if len(self._pending) < frame_bytes:
                return
            frame = bytes(self._pending[:frame_bytes])
            del self._pending[:frame_bytes]
            yield decode(frame)


def decode(frame: bytes) -> Response:
    """Takes one whole frame apart.

    Raises:
        DecodingFailureException: its lengths contradict each other.
    """
    if len(frame) < HEADER.size:
        raise DecodingFailureException(f"{len(frame)} bytes are no frame")
    magic, opcode, lengths, extras_bytes, datatype, status, body_bytes, opaque, cas = (
        HEADER.unpack_from(frame)
    )
    framing_bytes, key_bytes = 0, lengths
    if magic == _ANSWER_FLEXIBLE:
        framing_bytes, key_bytes = lengths >> 8, lengths & 0xFF
    extras_at = HEADER.size + framing_bytes
    key_at = extras_at + extras_bytes
    value_at = key_at + key_bytes
    if len(frame) != HEADER.size + body_bytes or value_at > len(frame):
        raise DecodingFailureException(
            f"a body of {body_bytes} bytes cannot hold {value_at - HEADER.size} bytes of parts"
        )
    return Response(
        opcode, status, opaque, cas, datatype,
        extras=frame[extras_at:key_at], key=frame[key_at:value_at], value=frame[value_at:],
        is_push=magic == _PUSH,
    )  # fmt: skip
