"""Transactions of the official SDKs and of this project's at the same documents, whose clients are killed at each step.

    python3 run.py URL USER PASSWORD BUCKET OFFICIAL_NODE OWN_NODE STEPS

Needs an interpreter with both packages. Clients of four kinds move money between the same accounts. One of each is killed
again and again, and one is not: ours before and after each of its writes to the node, the official ones at moments that differ. At the end
the accounts have the sum that they began with, and no document has anything staged.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import nacre
from nacre._records import see
from nacre.exceptions import DocumentNotFoundException
from nacre.transactions import TransactionKeyspace

url, user, password, bucket, official_node, own_node, steps = sys.argv[1:]
HERE = Path(__file__).parent
RUN = f"txn-{os.getpid()}-{time.time_ns()}"
ACCOUNTS, SUM = 12, 100
#: How long a transaction may take: so long others wait for one that was killed.
SECONDS = 4
CLEAN_SECONDS_MAX = 180
KINDS = {
    "official Python": ([sys.executable, str(HERE / "child.py"), "couchbase"], False),
    "own Python": ([sys.executable, str(HERE / "child.py"), "nacre"], True),
    "official Node": (["node", str(HERE / "child.mjs"), official_node], False),
    "own Node": (["node", str(HERE / "child.mjs"), own_node], True),
}


async def child(kind: str, seed: int, kill: dict[str, str], delay: float | None) -> tuple[list[str], list[str]]:
    """Runs a client until it is killed; gives its receipts, and what it could not do."""
    command = [*KINDS[kind][0], url, user, password, bucket, RUN, str(ACCOUNTS), str(seed), str(SECONDS)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env={**os.environ, **kill})
    assert process.stdout is not None
    receipts, failures = [], []
    try:
        first = (await asyncio.wait_for(process.stdout.readline(), 600)).decode().rstrip()
        if not first:
            raise SystemExit(f"{kind} does not begin")
        receipts.append(first)
        if delay is not None:
            await asyncio.sleep(delay)
            end(process)
        # One that kills itself may need some transactions for it; those that wait for others take their time.
        rest = await asyncio.wait_for(process.stdout.read(), 600)
    finally:
        end(process)
        await process.wait()
    for line in rest.decode().splitlines():
        (failures if line.startswith("#") else receipts).append(line)
    return receipts, failures


def end(process: asyncio.subprocess.Process) -> None:
    """Ends a client as a power failure does, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


async def steady(kind: str, seed: int, done: asyncio.Event) -> tuple[list[str], list[str]]:
    """Runs a client that is killed when all others were."""
    command = [*KINDS[kind][0], url, user, password, bucket, RUN, str(ACCOUNTS), str(seed), str(SECONDS)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    reading = asyncio.create_task(process.stdout.read())
    await done.wait()
    end(process)
    lines = (await reading).decode().splitlines()
    await process.wait()
    receipts = [line for line in lines if not line.startswith("#")]
    print(f"{kind}: not disturbed, in {len(receipts)} transactions", flush=True)
    return receipts, [line for line in lines if line.startswith("#")]


async def rounds(kind: str, count: int) -> tuple[list[str], list[str]]:
    """Kills a client at each step."""
    receipts, failures = [], []
    dice = random.Random(kind)
    for step in range(1, count + 1):
        for when in ("before", "after"):
            kill = {"KILL_AT": str(step), "KILL_WHEN": when} if KINDS[kind][1] else {}
            # Of few lengths, as a transaction takes a hundredth of a second on one machine and a second on another.
            delay = None if kill else dice.choice((0.02, 0.2, 2)) * dice.random()
            told, failed = await child(kind, dice.randrange(1 << 30), kill, delay)
            receipts += told
            failures += failed
    print(f"{kind}: killed {2 * count} times, in {len(receipts)} transactions, {len(failures)} of them given up", flush=True)
    return receipts, failures


async def main() -> None:
    async with await nacre.connect(url, user, password) as cluster:
        collection = cluster.bucket(bucket).default_collection()
        accounts = [f"{RUN}-account-{number}" for number in range(ACCOUNTS)]
        for key in accounts:
            await collection.insert(key, {"sum": SUM})
        # What they print is awaited together, so that they are at the documents at a time.
        done = asyncio.Event()
        others = [asyncio.create_task(steady(kind, seed, done)) for seed, kind in enumerate(KINDS)]
        try:
            found = await asyncio.gather(*(rounds(kind, int(steps)) for kind in KINDS))
        finally:
            done.set()
            found_by_others = await asyncio.gather(*others)
        found += found_by_others
        receipts = [receipt for told, _ in found for receipt in told]
        unknown = {line.split(":")[0] for _, failed in found for line in failed}
        print("given up with", ", ".join(sorted(unknown)) or "nothing")

        end = time.monotonic() + CLEAN_SECONDS_MAX
        while staged := [key for key in [*accounts, *receipts] if await has_staged(collection, key)]:
            if time.monotonic() > end:
                raise SystemExit(f"still staged: {staged}")
            await cluster.transactions.cleanup(TransactionKeyspace(bucket))
            await asyncio.sleep(0.5)
        sums = [(await collection.get(key)).content_as[dict]["sum"] for key in accounts]
        if sum(sums) != ACCOUNTS * SUM:
            raise SystemExit(f"the sums {sums} are {sum(sums)} and not {ACCOUNTS * SUM}")
        there = 0
        for key in receipts:
            try:
                await collection.remove(key)
                there += 1
            except DocumentNotFoundException:
                pass
        for key in accounts:
            await collection.remove(key)
        if not there or sums == [SUM] * ACCOUNTS:
            raise SystemExit("nothing was moved")
        print(f"nothing is staged any more, the sums {sums} hold, {there} receipts were there")


async def has_staged(collection: nacre.Collection, key: str) -> bool:
    seen = await see(collection.place(key), 10)
    return seen is not None and seen.txn is not None


asyncio.run(main())
