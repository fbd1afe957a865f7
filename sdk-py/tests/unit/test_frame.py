"""Frames, byte by byte."""

import unittest

from nacre._frame import BODY_BYTES_MAX, FrameReader, Request, Response, decode, framing_extras
from nacre._opcodes import Opcode, Status
from nacre.exceptions import DecodingFailureException

# Magic 81, opcode 00, no key, 4 bytes of extras, status 0, body 9, opaque 7, CAS 5; flags, "[1,2]".
ANSWER = bytes.fromhex("81000000040000000000000900000007000000000000000502000000") + b"[1,2]"


class FrameTest(unittest.TestCase):
    def test_a_get_is_the_documented_bytes(self) -> None:
        encoded = Request(Opcode.GET, key=b"\x00k1", vbid=526).encode(opaque=7)
        self.assertEqual(encoded.hex(), "800000030000020e0000000300000007" + "00" * 8 + "006b31")

    def test_framing_extras_make_the_frame_flexible(self) -> None:
        request = Request(
            Opcode.SET, b"k", b"\0" * 8, b"1", framing=framing_extras(preserve_expiry=True)
        )
        encoded = request.encode(opaque=1)
        self.assertEqual(encoded[:5].hex(), "0801010108")
        self.assertEqual(encoded[24:], b"\x50" + b"\0" * 8 + b"k1")

    def test_an_answer_is_taken_apart(self) -> None:
        response = decode(ANSWER)
        self.assertEqual(response.status, Status.SUCCESS)
        self.assertEqual((response.opaque, response.cas), (7, 5))
        self.assertEqual((response.extras.hex(), response.value), ("02000000", b"[1,2]"))

    def test_a_flexible_answer_loses_its_framing_extras(self) -> None:
        frame = bytearray(ANSWER)
        frame[0], frame[2], frame[11] = 0x18, 3, 12
        frame[24:24] = bytes.fromhex("020001")
        self.assertEqual(decode(bytes(frame)).value, b"[1,2]")

    def test_answers_may_arrive_in_any_pieces(self) -> None:
        reader = FrameReader()
        found: list[Response] = []
        for byte in ANSWER * 3:
            found += reader.feed(bytes([byte]))
        self.assertEqual([response.value for response in found], [b"[1,2]"] * 3)

    def test_lengths_that_contradict_each_other_are_refused(self) -> None:
        for at, byte in ((3, 200), (4, 10), (11, 3)):
            frame = bytearray(ANSWER)
            frame[at] = byte
            with self.subTest(at=at), self.assertRaises(DecodingFailureException):
                decode(bytes(frame))

    def test_a_body_over_the_limit_is_refused_before_it_arrives(self) -> None:
        header = ANSWER[:8] + (BODY_BYTES_MAX + 1).to_bytes(4, "big") + ANSWER[12:24]
        with self.assertRaises(DecodingFailureException):
            list(FrameReader().feed(header))

    def test_a_stream_that_is_another_protocol_is_refused(self) -> None:
        with self.assertRaises(DecodingFailureException):
            list(FrameReader().feed(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
