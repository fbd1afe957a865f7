"""Damage: crashes, missing or changed files. A node reports harmful damage by name, and never loses data silently."""

import os
import random
import shutil
from contextlib import suppress

from . import kv
from .files import refusal
from .harness import case, eventually


def fill(node, count=200):
    """Writes documents, and stops the node so that all of them are stored."""
    with node.kv() as connection:
        for number in range(count):
            assert connection.set(b"k%d" % number, b'{"n":%d}' % number).status == kv.SUCCESS
    assert node.stop() == 0


def missing(node, count=200):
    """Returns the number of missing documents."""
    with node.kv() as connection:
        return sum(connection.get(b"k%d" % number).value != b'{"n":%d}' % number for number in range(count))


def own(node):
    """Returns the node's description of itself."""
    return node.rest("GET", "/nodes/self").json()


def files_in(path):
    """Returns the files below a directory, except locks."""
    found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sorted(path for path in found if os.path.basename(path) != "lock")


@case("settings that are missing are named, and no empty cluster begins", start=False)
def missing_settings(node):
    node.start()
    fill(node)
    kept = node.folder / "kept"
    shutil.move(node.data_dir / "node" / "0.space", kept)
    said = refusal(node)
    assert "node/0.space" in said and "put back" in said, said
    shutil.rmtree(node.data_dir / "node")
    said = refusal(node)
    assert "buckets" in said and "missing" in said, said
    shutil.rmtree(node.data_dir / "buckets")
    said = refusal(node)
    assert "key of the node" in said, said


@case("settings and keys that are put back are served again")
def restored_settings(node):
    fill(node)
    kept = node.folder / "kept"
    shutil.move(node.data_dir / "node" / "0.space", kept)
    refusal(node)
    shutil.move(kept, node.data_dir / "node" / "0.space")
    node.start()
    assert missing(node) == 0


@case("a damaged bucket does not keep the others from being served, and is named")
def damaged_bucket(node):
    assert node.rest("POST", "/pools/default/buckets", {"name": "other", "ramQuotaMB": "100"}).status == 202

    def serves_other():
        with suppress(OSError), node.kv(bucket="other") as connection:
            return connection.set(b"k", b"1").status == kv.SUCCESS
        return False

    eventually(serves_other)
    fill(node)
    folder = next(path for path in (node.data_dir / "buckets").iterdir() if path.name.startswith("default-"))
    locations = folder / "locations"
    flip(locations, os.path.getsize(locations) // 2)
    node.start(wait=False)
    eventually(lambda: node.process.poll() is None and node._serves(), within=60)
    described = own(node)
    assert described["status"] == "unhealthy" and str(folder) in described["problems"][0], described
    with node.kv(bucket="other") as connection:
        assert connection.get(b"k").value == b"1"
    with node.kv(bucket=None) as connection:
        assert connection.request(kv.SELECT_BUCKET, b"default").status == kv.TEMPORARY_FAILURE
    metrics = node.rest("GET", "/metrics").body.decode()
    assert 'nacre_bucket_damaged{bucket="default"} 1' in metrics


def flip(path, at):
    """Changes a byte of a file."""
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x40]))


@case("a changed byte in any file is named or means nothing", heavy=True, start=False)
def changed_bytes(node):
    node.start()
    fill(node)
    kept = node.folder / "kept"
    shutil.copytree(node.data_dir, kept)
    chance = random.Random(1)
    for path in files_in(kept):
        name = os.path.relpath(path, kept)
        size = os.path.getsize(path)
        if size == 0 or name == "reserve":
            continue
        shutil.rmtree(node.data_dir)
        shutil.copytree(kept, node.data_dir)
        # Only the beginning: segments end with zeros that are never read.
        flip(node.data_dir / name, chance.randrange(min(size, 4096)))
        before = len(node.log())
        node.start(wait=False)
        eventually(lambda: node.process.poll() is not None or serves(node), within=60)
        if node.process.poll() is None:
            is_well = own(node)["status"] == "healthy" if logs_in(node) else False
            assert not is_well or missing(node) == 0, f"{name}: documents are lost in silence"
            node.stop()
        else:
            assert os.path.dirname(name).split("/")[0] in node.log()[before:], f"{name} is not named"


def serves(node):
    """Returns True if a node that may have lost a bucket answers."""
    try:
        return node.rest("GET", "/pools", timeout=5).status in (200, 401)
    except OSError:
        return False


def logs_in(node):
    """Returns True if the administrator can log in."""
    return node.rest("GET", "/nodes/self").status == 200


@case("nothing that was acknowledged as durable is lost by kill -9")
def killed(node):
    acknowledged = {}
    for round_ in range(6):
        with node.kv() as connection:
            for number in range(300):
                key = b"k%d" % (number % 100)
                value = b"%d-%d" % (round_, number)
                if connection.set(key, value).status == kv.SUCCESS:
                    acknowledged[key] = value
            eventually(lambda: stored(connection))
        node.kill()
        node.start()
        with node.kv() as connection:
            lost = [key for key, value in acknowledged.items() if connection.get(key).value != value]
        assert not lost, f"round {round_}: {len(lost)} documents are lost"


def stored(connection):
    """Returns True if everything that was written is stored."""
    connection.send(kv.frame(kv.STAT, b"vbucket-details"))
    high, persisted = {}, {}
    while True:
        reply = connection.receive()
        if not reply.key:
            return bool(high) and all(persisted.get(vbucket) == seqno for vbucket, seqno in high.items())
        name, _, field = reply.key.decode().partition(":")
        if field == "high_seqno":
            high[name] = reply.value
        elif field == "last_persisted_seqno":
            persisted[name] = reply.value
