"""Lists, maps, sets and queues; operations on several documents; projections; replicas."""

from datetime import timedelta

from nacre import exceptions as e
from nacre import subdocument as sd
from tests.integration.node import NodeTest, unique


class ListTest(NodeTest):
    async def test_a_list_is_changed_at_its_ends_and_within(self) -> None:
        values = self.collection.couchbase_list(self.key)
        self.assertEqual((await values.size(), await values.get_all()), (0, []))
        await values.append("b")
        await values.append({"c": 1})
        await values.prepend("a")
        self.assertEqual(await values.get_all(), ["a", "b", {"c": 1}])
        self.assertEqual([value async for value in values], ["a", "b", {"c": 1}])
        self.assertEqual(await values.index_of("b"), 1)
        self.assertEqual(await values.index_of("z"), -1)
        await values.set_at(1, "B")
        self.assertEqual((await values.get_at(1), await values.get_at(-1)), ("B", {"c": 1}))
        await values.remove_at(0)
        self.assertEqual(await values.size(), 2)
        for late in (values.get_at(9), values.set_at(9, 1), values.remove_at(9)):
            with self.assertRaises(e.InvalidArgumentException):
                await late
        await values.clear()
        await values.clear()
        with self.assertRaises(e.DocumentNotFoundException):
            await values.get_at(0)


class MapTest(NodeTest):
    async def test_a_map_has_values_by_key(self) -> None:
        values = self.collection.couchbase_map(self.key)
        self.assertFalse(await values.exists("a"))
        await values.add("a.`b", 1)
        await values.add("c", [2])
        await values.add("c", [3])
        self.assertEqual(await values.get("a.`b"), 1)
        self.assertEqual(sorted(await values.keys()), ["a.`b", "c"])
        self.assertEqual(dict(await values.items()), {"a.`b": 1, "c": [3]})
        self.assertEqual(len(await values.values()), await values.size())
        self.assertTrue(await values.exists("c"))
        await values.remove("c")
        with self.assertRaises(e.InvalidArgumentException):
            await values.remove("c")
        with self.assertRaises(e.PathNotFoundException):
            await values.get("c")


class SetTest(NodeTest):
    async def test_a_set_has_each_value_once(self) -> None:
        values = self.collection.couchbase_set(self.key)
        self.assertTrue(await values.add("a"))
        self.assertFalse(await values.add("a"))
        self.assertTrue(await values.add(1))
        self.assertTrue(await values.contains(1))
        await values.remove("a")
        await values.remove("a")
        self.assertEqual((await values.values(), await values.size()), ([1], 1))


class QueueTest(NodeTest):
    async def test_what_comes_first_goes_first(self) -> None:
        queue = self.collection.couchbase_queue(self.key)
        for number in range(3):
            await queue.push(number)
        self.assertEqual([value async for value in queue], [0, 1, 2])
        self.assertEqual([await queue.pop() for _ in range(3)], [0, 1, 2])
        with self.assertRaises(e.QueueEmpty):
            await queue.pop()
        self.assertEqual(await queue.size(), 0)


class MultiTest(NodeTest):
    async def test_each_document_has_its_own_outcome(self) -> None:
        documents = {f"{self.key}-{number}": number for number in range(2000)}
        self.assertTrue((await self.collection.upsert_multi(documents)).all_ok)
        missing = unique("none")
        found = await self.collection.get_multi([*documents, missing])
        self.assertFalse(found.all_ok)
        self.assertEqual({key: got.content for key, got in found.results.items()}, documents)
        self.assertEqual(list(found.exceptions), [missing])
        self.assertIsInstance(found.exceptions[missing], e.DocumentNotFoundException)
        with self.assertRaises(e.DocumentNotFoundException):
            await self.collection.get_multi([*documents, missing], return_exceptions=False)

    async def test_all_operations_are_there(self) -> None:
        a, b = self.key, unique("key")
        self.assertTrue((await self.collection.insert_multi({a: 1, b: 2})).all_ok)
        again = await self.collection.insert_multi({a: 1})
        self.assertIsInstance(again.exceptions[a], e.DocumentExistsException)
        self.assertTrue((await self.collection.replace_multi({a: 3, b: 4})).all_ok)
        exists = await self.collection.exists_multi([a, b, "none"])
        self.assertEqual(
            [exists.results[key].exists for key in (a, b, "none")], [True, True, False]
        )
        locked = await self.collection.get_and_lock_multi([a, b], timedelta(seconds=15))
        self.assertEqual([locked.results[key].content for key in (a, b)], [3, 4])
        self.assertEqual(await self.collection.unlock_multi(locked), {a: None, b: None})
        touched = await self.collection.touch_multi([a, b], timedelta(hours=1))
        self.assertTrue(touched.all_ok)
        options = {b: {"cas": 1}}
        removed = await self.collection.remove_multi([a, b], per_key_options=options)
        self.assertIsInstance(removed.exceptions[b], e.CASMismatchException)
        self.assertEqual(list(removed.results), [a])
        copies = await self.collection.get_all_replicas_multi([b])
        self.assertEqual([copy.content for copy in copies.results[b]], [4])
        one = await self.collection.get_any_replica_multi([b])
        self.assertEqual(one.results[b].content, 4)
        counters = await self.collection.binary().increment_multi([unique("n")], initial=7)
        self.assertEqual([counter.content for counter in counters.results.values()], [7])


