"""The example that follows a collection."""

import asyncio
import sys
import tempfile
from pathlib import Path

from nacre.management.buckets import CreateBucketSettings
from tests.integration.node import NodeTest, unique

EXAMPLE = Path(__file__).parents[2] / "examples/feed_reader.py"
SECONDS_MAX = 30.0


class FeedReaderTest(NodeTest):
    async def test_a_reader_that_was_stopped_goes_on(self) -> None:
        bucket = unique("feed")
        await self.cluster.buckets().create_bucket(CreateBucketSettings(bucket, num_replicas=0))
        collection = self.cluster.bucket(bucket).default_collection()
        try:
            with tempfile.TemporaryDirectory() as folder:
                state = Path(folder) / "token"
                await collection.upsert("a", {"n": 1})
                self.assertEqual(await self.read(bucket, state, "a"), ['+ a {"n": 1}'])
                # The token follows within a second, with the next change.
                while not state.exists():
                    await collection.upsert("b", 2)
                    await self.read(bucket, state, "b", wait_for_token=True)
                await collection.remove("a")
                await collection.upsert("c", 3)
                found = await self.read(bucket, state, "c")
                self.assertIn("- a", found)
                self.assertNotIn('+ a {"n": 1}', found)
        finally:
            await self.cluster.buckets().drop_bucket(bucket)

    async def read(
        self, bucket: str, state: Path, last: str, wait_for_token: bool = False
    ) -> list[str]:
        """Lines that the example prints, up to the one of a key; then it is stopped."""
        arguments = [self.node.url, self.node.user, self.node.password, bucket, str(state)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(EXAMPLE), *arguments, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        lines: list[str] = []
        collection = self.cluster.bucket(bucket).default_collection()
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while not lines or lines[-1].split(" ")[1] != last:
                    lines.append((await process.stdout.readline()).decode().rstrip())
                while wait_for_token and not state.exists():
                    await collection.upsert("tick", len(lines))
                    lines.append((await process.stdout.readline()).decode().rstrip())
        finally:
            process.kill()
            await process.wait()
        return lines
