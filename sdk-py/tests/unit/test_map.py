"""The cluster's map."""

import json
import unittest
from typing import Any

from nacre._connstr import Address
from nacre._map import ClusterMap, Network
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

    def test_tls_and_alternate_addresses_are_taken_as_asked(self) -> None:
        services = {"kv": 11210, "kvSSL": 11207, "mgmt": 8091, "mgmtSSL": 18091}
        external = {"hostname": "out", "ports": {"kv": 30001, "kvSSL": 30002}}
        node = {"hostname": "in", "services": services}
        config = {
            "rev": 1,
            "nodesExt": [{**node, "alternateAddresses": {"external": external}}],
            "vBucketServerMap": {"serverList": ["in:11210"], "vBucketMap": [[0]]},
        }
        text = json.dumps(config).encode()
        for host, network, expected in (
            ("in", Network(), Address("in", 11210)),
            ("in", Network(uses_tls=True), Address("in", 11207)),
            ("out", Network(), Address("out", 30001)),
            ("out", Network(uses_tls=True), Address("out", 30002)),
            ("in", Network(name="external"), Address("out", 30001)),
            ("out", Network(name="default"), Address("in", 11210)),
        ):
            with self.subTest(host=host, network=network):
                read = ClusterMap.parse(text, host, network)
                self.assertEqual(read.node_of(0), expected)
        read = ClusterMap.parse(text, "in", Network(uses_tls=True))
        self.assertEqual(read.nodes("mgmt"), (Address("in", 18091),))

    def test_epochs_count_before_revisions(self) -> None:
        older = ClusterMap.parse(json.dumps({**MAP, "rev": 9, "revEpoch": 0}).encode(), "a")
        self.assertLess(older.version, ClusterMap.parse(json.dumps(MAP).encode(), "a").version)

    def test_maps_that_contradict_themselves_are_refused(self) -> None:
        servers = MAP["vBucketServerMap"]
        for broken in (
            b"",
            b"[]",
            b"{}",
            b"[" * 100_000,
            b" " * (9 << 20),
            json.dumps({**MAP, "vBucketServerMap": {**servers, "vBucketMap": []}}).encode(),
            json.dumps({**MAP, "nodesExt": 1}).encode(),
            json.dumps({**MAP, "rev": "x"}).encode(),
            json.dumps({**MAP, "vBucketServerMap": {**servers, "vBucketMap": [[2]]}}).encode(),
            json.dumps({**MAP, "vBucketServerMap": {**servers, "vBucketMap": [[]]}}).encode(),
            json.dumps({**MAP, "vBucketServerMap": {**servers, "serverList": ["b"]}}).encode(),
        ):
            with self.subTest(broken=broken), self.assertRaises(DecodingFailureException):
                ClusterMap.parse(broken, "a")
