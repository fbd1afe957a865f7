"""The same operations with asyncio: awaitables, asynchronous iterators, concurrency."""

import asyncio
from datetime import timedelta

import couchbase.subdocument as SD
from acouchbase.cluster import Cluster
from couchbase.auth import PasswordAuthenticator
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import CASMismatchException, DocumentNotFoundException, TransactionFailed
from couchbase.n1ql import QueryScanConsistency
from couchbase.options import (
    ClusterOptions,
    GetOptions,
    IncrementOptions,
    QueryOptions,
    SignedInt64,
    TransactionOptions,
    UpsertOptions,
)


async def opened(c):
    """Returns a separate cluster, and the default collection of its bucket."""
    cluster = await Cluster.connect(c.url, ClusterOptions(PasswordAuthenticator(c.user, c.password)))
    bucket = cluster.bucket(c.bucket.name)
    await bucket.on_connect()
    return cluster, bucket.default_collection()


async def failure(awaitable):
    """Returns the name of the exception that an awaitable raises; None if it raises none."""
    try:
        await awaitable
    except Exception as error:
        return type(error).__name__
    return None


def program(body):
    """Returns a program that runs a coroutine with a separate connection."""

    def run(c):
        async def whole():
            cluster, collection = await opened(c)
            try:
                return await body(c, cluster, collection)
            finally:
                await cluster.close()

        return asyncio.run(whole())

    run.__name__ = body.__name__
    run.__module__ = body.__module__
    return run


@program
async def upsert_and_get(c, cluster, collection):
    await collection.upsert(c.key, {"a": 1})
    return (await collection.get(c.key)).content_as[dict]


@program
async def get_of_nothing(c, cluster, collection):
    try:
        await collection.get(c.key)
    except DocumentNotFoundException as error:
        return type(error).__name__


@program
async def a_hundred_at_once(c, cluster, collection):
    await asyncio.gather(*(collection.upsert(f"{c.key}-{n}", {"n": n}) for n in range(100)))
    read = await asyncio.gather(*(collection.get(f"{c.key}-{n}") for n in range(100)))
    return sum(result.content_as[dict]["n"] for result in read)


