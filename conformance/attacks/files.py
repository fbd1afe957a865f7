"""Files: permissions on the machine, a full disk, and directories that are used twice."""

import os
import re
import shutil
import socket
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from . import kv
from .harness import USER, case, eventually


def modes(path):
    """Returns the permissions of a directory and of everything in it, by path."""
    found = {path: stat.S_IMODE(os.lstat(path).st_mode)}
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            child = os.path.join(folder, name)
            if not os.path.islink(child):
                found[child] = stat.S_IMODE(os.lstat(child).st_mode)
    return found


def open_to_others(path):
    """Returns the files and directories that other users may access."""
    return {name: oct(mode) for name, mode in modes(path).items() if mode & 0o077}


def refusal(node):
    """Starts a node that must refuse to start; returns its output."""
    before = len(node.log())
    node.start(wait=False)
    assert node.process.wait(60) != 0
    return node.log()[before:]


@case("no other user of the machine reads what a node stores")
def private(node):
    definition = "function(doc, meta) { emit(meta.id, null); throw new Error('x'); }"
    design = '{"views":{"v":{"map":"%s"}}}' % definition
    node.rest("PUT", "/default/_design/dd", design, port="views", headers={"Content-Type": "application/json"})
    with node.kv() as connection:
        for number in range(100):
            connection.set(b"k%d" % number, b"{}")
    node.rest("GET", "/default/_design/dd/_view/v?stale=false", port="views")
    node.rest("POST", "/pools/default/buckets", {"name": "sled", "ramQuotaMB": "100", "storageBackend": "couchstore"})
    assert not open_to_others(node.data_dir)
    node.stop()
    assert not open_to_others(node.data_dir)


@case("a data directory that others can read is closed at the next start")
def closed(node):
    node.stop()
    for path, mode in modes(node.data_dir).items():
        os.chmod(path, mode | (0o055 if os.path.isdir(path) else 0o044))
    node.start()
    assert not open_to_others(node.data_dir)
    assert "other users of the machine could read" in node.log()


@case("a second process does not get a directory that is in use, also when lock files are removed")
def used_twice(node):
    for folder, _, files in os.walk(node.data_dir):
        for name in files:
            if name == "lock":
                os.remove(os.path.join(folder, name))
    first, ports = node.process, node.port_base
    node.port_base += 100
    try:
        said = refusal(node)
    finally:
        node.process, node.port_base = first, ports
    assert "in use by another process" in said, said
    with node.kv() as connection:
        assert connection.set(b"k", b"1").status == kv.SUCCESS


def mounted(node, megabytes):
    """Mounts a small disk as the data directory; returns True if this is permitted."""
    node.data_dir.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(node.data_dir)]
    return subprocess.run(command, capture_output=True).returncode == 0


def fill(path):
    """Writes a file that uses up all space."""
    with open(path, "wb", buffering=0) as file:
        for piece in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * piece)
            except OSError:
                pass


@case("a node that crashed on a full disk starts, serves reads, and writes again when there is space", start=False)
def full_disk(node):
    if not mounted(node, 96):
        return "left out: no right to mount"
    try:
        node.start()
        with node.kv() as connection:
            for number in range(100):
                assert connection.set(b"k%d" % number, b"1").status == kv.SUCCESS
        filler = node.data_dir / "filler"
        fill(filler)
        with node.kv() as connection:
            for number in range(2000):
                connection.set(b"big%d" % number, b"x" * 100_000)
        for round_ in range(3):
            node.kill()
            fill(filler.with_suffix(f".{round_}"))
            node.start()
            with node.kv() as connection:
                lost = [number for number in range(100) if connection.get(b"k%d" % number).status != kv.SUCCESS]
                assert not lost, f"{len(lost)} documents are lost"
        for path in node.data_dir.glob("filler*"):
            path.unlink()
        with node.kv() as connection:
            eventually(lambda: connection.set(b"after", b"1").status == kv.SUCCESS)
        node.stop()
    finally:
        node.remove()
        subprocess.run(["umount", str(node.data_dir)], capture_output=True)
        shutil.rmtree(node.folder, ignore_errors=True)


@case("a disk that cannot be written to is named", start=False)
def read_only(node):
    if not mounted(node, 64):
        return "left out: no right to mount"
    try:
        node.start()
        node.stop()
        subprocess.run(["mount", "-o", "remount,ro", str(node.data_dir)], check=True)
        said = refusal(node)
        assert re.search(r"read.only", said, re.IGNORECASE), said
    finally:
        node.remove()
        subprocess.run(["umount", str(node.data_dir)], capture_output=True)
        shutil.rmtree(node.folder, ignore_errors=True)


@case("a text that somebody throws does not write lines of its own into the log")
def forged_lines(node):
    forged = "2026-01-01T00:00:00Z  INFO FORGED"
    design = '{"views":{"v":{"map":"function(doc, meta) { throw new Error(\\"x\\\\n%s\\"); }"}}}' % forged
    node.rest("PUT", "/default/_design/dd", design, port="views", headers={"Content-Type": "application/json"})
    with node.kv() as connection:
        connection.set(b"k", b"{}")
    node.rest("GET", "/default/_design/dd/_view/v?stale=false", port="views")
    node.stranger().close()
    assert not any(line.startswith(forged) for line in node.log().splitlines())


@case("a stranger does not fill the log")
def flooded_log(node):
    before = len(node.log())
    large = kv.HEADER.pack(kv.REQUEST, kv.SET, 1, 8, 0, 0, 1 << 20, 0, 0)
    for _ in range(2000):
        with node.stranger() as stranger:
            stranger.send(large)
            stranger.is_closed()
    for port in ("kv", "mgmt", "query"):
        for _ in range(500):
            with socket.create_connection(("127.0.0.1", node.port(port, tls=True)), 5) as stranger:
                stranger.sendall(b"no greeting of TLS\r\n\r\n")
                with suppress(OSError):
                    stranger.recv(100)
    written = len(node.log()) - before
    assert written < 64 << 10, f"{written} bytes"


@case("a password among the arguments is covered before others can read it, or is in a file", start=False)
def arguments(node):
    secret = "ZQXARGUMENT1"
    node.start("--user", USER, "--password", secret, password=None)
    shown = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
    assert secret.encode() not in shown and b"--password" in shown, shown
    assert node.rest("GET", "/whoami", password=secret).status == 200
    kept = node.folder / "password"
    kept.write_text(secret + "\n")
    reads = [node.binary, "user", "list", "--server", f"127.0.0.1:{node.port('mgmt')}", "--user", USER, "--password-file", str(kept)]
    done = subprocess.run(reads, capture_output=True, text=True)
    assert done.returncode == 0 and "domain" in done.stdout, done
    assert secret not in node.log()
