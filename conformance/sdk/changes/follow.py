"""Follows the changes of a collection with our SDK; repeatedly leaves the feed and continues from its token.

    python3 follow.py PACKAGE URL USER PASSWORD BUCKET DISCONNECTS TABLE

Prints `ready` when it has begun, and ends when it has seen the last number of each document in the file TABLE, which the
writer creates at its end. Prints its observations as JSON. Fails if a change is missing.
"""

import asyncio
import importlib
import json
import sys
import time
from datetime import timedelta
from pathlib import Path


PATIENCE_SECONDS = 120
PASS_SECONDS = 1


class Follower:
    """The observations of all passes, and the expected documents."""

    def __init__(self, collection, disconnects, table):
        self.collection, self.disconnects, self.table = collection, disconnects, table
        self.seen, self.token = {}, None
        self.changes = self.passes = self.backwards = 0
        self.finished, self.end = None, float("inf")

    def missing(self):
        """Returns the documents whose last number was not seen; None while the writer is writing."""
        if self.finished is None:
            return None
        return [key for key, number in self.finished.items() if self.seen.get(key) != number]

    async def read(self):
        """Reads a feed from the token, until its task is cancelled."""
        options = {} if self.token is None else {"since": self.token}
        feed, sequence = self.collection.changes(**options), {}
        try:
            async for change in feed:
                if change.seqno <= sequence.get(change.vbucket, 0):
                    self.backwards += 1
                sequence[change.vbucket] = change.seqno
                self.seen[change.id] = (change.content or {}).get("number")
                self.changes += 1
        finally:
            self.token = feed.token

    async def follow(self):
        """Continues until everything was seen, or no more changes come."""
        while True:
            task = asyncio.create_task(self.read())
            begun = time.monotonic()
            while not task.done():
                await asyncio.wait([task], timeout=0.25)
                if self.finished is None and self.table.exists():
                    self.finished = json.loads(self.table.read_text())
                    self.end = time.monotonic() + PATIENCE_SECONDS
                leaves = self.passes < self.disconnects and time.monotonic() > begun + PASS_SECONDS
                if leaves or self.missing() == [] or time.monotonic() > self.end:
                    task.cancel()
            self.passes += 1
            try:
                await task
            except asyncio.CancelledError:
                pass
            if self.missing() == []:
                return
            if time.monotonic() > self.end:
                raise SystemExit(f"{len(self.missing())} changes are missing: {self.missing()[:5]}")


async def main():
    """Follows the changes, and prints the observations."""
    package, url, user, password, bucket, disconnects, table = sys.argv[1:]
    cluster = await importlib.import_module(package).connect(url, username=user, password=password)
    async with cluster:
        await cluster.wait_until_ready(timedelta(seconds=30))
        follower = Follower(cluster.bucket(bucket).default_collection(), int(disconnects), Path(table))
        print("ready", flush=True)
        await follower.follow()
    sums = {"documents": len(follower.seen), "changes": follower.changes, "passes": follower.passes}
    print(json.dumps({**sums, "backwards": follower.backwards}))


asyncio.run(main())
