"""Nodes that a test starts itself, by the program that the environment names."""

import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

HINT = "set NACRE_TEST_BINARY to the program nacre, which tests start nodes of their own with"
USER, PASSWORD = "Administrator", "password"
PORTS = range(17)
START_SECONDS_MAX = 60.0


class OwnNode:
    """A node in a folder of its own, until it is left."""

    def __init__(self, *arguments: str) -> None:
        if not os.environ.get("NACRE_TEST_BINARY"):
            raise AssertionError(HINT)
        self.binary = os.environ["NACRE_TEST_BINARY"]
        self.folder = tempfile.TemporaryDirectory(prefix="nacre-sdk-py-")
        self.base = free_ports()
        self._arguments = arguments

    def __enter__(self) -> Self:
        command = [self.binary, "serve", "--password", PASSWORD, "--port-base", str(self.base)]
        command += ["--data-dir", self.folder.name, *self._arguments]
        self._log = (Path(self.folder.name) / "log").open("wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.ask("/pools/default")
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = (Path(self.folder.name) / "log").read_text()
                    raise AssertionError(f"the node does not start: {log}") from None
                time.sleep(0.05)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._log.close()
        self.folder.cleanup()

    @property
    def address(self) -> str:
        """Management of the node."""
        return f"127.0.0.1:{self.base}"

    @property
    def kv(self) -> str:
        """Key-value port of the node."""
        return f"127.0.0.1:{self.base + 10}"

    @property
    def kv_tls(self) -> str:
        """Key-value port of the node with TLS."""
        return f"127.0.0.1:{self.base + 9}"

    def ask(self, path: str, body: bytes | None = None, as_json: bool = True) -> bytes:
        """Answer of the management service."""
        url = f"http://{self.address}{path}"
        passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        passwords.add_password(None, url, USER, PASSWORD)
        handler = urllib.request.HTTPBasicAuthHandler(passwords)
        request = urllib.request.Request(url, body)
        if as_json and body is not None:
            json.loads(body)
            request.add_header("Content-Type", "application/json")
        with urllib.request.build_opener(handler).open(request, timeout=30) as answer:
            content: bytes = answer.read()
            return content

    def cluster(self, *arguments: str) -> None:
        """Has the node's cluster do something."""
        command = [self.binary, "cluster", "--server", f"http://{self.address}"]
        command += ["--password", PASSWORD, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)

    def kill(self) -> None:
        """Ends the node at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def port_range() -> tuple[int, int]:
    """Where nodes may listen: by NACRE_TEST_PORT_BASE, if that is set."""
    base = int(os.environ.get("NACRE_TEST_PORT_BASE", "20000"))
    return base, base + (800 if "NACRE_TEST_PORT_BASE" in os.environ else 10_000)


def free_ports() -> int:
    """The first of seventeen ports in a row that nobody listens at."""
    while True:
        base = random.randrange(*port_range())
        try:
            for offset in PORTS:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", base + offset))
            return base
        except OSError:
            continue
