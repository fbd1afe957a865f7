"""Data classes whose methods are made later: the same as those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
import unittest
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

from nacre import _record
from nacre.result import GetResult, MultiGetResult, MutationToken

T = TypeVar("T")


def family(dataclass: Any) -> dict[str, type[Any]]:
    """Returns classes that a decorator makes."""

    @dataclass(frozen=True, slots=True)
    class Base:
        """Fields with and without a default."""

        cas: int
        key: str | None = field(default=None, kw_only=True)
        kind: ClassVar[str] = "base"

        @property
        def double(self) -> int:
            """Twice the CAS."""
            return self.cas * 2

    @dataclass(frozen=True, slots=True)
    class Child(Base):
        """More of them."""

        content: Any
        labels: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="", repr=False)

    @dataclass(slots=True)
    class Open(Generic[T]):
        """One that can be changed."""

        value: T
        count: int = 0

        def __post_init__(self) -> None:
            if self.count < 0:
                raise ValueError("negative")

    @dataclass(slots=True, eq=False)
    class Itself:
        """One that equals itself alone."""

        value: int = 0

    @dataclass(slots=True, kw_only=True)
    class Named:
        """One without arguments by position."""

        first: int = 1
        second: int

    class Plain(Child):
        """One that inherits, and has no decorator."""

    return {each.__name__: each for each in (Base, Child, Open, Itself, Named, Plain)}


def outcome(action: Any) -> Any:
    """Returns what an action returns, or the name and text of its error."""
    try:
        return action()
    except Exception as error:
        return type(error).__name__, str(error)


class RecordTest(unittest.TestCase):
    """Our decorator beside that of the standard library."""

    def both(self, action: Any) -> None:
        """Fails if an action has another outcome with our classes."""
        ours, theirs = family(_record.dataclass), family(dataclasses.dataclass)
        self.assertEqual(outcome(lambda: action(ours)), outcome(lambda: action(theirs)))

    def test_objects(self) -> None:
        """What can be done with objects."""

        def child(kinds: dict[str, type[Any]]) -> Any:
            return kinds["Child"](7, {"a": 1}, secret="s", key="k")

        actions: list[Any] = [
            lambda kinds: repr(child(kinds)),
            lambda kinds: repr(kinds["Plain"](7, 8)),
            lambda kinds: dataclasses.astuple(kinds["Plain"](7, 8)),
            lambda kinds: child(kinds) == child(kinds),
            lambda kinds: child(kinds) == kinds["Base"](7, key="k"),
            lambda kinds: hash(kinds["Base"](7)) == hash(kinds["Base"](7)),
            lambda kinds: hash(child(kinds)),
            lambda kinds: hash(kinds["Open"](1)),
            lambda kinds: kinds["Itself"]() == kinds["Itself"](),
            lambda kinds: child(kinds).double,
            lambda kinds: child(kinds).kind,
            lambda kinds: child(kinds).labels is child(kinds).labels,
            lambda kinds: dataclasses.asdict(child(kinds)),
            lambda kinds: repr(dataclasses.replace(child(kinds), cas=8)),
            lambda kinds: repr(copy.copy(child(kinds))),
            lambda kinds: repr(copy.deepcopy(kinds["Open"]([1]))),
            lambda kinds: setattr(child(kinds), "cas", 8),
            lambda kinds: delattr(child(kinds), "cas"),
            lambda kinds: setattr(kinds["Open"](1), "other", 8),
            lambda kinds: child(kinds).__dict__,
            lambda kinds: kinds["Open"](1, -1),
            lambda kinds: kinds["Open"](),
            lambda kinds: kinds["Child"](1, 2, 3, 4, 5),
            lambda kinds: kinds["Named"](1),
            lambda kinds: repr(kinds["Named"](second=2)),
        ]
        for number, action in enumerate(actions):
            with self.subTest(number):
                self.both(action)

    def test_classes(self) -> None:
        """What classes say of themselves before they have objects."""
        for name in family(dataclasses.dataclass):
            actions: list[Any] = [
                lambda kinds, name=name: inspect.signature(kinds[name]),
                lambda kinds, name=name: [
                    (each.name, each.init, each.kw_only, each.repr)
                    for each in dataclasses.fields(kinds[name])
                ],
                lambda kinds, name=name: kinds[name].__match_args__,
                lambda kinds, name=name: dataclasses.is_dataclass(kinds[name]),
                lambda kinds, name=name: vars(kinds[name]).get("__slots__"),
                lambda kinds, name=name: (kinds[name].__doc__, kinds[name].__qualname__),
            ]
            for number, action in enumerate(actions):
                with self.subTest(name, number=number):
                    self.both(action)

    def test_results(self) -> None:
        """Results of this package can be matched, copied to other processes, and inherited."""
        result = GetResult(1, {"a": 1}, key="k")
        self.assertEqual(pickle.loads(pickle.dumps(result)), result)
        match MutationToken(1, 2, 3, "b"):
            case MutationToken(1, uuid, number):
                self.assertEqual((uuid, number), (2, 3))
            case _:
                self.fail("a token does not match")
        self.assertIsInstance(MultiGetResult({"k": result}), MultiGetResult)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            result.cas = 2  # type: ignore[misc]

    def test_pickled(self) -> None:
        """The first object may come from another process."""
        wire = pickle.dumps(MutationToken(1, 2, 3, "b"))
        code = (
            "import pickle, sys, nacre\n"
            "token = pickle.loads(sys.stdin.buffer.read())\n"
            "print(token == nacre.MutationToken(1, 2, 3, 'b'), hash(token) is not None, token)"
        )
        run = subprocess.run([sys.executable, "-c", code], input=wire, capture_output=True)
        expected = (
            "True True MutationToken(partition_id=1, partition_uuid=2, sequence_number=3, "
            "bucket_name='b')"
        )
        self.assertEqual(run.stdout.decode().strip(), expected, run.stderr.decode())

    def test_threads(self) -> None:
        """Several threads make the first objects at once."""
        for _ in range(50):
            kinds = family(_record.dataclass)
            start = threading.Barrier(4)
            made: list[Any] = []

            def work(kinds: Any = kinds, start: Any = start, made: Any = made) -> None:
                start.wait()
                made.append(kinds["Child"](1, 2))

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual([each == made[0] for each in made], [True] * 4)

    def test_later(self) -> None:
        """The import makes no methods, and loads no module that documents do without."""
        code = (
            "import sys, nacre\n"
            "for kind in (nacre.GetResult, nacre.ClusterOptions, nacre.PasswordAuthenticator):\n"
            "    assert '__repr__' not in vars(kind), kind\n"
            "    assert '<locals>' in kind.__init__.__qualname__, kind\n"
            "nacre.PasswordAuthenticator('user', 'password')\n"
            "assert '__repr__' in vars(nacre.PasswordAuthenticator)\n"
            "print(*sorted(name for name in sys.modules if name.startswith('nacre.')))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr.decode())
        loaded = set(run.stdout.decode().split())
        later = ("analytics", "changes", "diagnostics", "live", "management", "n1ql", "search")
        later += ("sync", "transactions", "views")
        self.assertEqual(loaded & {f"nacre.{name}" for name in later}, set())
