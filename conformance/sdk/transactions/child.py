"""Moves money between documents in transactions, until it is killed.

    python3 child.py PACKAGE URL USER PASSWORD BUCKET RUN ACCOUNTS SEED SECONDS

PACKAGE is ``couchbase`` or ``nacre``. Each line of output is the key of a receipt that the next transaction inserts, and
that a later one removes. With KILL_AT the process ends at that write to the node (before or after it, by KILL_WHEN
``before`` or ``after``). This requires this project's package, because the official one sends its requests in native code.
"""

import os
import random
import signal
import sys
from datetime import timedelta

package, url, user, password, bucket, run, accounts, seed, seconds = sys.argv[1:]
dice = random.Random(int(seed))
limit = timedelta(seconds=float(seconds))


def install_kill() -> None:
    from nacre._client import KvClient

    kill_at, when = int(os.environ["KILL_AT"]), os.environ["KILL_WHEN"]
    real, count = KvClient.execute, 0

    async def counted(client, operation, timeout):
        nonlocal count
        count += not operation.reads
        ends = count == kill_at and not operation.reads
        if ends and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await real(client, operation, timeout)
        finally:
            # Also after a write that the node refused.
            if ends:
                os.kill(os.getpid(), signal.SIGKILL)

    KvClient.execute = counted


def connect():
    if package == "couchbase":
        from couchbase.auth import PasswordAuthenticator
        from couchbase.cluster import Cluster
        from couchbase.options import ClusterOptions, TransactionConfig

        config = TransactionConfig(timeout=limit)
        return Cluster(url, ClusterOptions(PasswordAuthenticator(user, password), transaction_config=config))
    from nacre.options import ClusterOptions
    from nacre.sync import Cluster
    from nacre.sync.auth import PasswordAuthenticator
    from nacre.transactions import TransactionConfig

    options = ClusterOptions(PasswordAuthenticator(user, password))
    options.transaction_config = TransactionConfig(timeout=limit)
    return Cluster(url, options)


def main() -> None:
    cluster = connect()
    collection = cluster.bucket(bucket).default_collection()
    # A busy machine takes long to connect.
    collection.get(f"{run}-account-0", timeout=timedelta(minutes=1))
    if "KILL_AT" in os.environ:
        install_kill()
    receipts, number = [], 0
    while True:
        one, other = dice.sample(range(int(accounts)), 2)
        receipt = f"{run}-receipt-{os.getpid()}-{number}"
        gone = receipts[0] if len(receipts) > 1 else None
        number += 1
        print(receipt, flush=True)

        def move(ctx):
            source = ctx.get(collection, f"{run}-account-{one}")
            target = ctx.get(collection, f"{run}-account-{other}")
            ctx.replace(source, {"sum": source.content_as[dict]["sum"] - 1})
            ctx.replace(target, {"sum": target.content_as[dict]["sum"] + 1})
            ctx.insert(collection, receipt, {"of": run})
            if gone is not None:
                ctx.remove(ctx.get(collection, gone))

        try:
            cluster.transactions.run(move)
        except Exception as error:
            # Other clients win until the time is over, or another client considers this one dead.
            print(f"# {type(error).__name__}: {error}"[:200].replace("\n", " "), flush=True)
            continue
        receipts.append(receipt)
        if gone is not None:
            receipts.remove(gone)


main()
