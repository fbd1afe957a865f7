# pyright: strict
"""A program with strict types: type checkers must accept it, and see the types that it asserts."""

import asyncio
from datetime import timedelta
from typing import assert_type

import nacre
from nacre import subdocument as sd
from nacre.exceptions import DocumentNotFoundException
from nacre.options import ClusterOptions, GetOptions, QueryOptions, UpsertOptions
from nacre.result import GetResult, LookupInResult, MultiGetResult, MutationResult, MutationToken
from nacre.sync import Cluster as BlockingCluster


async def documents(collection: nacre.Collection) -> int:
    """Uses documents and their parts."""
    options = UpsertOptions(
        expiry=timedelta(hours=1), durability=nacre.ServerDurability(nacre.Durability.MAJORITY)
    )
    stored = await collection.upsert("order", {"total": 3}, options)
    assert_type(stored, MutationResult)
    assert_type(stored.mutation_token(), MutationToken | None)
    found = await collection.get(
        "order", GetOptions(with_expiry=True), timeout=timedelta(seconds=1)
    )
    assert_type(found, GetResult)
    assert_type(found.cas, int)
    assert_type(found.key, str | None)
    order = found.content_as[dict[str, int]]
    assert_type(order, dict[str, int])
    part = await collection.lookup_in("order", [sd.get("total"), sd.exists("paid")])
    assert_type(part, LookupInResult)
    assert_type(part.exists(1), bool)
    assert_type(part.content_as[int](0), int)
    many = await collection.get_multi(["order", "other"])
    assert_type(many, MultiGetResult)
    assert_type(many.results, dict[str, GetResult])
    match stored.mutation_token():
        case MutationToken(number, uuid):
            assert_type(number, int)
            assert_type(uuid, int)
        case None:
            pass
    try:
        await collection.remove("order", cas=found.cas)
    except DocumentNotFoundException as error:
        assert_type(error, DocumentNotFoundException)
    return order["total"]


async def statements(cluster: nacre.Cluster) -> None:
    """Uses statements, changes and live results."""
    options = QueryOptions(read_only=True, named_parameters={"total": 3})
    async for row in cluster.query("SELECT * FROM orders WHERE total = $total", options):
        print(row)
    async for change in cluster.bucket("b").default_collection().changes(since="now"):
        print(change.id, change.content)
    async for update in cluster.live("SELECT 1"):
        print(update)


def blocking() -> None:
    """Uses the same without await."""
    authenticator = nacre.PasswordAuthenticator("user", "password")
    cluster = BlockingCluster.connect("couchbase://127.0.0.1", ClusterOptions(authenticator))
    found = cluster.bucket("b").default_collection().get("order")
    assert_type(found, GetResult)
    cluster.close()


async def main() -> None:
    """Connects."""
    timeouts = nacre.ClusterTimeoutOptions(kv_timeout=timedelta(seconds=1))
    async with await nacre.connect(
        "couchbase://127.0.0.1", "user", "password", timeouts=timeouts
    ) as cluster:
        print(await documents(cluster.bucket("b").scope("s").collection("c")))
        await statements(cluster)
    result = GetResult(1, {"total": 3}, key="order")
    # Results cannot be changed.
    result.cas = 2  # type: ignore[misc]
    # Options that do not exist are found.
    await cluster.bucket("b").default_collection().get("k", bogus=1)  # type: ignore[call-arg]


if __name__ == "__main__":
    asyncio.run(main())
