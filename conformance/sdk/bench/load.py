"""Measures a node through a Python SDK (asyncio), and prints the results as one line of JSON.

    python3 load.py PACKAGE URL USER PASSWORD BUCKET SECONDS

PACKAGE is ``acouchbase`` or ``nacre``. Each cell is an operation with a number of concurrent requests; there are
10,000 documents of about 200 bytes of JSON.
"""

import asyncio
import importlib
import json
import resource
import sys
import time
from array import array
from datetime import timedelta

CONCURRENCIES = (1, 64, 1024)
KEY_COUNT = 10_000
DOCUMENT = {
    "name": "Ada Lovelace",
    "tags": ["a", "b", "c"],
    "address": {"city": "London", "zip": "12345"},
    "text": "x" * 100,
}
TIMEOUT = timedelta(seconds=20)
SORTED_MAX = 10_000
"""How many latencies of a cell are sorted, at even distances."""


def rss():
    """Returns the maximum resident memory of the process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def measure(operation, concurrency, seconds):
    """Measures one cell."""
    # Not objects, so that a fast client does not seem to need more memory.
    latencies = array("d")
    begun = time.perf_counter()
    end = begun + seconds
    number = 0
    used = time.process_time()

    async def work():
        nonlocal number
        now = time.perf_counter()
        # At least once, so that each cell has results even on a slow machine.
        while True:
            number += 1
            await operation(f"bench-{number % KEY_COUNT}")
            done = time.perf_counter()
            latencies.append(done - now)
            now = done
            if now >= end:
                break

    await asyncio.gather(*(work() for _ in range(concurrency)))
    elapsed = time.perf_counter() - begun
    cpu_us = (time.process_time() - used) / len(latencies) * 1e6
    some = sorted(latencies[:: len(latencies) // SORTED_MAX + 1])
    at = [some[int(len(some) * share)] * 1e6 for share in (0.5, 0.99)]
    return {"perSecond": len(latencies) / elapsed, "p50Us": at[0], "p99Us": at[1], "cpuUs": cpu_us}


async def main():
    """Measures all cells."""
    package, url, user, password, bucket_name, seconds = sys.argv[1:]
    other = "couchbase" if package == "acouchbase" else package
    before, begun = rss(), time.perf_counter()
    cluster_class = importlib.import_module(f"{package}.cluster").Cluster
    options = importlib.import_module(f"{other}.options")
    auth = importlib.import_module(f"{other}.auth")
    import_ms = (time.perf_counter() - begun) * 1000
    authenticator = auth.PasswordAuthenticator(user, password)
    cluster = await cluster_class.connect(url, options.ClusterOptions(authenticator))
    bucket = cluster.bucket(bucket_name)
    await bucket.on_connect()
    collection = bucket.default_collection()
    operations = {
        "upsert": lambda key: collection.upsert(key, DOCUMENT, timeout=TIMEOUT),
        "get": lambda key: collection.get(key, timeout=TIMEOUT),
    }
    for number in range(0, KEY_COUNT, 50):
        await asyncio.gather(*(operations["upsert"](f"bench-{number + offset}") for offset in range(50)))
    cells = {}
    for concurrency in CONCURRENCIES:
        for name, operation in operations.items():
            await measure(operation, concurrency, 0.3)
            cells[f"{name} {concurrency}"] = await measure(operation, concurrency, float(seconds))
    memory = rss() - before
    await cluster.close()
    print(json.dumps({"importMs": import_ms, "memoryBytes": memory, "cells": cells}))


asyncio.run(main())
