"""Operations on counters and on binary documents."""

import struct
from collections.abc import Mapping, Sequence
from typing import Unpack

from . import options as o
from ._documents import Documents, check_cas
from ._frame import Request
from ._instruments import watched
from ._multi import each
from ._opcodes import Opcode
from .exceptions import DecodingFailureException, InvalidArgumentException
from .options import AppendMultiOptions, CounterMultiOptions, SignedInt64
from .result import CounterResult, MultiCounterResult, MultiMutationResult, MutationResult

_NEVER_CREATE = 0xFFFFFFFF
"""Expiry that tells the server not to create a missing counter."""


@watched
class BinaryCollection(Documents):
    """The binary operations of a collection."""

    async def increment(
        self, key: str, options: o.CounterOptions | None = None, **kwargs: Unpack[o.CounterOptions]
    ) -> CounterResult:
        """Adds ``delta`` (default 1) to an unsigned 64-bit counter, which wraps around on overflow.

        A missing counter starts at ``initial``, by default the delta; with ``initial=None`` it is
        not created.

        Raises:
            DocumentNotFoundException: if it is missing and must not be created.
            DeltaInvalidException: if the document is not a counter.
        """
        merged = o.options_of("increment", o.CounterOptions, options, kwargs)
        return await self._count(Opcode.INCREMENT, key, merged)

    async def decrement(
        self, key: str, options: o.CounterOptions | None = None, **kwargs: Unpack[o.CounterOptions]
    ) -> CounterResult:
        """Subtracts ``delta`` (default 1) from a counter. The result is at least 0.

        A missing counter starts as with `increment`.
        """
        merged = o.options_of("decrement", o.CounterOptions, options, kwargs)
        return await self._count(Opcode.DECREMENT, key, merged)

    async def append(
        self,
        key: str,
        value: bytes | str,
        options: o.AppendOptions | None = None,
        **kwargs: Unpack[o.AppendOptions],
    ) -> MutationResult:
        """Appends bytes to a document, which must exist."""
        merged = o.options_of("append", o.AppendOptions, options, kwargs)
        return await self._extend(Opcode.APPEND, key, value, merged)

    async def prepend(
        self,
        key: str,
        value: bytes | str,
        options: o.AppendOptions | None = None,
        **kwargs: Unpack[o.AppendOptions],
    ) -> MutationResult:
        """Prepends bytes to a document, which must exist."""
        merged = o.options_of("prepend", o.AppendOptions, options, kwargs)
        return await self._extend(Opcode.PREPEND, key, value, merged)

    async def increment_multi(
        self,
        keys: Sequence[str],
        options: CounterMultiOptions | None = None,
        **kwargs: Unpack[CounterMultiOptions],
    ) -> MultiCounterResult:
        """Adds to counters."""
        return MultiCounterResult(
            await each(
                "increment_multi", CounterMultiOptions, keys, self.increment, options, kwargs
            )
        )

    async def decrement_multi(
        self,
        keys: Sequence[str],
        options: CounterMultiOptions | None = None,
        **kwargs: Unpack[CounterMultiOptions],
    ) -> MultiCounterResult:
        """Subtracts from counters."""
        return MultiCounterResult(
            await each(
                "decrement_multi", CounterMultiOptions, keys, self.decrement, options, kwargs
            )
        )

    async def append_multi(
        self,
        keys_and_values: Mapping[str, bytes | str],
        options: AppendMultiOptions | None = None,
        **kwargs: Unpack[AppendMultiOptions],
    ) -> MultiMutationResult:
        """Appends bytes to documents, which must exist."""
        return MultiMutationResult(
            await each(
                "append_multi",
                AppendMultiOptions,
                keys_and_values,
                lambda key, **rest: self.append(key, keys_and_values[key], **rest),
                options,
                kwargs,
            )
        )

    async def prepend_multi(
        self,
        keys_and_values: Mapping[str, bytes | str],
        options: AppendMultiOptions | None = None,
        **kwargs: Unpack[AppendMultiOptions],
    ) -> MultiMutationResult:
        """Prepends bytes to documents, which must exist."""
        return MultiMutationResult(
            await each(
                "prepend_multi",
                AppendMultiOptions,
                keys_and_values,
                lambda key, **rest: self.prepend(key, keys_and_values[key], **rest),
                options,
                kwargs,
            )
        )

    async def _count(self, opcode: Opcode, key: str, options: o.CounterOptions) -> CounterResult:
        delta = options.get("delta", 1)
        initial = options.get("initial", delta)
        if isinstance(initial, SignedInt64) and initial < 0:
            initial = None
        for name, number in (("delta", delta), ("initial", initial or 0)):
            if not isinstance(number, int) or not 0 <= number < 1 << 64:
                raise InvalidArgumentException(f"{name} is an unsigned 64-bit integer")
        expiry = _NEVER_CREATE if initial is None else o.wire_expiry(options.get("expiry"))
        request = Request(opcode, extras=struct.pack(">QQI", delta, initial or 0, expiry))
        response, token = await self._mutate(self._operation(request, key), options)
        if len(response.value) != 8:
            raise DecodingFailureException("the counter's value is missing")
        return CounterResult(response.cas, token, int.from_bytes(response.value, "big"), key=key)

    async def _extend(
        self, opcode: Opcode, key: str, value: bytes | str, options: o.AppendOptions
    ) -> MutationResult:
        content = value.encode() if isinstance(value, str) else bytes(value)
        request = Request(opcode, value=content, cas=check_cas(options.get("cas")))
        response, token = await self._mutate(self._operation(request, key), options)
        return MutationResult(response.cas, token, key=key)
