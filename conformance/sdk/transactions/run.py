"""Transactions of the official SDKs and of this project's on the same documents, with clients that are killed at each step.

    python3 run.py URL USER PASSWORD BUCKET OFFICIAL_NODE OWN_NODE STEPS

Needs an interpreter with both packages. Clients of four kinds move money between the same accounts. One client of each kind is
killed repeatedly, and one is not: ours before and after each of its writes to the node, the official ones at varying moments. At
the end the accounts must have their initial sum, no record may refer to a staged change, and the next transaction must replace
what is still staged: the changes of a client that was killed before its commit are listed nowhere and have no effect.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import nacre
from nacre._records import Place, entries_of, see
from nacre.exceptions import DocumentNotFoundException
from nacre.transactions import AttemptContext, TransactionKeyspace

url, user, password, bucket, official_node, own_node, steps = sys.argv[1:]
HERE = Path(__file__).parent
RUN = f"txn-{os.getpid()}-{time.time_ns()}"
ACCOUNTS, SUM = 12, 100
#: Time limit of a transaction: others wait this long for a killed one.
SECONDS = 4
CLEAN_SECONDS_MAX = 180
KINDS = {
    "official Python": ([sys.executable, str(HERE / "child.py"), "couchbase"], False),
    "own Python": ([sys.executable, str(HERE / "child.py"), "nacre"], True),
    "official Node": (["node", str(HERE / "child.mjs"), official_node], False),
    "own Node": (["node", str(HERE / "child.mjs"), own_node], True),
}


async def child(kind: str, seed: int, kill: dict[str, str], delay: float | None) -> tuple[list[str], list[str]]:
    """Runs a client until it is killed; returns its receipts, and its failures."""
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
        # A client that kills itself may need several transactions; those that wait for others take longer.
        rest = await asyncio.wait_for(process.stdout.read(), 600)
    finally:
        end(process)
        await process.wait()
    for line in rest.decode().splitlines():
        (failures if line.startswith("#") else receipts).append(line)
    return receipts, failures


def end(process: asyncio.subprocess.Process) -> None:
    """Kills a client, as a power failure would, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


async def steady(kind: str, seed: int, done: asyncio.Event) -> tuple[list[str], list[str]]:
    """Runs a client that is killed after all others."""
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
            # Three magnitudes: a transaction takes a hundredth of a second on one machine and a second on another.
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
            await collection.insert(key, {"sum": SUM}, timeout=timedelta(minutes=1))
        # The clients run at the same time, so that they compete for the documents.
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
        while undecided := [key for key in [*accounts, *receipts] if await is_undecided(cluster, collection, key)]:
            if time.monotonic() > end:
                raise SystemExit(f"nobody has finished {undecided}")
            await cluster.transactions.cleanup(TransactionKeyspace(bucket))
            await asyncio.sleep(0.5)

        async def touch(ctx: AttemptContext) -> None:
            for key in accounts:
                account = await ctx.get(collection, key)
                await ctx.replace(account, account.content)

        await cluster.transactions.run(touch, timeout=timedelta(minutes=2))
        for key in accounts:
            if (seen := await see(collection.place(key), 60)) is None or seen.txn is not None:
                raise SystemExit(f"{key} has something staged after a transaction")
        patient = timedelta(minutes=1)
        sums = [(await collection.get(key, timeout=patient)).content_as[dict]["sum"] for key in accounts]
        if sum(sums) != ACCOUNTS * SUM:
            raise SystemExit(f"the sums {sums} are {sum(sums)} and not {ACCOUNTS * SUM}")
        there = 0
        for key in receipts:
            try:
                await collection.remove(key, timeout=patient)
                there += 1
            except DocumentNotFoundException:
                pass
        for key in accounts:
            await collection.remove(key, timeout=patient)
        if not there or sums == [SUM] * ACCOUNTS:
            raise SystemExit("nothing was moved")
        print(f"the sums {sums} hold, {there} receipts were there")


async def is_undecided(cluster: nacre.Cluster, collection: nacre.Collection, key: str) -> bool:
    """Returns True if a change is staged to which a record refers."""
    seen = await see(collection.place(key), 60)
    if seen is None or seen.txn is None:
        return False
    told = seen.txn["atr"]
    record = Place(cluster.bucket(told["bkt"]).client, told["scp"], told["coll"], told["id"])
    return any(entry.attempt == seen.attempt for entry in await entries_of(record, 60))


asyncio.run(main())
