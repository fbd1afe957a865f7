"""Runs attacks, each against a node that is started for it.

A case is a function that takes a running node and raises `AssertionError` when the attack succeeds:

    from .harness import case

    @case("a user who is not there is refused")
    def unknown_user(node):
        assert node.rest("GET", "/pools/default", user="nobody").status == 401

Each case has a separate node: one bucket `default`, the administrator `Administrator` with the password `password`, at most 1,024
descriptors and, where the machine lets the harness create a control group, at most 2 GB of memory. The group of a case is the
name of its module. `@case("…", heavy=True)` omits a case from the short form; `arguments` and `environment` go to `nacre serve`;
`files` and `memory_mb` set other limits; `start=False` creates a node that the case starts itself (`node.start()`).

Usual helpers of a case:

- `node.rest(method, path, data, user=…, password=…, port="mgmt", headers={…})`: sends one HTTP request; `data` is bytes, text, a
  dictionary (sent as a form) or `Json(value)`. Returns `.status`, `.headers`, `.body`, `.json()`. `user=None` sends no login.
- `node.query(statement, user=…, **parameters)`: sends a SQL++ request by POST; returns the decoded answer.
- `node.kv(user=…, password=…, bucket=…, source="127.0.0.2")`: a `kv.Connection`; `node.stranger()`: one without a login.
- `node.add_user(name, roles)`: creates a user with the password `password`.
- `node.bystander()`: a context manager around a flood; its result contains what a well-behaved client observed meanwhile.
- `node.stop()`, `node.kill()`, `node.start()`: on the same data directory. `node.data_dir`, `node.log()`, `node.rss_bytes()`.
- `eventually(condition)`: waits until the condition returns a true value, and returns that.
"""

import base64
import http.client
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from . import kv

USER, PASSWORD, BUCKET = "Administrator", "password", "default"

OFFSETS = {"mgmt": 0, "views": 1, "query": 2, "search": 3, "analytics": 4, "eventing": 5, "backup": 6, "kv": 10}
TLS_OFFSETS = {name: offset + 11 for name, offset in OFFSETS.items()} | {"kv": 9}
PORTS = 20

MEMORY_MB, FILES = 2048, 1024

# Maximum seconds without an answer for a well-behaved client while others attack.
GAP_S = 1.0


class Json(NamedTuple):
    """A value to send as a JSON body."""

    value: object


class Answer(NamedTuple):
    """A complete HTTP answer."""

    status: int
    headers: dict
    body: bytes

    def json(self):
        """Returns the decoded body."""
        return json.loads(self.body)


class Case(NamedTuple):
    """An attack: the sentence that must hold, its function and the limits of its node."""

    group: str
    name: str
    run: object
    heavy: bool
    start: bool
    arguments: tuple
    environment: dict
    files: int
    memory_mb: int


CASES = []


def case(name, *, heavy=False, start=True, arguments=(), environment=None, files=FILES, memory_mb=MEMORY_MB):
    """Registers a function as the case `name`, a sentence that describes the required behaviour."""

    def register(function):
        group = function.__module__.rpartition(".")[2]
        limits = (heavy, start, tuple(arguments), environment or {}, files, memory_mb)
        CASES.append(Case(group, name, function, *limits))
        return function

    return register


def eventually(condition, within=20.0, every=0.02):
    """Waits until `condition()` returns a true value, and returns that; raises `AssertionError` after `within` seconds."""
    deadline = time.monotonic() + within
    while not (result := condition()):
        assert time.monotonic() < deadline, f"still not so after {within} s: {getattr(condition, '__name__', condition)}"
        time.sleep(every)
    return result


class Bystander:
    """Observations of a well-behaved client: `count` of reads, `failed`, `p99_ms`, and `gap_s`, the longest time without an
    answer.
    """

    count = failed = 0
    p99_ms = gap_s = 0.0

    def __str__(self):
        return f"{self.count} reads, {self.failed} failed, p99 {self.p99_ms:.2f} ms, longest gap {self.gap_s:.2f} s"


