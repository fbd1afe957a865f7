"""Devices in step with a node: the guide, and a device that is killed.

Needs libnacre (NACRE_LIBRARY) and a node's program (NACRE_TEST_BINARY).
"""

import ast
import asyncio
import contextlib
import io
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import nacre
from nacre import DeviceSync
from nacre import exceptions as e
from tests.integration.own_nodes import PASSWORD, USER, OwnNode

GUIDE = Path(__file__).parents[3] / "docs/guides/sync-devices.md"
EXAMPLE = Path(__file__).parents[2] / "examples/deliveries.py"
COMMANDS = re.compile(r"```sh\n(.*?)```", re.S)
SECONDS_MAX = 60.0

WRITER = """
import asyncio, sys
import nacre
from nacre import DeviceSync

async def main():
    folder, url, first, count = sys.argv[1:5]
    cluster = await nacre.connect(f"nacre://{folder}?sync=always")
    login = {"user": "devices", "password": "secret"}
    await DeviceSync.start(cluster, url, collections=["shop.orders"], **login)
    orders = cluster.bucket("default").scope("shop").collection("orders")
    for n in range(int(first), int(first) + int(count)):
        await orders.upsert(f"w:{n}", {"n": n})
        print(n, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


class App:
    """The example, as a process that answers commands."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, folder: Path, url: str) -> "App":
        """Starts it over a folder."""
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, str(EXAMPLE), str(folder), url, "devices", "secret"]
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))

    async def say(self, command: str) -> list[str]:
        """Returns the lines of an answer; the last one is about sync."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        lines: list[str] = []
        async with asyncio.timeout(SECONDS_MAX):
            while not lines or not lines[-1].startswith("-- "):
                line = await self._process.stdout.readline()
                assert line, lines
                lines.append(line.decode().rstrip())
        return lines

    async def until(self, command: str, expected: list[str]) -> None:
        """Repeats a command until it has the expected answer."""
        async with asyncio.timeout(SECONDS_MAX):
            while (await self.say(command))[:-1] != expected:
                await asyncio.sleep(0.02)

    async def quit(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"quit\n")
        status = await self._process.wait()
        assert status == 0, status

    async def kill(self) -> None:
        """Kills it."""
        self._process.kill()
        await self._process.wait()


class DevicesTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.node = self.enterContext(OwnNode("--buckets", "default"))
        self.url = f"http://{self.node.address}/default"
        commands = COMMANDS.search(GUIDE.read_text())
        assert commands is not None
        script = commands[1].replace("127.0.0.1:8091", self.node.address)
        done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True)
        self.assertNotIn("error", done.stdout.lower())

    async def test_the_guide_runs(self) -> None:
        names: dict[str, Any] = {"folder": self.folder / "guide", "url": self.url}
        text = GUIDE.read_text()
        blocks = re.findall(r"```(\w*)\n(.*?)```", text, re.S)
        codes = [
            (code, blocks[at + 1][1])
            for at, (language, code) in enumerate(blocks)
            if language == "python"
        ]
        self.assertEqual(len(codes), 2)
        for code, expected in codes:
            compiled = compile(code, str(GUIDE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                async with asyncio.timeout(SECONDS_MAX):
                    work = eval(compiled, names)
                    if work is not None:
                        await work
            self.assertEqual(printed.getvalue(), expected)

    async def test_the_example_works_in_a_tunnel(self) -> None:
        hub = await nacre.connect(f"couchbase://{self.node.kv}", USER, PASSWORD)
        docs = hub.bucket("default").scope("shop").collection("orders")
        await docs.upsert("o:1", {"customer": "ann"})
        await docs.upsert("o:2", {"customer": "bob"})
        folder = self.folder / "courier"
        app = await App.start(folder, self.url)
        await app.until("list", ["o:1 ann: on the way", "o:2 bob: on the way"])
        await app.quit()

        # In the tunnel nobody answers, and the app is killed; meanwhile somebody changes an order.
        app = await App.start(folder, "http://127.0.0.1:1/default")
        self.assertEqual((await app.say("deliver o:1 at the door"))[0], "o:1 is delivered")
        answer = await app.say("deliver o:2 with a neighbour")
        self.assertRegex(answer[-1], "^-- (offline|connecting): 0 sent")
        await app.kill()
        await docs.upsert("o:2", {"customer": "bob", "note": "called off"})

        app = await App.start(folder, self.url)
        await self.until_note(docs, "o:1", "at the door")
        # The later change of the other order wins, and the note of the courier is not lost.
        await app.until("list", ["o:1 ann: at the door", "o:2 bob: called off"])
        parked = await app.say("lost")
        self.assertEqual(len(parked), 2, parked)
        self.assertIn("with a neighbour", parked[0])
        unknown = await app.say("deliver o:9 nowhere")
        self.assertEqual(unknown[0], "o:9: there is no such order")
        await app.quit()
        await hub.close()

    async def until_note(self, docs: nacre.Collection, order: str, note: str) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while (await docs.get(order)).content_as[dict].get("note") != note:
                await asyncio.sleep(0.02)

    async def device(self, name: str) -> tuple[nacre.Cluster, DeviceSync, nacre.Collection]:
        cluster = await nacre.connect(f"nacre://{self.folder / name}")
        sync = await DeviceSync.start(
            cluster, self.url, user="devices", password="secret", collections=["shop.orders"]
        )
        return cluster, sync, cluster.bucket("default").scope("shop").collection("orders")

    async def test_what_a_killed_device_had_stored_reaches_the_others(self) -> None:
        folder = self.folder / "killed"
        command = [sys.executable, "-c", WRITER, str(folder), self.url]
        for first in (0, 50):
            arguments = [*command, str(first), "1000"]
            writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
            assert writer.stdout is not None
            for line in writer.stdout:
                if int(line) == first + 49:
                    break
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            writer.stdout.close()
        # The next one sends what is left.
        cluster, sync, _ = await self.device("killed")
        await sync.wait_in_step()
        other, following, orders = await self.device("other")
        await following.wait_in_step()
        for n in range(100):
            self.assertEqual((await orders.get(f"w:{n}")).content_as[dict], {"n": n})
        await sync.stop()
        await following.stop()
        await cluster.close()
        await other.close()

    async def test_offline_edits_of_two_devices_and_the_hub_end_equal(self) -> None:
        one, first, here = await self.device("one")
        two, second, there = await self.device("two")
        await here.upsert("o", {"by": "nobody"})
        await first.wait_in_step()
        await second.wait_in_step()
        await first.stop()
        await second.stop()
        await here.upsert("o", {"by": "one"})
        await there.upsert("o", {"by": "two"})
        await there.upsert("only", {"by": "two"})
        hub = await nacre.connect(f"couchbase://{self.node.kv}", USER, PASSWORD)
        docs = hub.bucket("default").scope("shop").collection("orders")
        await docs.upsert("of-hub", {"by": "hub"})
        syncs = []
        for cluster in (one, two, one):
            sync = await DeviceSync.start(
                cluster, self.url, user="devices", password="secret", collections=["shop.orders"]
            )
            await sync.wait_in_step()
            syncs.append(sync.status())
            await sync.stop()
        self.assertEqual(sum(status["conflicts"] for status in syncs), 1, syncs)
        for key in ("o", "only", "of-hub"):
            expected = await docs.get(key)
            for device in (here, there):
                found = await device.get(key)
                self.assertEqual(found.cas, expected.cas)
                self.assertEqual(found.content_as[dict], expected.content_as[dict])
        await one.close()
        await two.close()
        await hub.close()

    async def test_a_node_that_is_killed_gets_back_what_it_had_not_stored(self) -> None:
        cluster, sync, orders = await self.device("survivor")
        other, following, there = await self.device("witness")
        for n in range(200):
            await orders.upsert(f"k:{n}", {"n": n})
        await sync.wait_in_step()
        await following.wait_in_step()
        # Some of it was in the node's memory only.
        self.node.kill()
        self.node._log.close()
        await orders.upsert("offline", {"n": 1})
        await there.upsert("offline", {"n": 2})
        self.node.__enter__()
        sync.retry_now()
        following.retry_now()
        for _ in range(2):
            await sync.wait_in_step()
            await following.wait_in_step()
        hub = await nacre.connect(f"couchbase://{self.node.kv}", USER, PASSWORD)
        docs = hub.bucket("default").scope("shop").collection("orders")
        for key in ["offline", *(f"k:{n}" for n in range(200))]:
            expected = await docs.get(key)
            for device in (orders, there):
                found = await device.get(key)
                self.assertEqual(found.cas, expected.cas, key)
                self.assertEqual(found.content_as[dict], expected.content_as[dict])
        await sync.stop()
        await following.stop()
        for each in (cluster, other, hub):
            await each.close()

    async def test_rights_that_are_taken_away_end_the_stream(self) -> None:
        scopes = "/pools/default/buckets/default/scopes/shop/collections"
        self.node.ask(scopes, b"name=prices", as_json=False)
        hub = await nacre.connect(f"couchbase://{self.node.kv}", USER, PASSWORD)
        shop = hub.bucket("default").scope("shop")
        await shop.collection("orders").upsert("o", 1)
        await shop.collection("prices").upsert("p", 2)
        cluster = await nacre.connect(f"nacre://{self.folder / 'rights'}")
        sync = await DeviceSync.start(
            cluster,
            self.url,
            user="devices",
            password="secret",
            collections=["shop.orders", "shop.prices"],
        )
        await sync.wait_in_step()
        here = cluster.bucket("default").scope("shop")
        self.assertEqual((await here.collection("orders").get("o")).content_as[int], 1)
        self.assertFalse((await here.collection("prices").exists("p")).exists)
        self.grant("data_dcp_reader[default:shop:orders]")
        await here.collection("orders").upsert("mine", 3)
        await self.until(lambda: sync.status()["parked"] > 0)
        self.assertFalse((await shop.collection("orders").exists("mine")).exists)
        self.grant("data_reader[default:shop:prices]")
        await self.until(lambda: sync.status()["state"] == "stopped")
        self.assertIn("access denied", sync.status()["reason"])
        await sync.stop()
        await cluster.close()
        await hub.close()

    def grant(self, roles: str) -> None:
        url = f"http://{self.node.address}/settings/rbac/users/local/devices"
        command = ["curl", "-sfu", f"{USER}:{PASSWORD}", "-X", "PUT", url, "-d", f"roles={roles}"]
        subprocess.run([*command, "-d", "password=secret"], capture_output=True, check=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                await asyncio.sleep(0.02)

    async def test_who_may_not_is_refused(self) -> None:
        cluster = await nacre.connect(f"nacre://{self.folder / 'wrong'}")
        sync = await DeviceSync.start(
            cluster, self.url, user="devices", password="wrong", collections=["shop.orders"]
        )
        with self.assertRaisesRegex(e.CouchbaseException, "password is wrong"):
            await sync.wait_in_step(timedelta(seconds=SECONDS_MAX))
        states = [event.get("state") async for event in sync.events()]
        self.assertEqual(states[-1], "stopped")
        await sync.stop()
        for wrong in ({"conflicts": "mine"}, {"collections": []}, {"url": "ftp://h/b"}):
            options = {"url": self.url, "collections": ["shop.orders"], **wrong}
            with self.subTest(wrong), self.assertRaises(e.InvalidArgumentException):
                await DeviceSync.start(cluster, user="u", password="p", **options)
        await cluster.close()
