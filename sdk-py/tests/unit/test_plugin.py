"""The guest kit for plugins: the event buffer, the state, what a failed call leaves, and faults."""

import json
import random
import sys
import types
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import nacre_plugin
from nacre_plugin import (
    Chunk,
    DecodeError,
    Event,
    EventKind,
    Events,
    Fatal,
    Functions,
    Previous,
    Reject,
    Request,
    Response,
    Retry,
    Service,
    Timer,
    export,
    http,
    kv,
    log,
    metrics,
    state,
    successor,
    timer,
)
from nacre_plugin._outside import Err
from nacre_plugin_testing import BEGIN_US, Harness, pack, play

EXAMPLES = Path(__file__).parents[3] / "plugins/wit"


def example(name: str = "event-buffer") -> bytes:
    """The bytes of a worked example: the hexadecimal columns of its lines."""
    lines = (EXAMPLES / f"{name}.example").read_text().splitlines()
    return bytes.fromhex("".join(line[5:46] for line in lines if not line.startswith("#")))


class EventsTest(unittest.TestCase):
    def test_the_worked_example_is_read_as_it_says(self) -> None:
        events = Events(example())
        now_us = 1_700_000_000_000_000
        upsert = Event(
            seqno=7,
            cas=65_536,
            rev=3,
            flags=0x0200_0006,
            expiry=0,
            collection=8,
            vb=526,
            kind=EventKind.UPSERT,
            datatype=5,
            key=b"k1",
            xattrs=b"\0\0\0\x02xy",
            body=b'{"a":1}',
            now_us=now_us,
        )
        delete = Event(
            seqno=8,
            cas=131_072,
            rev=4,
            flags=0,
            expiry=1_700_000_016,
            collection=8,
            vb=775,
            kind=EventKind.DELETE,
            datatype=0,
            key=b"k2",
            xattrs=b"",
            body=b"",
            now_us=now_us,
        )
        self.assertEqual(list(events), [upsert, delete])
        self.assertEqual((events.now_us, len(events), events[-1]), (now_us, 2, delete))
        self.assertEqual((upsert.id, upsert.is_json, upsert.json()), ("k1", True, {"a": 1}))
        self.assertEqual(pack(list(events), now_us), example())

    def test_the_version_before_is_read_as_the_example_says(self) -> None:
        events = Events(example("event-buffer-previous"))
        self.assertIsNone(events[0].previous)
        before = Previous(
            seqno=1,
            cas=65_536,
            rev=1,
            flags=0,
            expiry=0,
            kind=EventKind.UPSERT,
            datatype=1,
            xattrs=b"",
            body=b"{}",
        )
        self.assertEqual(events[1].previous, before)
        self.assertEqual((before.is_json, before.json()), (True, {}))

    def test_a_version_before_that_does_not_fit_is_refused(self) -> None:
        good = example("event-buffer-previous")
        for place, byte in ((154, 0x20), (198, 0x03), (202, 0x03), (206, 0x04)):
            lying = good[:place] + bytes([byte]) + good[place + 1 :]
            with self.subTest(place=place), self.assertRaisesRegex(DecodeError, "event 1 of"):
                Events(lying)

    def test_what_is_wrong_with_a_buffer_is_said(self) -> None:
        good = example()
        lying = good[: 96 + 36] + b"\xff" + good[96 + 37 :]
        for buffer, message in (
            (good[:3], "the magic number is missing"),
            (good[:20], "does not fit its 20 bytes"),
            (good[:40], "does not fit its 40 bytes"),
            (lying, "event 1 of the event buffer is malformed"),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(DecodeError, message):
                Events(buffer)

    def test_lying_bytes_are_refused_or_read_as_something(self) -> None:
        chance = random.Random(7)
        refused = 0
        for _ in range(2000):
            buffer = bytearray(example())
            for _ in range(chance.randrange(1, 8)):
                buffer[chance.randrange(len(buffer))] = chance.randrange(256)
            try:
                events = Events(bytes(buffer))
            except DecodeError:
                refused += 1
            else:
                self.assertEqual(len(list(events)), len(events))
        self.assertGreater(refused, 1000)

    def test_no_json_is_parsed_before_it_is_asked_for(self) -> None:
        with mock.patch("json.loads", side_effect=AssertionError("parsed")):
            event = Events(example())[0]
            with self.assertRaisesRegex(AssertionError, "parsed"):
                event.json()


class StateTest(unittest.TestCase):
    def setUp(self) -> None:
        self.harness = Harness(Service)
        self.harness._state.is_writable = True

    def test_values_are_bytes_text_or_json(self) -> None:
        state.put("bytes", b"\xff")
        state.put(b"text", "é")
        state.put("json", {"n": 1})
        self.assertEqual((state.get("bytes"), state.get("text")), (b"\xff", "é".encode()))
        self.assertEqual((state.get_text("text"), state.get_json("json")), ("é", {"n": 1}))
        state.delete("json")
        self.assertEqual((state.get("json"), state.get_json("json", 7)), (None, 7))

    def test_scans_respect_bounds_limit_and_direction(self) -> None:
        for key in "abcd":
            state.put(key, key.upper())
        for arguments, keys in (
            (("b", "d"), "bc"),
            (("b",), "bcd"),
            (("", "", 2, True), "dc"),
            (("", "c", None, True), "ba"),
            (("c", "b"), ""),
        ):
            with self.subTest(arguments=arguments):
                found = b"".join(key for key, _ in state.scan(*arguments))
                self.assertEqual(found.decode(), keys)

    def test_a_scan_goes_on_where_the_host_stops(self) -> None:
        for number in range(1000):
            state.put(f"n/{number:04}", number)
        state.put("o", "")
        forwards = [int(value) for _, value in state.scan_prefix("n/")]
        backwards = [int(value) for _, value in state.scan_prefix("n/", reverse=True)]
        self.assertEqual(forwards, list(range(1000)))
        self.assertEqual(backwards, forwards[::-1])
        self.assertEqual(len(list(state.scan_prefix("n/", limit=600))), 600)

    def test_the_successor_of_a_prefix_bounds_it(self) -> None:
        for prefix, bound in ((b"ab", b"ac"), (b"a\xff", b"b"), (b"\xff\xff", b""), (b"", b"")):
            self.assertEqual(successor(prefix), bound)


class KvTest(unittest.TestCase):
    def setUp(self) -> None:
        self.harness = Harness(Service)

    def test_documents_are_written_and_read(self) -> None:
        cas = kv.insert("shop.orders", "o1", {"total": 9}, flags=3, expiry=60)
        found = kv.get("shop.orders", b"o1")
        self.assertEqual((found.json(), found.cas, found.flags), ({"total": 9}, cas, 3))
        self.assertEqual((found.expiry, found.is_json), (60, True))
        newer = kv.replace("shop.orders", "o1", "plain text", cas)
        self.assertFalse(kv.get("shop.orders", "o1").is_json)
        many = kv.get_many("shop.orders", ["none", "o1"])
        self.assertEqual([document and document.cas for document in many], [None, newer])
        kv.remove("shop.orders", "o1", newer)
        self.assertEqual(self.harness.documents, {})

    def test_each_refusal_has_an_error(self) -> None:
        kv.upsert("", "k", "text")
        for error, call in (
            (kv.NotFound, lambda: kv.get("", "none")),
            (kv.NotFound, lambda: kv.counter("", "none", 1)),
            (kv.Exists, lambda: kv.insert("", "k", "")),
            (kv.CasMismatch, lambda: kv.replace("", "k", "", cas=7)),
            (kv.CasMismatch, lambda: kv.remove("", "k", cas=7)),
            (kv.Invalid, lambda: kv.counter("", "k", 1)),
        ):
            with self.subTest(error=error), self.assertRaises(error):
                call()

    def test_counters_begin_grow_and_stop_at_zero(self) -> None:
        counted = [kv.counter("", "n", delta, initial=5).value for delta in (1, 1, -9)]
        self.assertEqual(counted, [5, 6, 0])

    def test_parts_of_documents_are_read_and_changed(self) -> None:
        cas = kv.insert("other.shop.orders", "o1", {"a": {"b": 1}})
        changes = [("upsert", "a.c.d", 2), ("remove", "a.b", None), ("array-append", "list", "x")]
        newer = kv.mutate_in("other.shop.orders", "o1", changes, cas)
        kv.mutate_in("other.shop.orders", "o1", [("upsert", "mine", 5)], newer, xattr=True)
        self.assertEqual(
            kv.lookup_in("other.shop.orders", "o1", ["a.c.d", "a.b", "list"]), [2, None, ["x"]]
        )
        self.assertEqual(kv.lookup_in("other.shop.orders", "o1", ["mine"], xattr=True), [5])
        kv.touch("other.shop.orders", "o1", 60)
        self.assertEqual(kv.get("other.shop.orders", "o1").expiry, 60)
        with self.assertRaises(kv.Path):
            kv.mutate_in("other.shop.orders", "o1", [("insert", "a.c.d", 3)])
        with self.assertRaises(kv.CasMismatch):
            kv.mutate_in("other.shop.orders", "o1", changes, cas)
        with self.assertRaises(kv.NotFound):
            kv.lookup_in("other.shop.orders", "none", ["a"])

    def test_a_capability_that_was_not_asked_for_is_denied_by_name(self) -> None:
        with mock.patch.dict(nacre_plugin.outside):
            del nacre_plugin.outside["kv"], nacre_plugin.outside["http_out"]
            for error, call in (
                (kv.Denied, lambda: kv.upsert("", "k", "")),
                (http.Denied, lambda: http.send("GET", "https://example.com")),
            ):
                with self.subTest(error=error), self.assertRaisesRegex(error, "plugin.toml"):
                    call()


class Cities(Service):
    """Keeps city and ``zip`` of each document; without the second it fails halfway."""

    def on_update(self, doc: Any, meta: Event) -> None:
        if isinstance(doc, bytes):
            raise Reject(f"{meta.id} is no JSON")
        timer.set(meta.id, meta.now_us)
        state.put(meta.key, doc["city"])
        state.put(b"zip/" + meta.key, doc["zip"])

    def on_delete(self, meta: Event) -> None:
        state.delete(meta.key)
        state.delete(b"zip/" + meta.key)


class FunctionsTest(unittest.TestCase):
    def test_methods_are_functions_unless_they_are_the_kits_own(self) -> None:
        @export
        class Names(Functions):
            def initials(self, text: str) -> str:
                return "".join(word[0] for word in text.split()) + self._end()

            def _end(self) -> str:
                return "."

        names = Names({})
        self.assertEqual(names._call("initials", ["Ada King"]), "AK.")
        for name in ("backwards", "_end", "_call", "describe", "name", "__init__"):
            with self.subTest(name=name), self.assertRaisesRegex(Reject, "no such function"):
                names._call(name, [])
        with self.assertRaises(TypeError):
            names._call("initials", [])


class ServiceTest(unittest.TestCase):
    def test_a_document_that_fails_leaves_nothing_and_stops_nothing(self) -> None:
        cities = Harness(Cities)
        cities.put("a", {"city": "Ulm", "zip": "89"}).feed()
        cities.advance(0)
        errors = cities.put("a", {"city": "Bonn"}).put("b", {"city": "Köln", "zip": "50"}).feed()
        self.assertEqual([error.index for error in errors], [0])
        self.assertRegex(errors[0].message, r"^KeyError: 'zip' \(test_plugin.py:\d+\)$")
        self.assertEqual(cities.state_text(), "a = Ulm\nb = Köln\nzip/a = 89\nzip/b = 50\n")
        self.assertEqual([timer.name for timer in cities.timers], ["b"])
        cities.delete("a").expire("b").feed()
        self.assertEqual(cities.state, {})

    def test_an_error_of_the_kit_is_said_with_the_place_in_the_plugin(self) -> None:
        class Reading(Service):
            def on_update(self, doc: Any, meta: Event) -> None:
                state.put("k", b"\xff")
                state.get_text("k")

        (error,) = Harness(Reading).put("a", 1).feed()
        self.assertRegex(error.message, r"^UnicodeDecodeError: .* \(test_plugin.py:\d+\)$")

    def test_a_fault_drops_the_batch(self) -> None:
        cities = Harness(Cities)
        with self.assertRaisesRegex(Reject, "b is no JSON"):
            cities.put("a", {"city": "Ulm", "zip": "89"}).put("b", b"\xff").feed()
        self.assertEqual(cities.state, {})

    def test_a_locked_document_has_the_batch_given_again(self) -> None:
        class Locked(Service):
            def on_update(self, doc: Any, meta: Event) -> None:
                raise kv.Locked("the document is locked")

        with self.assertRaises(Retry):
            Harness(Locked).put("a", 1).feed()

    def test_without_rollback_the_state_is_built_anew(self) -> None:
        with self.assertRaisesRegex(Fatal, "vBucket 3 was cut back to 7"):
            Harness(Service).rollback(3, 7)

    def test_without_handle_there_is_nothing_to_be_found(self) -> None:
        self.assertEqual(Harness(Service).get("/").status, 404)

    def test_requests_cannot_write(self) -> None:
        class Writing(Service):
            def handle(self, request: Request) -> Response:
                state.put("a", "1")
                return Response()

        answer = Harness(Writing).get("/")
        self.assertEqual((answer.status, json.loads(answer.body)["error"]), (500, "exception"))
        self.assertIn("only be read", answer.body.decode())

    def test_answers_come_in_pieces(self) -> None:
        class Pieces(Service):
            def handle(self, request: Request) -> Response:
                return Response(200, [], request.args["first"].encode(), b"2")

            def more(self, cursor: bytes) -> Chunk:
                return Chunk(cursor, b"3" if cursor == b"2" else None)

        self.assertEqual(Harness(Pieces).get("/?first=1+").body, b"1 23")

    def test_timers_fire_at_their_time_and_may_be_set_again(self) -> None:
        class Beat(Service):
            def on_update(self, doc: Any, meta: Event) -> None:
                timer.set(meta.id, meta.now_us + 1_000_000, doc)

            def on_timer(self, now_us: int, due: Timer) -> None:
                state.put(str(now_us - BEGIN_US), due.payload)
                if left := json.loads(due.payload) - 1:
                    timer.set(due.name, now_us + 1_000_000, left)

        beat = Harness(Beat)
        beat.put("a", 2).feed()
        beat.advance(0.5)
        self.assertEqual((beat.state, len(beat.timers)), ({}, 1))
        beat.advance(9)
        self.assertEqual((beat.state, beat.timers), ({b"1000000": b"2", b"2000000": b"1"}, []))

    def test_requests_are_sent_and_their_answers_read(self) -> None:
        class Asking(Service):
            def on_update(self, doc: Any, meta: Event) -> None:
                answer = http.send("POST", doc, {"id": meta.id}, [("a", "b")])
                state.put(meta.key, answer.body)
                log.warn(f"{answer.status} {answer.headers}")
                metrics.add("sent")

        asking = Harness(Asking)
        errors = asking.put("k", "https://example.com/").feed()
        self.assertRegex(errors[0].message, "^Denied: there is no network here")
        asking.on_http(lambda request: Response(202, [("X-A", "1")], request.body))
        self.assertEqual(asking.put("k", "https://example.com/").feed(), [])
        self.assertEqual(asking.state_text(), 'k = {"id":"k"}\n')
        self.assertEqual(asking.log, ["warn 202 [('x-a', '1')]"])
        self.assertEqual(asking.metrics, {"sent": 1})

    def test_what_is_done_outside_is_done_once_for_each_document(self) -> None:
        class Counting(Service):
            tries = 0

            def on_update(self, doc: Any, meta: Event) -> None:
                state.put(meta.key, doc)
                if doc == "bad":
                    raise ValueError("it is bad")
                if doc == "counted":
                    kv.counter("", meta.key, 1, 1)
                    Counting.tries += 1
                    if Counting.tries == 3:
                        raise Retry("once more")

        harness = Harness(Counting)
        harness.put("a", "bad").put("b", "counted").put("c", "bad").put("d", "counted")
        harness.put("e", "plain").put("f", "counted").put("g", "bad").put("h", "counted")
        with self.assertRaisesRegex(Retry, "once more"):
            harness.feed()
        self.assertEqual([*harness.state], [b"b", b"d", b"e"])
        self.assertEqual([error.index for error in harness._turn.errors], [0, 2])
        (error,) = harness.feed()
        self.assertEqual(error.index, 1)
        counts = {key: document.body for (_, key), document in harness.documents.items()}
        self.assertEqual(counts, {"b": b"1", "d": b"1", "f": b"2", "h": b"1"})
        self.assertEqual([*harness.state], [b"b", b"d", b"e", b"f", b"h"])

    def test_what_is_done_outside_is_done_once_for_each_timer(self) -> None:
        sent: list[str] = []

        class Sending(Service):
            def on_update(self, doc: Any, meta: Event) -> None:
                timer.set(meta.id, meta.now_us)

            def on_timer(self, now_us: int, due: Timer) -> None:
                state.put(due.name, "fired")
                http.send("POST", due.name)
                if sent == ["a", "b"]:
                    raise Retry("once more")

        def answer(request: Any) -> Response:
            sent.append(request.url)
            return Response()

        harness = Harness(Sending)
        harness.on_http(answer)
        harness.put("a", 1).put("b", 1).put("c", 1).feed()
        with self.assertRaises(Retry):
            harness.fire()
        self.assertEqual([*harness.state], [b"a"])
        self.assertEqual([due.name for due in harness.timers], ["b", "c"])
        harness.fire()
        self.assertEqual((sent, harness.timers), (["a", "b", "b", "c"], []))
        self.assertEqual([*harness.state], [b"a", b"b", b"c"])

    def test_a_script_says_what_came_otherwise(self) -> None:
        steps = [
            {"upsert": {"a": {"city": "Ulm", "zip": "89"}}, "state": {"a": "Ulm", "zip/a": 89}},
            {"delete": ["a"], "state": {"a": "Ulm"}},
        ]
        self.assertEqual(
            play(Cities, {"steps": steps}),
            ['  step 1: state\n    expected {"a": "Ulm"}\n    came     {}'],
        )


class ExportTest(unittest.TestCase):
    """The classes that a component is built of, over stand-ins for the modules it has."""

    def setUp(self) -> None:
        class Record(types.SimpleNamespace):
            def __init__(self, *values: Any) -> None:
                super().__init__(values=values)

        def module(name: str, *records: str) -> types.ModuleType:
            made = types.ModuleType(name)
            vars(made).update({record: type(record, (Record,), {}) for record in records})
            return made

        faults = ("Fault_Retry", "Fault_Reject", "Fault_Fatal", "Header")
        modules = {
            "wit_world": types.ModuleType("wit_world"),
            "wit_world.imports": types.ModuleType("imports"),
            "wit_world.exports": types.ModuleType("exports"),
            "wit_world.imports.types": module("types", *faults),
            "wit_world.exports.feed": module("feed", "Outcome", "DocumentError"),
            "wit_world.exports.reader": module("reader", "Response", "Chunk"),
            "app": types.ModuleType("app"),
        }
        self.enterContext(mock.patch.dict(sys.modules, modules))
        self.app: Any = modules["app"]
        self.harness = Harness(Cities)
        self.harness._state.is_writable = True

    def deploy(self, service: type[Service], config: str = "{}") -> Any:
        service.__module__ = "app"
        self.assertIs(export(service), service)
        self.app.Lifecycle().init(config)
        return self.app

    def fault(self, call: Any) -> tuple[str, str]:
        with self.assertRaises(Err) as caught:
            call()
        value = caught.exception.value
        return type(value).__name__, value.values[0]

    def test_a_batch_reaches_the_service_and_its_errors_the_host(self) -> None:
        app = self.deploy(type("Cities", (Cities,), {}))
        self.assertEqual(json.loads(app.Lifecycle().describe())["name"], "cities")
        self.harness.put("a", {"city": "Ulm"}).put("b", {"city": "Bonn", "zip": "53"})
        outcome = app.Feed().on_batch(pack(self.harness._changes, BEGIN_US))
        (errors,) = outcome.values
        self.assertEqual([error.values[0] for error in errors], [0])
        self.assertEqual(self.harness.state_text(), "b = Bonn\nzip/b = 53\n")

    def test_faults_keep_their_kind_and_other_errors_are_answers(self) -> None:
        class Failing(Service):
            def __init__(self, config: Any) -> None:
                if config["error"] == "init":
                    raise Reject("no such thing")
                super().__init__(config)

            def handle(self, request: Request) -> Response:
                raise {"retry": kv.Temporary("full"), "other": KeyError("k")}[request.path]

        self.assertEqual(
            self.fault(lambda: self.deploy(Failing, '{"error": "init"}')),
            ("Fault_Reject", "no such thing"),
        )
        app = self.deploy(Failing, '{"error": null}')
        self.assertEqual(self.fault(lambda: app.Feed().rollback(3, 7))[0], "Fault_Fatal")

        def ask(path: str) -> Any:
            asked = types.SimpleNamespace(
                method="GET", path=path, query="", headers=[], body=b"", now_us=1
            )
            return app.Reader().handle(asked)

        self.assertEqual(self.fault(lambda: ask("retry")), ("Fault_Retry", "full"))
        status, _, body, _ = ask("other").values
        self.assertEqual(status, 500)
        self.assertRegex(json.loads(body)["reason"], r"^KeyError: 'k' \(test_plugin.py:\d+\)$")


if __name__ == "__main__":
    unittest.main()
