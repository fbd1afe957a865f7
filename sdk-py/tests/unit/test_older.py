"""Data structures by the older methods of a collection."""

import json
import unittest
from typing import Any

from nacre import exceptions as e
from nacre._opcodes import Opcode
from nacre.sync._older import OlderStructures


class Part:
    """What a part of a document is."""

    def __init__(self, value: Any) -> None:
        self.content_as = {object: lambda _: value, list: value}


class FakeContent:
    """A whole document."""

    def __init__(self, value: Any) -> None:
        self.content_as = {list: value}


class Documents(OlderStructures):
    """A collection whose documents are values in memory, for the specs that the methods use."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.options: list[dict[str, Any]] = []

    def insert(self, key: str, value: Any) -> None:
        if key in self.documents:
            raise e.DocumentExistsException()
        self.documents[key] = json.loads(json.dumps(value))

    def get(self, key: str, **options: Any) -> FakeContent:
        return FakeContent(self._of(key))

    def lookup_in(self, key: str, specs: Any, **options: Any) -> Any:
        self.options.append(options)
        (spec,) = specs
        document = self._of(key)
        if spec.path == "":
            return Part(len(document))
        try:
            return Part(document[self._place(spec.path)])
        except LookupError:
            raise e.PathNotFoundException() from None

    def mutate_in(self, key: str, specs: Any, **options: Any) -> str:
        self.options.append(options)
        (spec,) = specs
        document, value = self._of(key), json.loads(spec.value) if spec.value else None
        match spec.opcode:
            case Opcode.SUBDOC_ARRAY_PUSH_LAST:
                document.append(value)
            case Opcode.SUBDOC_ARRAY_PUSH_FIRST:
                document.insert(0, value)
            case Opcode.SUBDOC_ARRAY_ADD_UNIQUE if value in document:
                raise e.PathExistsException()
            case Opcode.SUBDOC_ARRAY_ADD_UNIQUE:
                document.append(value)
            case Opcode.SUBDOC_DELETE:
                del document[self._place(spec.path)]
            case _:
                document[self._place(spec.path)] = value
        return "changed"

    def _of(self, key: str) -> Any:
        if key not in self.documents:
            raise e.DocumentNotFoundException()
        return self.documents[key]

    @staticmethod
    def _place(path: str) -> Any:
        return int(path[1:-1]) if path.startswith("[") else path[1:-1].replace("``", "`")


class OlderTest(unittest.TestCase):
    def setUp(self) -> None:
        self.here = Documents()

    def test_a_change_creates_a_document_on_request_only(self) -> None:
        here = self.here
        for change in (here.list_append, here.list_prepend, here.set_add, here.queue_push):
            with self.assertRaises(e.DocumentNotFoundException):
                change("k", 1)
            change("k", 1, create=True)
            self.assertEqual(here.documents.pop("k"), [1])
        with self.assertRaises(e.DocumentNotFoundException):
            here.map_add("k", "a", 1)
        here.map_add("k", "a", 1, create=True)
        self.assertEqual(here.documents, {"k": {"a": 1}})

    def test_lists(self) -> None:
        here = self.here
        here.list_append("k", "b", create=True)
        here.list_append("k", "c")
        here.list_prepend("k", "a", timeout=5)
        self.assertEqual(here.options[-1], {"timeout": 5})
        self.assertEqual([here.list_get("k", index) for index in range(3)], ["a", "b", "c"])
        here.list_set("k", 1, {"x": 1})
        self.assertEqual(here.list_remove("k", 0), "changed")
        self.assertEqual((here.list_size("k"), here.documents["k"]), (2, [{"x": 1}, "c"]))
        with self.assertRaises(e.PathNotFoundException):
            here.list_get("k", 9)

    def test_maps(self) -> None:
        here = self.here
        here.map_add("k", "a.`b", 1, create=True)
        here.map_add("k", "c", 2)
        self.assertEqual((here.map_get("k", "a.`b"), here.map_size("k")), (1, 2))
        here.map_remove("k", "c")
        self.assertEqual(here.documents["k"], {"a.`b": 1})

    def test_sets_and_queues(self) -> None:
        here = self.here
        self.assertIsNotNone(here.set_add("s", 1, create=True))
        self.assertIsNone(here.set_add("s", 1))
        self.assertEqual((here.set_size("s"), here.set_contains("s", 1)), (1, True))
        self.assertFalse(here.set_contains("s", 2))
        here.queue_push("q", 1, create=True)
        here.queue_push("q", 2)
        self.assertEqual((here.queue_size("q"), here.documents["q"]), (2, [2, 1]))
