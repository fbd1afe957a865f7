"""Changes of a collection, as they happen.

    changes = collection.changes(since=token)
    async for change in changes:
        print(change.id, change.content)
        token = changes.token

The token is the position of the reader. It remains valid after a restart of the reader or of a
node: earlier changes are not repeated, and later ones are not skipped. A change after the token may
be returned twice. This feature is specific to nacre.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import quote

from ._http import HttpRequest, HttpStream
from ._record import dataclass
from .exceptions import (
    AlreadyQueriedException,
    AuthenticationException,
    CollectionNotFoundException,
    CouchbaseException,
    DecodingFailureException,
    ErrorContext,
    HistoryLostException,
    HTTPException,
    InvalidArgumentException,
    RequestCanceledException,
    ServiceUnavailableException,
    TimeoutException,
    UnAmbiguousTimeoutException,
)
from .options import seconds_of

if TYPE_CHECKING:
    from .bucket import Scope

BEGIN = "0"
"""Everything that there is, and what follows."""
NOW = "now"
"""What follows."""
_SILENCE_SECONDS_MAX = 75.0
"""How long a node may be silent before it is taken for gone; it gives a sign every 30 seconds."""
_LINE_BYTES_MAX = 64 * 1024 * 1024
_RECONNECT_TIMEOUT = timedelta(seconds=75)
_PAUSE_FIRST, _PAUSE_MAX = 0.05, 2.0


class ChangesOptions(TypedDict, total=False):
    """Options of ``changes``."""

    since: str
    """`BEGIN`, which it is by default, `NOW`, or a token."""
    include_docs: bool
    """Whether changes have the document; they do by default."""
    doc_ids: Sequence[str]
    """Only of these documents."""
    follow: bool
    """Whether the reader waits for what is yet to come, which it does by default."""
    timeout: timedelta
    """How long there may be no node that gives changes."""


@dataclass(frozen=True, slots=True)
class Change:
    """The newest version of a changed document."""

    id: str
    """Key of the document; of a key that is no UTF-8, its bytes with escapes."""
    key: bytes
    """The same as bytes."""
    vbucket: int
    """vBucket of the document: changes of one vBucket come in order."""
    seqno: int
    """Number of the change in its vBucket."""
    revision: int
    """How often the document was changed."""
    cas: int
    """Version of the document."""
    deleted: bool
    """The document was removed, or has expired."""
    content: Any = None
    """The document: what its JSON says, or bytes. None without ``include_docs``."""


class Changes:
    """Changes of a collection: an asynchronous iterator, which can be used once.

    It connects when the loop starts, applies back-pressure to the server while the loop is busy,
    reconnects by itself, and ends when the loop is left.
    """

    def __init__(self, scope: "Scope", collection: str, options: ChangesOptions) -> None:
        self._bucket = scope.bucket
        names = (scope.bucket.name, scope.name, collection)
        self._path = "".join(f"/{quote(name, safe='')}" for name in names) + "/_changes"
        self._context = ErrorContext(
            bucket=scope.bucket.name, scope=scope.name, collection=collection, operation="changes"
        )
        self.token: str = options.get("since", BEGIN)
        """Where the reader is: everything before it was given."""
        if not isinstance(self.token, str) or not self.token:
            raise InvalidArgumentException("changes begin with a token, BEGIN or NOW")
        self._follows = options.get("follow", True)
        self._timeout = seconds_of(options.get("timeout"), _RECONNECT_TIMEOUT)
        self._parameters: dict[str, Any] = {"include_docs": options.get("include_docs", True)}
        doc_ids = options.get("doc_ids")
        if doc_ids is not None:
            if isinstance(doc_ids, str):
                raise InvalidArgumentException("doc_ids are a list of keys")
            self._parameters |= {"filter": "_doc_ids", "doc_ids": list(doc_ids)}
        self._is_used = False

    async def mark(self) -> str:
        """Fixes the start of the reader, and returns its token: for `NOW`, the present position.

        Raises:
            CollectionNotFoundException: if the collection does not exist.
        """
        if self.token == NOW:
            silent = {**self._parameters, "include_docs": False}
            async with aclosing(self._retried(silent, "normal")) as found:
                async for _ in found:
                    pass
        return self.token

    async def __aiter__(self) -> AsyncIterator[Change]:
        if self._is_used:
            raise AlreadyQueriedException("the changes were asked for already")
        self._is_used = True
        await self.mark()
        feed = "sse" if self._follows else "normal"
        async with aclosing(self._retried(self._parameters, feed)) as found:
            async for change in found:
                yield change

    async def _retried(self, parameters: dict[str, Any], feed: str) -> AsyncGenerator[Change, None]:
        """Yields the changes after the token, and reconnects when the connection breaks."""
        clock = asyncio.get_running_loop()
        deadline, pause = clock.time() + self._timeout, _PAUSE_FIRST
        while True:
            try:
                async with aclosing(self._once(parameters, feed)) as found:
                    async for change in found:
                        yield change
                        # The time that the loop's body needs for a change does not count.
                        deadline, pause = clock.time() + self._timeout, _PAUSE_FIRST
                if feed == "normal":
                    return
                reason: Exception = RequestCanceledException("the node ended the changes")
            except _FINAL:
                raise
            except (TimeoutException, RequestCanceledException, HTTPException) as error:
                if self._bucket.client.closed:
                    raise
                reason = error
            except ServiceUnavailableException as error:
                reason = error
            if clock.time() + pause > deadline:
                raise UnAmbiguousTimeoutException(
                    f"no node gives changes: {reason}", self._context
                ) from reason
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    async def _once(self, parameters: dict[str, Any], feed: str) -> AsyncGenerator[Change, None]:
        body = json.dumps({**parameters, "since": self.token, "feed": feed}).encode()
        request = HttpRequest("POST", self._path, body, reads=True, accept="*/*")
        # The client tries one node after the other within this time.
        timeout = min(self._timeout, _SILENCE_SECONDS_MAX)
        async with self._bucket.http_stream("capi", request, timeout) as answer:
            if answer.status != 200:
                text = (await answer.body()).decode(errors="replace")
                raise _refusal(answer.status, text, self._context)
            async with aclosing(_lines(answer)) as lines:
                async for line in lines:
                    if line.startswith(b"data:") and feed == "sse":
                        yield _change(line[5:])
                    elif line.startswith(b"id:") and feed == "sse":
                        self.token = line[3:].strip().decode("latin-1")
                    elif line.startswith(b'{"id') and feed == "normal":
                        yield _change(line.rstrip().removesuffix(b","))
                    elif line.startswith(b'"last_seq":'):
                        self.token = _token(line)
                        return
        if feed == "normal":
            raise RequestCanceledException("the answer has broken off", self._context)


_FINAL = (
    AuthenticationException,
    CollectionNotFoundException,
    HistoryLostException,
    InvalidArgumentException,
    DecodingFailureException,
)
"""Errors that another attempt does not mend."""


async def _lines(answer: HttpStream) -> AsyncGenerator[bytes, None]:
    clock = asyncio.get_running_loop()
    pending = bytearray()
    async with aclosing(answer.parts()) as parts:
        answer.deadline = clock.time() + _SILENCE_SECONDS_MAX
        async for part in parts:
            searched = len(pending)
            pending += part
            begin = 0
            while (end := pending.find(b"\n", max(begin, searched))) >= 0:
                yield bytes(pending[begin:end])
                begin = end + 1
            del pending[:begin]
            if len(pending) > _LINE_BYTES_MAX:
                raise DecodingFailureException("a change is over the limit", answer.context)
            answer.deadline = clock.time() + _SILENCE_SECONDS_MAX
    if pending:
        yield bytes(pending)


def _change(text: bytes) -> Change:
    try:
        row = json.loads(text)
        key = row["id"].encode() if "id" in row else bytes.fromhex(row["id_hex"])
        revision, _, cas = row["rev"].partition("-")
        content = row.get("doc")
        if "base64" in row:
            content = base64.b64decode(row["base64"], validate=True)
        return Change(
            key.decode(errors="backslashreplace"),
            key,
            int(row["vbucket"]),
            int(row["seqno"]),
            int(revision),
            int(cas, 16),
            row.get("deleted") is True,
            content,
        )
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error) as error:
        raise DecodingFailureException(f"a change cannot be read: {error!r}") from None


def _token(line: bytes) -> str:
    try:
        return str(json.loads(b"{" + line)["last_seq"])
    except (ValueError, LookupError, TypeError) as error:
        raise DecodingFailureException(f"the token cannot be read: {error!r}") from None


def _refusal(status: int, text: str, context: ErrorContext) -> CouchbaseException:
    context.status = status
    if status == 404:
        return CollectionNotFoundException(text, context)
    if status == 410:
        return HistoryLostException(text, context)
    if status == 403:
        return AuthenticationException(text, context)
    if status in (400, 405):
        return InvalidArgumentException(text, context)
    return HTTPException(text, context)
