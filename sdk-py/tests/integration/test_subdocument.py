"""Parts of documents and extended attributes."""

from datetime import timedelta

from nacre import RawBinaryTranscoder, StoreSemantics
from nacre import exceptions as e
from nacre import subdocument as sd
from tests.integration.node import NodeTest


class LookupTest(NodeTest):
    async def test_parts_are_found_in_the_order_asked(self) -> None:
        await self.collection.upsert(self.key, {"a": {"b": [1, 2]}, "s": "é"})
        await self.collection.mutate_in(self.key, [sd.upsert("meta", {"x": 1}, xattr=True)])
        found = await self.collection.lookup_in(
            self.key,
            [
                sd.get("a.b[-1]"),
                sd.exists("s"),
                sd.get("meta.x", xattr=True),
                sd.count("a.b"),
                sd.get("none"),
                sd.exists("none"),
                sd.get(""),
            ],
        )
        self.assertEqual(found.content_as[int](0), 2)
        self.assertTrue(found.exists(1))
        self.assertEqual(found.content_as[int](2), 1)
        self.assertEqual(found.content_as[int](3), 2)
        with self.assertRaises(e.PathNotFoundException) as caught:
            found.content_as[int](4)
        self.assertEqual(caught.exception.context.key, self.key)
        self.assertFalse(found.exists(4))
        self.assertFalse(found.exists(5))
        self.assertIs(found.content_as[bool](5), False)
        self.assertEqual(found.content_as[dict](6), {"a": {"b": [1, 2]}, "s": "é"})
        with self.assertRaises(e.InvalidArgumentException):
            found.exists(7)

    async def test_paths_that_do_not_fit_the_document_have_their_own_errors(self) -> None:
        await self.collection.upsert(self.key, {"a": 1})
        found = await self.collection.lookup_in(self.key, [sd.get("a.b"), sd.get("a[")])
        with self.assertRaises(e.PathMismatchException):
            found.content_as[int](0)
        with self.assertRaises(e.PathInvalidException):
            found.exists(1)

    async def test_a_missing_document_is_not_found(self) -> None:
        with self.assertRaises(e.DocumentNotFoundException):
            await self.collection.lookup_in(self.key, [sd.get("a")])


class MutateTest(NodeTest):
    async def document(self) -> object:
        return (await self.collection.get(self.key)).content

    async def test_every_kind_of_change_is_made(self) -> None:
        await self.collection.upsert(self.key, {"list": [2], "old": 1, "gone": 1, "n": 5})
        result = await self.collection.mutate_in(
            self.key,
            [
                sd.insert("new", "x"),
                sd.upsert("deep.er", 1, create_parents=True),
                sd.replace("old", 2),
                sd.remove("gone"),
                sd.array_append("list", 4, 5),
                sd.array_prepend("list", 1),
                sd.array_insert("list[2]", 3),
                sd.array_addunique("list", 6),
                sd.increment("n", 10),
                sd.decrement("m", 3),
            ],
        )
        self.assertEqual(
            await self.document(),
            {"list": [1, 2, 3, 4, 5, 6], "old": 2, "n": 15, "m": -3, "new": "x", "deep": {"er": 1}},
        )
        self.assertEqual((result.content_as[int](8), result.content_as[int](9)), (15, -3))
        self.assertIsNotNone(result.mutation_token())

    async def test_a_spec_that_fails_is_named_and_nothing_changes(self) -> None:
        await self.collection.upsert(self.key, {"list": [1], "s": "x"})
        for spec, kind in (
            (sd.replace("none", 1), e.PathNotFoundException),
            (sd.insert("s", 1), e.PathExistsException),
            (sd.array_append("s", 1), e.PathMismatchException),
            (sd.array_addunique("list", 1), e.PathExistsException),
            (sd.upsert("no.parents", 1), e.PathNotFoundException),
            (sd.increment("s"), e.PathMismatchException),
        ):
            with self.subTest(spec=spec), self.assertRaises(kind) as caught:
                await self.collection.mutate_in(self.key, [sd.upsert("first", 1), spec])
            self.assertIn(spec.path, caught.exception.context.detail or "")
        self.assertEqual(await self.document(), {"list": [1], "s": "x"})

    async def test_counters_come_back_where_they_were_asked_for(self) -> None:
        await self.collection.upsert(self.key, {})
        result = await self.collection.mutate_in(
            self.key, [sd.upsert("a", 1), sd.increment("c", 7), sd.upsert("x", 1, xattr=True)]
        )
        self.assertEqual(result.content_as[int](1), 7)

    async def test_semantics_say_whether_the_document_may_exist(self) -> None:
        specs = [sd.upsert("a", 1)]
        with self.assertRaises(e.DocumentNotFoundException):
            await self.collection.mutate_in(self.key, specs)
        await self.collection.mutate_in(self.key, specs, store_semantics=StoreSemantics.UPSERT)
        self.assertEqual(await self.document(), {"a": 1})
        with self.assertRaises(e.DocumentExistsException):
            await self.collection.mutate_in(self.key, specs, store_semantics=StoreSemantics.INSERT)

    async def test_a_stale_cas_is_refused(self) -> None:
        cas = (await self.collection.upsert(self.key, {})).cas
        await self.collection.mutate_in(self.key, [sd.upsert("a", 1)], cas=cas)
        with self.assertRaises(e.CASMismatchException):
            await self.collection.mutate_in(self.key, [sd.upsert("a", 2)], cas=cas)

    async def test_the_expiry_is_set_and_preserved(self) -> None:
        await self.collection.upsert(self.key, {})
        hour = timedelta(hours=1)
        await self.collection.mutate_in(self.key, [sd.upsert("a", 1)], expiry=hour)
        await self.collection.mutate_in(self.key, [sd.upsert("b", 1)], preserve_expiry=True)
        found = await self.collection.get(self.key, with_expiry=True)
        self.assertEqual(found.content, {"a": 1, "b": 1})
        self.assertIsNotNone(found.expiry_time)

    async def test_attributes_expand_macros_and_stay_out_of_the_document(self) -> None:
        await self.collection.upsert(self.key, {})
        specs = [sd.upsert("own.cas", "${Mutation.CAS}", create_parents=True, xattr=True)]
        result = await self.collection.mutate_in(self.key, specs)
        found = await self.collection.lookup_in(self.key, [sd.get("own.cas", xattr=True)])
        swapped = "0x" + result.cas.to_bytes(8, "little").hex()
        self.assertEqual(found.content_as[str](0), swapped)
        self.assertEqual(await self.document(), {})

    async def test_a_document_that_is_not_json_is_refused(self) -> None:
        await self.collection.upsert(self.key, b"{", transcoder=RawBinaryTranscoder())
        with self.assertRaises(e.DocumentNotJsonException):
            await self.collection.mutate_in(self.key, [sd.upsert("a", 1)])