class ProjectionTest(NodeTest):
    async def test_the_parts_asked_for_make_up_the_document(self) -> None:
        document = {"a": 1, "b": {"c": [{"d": 2}, 3], "e.f": 4}, "g": 5}
        await self.collection.upsert(self.key, document, expiry=timedelta(hours=1))
        paths = ["a", "b.c[0].d", "b.`e.f`", "none", "b.c[-1]"]
        found = await self.collection.get(self.key, project=paths)
        expected = {"a": 1, "b": {"c": [{"d": 2}, 3], "e.f": 4}}
        self.assertEqual((found.content, found.expiry_time), (expected, None))
        many = [f"none{number}" for number in range(20)]
        found = await self.collection.get(self.key, project=paths + many, with_expiry=True)
        self.assertEqual(found.content, expected)
        self.assertIsNotNone(found.expiry_time)

    async def test_paths_that_are_none_are_refused(self) -> None:
        await self.collection.upsert(self.key, {})
        for paths in ([], "a", [f"a{n}" for n in range(20)] + ["a["], [1]):
            with self.subTest(paths), self.assertRaises(e.InvalidArgumentException):
                await self.collection.get(self.key, project=paths)  # type: ignore[typeddict-item]


class ReplicaTest(NodeTest):
    async def test_the_active_copy_is_one_of_the_copies(self) -> None:
        await self.collection.upsert(self.key, {"a": 1})
        one = await self.collection.get_any_replica(self.key)
        self.assertEqual((one.content, one.is_active, one.is_replica), ({"a": 1}, True, False))
        every = await self.collection.get_all_replicas(self.key)
        self.assertEqual([copy.content for copy in every], [{"a": 1}])
        part = await self.collection.lookup_in_any_replica(self.key, [sd.get("a")])
        self.assertEqual((part.content_as[int](0), part.is_replica), (1, False))
        parts = await self.collection.lookup_in_all_replicas(self.key, [sd.get("a")])
        self.assertEqual([copy.content_as[int](0) for copy in parts], [1])

    async def test_what_no_copy_has_cannot_be_retrieved(self) -> None:
        missing = unique("none")
        for reading in (
            self.collection.get_any_replica(missing),
            self.collection.get_all_replicas(missing),
            self.collection.lookup_in_any_replica(missing, [sd.get("a")]),
            self.collection.lookup_in_all_replicas(missing, [sd.get("a")]),
        ):
            with self.assertRaises(e.DocumentUnretrievableException):
                await reading


class MacroTest(NodeTest):
    async def test_macros_are_computed_by_the_server(self) -> None:
        stored = await self.collection.mutate_in(
            self.key,
            [
                sd.insert("m.cas", sd.MutationMacro.cas(), xattr=True, create_parents=True),
                sd.upsert("m.seq", sd.MutationMacro.seq_no(), xattr=True),
                sd.upsert("m.crc", sd.MutationMacro.value_crc32c(), xattr=True),
                sd.upsert("a", "${Mutation.CAS}"),
            ],
            store_semantics=sd.StoreSemantics.UPSERT,
        )
        found = await self.collection.lookup_in(
            self.key,
            [
                sd.get("m", xattr=True),
                sd.get(sd.LookupInMacro.cas(), xattr=True),
                sd.get_full(),
                sd.with_expiry(),
            ],
        )
        self.assertEqual(sd.convert_macro_cas_to_cas(found.content_as[dict](0)["cas"]), stored.cas)
        self.assertEqual(int(found.content_as[str](1), 16), stored.cas)
        self.assertEqual(found.content_as[dict](2), {"a": "${Mutation.CAS}"})
        self.assertEqual(found.content_as[int](3), 0)
