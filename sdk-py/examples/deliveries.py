"""Deliveries: an app for couriers that works in tunnels and cellars.

    python3 deliveries.py FOLDER https://hub.example.com:18091/default USER PASSWORD

The app reads and writes the database in FOLDER, and never waits for a network. Sync keeps it in
step with a bucket, whenever there is a network. Commands on the input:

    list                    the orders
    deliver ORDER NOTE      marks an order as delivered
    lost                    notes that lost a conflict: somebody should look at them
    quit                    ends; what was not sent is sent after the next start

Each answer ends with a line about sync.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import nacre
from nacre import Collection, DeviceSync
from nacre.exceptions import DocumentNotFoundException
from nacre.kv_range_scan import PrefixScan, RangeScan

ORDERS = "shop.orders"


async def orders(documents: Collection) -> AsyncIterator[str]:
    """Each order as a line, in order of the IDs."""
    found = [one async for one in documents.scan(PrefixScan("o:"))]
    for one in sorted(found, key=lambda one: one.id):
        order = one.content_as[dict]
        yield f"{one.id} {order['customer']}: {order.get('note', 'on the way')}"


async def deliver(documents: Collection, order: str, note: str) -> str:
    """Marks an order as delivered, and returns a line about it."""
    try:
        content = (await documents.get(order)).content_as[dict]
    except DocumentNotFoundException:
        return f"{order}: there is no such order"
    content |= {"note": note, "delivered": datetime.now(UTC).isoformat(timespec="seconds")}
    await documents.upsert(order, content)
    return f"{order} is delivered"


async def lost(parked: Collection) -> AsyncIterator[str]:
    """Each parked version as a line."""
    async for one in parked.scan(RangeScan()):
        record = one.content_as[dict]
        body = json.dumps(record.get("body"))
        yield f"{record['key']} ({record['side']}, {record['reason']}): {body}"


async def run(folder: str, url: str, user: str, password: str) -> None:
    """Answers commands until the input ends."""
    login = {"user": user, "password": password}
    async with (
        await nacre.connect(f"nacre://{folder}?sync=always") as cluster,
        await DeviceSync.start(cluster, url, collections=[ORDERS], **login) as sync,
    ):
        bucket = cluster.bucket("default")
        documents = bucket.scope("shop").collection("orders")
        parked = bucket.scope("nacre-sync").collection("parked")
        while line := await asyncio.to_thread(sys.stdin.readline):
            match line.split(maxsplit=2):
                case ["list"]:
                    async for shown in orders(documents):
                        print(shown)
                case ["deliver", order, note]:
                    print(await deliver(documents, order, note.rstrip()))
                case ["lost"]:
                    async for shown in lost(parked):
                        print(shown)
                case ["quit"]:
                    return
                case _:
                    print("commands: list, deliver ORDER NOTE, lost, quit")
            status = sync.status()
            figures = f"{status['pushed']} sent, {status['pulled']} received"
            print(f"-- {status['state']}: {figures}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    asyncio.run(run(*sys.argv[1:]))
