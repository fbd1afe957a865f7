"""The shell on a terminal: the effect of Ctrl-C, and the remains of a transaction that nobody ends."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from .harness import PASSWORD, case, eventually

LONG = "SELECT COUNT(*) FROM ARRAY_RANGE(0, 100000) AS a, ARRAY_RANGE(0, 100000) AS b;"
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[78]")


class Shell:
    """`nacre sh` on a separate terminal."""

    def __init__(self, node, state):
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = dict(
            os.environ,
            NACRE_SERVER=f"127.0.0.1:{node.port_base}",
            NACRE_PASSWORD=PASSWORD,
            TERM="xterm",
            XDG_STATE_HOME=str(state),
        )
        self.process = subprocess.Popen(
            [node.binary, "sh"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.terminal, self.seen = ours, b""

    def until(self, text, seconds=20):
        """Reads until the shell has written `text`; returns everything read."""
        end = time.monotonic() + seconds
        begun = len(self.seen)
        while time.monotonic() < end:
            if text.encode() in ESCAPES.sub(b"", self.seen[begun:]):
                return ESCAPES.sub(b"", self.seen[begun:]).decode(errors="replace")
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    data = os.read(self.terminal, 1 << 16)
                except OSError:
                    break
                # A line editor requests the position of the cursor.
                for _ in range(data.count(b"\x1b[6n")):
                    os.write(self.terminal, b"\x1b[1;1R")
                self.seen += data
        shown = ESCAPES.sub(b"", self.seen[begun:]).decode(errors="replace")
        raise AssertionError(f"the shell has not written {text!r}, but {shown!r}")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@case("Ctrl-C ends the statement and not the shell, and the node ends it too")
def control_c_ends_the_statement(node):
    shell = Shell(node, node.data_dir.parent / "state")
    try:
        shell.until("nacre> ")
        shell.type(LONG + "\r")
        running = "SELECT COUNT(*) AS n FROM system:active_requests WHERE statement LIKE 'SELECT COUNT(*) FROM ARRAY%'"
        eventually(lambda: node.query(running)["results"][0]["n"] == 1)
        os.killpg(shell.process.pid, signal.SIGINT)
        shell.until("interrupted")
        eventually(lambda: node.query(running)["results"][0]["n"] == 0)
        shell.type("SELECT RAW 40 + 2;\r")
        shell.until("42")
        shell.type("quit\r")
        assert shell.process.wait(20) == 0
    finally:
        shell.end()


@case("a transaction of the shell is shown, and rolled back when nobody ends it")
def an_open_transaction_is_rolled_back(node):
    assert node.query("UPSERT INTO default VALUES ('a', {'n': 1})")["status"] == "success"
    shell = Shell(node, node.data_dir.parent / "state")
    try:
        shell.until("nacre> ")
        shell.type("BEGIN WORK;\r")
        shell.until("nacre (transaction)> ")
        shell.type("UPDATE default USE KEYS 'a' SET n = 2;\r")
        shell.until("1 change")
        assert node.query("SELECT RAW n FROM default USE KEYS 'a'")["results"] == [1]
        shell.type("quit\r")
        shell.until("rolled back")
    finally:
        shell.end()
    assert node.query("SELECT RAW n FROM default USE KEYS 'a'")["results"] == [1]
