"""Base of tests that talk to a running node, named by the environment."""

import os
import unittest
import uuid

import nacre

HINT = "set NACRE_TEST_URL (couchbase://127.0.0.1:11210) to test against a node"


class Node:
    """Where the node is and who asks; missing variables have the defaults of `nacre serve`."""

    def __init__(self) -> None:
        if not os.environ.get("NACRE_TEST_URL"):
            raise AssertionError(HINT)
        self.url = os.environ["NACRE_TEST_URL"]
        self.user = os.environ.get("NACRE_TEST_USER", "Administrator")
        self.password = os.environ.get("NACRE_TEST_PASSWORD", "password")
        self.bucket = os.environ.get("NACRE_TEST_BUCKET", "default")


class NodeTest(unittest.IsolatedAsyncioTestCase):
    """Connects before each test; `key` is another one in each."""

    async def asyncSetUp(self) -> None:
        self.node = Node()
        cluster = await nacre.connect(self.node.url, self.node.user, self.node.password)
        self.cluster = await self.enterAsyncContext(cluster)
        self.bucket = self.cluster.bucket(self.node.bucket)
        self.collection = self.bucket.default_collection()
        self.key = unique("key")
        # Connected before the test begins, as some of its times are short.
        await self.bucket.on_connect()

    def cluster_options(self) -> nacre.ClusterOptions:
        """Options for another connection to the cluster."""
        return nacre.ClusterOptions(nacre.PasswordAuthenticator(self.node.user, self.node.password))


def unique(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"
