"""The guide: its examples run one after the other, and print what stands below them."""

import ast
import asyncio
import contextlib
import io
import re
import unittest
from pathlib import Path
from typing import Any

from nacre import sync
from nacre.management.buckets import CreateBucketSettings
from tests.integration.node import Node, unique

GUIDE = Path(__file__).parents[3] / "docs/guides/python.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.S)
SECONDS_MAX = 60.0


class GuideTest(unittest.TestCase):
    def test_the_examples_run(self) -> None:
        node = Node()
        bucket = unique("guide")
        with sync.connect(node.url, node.user, node.password) as cluster:
            cluster.buckets().create_bucket(CreateBucketSettings(bucket, num_replicas=0))
            try:
                asyncio.run(self.run_examples(node, bucket))
            finally:
                cluster.buckets().drop_bucket(bucket)

    async def run_examples(self, node: Node, bucket: str) -> None:
        names: dict[str, Any] = {"url": node.url, "user": node.user, "password": node.password}
        examples = EXAMPLE.findall(GUIDE.read_text())
        self.assertGreater(len(examples), 10)
        for code, expected in examples:
            code = code.replace('"default"', repr(bucket)).replace(
                "FROM default", f"FROM `{bucket}`"
            )
            compiled = compile(code, str(GUIDE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            printed = io.StringIO()
            with self.subTest(code.splitlines()[0]), contextlib.redirect_stdout(printed):
                async with asyncio.timeout(SECONDS_MAX):
                    work = eval(compiled, names)
                    if work is not None:
                        await work
            self.assertEqual(printed.getvalue(), expected)
