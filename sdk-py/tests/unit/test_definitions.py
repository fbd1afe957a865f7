"""Definitions of views and functions: what they are on the wire, and back."""

import unittest

from nacre import exceptions as e
from nacre.management.eventing import (
    EventingFunction,
    EventingFunctionBucketAccess,
    EventingFunctionBucketBinding,
    EventingFunctionConstantBinding,
    EventingFunctionDeploymentStatus,
    EventingFunctionKeyspace,
    EventingFunctionProcessingStatus,
    EventingFunctionsStatus,
    EventingFunctionState,
    EventingFunctionUrlAuthBasic,
    EventingFunctionUrlBinding,
)
from nacre.views import DesignDocument, DesignDocumentNamespace, View


class ViewsTest(unittest.TestCase):
    def test_a_view_comes_back_from_its_json(self) -> None:
        view = View("function (doc, meta) {}", "_count", {"note": 1})
        self.assertEqual(View.from_json(view.to_json()), view)
        self.assertEqual(View("m").as_dict("v"), {"map": "m", "name": "v"})
        for wrong in ("", "[]", "{}", "1"):
            with self.assertRaises(e.InvalidArgumentException):
                View.from_json(wrong)

    def test_a_design_document_comes_back_from_its_members(self) -> None:
        development = DesignDocumentNamespace.DEVELOPMENT
        document = DesignDocument("d", {"v": View("m")}, development, "s.c", {"_rev": "1-a"})
        members = document.as_dict()
        expected = {
            "name": "d",
            "namespace": "development",
            "views": {"v": {"map": "m"}},
            "collection": "s.c",
            "rev": "1-a",
        }
        self.assertEqual(members, expected)
        self.assertEqual(DesignDocument.from_json(members), document)
        self.assertEqual(DesignDocument.from_json({"name": "d"}), DesignDocument("d"))
        production = DesignDocumentNamespace.PRODUCTION
        self.assertEqual(document.as_dict(production)["namespace"], "production")
        for wrong in ({}, {"name": "d", "namespace": "x"}, {"name": "d", "views": {"v": {}}}):
            with self.assertRaises(e.InvalidArgumentException):
                DesignDocument.from_json(wrong)


class FunctionsTest(unittest.TestCase):
    def test_bindings_come_back_from_their_definition(self) -> None:
        place = EventingFunctionKeyspace("b", "s", "c")
        bucket = EventingFunctionBucketBinding("dst", place, EventingFunctionBucketAccess.ReadWrite)
        auth = EventingFunctionUrlAuthBasic("u", "p")
        host = EventingFunctionUrlBinding("http://h", "api", True, False, auth)
        constant = EventingFunctionConstantBinding("limit", "5")
        function = EventingFunction(
            "f",
            "code",
            place,
            EventingFunctionKeyspace("m", "_default", "_default"),
            bucket_bindings=[bucket],
            url_bindings=[host],
            constant_bindings=[constant],
        )
        config = function.as_dict()["depcfg"]
        expected = {
            "alias": "dst",
            "access": "rw",
            "bucket_name": "b",
            "scope_name": "s",
            "collection_name": "c",
        }
        self.assertEqual(config["buckets"], [expected])
        self.assertEqual(config["curl"], [host.as_dict()])
        self.assertEqual(config["constants"], [{"value": "limit", "literal": "5"}])
        self.assertEqual(EventingFunction.from_server(function.as_dict()), function)
        self.assertEqual(EventingFunctionBucketBinding.from_server(bucket.as_dict()), bucket)
        self.assertEqual(EventingFunctionUrlBinding.from_server(host.as_dict()), host)
        self.assertEqual(EventingFunctionConstantBinding.from_server(constant.as_dict()), constant)

    def test_a_keyspace_has_the_names_that_are_given(self) -> None:
        place = EventingFunctionKeyspace("b", "s", "c")
        self.assertEqual(EventingFunctionKeyspace.from_server(**place.as_dict()), place)
        default = EventingFunctionKeyspace.from_server("b", "_default", "")
        self.assertEqual(default, EventingFunctionKeyspace("b"))
        self.assertEqual(default.as_dict(), {"bucket": "b"})

    def test_a_status_is_read(self) -> None:
        app = {
            "name": "f",
            "composite_status": "deployed",
            "num_deployed_nodes": 2,
            "deployment_status": True,
            "processing_status": True,
        }
        status = EventingFunctionsStatus.from_server({"num_eventing_nodes": 3, "apps": [app]})
        (one,) = status.functions
        self.assertEqual((status.num_eventing_nodes, one.num_deployed_nodes), (3, 2))
        self.assertIs(one.state, EventingFunctionState.Deployed)
        self.assertIs(one.deployment_status, EventingFunctionDeploymentStatus.Deployed)
        self.assertIs(one.processing_status, EventingFunctionProcessingStatus.Running)
        self.assertEqual(EventingFunctionsStatus.from_server({}).functions, [])
