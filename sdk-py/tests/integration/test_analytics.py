"""Analytics, on a cluster that runs the service; on another one, the errors that say so."""

import asyncio
from datetime import timedelta
from typing import Any

from nacre import exceptions as e
from nacre.analytics import AnalyticsScanConsistency, AnalyticsStatus
from nacre.management.analytics import AnalyticsDataType, S3ExternalAnalyticsLink
from tests.integration.node import NodeTest, unique

FRESH = AnalyticsScanConsistency.REQUEST_PLUS
MINUTE = 60.0


class AnalyticsTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.manager = self.cluster.analytics_indexes()
        self.dataverse = unique("dv").replace("-", "_")
        nodes = (await self.cluster.cluster_info()).nodes
        self.has_service = any("cbas" in node.get("services", ()) for node in nodes)

    async def refused(self) -> bool:
        """Returns True where no node runs the service, once the errors say so."""
        if self.has_service:
            return False
        scope = self.bucket.default_scope()
        for ask in (
            self.cluster.analytics_query("SELECT 1").execute,
            scope.analytics_query("SELECT 1").execute,
            self.manager.get_all_datasets,
            self.manager.get_pending_mutations,
            self.manager.get_links,
            lambda: self.manager.create_dataverse(self.dataverse),
        ):
            with self.assertRaises(e.ServiceUnavailableException):
                await ask()
        return True

    async def rows(self, statement: str, *options: Any) -> list[Any]:
        result = self.cluster.analytics_query(
            statement.replace("@", f"`{self.dataverse}`.orders"), *options, scan_consistency=FRESH
        )
        return await result.execute()

    async def test_queries_without_documents_have_metadata(self) -> None:
        if await self.refused():
            return
        result = self.cluster.analytics_query("SELECT VALUE n + $1 FROM range(1, 2000) AS n", 10)
        self.assertEqual([row async for row in result], list(range(11, 2011)))
        metadata = result.metadata()
        self.assertEqual(metadata.status(), AnalyticsStatus.SUCCESS)
        metrics = metadata.metrics()
        assert metrics is not None
        self.assertEqual(metrics.result_count(), 2000)
        self.assertGreater(metrics.elapsed_time(), timedelta())
        with self.assertRaises(e.CompilationFailedException):
            await self.cluster.analytics_query("SELEC 1").execute()
        with self.assertRaises(e.DatasetNotFoundException):
            await self.cluster.analytics_query("SELECT * FROM no_such_thing AS x").execute()
        with self.assertRaises(e.UnAmbiguousTimeoutException):
            await self.cluster.analytics_query(
                "SELECT sleep(1, 10000) AS x", raw={"timeout": "1s"}
            ).execute()

    async def test_datasets_follow_documents(self) -> None:
        if await self.refused():
            return
        manager, inside = self.manager, self.dataverse
        await manager.create_dataverse(inside)
        self.addAsyncCleanup(lambda: manager.drop_dataverse(inside, ignore_if_not_exists=True))
        with self.assertRaises(e.DataverseAlreadyExistsException):
            await manager.create_dataverse(inside)
        await manager.create_dataverse(inside, ignore_if_exists=True)
        bucket = self.node.bucket
        condition = f"run = '{self.key}'"
        await manager.create_dataset("orders", bucket, dataverse_name=inside, condition=condition)
        with self.assertRaises(e.DatasetAlreadyExistsException):
            await manager.create_dataset("orders", bucket, dataverse_name=inside)
        datasets = [one for one in await manager.get_all_datasets() if one.dataverse_name == inside]
        self.assertEqual(
            [(one.dataset_name, one.link_name, one.bucket_name) for one in datasets],
            [("orders", "Local", bucket)],
        )
        fields = {"n": AnalyticsDataType.INT64}
        await manager.create_index("by_n", "orders", fields, dataverse_name=inside)
        indexes = [one for one in await manager.get_all_indexes() if one.name == "by_n"]
        self.assertEqual(
            [(one.dataset_name, one.is_primary) for one in indexes], [("orders", False)]
        )

        for number in range(4):
            await self.collection.upsert(f"{self.key}:{number}", {"run": self.key, "n": number})
        self.assertEqual(await self.rows("SELECT VALUE SUM(o.n) FROM @ AS o"), [6])
        await self.collection.remove(f"{self.key}:3")
        self.assertEqual(
            await self.rows("SELECT VALUE COUNT(*) FROM @ AS o WHERE o.n > $1", 0), [2]
        )
        async with asyncio.timeout(MINUTE):
            while (await manager.get_pending_mutations()).get(f"{inside}.orders"):
                await asyncio.sleep(0.05)

        await manager.disconnect_link(dataverse_name=inside)
        await manager.connect_link(dataverse_name=inside)
        await manager.drop_index("by_n", "orders", dataverse_name=inside)
        with self.assertRaises(e.QueryIndexNotFoundException):
            await manager.drop_index("by_n", "orders", dataverse_name=inside)
        await manager.drop_dataset("orders", dataverse_name=inside)
        with self.assertRaises(e.DatasetNotFoundException):
            await manager.drop_dataset("orders", dataverse_name=inside)
        await manager.drop_dataverse(inside)
        with self.assertRaises(e.DataverseNotFoundException):
            await manager.drop_dataverse(inside)

    async def test_links_to_other_stores_are_not_supported(self) -> None:
        if await self.refused():
            return
        self.assertEqual(await self.manager.get_links(), [])
        link = S3ExternalAnalyticsLink("Default", self.key, "id", "region", "secret")
        with self.assertRaises(e.AnalyticsLinkNotFoundException):
            await self.manager.create_link(link)
        with self.assertRaises(e.AnalyticsLinkNotFoundException):
            await self.manager.drop_link(self.key, "Default")
