"""Design documents and queries of views."""

from nacre import ViewScanConsistency
from nacre import exceptions as e
from nacre.views import (
    DesignDocument,
    DesignDocumentNamespace,
    View,
    ViewOptions,
    ViewOrdering,
)
from tests.integration.node import NodeTest, unique


class ViewTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.name = unique("ddoc")
        mine = f'if (meta.id.indexOf("{self.key}") === 0)'
        self.views = {
            "by_n": View(f"function (doc, meta) {{ {mine} emit(doc.n, doc.t); }}"),
            "sum": View(f"function (doc, meta) {{ {mine} emit(doc.t, doc.n); }}", "_sum"),
        }
        self.manager = self.bucket.view_indexes()
        await self.manager.upsert_design_document(DesignDocument(self.name, self.views))
        for n in range(6):
            await self.collection.upsert(f"{self.key}-{n}", {"n": n, "t": "odd" if n % 2 else "é"})

    async def asyncTearDown(self) -> None:
        await self.manager.drop_design_document(self.name)

    async def keys(self, options: ViewOptions) -> list[object]:
        options["scan_consistency"] = ViewScanConsistency.REQUEST_PLUS
        return [row.key async for row in self.bucket.view_query(self.name, "by_n", options)]

    async def test_rows_come_in_the_order_of_their_keys(self) -> None:
        result = self.bucket.view_query(
            self.name, "by_n", scan_consistency=ViewScanConsistency.REQUEST_PLUS
        )
        rows = [row async for row in result.rows()]
        self.assertEqual([row.key for row in rows], list(range(6)))
        self.assertEqual((rows[1].id, rows[1].value), (f"{self.key}-1", "odd"))
        self.assertEqual(result.metadata().total_rows, 6)

    async def test_options_choose_rows(self) -> None:
        for options, expected in (
            (ViewOptions(limit=2, skip=1), [1, 2]),
            (ViewOptions(startkey=4), [4, 5]),
            (ViewOptions(startkey=1, endkey=3, inclusive_end=False), [1, 2]),
            (ViewOptions(key=3), [3]),
            (ViewOptions(keys=[5, 0]), [5, 0]),
            (ViewOptions(order=ViewOrdering.DESCENDING, limit=2), [5, 4]),
        ):
            with self.subTest(options=options):
                self.assertEqual(await self.keys(options), expected)

    async def test_reduced_rows_have_no_id(self) -> None:
        result = self.bucket.view_query(
            self.name, "sum", group=True, scan_consistency=ViewScanConsistency.REQUEST_PLUS
        )
        rows = [(row.id, row.key, row.value) async for row in result]
        self.assertEqual(sorted(rows, key=lambda row: row[2]), [(None, "é", 6), (None, "odd", 9)])

    async def test_missing_views_are_not_found(self) -> None:
        for ddoc, view in ((self.name, "none"), (unique("none"), "by_n")):
            with self.assertRaises(e.ViewNotFoundException):
                async for _ in self.bucket.view_query(ddoc, view):
                    self.fail("there is no row")

    async def test_options_that_mean_nothing_are_refused(self) -> None:
        with self.assertRaises(e.InvalidArgumentException):
            self.bucket.view_query(self.name, "by_n", limit=-1)

    async def test_design_documents_are_read_as_written_and_dropped(self) -> None:
        read = await self.manager.get_design_document(self.name)
        self.assertEqual((read.name, read.views), (self.name, self.views))
        development = DesignDocumentNamespace.DEVELOPMENT
        with self.assertRaises(e.DesignDocumentNotFoundException):
            await self.manager.get_design_document(self.name, development)
        await self.manager.upsert_design_document(read, development)
        await self.manager.get_design_document(self.name, development)
        await self.manager.drop_design_document(self.name, development)
        with self.assertRaises(e.DesignDocumentNotFoundException):
            await self.manager.drop_design_document(self.name, development)