class MemoryGroup:
    """A control group that limits a node's memory; does nothing where none can be created."""

    V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")

    def __init__(self, name, memory_mb):
        self.folder = None
        if (self.V1 / "memory.limit_in_bytes").exists():
            folder, limit = self.V1 / name, "memory.limit_in_bytes"
        elif (self.V2 / "cgroup.controllers").exists():
            folder, limit = self.V2 / name, "memory.max"
        else:
            return
        try:
            folder.mkdir(exist_ok=True)
            (folder / limit).write_text(str(memory_mb << 20))
            self.folder = folder
        except OSError:
            pass

    def enter(self):
        """Moves the calling process into the group."""
        if self.folder:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        """Removes the group once its processes have ended."""
        if self.folder:
            try:
                self.folder.rmdir()
            except OSError:
                pass


class Node:
    """A separate node for one case."""

    def __init__(self, binary, plugin_cache, port_base, case_):
        self.binary, self.plugin_cache, self.port_base, self.case = binary, plugin_cache, port_base, case_
        self.folder = Path(tempfile.mkdtemp(prefix="nacre-attack-"))
        self.data_dir = self.folder / "data"
        self.log_path = self.folder / "log"
        self.group = MemoryGroup(f"nacre-attack-{os.getpid()}-{port_base}", case_.memory_mb)
        self.process = None

    def port(self, service, tls=False):
        """Returns the port of `mgmt`, `views`, `query`, `search`, `analytics`, `eventing`, `backup` or `kv`."""
        return self.port_base + (TLS_OFFSETS if tls else OFFSETS)[service]

    def start(self, *arguments, wait=True, buckets=BUCKET, password=PASSWORD):
        """Starts the node on its data directory, with further arguments, and waits until it serves."""
        command = [self.binary, "serve", "--port-base", str(self.port_base), "--data-dir", str(self.data_dir)]
        command += ["--plugin-cache", str(self.plugin_cache)]
        if password is not None:
            command += ["--user", USER, "--buckets", buckets]
        command += [*self.case.arguments, *arguments]
        environment = {**os.environ, "NACRE_LOG": "info", **self.case.environment}
        if password is not None:
            environment["NACRE_PASSWORD"] = password

        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.case.files, self.case.files))
            self.group.enter()

        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, preexec_fn=limit
            )
        if wait:
            eventually(self._serves, within=120)
        return self

    def _serves(self):
        status = self.process.poll()
        assert status is None, f"the node ended with {status} while it started:\n{self.log()[-2000:]}"
        try:
            return self.rest("GET", "/pools", timeout=5).status in (200, 401) and self.kv_serves()
        except OSError:
            return False

    def kv_serves(self):
        """Returns whether the key-value port answers."""
        try:
            with kv.Connection(self.port("kv"), timeout=5) as connection:
                return connection.request(kv.NOOP).status == kv.SUCCESS
        except OSError:
            return False

    def is_alive(self):
        """Returns True if the process is running."""
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """Stops the node cleanly; returns its exit status."""
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self):
        """Kills the node, as a crash would."""
        self.process.kill()
        self.process.wait()

    def remove(self):
        """Ends the node and removes its files."""
        if self.process is not None:
            self.kill()
        self.group.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        """Returns the node's log so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def rss_bytes(self):
        """Returns the resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10

    def rest(self, method, path, data=None, *, user=USER, password=PASSWORD, port="mgmt", headers=None, tls=False,
             timeout=30, source="127.0.0.1"):
        """Sends one HTTP request and reads the answer; `user=None` sends no login."""
        connection = self.http(port, tls=tls, timeout=timeout, source=source)
        sent = dict(headers or {})
        if user is not None:
            sent.setdefault("Authorization", basic(user, password))
        if isinstance(data, Json):
            data = json.dumps(data.value)
            sent.setdefault("Content-Type", "application/json")
        elif isinstance(data, dict):
            data = urllib.parse.urlencode(data)
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def http(self, port="mgmt", *, tls=False, timeout=30, source="127.0.0.1"):
        """Returns an `http.client` connection to a port."""
        address = ("127.0.0.1", self.port(port, tls))
        if not tls:
            return http.client.HTTPConnection(*address, timeout=timeout, source_address=(source, 0))
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(*address, timeout=timeout, source_address=(source, 0), context=context)

    def socket(self, port="mgmt", *, source="127.0.0.1", timeout=30):
        """Returns a bare TCP connection to a port."""
        return socket.create_connection(("127.0.0.1", self.port(port)), timeout, source_address=(source, 0))

    def query(self, statement, *, user=USER, password=PASSWORD, timeout=60, **parameters):
        """Runs a SQL++ statement; returns the decoded answer, whatever its status."""
        body = Json({"statement": statement, **parameters})
        return self.rest("POST", "/query/service", body, user=user, password=password, port="query", timeout=timeout).json()

    def kv(self, user=USER, password=PASSWORD, bucket=BUCKET, **options):
        """Returns an authenticated key-value connection that has selected the bucket."""
        return kv.Connection(self.port("kv", options.get("tls", False)), user, password, bucket, **options)

    def stranger(self, **options):
        """Returns a key-value connection without a login."""
        return kv.Connection(self.port("kv", options.get("tls", False)), **options)

    def give_service(self, service):
        """Adds an optional service to the node, and waits until it is available."""
        own = urllib.parse.quote(self.rest("GET", "/pools/default").json()["nodes"][0]["otpNode"], safe="")
        answer = self.rest("POST", f"/controller/rebalance?knownNodes={own}&topology[{service}]={own}")
        assert answer.status == 200, answer
        eventually(lambda: service in self.rest("GET", "/pools/default").json()["nodes"][0]["services"], within=60)

    def add_user(self, name, roles="", password=PASSWORD):
        """Creates a user, or replaces one."""
        answer = self.rest("PUT", f"/settings/rbac/users/local/{name}", {"password": password, "roles": roles})
        assert answer.status == 200, answer.body

    @contextmanager
    def bystander(self, gap_s=GAP_S):
        """Reads documents meanwhile, like a well-behaved client; fails when a read has no answer for longer than
        `gap_s`.
        """
        with self.kv() as connection:
            assert connection.set(b"bystander", b"{}").status == kv.SUCCESS
        script = Path(__file__).with_name("bystander.py")
        command = [sys.executable, str(script), str(self.port("kv")), USER, PASSWORD, BUCKET]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        report = Bystander()
        try:
            assert process.stdout.readline() == "ready\n"
            yield report
            output, _ = process.communicate(timeout=60)
            report.__dict__.update(json.loads(output))
        finally:
            process.kill()
            process.wait()
        assert report.gap_s <= gap_s, f"a well-behaved client was not served: {report}"
        assert self.is_alive(), f"the node ended:\n{self.log()[-2000:]}"


def basic(user, password):
    """Returns the value of a header `Authorization`."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def ports_from(first):
    """Yields port bases whose ports are free."""
    base = first
    while True:
        if all(_is_free(port) for port in range(base, base + PORTS)):
            yield base
        base += PORTS
        if base + PORTS > 65535:
            base = first


def _is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def run(cases, binary, plugin_cache, first_port):
    """Runs the cases one after another; prints a line for each failure; returns the numbers of passed and failed cases."""
    passed = failed = 0
    bases = ports_from(first_port)
    for case_ in cases:
        begun = time.monotonic()
        node = Node(binary, plugin_cache, next(bases), case_)
        try:
            if case_.start:
                node.start()
            note = case_.run(node)
            assert not case_.start or node.process.poll() in (None, 0), f"the node ended:\n{node.log()[-2000:]}"
            passed += 1
            print(f"ok    {case_.group}: {case_.name} ({time.monotonic() - begun:.1f} s){f': {note}' if note else ''}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {case_.group}: {case_.name}\n{traceback.format_exc()}", flush=True)
        finally:
            node.remove()
    return passed, failed
