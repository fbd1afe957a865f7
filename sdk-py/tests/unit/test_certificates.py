"""Nodes whose certificates are out of date, of another name or by a stranger."""

import asyncio
import ssl
import tempfile
import time
import unittest
from datetime import timedelta
from pathlib import Path

import nacre
from nacre import exceptions as e
from tests.unit import own_certificates as own
from tests.unit.fake_node import FakeNode
from tests.unit.test_leftovers import FOUND, sockets

TIMEOUTS = nacre.ClusterTimeoutOptions(connect_timeout=timedelta(seconds=60))


class TlsNode(FakeNode):
    """A node whose only port takes TLS."""

    def __init__(self, certificate: str) -> None:
        super().__init__()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "node.pem"
            path.write_text(own.NODE_KEY + certificate)
            self.tls.load_cert_chain(path)

    async def __aenter__(self) -> "TlsNode":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"couchbases://127.0.0.1:{self.port}"

    def config(self, port: int | None = None) -> bytes:
        """A map in which the only port is one with TLS."""
        return super().config(port).replace(b'"kv"', b'"kvSSL"')


class CertificateTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        # The loop of the node would log each client that leaves.
        asyncio.get_running_loop().set_debug(False)

    async def test_a_good_certificate_is_accepted(self) -> None:
        async with TlsNode(own.GOOD) as node:
            node.on[0x00] = lambda _: FOUND
            connecting = nacre.connect(node.url, "user", "password", trust_pem=own.AUTHORITY)
            async with await connecting as cluster:
                collection = cluster.bucket("b").default_collection()
                self.assertEqual((await collection.get("k")).content, "v")

    async def test_a_bad_certificate_is_refused_at_once_with_the_reason(self) -> None:
        bad = {
            "expired": own.EXPIRED,
            "not yet valid": own.EARLY,
            "mismatch": own.OTHER_NAME,
        }
        for reason, certificate in bad.items():
            with self.subTest(reason):
                before, begun = sockets(), time.monotonic()
                async with TlsNode(certificate) as node:
                    with self.assertRaisesRegex(e.AuthenticationException, reason) as caught:
                        await nacre.connect(
                            node.url,
                            "user",
                            "password",
                            trust_pem=own.AUTHORITY,
                            timeouts=TIMEOUTS,
                        )
                    # Neither a password nor a name crossed the connection.
                    self.assertEqual(node.asked, [])
                self.assertIsInstance(caught.exception.__cause__, ssl.SSLCertVerificationError)
                self.assertLess(time.monotonic() - begun, 30)
                for _ in range(1000):
                    if sockets() == before:
                        break
                    await asyncio.sleep(0)
                self.assertEqual(sockets(), before)

    async def test_a_stranger_is_refused(self) -> None:
        async with TlsNode(own.GOOD) as node:
            with self.assertRaisesRegex(e.AuthenticationException, "certificate"):
                await nacre.connect(node.url, "user", "password", timeouts=TIMEOUTS)
