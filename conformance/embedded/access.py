"""Reads and writes documents in an embedded database through its Python package; prints one line of JSON.

    python3 access.py ENGINE FOLDER SECONDS

ENGINE is ``nacre``, ``sqlite``, ``lmdb`` or ``rocksdb``. There are 10,000 documents of about 200 bytes of JSON; a read
includes parsing, a write includes serialization. Writes are in memory or in the operating system; durable ones are on disk
when the call returns.
"""

import asyncio
import json
import sqlite3
import sys
import time
from pathlib import Path

KEY_COUNT = 10_000
PORTION = 64
DOCUMENT = {
    "name": "Ada Lovelace",
    "tags": ["a", "b", "c"],
    "address": {"city": "London", "zip": "12345"},
    "text": "x" * 100,
}


def key(number):
    return f"bench-{number % KEY_COUNT}"


def measure(operation, seconds, portion=PORTION):
    """Returns the mean microseconds of an operation."""
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for number in range(count, count + portion):
            operation(key(number))
        count += portion
    return (time.perf_counter() - begun) / count * 1e6


class Sqlite:
    def __init__(self, folder):
        self.db = sqlite3.connect(folder / "db.sqlite", isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute("CREATE TABLE IF NOT EXISTS d (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID")

    def get(self, key):
        row = self.db.execute("SELECT v FROM d WHERE k = ?", (key,)).fetchone()
        return json.loads(row[0])

    def put(self, key):
        self.db.execute("INSERT OR REPLACE INTO d VALUES (?, ?)", (key, json.dumps(DOCUMENT)))

    def make_durable(self):
        self.db.execute("PRAGMA synchronous=FULL")

    def close(self):
        self.db.close()


class Lmdb:
    def __init__(self, folder):
        import lmdb

        self.open = lambda sync: lmdb.open(
            str(folder / "lmdb"), map_size=1 << 30, sync=sync, metasync=sync
        )
        self.env = self.open(False)

    def get(self, key):
        with self.env.begin() as transaction:
            return json.loads(transaction.get(key.encode()))

    def put(self, key):
        with self.env.begin(write=True) as transaction:
            transaction.put(key.encode(), json.dumps(DOCUMENT).encode())

    def make_durable(self):
        self.env.close()
        self.env = self.open(True)

    def close(self):
        self.env.close()


class Rocksdb:
    def __init__(self, folder):
        import rocksdict

        self.db = rocksdict.Rdict(str(folder / "rocks"), rocksdict.Options(raw_mode=True))
        self.options = rocksdict.WriteOptions()

    def get(self, key):
        return json.loads(self.db[key.encode()])

    def put(self, key):
        self.db.put(key.encode(), json.dumps(DOCUMENT).encode(), write_opt=self.options)

    def make_durable(self):
        self.options.sync = True

    def close(self):
        self.db.close()


def others(engine, folder, seconds):
    make = {"sqlite": Sqlite, "lmdb": Lmdb, "rocksdb": Rocksdb}[engine]
    db = make(folder)
    for number in range(KEY_COUNT):
        db.put(key(number))
    figures = {"getParsedUs": measure(db.get, seconds), "putUs": measure(db.put, seconds)}
    db.make_durable()
    figures["durableUs"] = measure(db.put, seconds, portion=1)
    db.close()
    begun = time.perf_counter()
    make(folder).close()
    figures["openMs"] = (time.perf_counter() - begun) * 1e3
    return figures


async def ours(folder, seconds):
    from nacre import connect

    async def awaited(operation, portion=PORTION):
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            for number in range(count, count + portion):
                await operation(key(number))
            count += portion
        return (time.perf_counter() - begun) / count * 1e6

    figures = {}
    async with await connect(f"nacre://{folder}/db") as cluster:
        documents = cluster.bucket("default").default_collection()
        for number in range(KEY_COUNT):
            await documents.upsert(key(number), DOCUMENT)

        async def get(key):
            return (await documents.get(key)).content_as[dict]

        figures["getParsedUs"] = await awaited(get)
        figures["putUs"] = await awaited(lambda key: documents.upsert(key, DOCUMENT))
    async with await connect(f"nacre://{folder}/db?sync=always") as cluster:
        documents = cluster.bucket("default").default_collection()
        await documents.get(key(0))
        figures["durableUs"] = await awaited(lambda key: documents.upsert(key, DOCUMENT), portion=1)
    begun = time.perf_counter()
    async with await connect(f"nacre://{folder}/db") as cluster:
        await cluster.bucket("default").default_collection().get(key(0))
        figures["openMs"] = (time.perf_counter() - begun) * 1e3
    return figures


def main():
    engine, folder, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    if engine == "nacre":
        figures = asyncio.run(ours(folder, seconds))
    else:
        figures = others(engine, folder, seconds)
    print(json.dumps(figures))


main()
