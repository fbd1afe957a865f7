"""The cluster's map."""

import json
import unittest
from typing import Any

from nacre._connstr import Address
from nacre._map import ClusterMap
from nacre.exceptions import DecodingFailureException

MAP: dict[str, Any] = {
    "rev": 3,
    "revEpoch": 1,
    "nodesExt": [
        {"services": {"kv": 11210, "mgmt": 8091, "capi": 8092}},
        {"hostname": "b", "services": {"kv": 11210}},
    ],
    "vBucketServerMap": {
        "serverList": ["$HOST:11210", "b:11210"],
        "vBucketMap": [[0, 1], [1, -1], [-1, 0]],
    },
}


class ClusterMapTest(unittest.TestCase):
    def test_vbuckets_lead_to_nodes_and_replicas(self) -> None:
        read = ClusterMap.parse(json.dumps(MAP).encode(), "a")
        self.assertEqual(read.node_of(0), Address("a", 11210))
        self.assertEqual(read.node_of(0, copy=1), Address("b", 11210))
        self.assertIsNone(read.node_of(2))
        self.assertIsNone(read.node_of(0, copy=2))
        self.assertEqual(read.replica_count, 1)

    def test_services_are_on_the_host_that_was_asked_unless_named(self) -> None:
        read = ClusterMap.parse(json.dumps(MAP).encode(), "a")
        self.assertEqual(read.nodes("capi"), (Address("a", 8092),))
        self.assertEqual(read.nodes("n1ql"), ())

    def test_epochs_count_before_revisions(self) -> None:
        older = ClusterMap.parse(json.dumps({**MAP, "rev": 9, "revEpoch": 0}).encode(), "a")
        self.assertLess(older.version, ClusterMap.parse(json.dumps(MAP).encode(), "a").version)

    def test_maps_that_contradict_themselves_are_refused(self) -> None:
        servers = MAP["vBucketServerMap"]
        for broken in (
            b"",
            b"[]",
            b"{}",
            json.dumps({**MAP, "nodesExt": 1}).encode(),
            json.dumps({**MAP, "rev": "x"}).encode(),
            json.dumps({**MAP, "vBucketServerMap": {**servers, "vBucketMap": [[2]]}}).encode(),
            json.dumps({**MAP, "vBucketServerMap": {**servers, "vBucketMap": [[]]}}).encode(),
            json.dumps({**MAP, "vBucketServerMap": {**servers, "serverList": ["b"]}}).encode(),
        ):
            with self.subTest(broken=broken), self.assertRaises(DecodingFailureException):
                ClusterMap.parse(broken, "a")
