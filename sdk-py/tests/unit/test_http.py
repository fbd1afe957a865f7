"""HTTP answers, from bytes."""

import asyncio
import unittest

from nacre._client import KvClient
from nacre._connstr import Address
from nacre._http import BODY_BYTES_MAX, HttpClient, HttpRequest, form, read_response
from nacre._map import ClusterMap
from nacre._security import Security
from nacre.exceptions import AmbiguousTimeoutException, DecodingFailureException


async def read(text: bytes) -> tuple[int, bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(text)
    reader.feed_eof()
    return await read_response(reader)


class HttpTest(unittest.IsolatedAsyncioTestCase):
    async def test_a_body_has_a_length_or_chunks_or_ends_with_the_connection(self) -> None:
        for head, body in (
            (b"Content-Length: 5", b"hello and more"),
            (b"transfer-encoding: Chunked", b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"),
            (b"X: y", b"hello"),
        ):
            with self.subTest(head=head):
                text = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body
                self.assertEqual(await read(text), (200, b"hello"))

    async def test_answers_that_are_no_http_or_too_large_are_refused(self) -> None:
        for text in (
            b"\x81\x00 binary\r\n\r\n",
            b"HTTP/1.1 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;%s\r\n" % bytes(1 << 17),
        ):
            with self.subTest(text=text[:80]), self.assertRaises(DecodingFailureException):
                await read(text)

    async def test_answers_that_are_cut_off_end_in_an_error(self) -> None:
        length, chunks = b"Content-Length: 5", b"Transfer-Encoding: chunked"
        for head, body in (
            (length, b"hel"),
            (chunks, b""),
            (chunks, b"5"),
            (chunks, b"5\r\nhel"),
            (chunks, b"5\r\nhello\r\n"),
        ):
            with self.subTest(head=head, body=body), self.assertRaises(EOFError):
                await read(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body)

    async def test_a_request_out_of_time_does_not_wait_until_the_server_has_read_it(self) -> None:
        given_up, byte_counts = asyncio.Event(), asyncio.Queue[int]()

        async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.pause_reading()
            await given_up.wait()
            writer.transport.resume_reading()
            byte_counts.put_nowait(len(await reader.read()))
            writer.close()

        # More than the sockets between hold.
        body = bytes(20_000_000)
        async with await asyncio.start_server(read_late, "127.0.0.1", 0) as server:
            address = Address(*server.sockets[0].getsockname())
            with self.assertRaises(AmbiguousTimeoutException):
                client = KvClient((), Security("user", "password"), None)
                client.map = ClusterMap((0, 1), (), (), (("mgmt", address),))
                request = HttpRequest("POST", "/", body)
                await HttpClient(Security("user", "password")).send(client, "mgmt", request, 0.2)
            given_up.set()
            self.assertLess(await byte_counts.get(), len(body))

    def test_forms_leave_out_what_is_not_set(self) -> None:
        self.assertEqual(form({"name": "a b", "flush": True, "ttl": None}), b"name=a+b&flush=1")
