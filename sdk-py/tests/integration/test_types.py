"""Types of documents that `nacre sdk types` writes."""

import asyncio
import os
import runpy
import subprocess
import tempfile
from pathlib import Path
from typing import Any, get_type_hints

from tests.integration.node import NodeTest, unique


class TypesTest(NodeTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.name = unique("order-lines")
        await self.bucket.collections().create_collection("_default", self.name)
        documents = self.bucket.collection(self.name)
        await documents.upsert(
            "a", {"total": 1, "by": {"zip-code": "1"}, "tags": ["x"], "class": 1}
        )
        await documents.upsert("b", {"total": 2.5, "by": None, "tags": [], "class": 2, "note": "!"})

    async def asyncTearDown(self) -> None:
        await self.bucket.collections().drop_collection("_default", self.name)

    async def types(self, *options: str) -> str:
        binary = os.environ["NACRE_TEST_BINARY"]
        address = await self.management_url()
        command = [binary, "sdk", "types", f"_default.{self.name}", "-c", address, *options]
        login = ["-u", self.node.user, "-p", self.node.password, "-b", self.node.bucket]
        done = await asyncio.to_thread(
            subprocess.run, [*command, *login], capture_output=True, text=True, check=True
        )
        return done.stdout

    async def management_url(self) -> str:
        (node, *_) = (await self.cluster.cluster_info()).nodes
        return f"http://{node['hostname']}"

    async def test_a_program_has_the_types_of_the_documents(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "types_of_orders.py"
            await self.types("--lang", "python", "--out", str(file))
            found: dict[str, Any] = runpy.run_path(str(file))
        (order,) = [
            kind
            for name, kind in found.items()
            if name.startswith("OrderLines") and "total" in kind.__annotations__
        ]
        hints = get_type_hints(order, found)
        self.assertEqual(hints["total"], float)
        self.assertEqual(hints["tags"], list[str])
        self.assertEqual(order.__optional_keys__, {"note"})
        # A name that is a word of the language needs the other way to write the class.
        self.assertIn("class", hints)

    async def test_interfaces_of_typescript_are_the_default(self) -> None:
        text = await self.types()
        self.assertRegex(text, r"export interface OrderLines\w+ \{")
        self.assertIn("  note?: string\n", text)
        self.assertIn("  tags: string[]\n", text)
        self.assertRegex(text, r'by: null \| \{\n    "zip-code": string\n  \}')
