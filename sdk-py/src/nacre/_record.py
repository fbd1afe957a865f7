"""Data classes whose methods are made when they are first needed.

`dataclasses` compiles six methods for each class, which is most of the time that importing this
package would take, though a program uses few of the classes. `dataclass` here has the parameters,
methods and effects of that decorator with ``slots=True``, but leaves the work to the first object,
or to whoever first asks for the fields, the signature or the patterns of the class.
"""

import dataclasses
import inspect
import threading
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

_LOCK = threading.RLock()
_MADE = (
    "__repr__",
    "__eq__",
    "__hash__",
    "__setattr__",
    "__delattr__",
    "__match_args__",
    "__replace__",
    "__dataclass_params__",
    "__dataclass_fields__",
    # Last: with it, objects can be made by other threads.
    "__init__",
)
"""Attributes that `dataclasses` gives a class."""


class _Later:
    """An attribute of a class that `dataclasses` gives it when it is asked for."""

    __slots__ = ("_name", "_record")

    def __init__(self, record: "_Record", name: str) -> None:
        self._record = record
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        self._record.complete()
        if self._name not in _MADE:
            # The signature of a complete class is that of its method.
            raise AttributeError(self._name)
        return getattr(owner, self._name)


class _Record:
    """A class without the methods that `dataclasses` makes, until `complete`."""

    def __init__(self, written: type, parameters: dict[str, Any]) -> None:
        annotations: dict[str, Any] = inspect.get_annotations(written)
        of_class: object = ClassVar
        names = [name for name, kind in annotations.items() if get_origin(kind) is not of_class]
        self._written: dict[str, Any] | None = _members(written)
        self._parameters = parameters
        inherited = {name for base in written.__mro__[1:] for name in _slots(base)}
        members = dict(self._written)
        for name in names:
            members.pop(name, None)
        members["__slots__"] = tuple(name for name in names if name not in inherited)
        members["__init__"] = self._init()
        for name in ("__dataclass_fields__", "__match_args__", "__signature__"):
            members[name] = _Later(self, name)
        members |= {"__getstate__": _state, "__setstate__": _restore}
        self.kind: Any = type(written)(written.__name__, written.__bases__, members)
        self.kind.__qualname__ = written.__qualname__

    def complete(self) -> None:
        """Gives the class its methods. Classes that it inherits from get theirs before."""
        with _LOCK:
            if self._written is None:
                return
            kind = self.kind
            twin: type = type(kind)(kind.__name__, kind.__bases__, self._written)
            twin.__qualname__ = kind.__qualname__
            made = vars(dataclasses.dataclass(twin, **self._parameters))
            del kind.__signature__
            for name in _MADE:
                if name in made:
                    setattr(kind, name, made[name])
            self._written = None

    def _init(self) -> Any:
        record = self

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            record.complete()
            # Not that of the object's class, which may inherit from this one.
            record.kind.__init__(self, *args, **kwargs)

        return __init__


def _members(kind: type) -> dict[str, Any]:
    own = ("__dict__", "__weakref__")
    return {name: value for name, value in vars(kind).items() if name not in own}


def _slots(kind: type) -> tuple[str, ...]:
    found: tuple[str, ...] = vars(kind).get("__slots__", ())
    return found


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _dataclass(*, slots: bool, **parameters: Any) -> Any:
    if not slots:
        raise TypeError("such a class has slots")
    return lambda written: _Record(written, parameters).kind


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
