"""Descriptors: files and connections share them, and strangers must not use up those of the store."""

import json
import os
import resource
import socket
import time
from contextlib import closing, suppress

from . import kv
from .harness import BUCKET, PASSWORD, USER, basic, case, eventually

# Large enough that several hundred of them need new segments.
VALUE = b'{"text":"' + b"x" * (64 << 10) + b'"}'


def open_files(node):
    """Returns the number of open descriptors of the node."""
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def limit_files(node, count):
    """Sets the node's soft limit of open files."""
    hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (count, hard))


def write(connection, first, count):
    """Writes documents; returns the keys that were acknowledged and the statuses of the others."""
    acknowledged, refused = [], set()
    for number in range(first, first + count):
        key = b"k%d" % number
        status = connection.set(key, VALUE).status
        if status == kv.SUCCESS:
            acknowledged.append(key)
        else:
            refused.add(status)
    return acknowledged, refused


def problems(management):
    """Returns the problems that a node reports about itself, over an open connection."""
    management.request("GET", "/nodes/self", headers={"Authorization": basic(USER, PASSWORD)})
    return json.loads(management.getresponse().read())["problems"]


@case("without descriptors writes wait, and go on when there are some")
def no_descriptors(node):
    with node.kv() as connection, closing(node.http()) as management:
        assert problems(management) == []
        before = write(connection, 0, 50)[0]
        limit_files(node, open_files(node))
        acknowledged, refused = [], set()
        first = 50
        end = time.monotonic() + 30
        while not refused and time.monotonic() < end:
            more, refused = write(connection, first, 100)
            acknowledged += more
            first += 100
        assert refused == {kv.TEMPORARY_FAILURE}, refused
        assert connection.get(b"k0").status == kv.SUCCESS
        told = problems(management)
        assert len(told) == 1 and BUCKET in told[0] and "descriptors" in told[0], told
        assert any("store" in line and "writes are refused" in line for line in node.log().splitlines())
        limit_files(node, 1024)
        eventually(lambda: connection.set(b"again", VALUE).status == kv.SUCCESS)
        more, refused = write(connection, first, 100)
        assert not refused
    own = next(found for found in node.rest("GET", "/pools/default").json()["nodes"] if found.get("thisNode"))
    assert own["status"] == "healthy" and not own["problems"], own
    assert node.stop() == 0
    node.start()
    with node.kv() as connection:
        lost = [key for key in before + acknowledged + more if connection.get(key).status != kv.SUCCESS]
    assert not lost, f"{len(lost)} acknowledged writes are lost"


@case("a bucket that cannot be made for want of descriptors is reported as made, and serves later")
def bucket_without_descriptors(node):
    with closing(node.http()) as management:
        management.request("GET", "/pools")
        management.getresponse().read()
        limit_files(node, open_files(node))
        head = {"Authorization": "Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==", "Content-Type": "application/x-www-form-urlencoded"}
        management.request("POST", "/pools/default/buckets", "name=late&ramQuotaMB=100", head)
        answer = management.getresponse()
        text = answer.read().decode()
        limit_files(node, 1024)
    assert answer.status == 202 or "retries" in text, (answer.status, text)

    def serves():
        with suppress(OSError), node.kv(bucket="late") as connection:
            return connection.set(b"k", b"1").status == kv.SUCCESS
        return False

    eventually(serves)


@case("a client logs in while strangers hold all places that they get")
def room_for_a_login(node):
    strangers = []
    for _ in range(400):
        with suppress(OSError):
            strangers.append(socket.create_connection(("127.0.0.1", node.port("kv")), 2))
    for _ in range(20):
        with node.kv() as connection:
            assert connection.set(b"k", b"1").status == kv.SUCCESS
    assert open_files(node) < 1024 - 200, "a quarter of the descriptors stays for files"
    assert "without a login" in node.log()
    for stranger in strangers:
        stranger.close()


@case("a stranger of one address does not take the places of others")
def places_by_address(node):
    with node.stranger(source="127.0.0.3") as first:
        strangers = []
        for _ in range(300):
            with suppress(OSError):
                strangers.append(socket.create_connection(("127.0.0.1", node.port("kv")), 2, source_address=("127.0.0.2", 0)))
        assert first.request(kv.NOOP).status == kv.SUCCESS
        for stranger in strangers:
            stranger.close()


@case("the limit of open files is raised as far as the system allows", start=False)
def raised(node):
    node.start()
    soft, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    assert f"up to {soft} files and connections may be open" in node.log()


@case("a client that logs in does not count as a stranger")
def not_strangers(node):
    connections = [node.kv(bucket=BUCKET) for _ in range(300)]
    assert all(connection.request(kv.NOOP).status == kv.SUCCESS for connection in connections)
    for connection in connections:
        connection.close()
