"""Follows a collection, and goes on where it stopped.

    python3 feed_reader.py couchbase://127.0.0.1 Administrator password default feed.token

Each change is a line on the output. The file keeps the token of the last one that was printed: the
reader may be stopped at any time, and prints what has happened meanwhile when it runs again.
"""

import asyncio
import json
import sys
from pathlib import Path

import nacre
from nacre.changes import BEGIN, Change
from nacre.exceptions import HistoryLostException


def line_of(change: Change) -> str:
    """A change as a line."""
    if change.deleted:
        return f"- {change.id}"
    content = change.content
    body = f"{len(content)} bytes" if isinstance(content, bytes) else json.dumps(content)
    return f"+ {change.id} {body}"


async def follow(url: str, user: str, password: str, bucket: str, state: Path) -> None:
    """Prints changes until it is cancelled."""
    async with await nacre.connect(url, user, password) as cluster:
        collection = cluster.bucket(bucket).default_collection()
        while True:
            token = state.read_text() if state.exists() else BEGIN
            changes = collection.changes(since=token)
            try:
                async for change in changes:
                    print(line_of(change), flush=True)
                    if changes.token != token:
                        token = changes.token
                        await asyncio.to_thread(save, state, token)
            except HistoryLostException:
                # The bucket was flushed, for example: there is another history to read.
                state.unlink(missing_ok=True)


def save(state: Path, token: str) -> None:
    """Writes the token so that a crash leaves the old one or the new one."""
    draft = state.with_suffix(".new")
    draft.write_text(token)
    draft.replace(state)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    try:
        url, user, password, bucket, state = sys.argv[1:]
        asyncio.run(follow(url, user, password, bucket, Path(state)))
    except KeyboardInterrupt:
        sys.exit(0)