@program
async def gathered_with_failures(c, cluster, collection):
    await collection.upsert(f"{c.key}-1", 1)
    asked = [collection.get(f"{c.key}-{n}") for n in (1, 2)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    return [found[0].value, type(found[1]).__name__]


@program
async def inserted_and_removed(c, cluster, collection):
    await collection.insert(c.key, 1)
    again = await failure(collection.insert(c.key, 1))
    await collection.remove(c.key)
    return [again, await failure(collection.remove(c.key)), (await collection.exists(c.key)).exists]


@program
async def replaced_after_a_race(c, cluster, collection):
    await collection.upsert(c.key, {"n": 0})

    async def add():
        while True:
            found = await collection.get(c.key)
            try:
                return await collection.replace(c.key, {"n": found.value["n"] + 1}, cas=found.cas)
            except CASMismatchException:
                continue

    await asyncio.gather(*(add() for _ in range(6)))
    return (await collection.get(c.key)).value


@program
async def touched_and_locked(c, cluster, collection):
    await collection.upsert(c.key, 1)
    await collection.touch(c.key, timedelta(hours=1))
    found = await collection.get(c.key, GetOptions(with_expiry=True))
    locked = await collection.get_and_lock(c.key, timedelta(seconds=10))
    await collection.unlock(c.key, locked.cas)
    return [found.expiryTime is not None, (await collection.get_and_touch(c.key, timedelta(0))).value]


@program
async def parts_of_documents(c, cluster, collection):
    await collection.upsert(c.key, {"list": [1], "n": 1})
    await collection.mutate_in(c.key, [SD.array_append("list", 2), SD.increment("n", 4)])
    result = await collection.lookup_in(c.key, [SD.get("list"), SD.get("n"), SD.exists("none")])
    return [result.content_as[list](0), result.content_as[int](1), result.exists(2)]


@program
async def counters(c, cluster, collection):
    await collection.binary().increment(c.key, IncrementOptions(initial=SignedInt64(5)))
    return (await collection.binary().increment(c.key)).content


@program
async def replicas(c, cluster, collection):
    await collection.upsert(c.key, {"a": 1})
    any_one = await collection.get_any_replica(c.key)
    every = [each.value for each in await collection.get_all_replicas(c.key)]
    return [any_one.value, every]


@program
async def durable_writes(c, cluster, collection):
    level = ServerDurability(DurabilityLevel.MAJORITY)
    await collection.upsert(c.key, 1, UpsertOptions(durability=level, timeout=timedelta(seconds=10)))
    return (await collection.get(c.key)).value


@program
async def rows_one_by_one(c, cluster, collection):
    return [row async for row in cluster.query("SELECT RAW n FROM [1, 2, 3] AS n")]


@program
async def rows_of_an_iterator(c, cluster, collection):
    result = cluster.query("SELECT RAW n FROM [1, 2] AS n", QueryOptions(metrics=True))
    rows = [row async for row in result.rows()]
    return [rows, int(str(result.metadata().metrics().result_count()).split()[-1])]


@program
async def rows_all_at_once(c, cluster, collection):
    return await cluster.query("SELECT RAW $1", 5).execute()


@program
async def a_statement_that_fails(c, cluster, collection):
    return await failure(cluster.query("SELEKT").execute())


@program
async def rows_of_a_scope(c, cluster, collection):
    scope = cluster.bucket(c.bucket.name).scope(c.scope.name)
    await scope.collection("people").upsert(c.key, {"kind": c.key})
    options = QueryOptions(positional_parameters=[c.key], scan_consistency=QueryScanConsistency.REQUEST_PLUS)
    return [row async for row in scope.query("SELECT RAW COUNT(*) FROM people WHERE kind = $1", options)]


@program
async def lists_and_maps(c, cluster, collection):
    values = collection.couchbase_list(f"{c.key}-l")
    await values.append(1)
    await values.append(2)
    mapped = collection.couchbase_map(f"{c.key}-m")
    await mapped.add("a", 1)
    return [await values.get_all(), await values.size(), await mapped.get("a"), await mapped.exists("b")]


@program
async def queues_and_sets(c, cluster, collection):
    queue = collection.couchbase_queue(f"{c.key}-q")
    await queue.push(1)
    await queue.push(2)
    values = collection.couchbase_set(f"{c.key}-s")
    await values.add("a")
    return [await queue.pop(), await queue.size(), await values.contains("a"), await values.values()]


@program
async def transactions(c, cluster, collection):
    await collection.upsert(c.key, {"n": 1})

    async def run(attempt):
        document = await attempt.get(collection, c.key)
        await attempt.replace(document, {"n": document.content_as[dict]["n"] + 1})

    options = TransactionOptions(durability=ServerDurability(DurabilityLevel.NONE))
    await cluster.transactions.run(run, options)
    return (await collection.get(c.key)).value


@program
async def transactions_that_fail(c, cluster, collection):
    await collection.upsert(c.key, {"n": 1})

    async def run(attempt):
        await attempt.replace(await attempt.get(collection, c.key), {"n": 2})
        raise ValueError("not today")

    try:
        await cluster.transactions.run(run, TransactionOptions(durability=ServerDurability(DurabilityLevel.NONE)))
    except TransactionFailed:
        return (await collection.get(c.key)).value


@program
async def managers(c, cluster, collection):
    names = [each.name for each in await cluster.buckets().get_all_buckets()]
    scopes = [each.name for each in await cluster.bucket(c.bucket.name).collections().get_all_scopes()]
    return [c.bucket.name in names, "_default" in scopes, await failure(cluster.buckets().get_bucket("no_such"))]


@program
async def users(c, cluster, collection):
    return [await failure(cluster.users().get_user("nobody")), len(await cluster.users().get_roles()) > 3]


@program
async def pings(c, cluster, collection):
    report = await cluster.ping()
    return [type(report.id).__name__, len(report.endpoints) > 0]


@program
async def waiting(c, cluster, collection):
    await cluster.wait_until_ready(timedelta(seconds=5))
    return True


@program
async def connect_by_constructor(c, cluster, collection):
    mine = Cluster(c.url, ClusterOptions(PasswordAuthenticator(c.user, c.password)))
    await mine.on_connect()
    found = [row async for row in mine.query("SELECT RAW 1")]
    await mine.close()
    return found


@program
async def timeouts_by_asyncio(c, cluster, collection):
    await collection.upsert(c.key, 1)
    return (await asyncio.wait_for(collection.get(c.key), 5)).value


@program
async def tasks_that_are_cancelled(c, cluster, collection):
    await collection.upsert(c.key, 1)
    tasks = [asyncio.ensure_future(collection.get(c.key)) for _ in range(20)]
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return [each.value for each in done if not isinstance(each, BaseException)]


@program
async def tasks_as_they_complete(c, cluster, collection):
    await asyncio.gather(*(collection.upsert(f"{c.key}-{n}", n) for n in range(5)))
    asked = [collection.get(f"{c.key}-{n}") for n in range(5)]
    return sorted([(await each).value for each in asyncio.as_completed(asked)])
