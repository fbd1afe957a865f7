"""SQL++ queries."""

import asyncio
import json
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import timedelta
from enum import Enum
from typing import Any, cast

from . import _statements
from ._client import KvClient
from ._connstr import Address, address_of
from ._http import HttpClient, HttpRequest
from ._instruments import Labels
from ._query_errors import StalePlan, error_of
from ._record import dataclass
from ._rows import RowParser, RowResult
from .exceptions import (
    AmbiguousTimeoutException,
    CouchbaseException,
    ErrorContext,
    InvalidArgumentException,
    UnAmbiguousTimeoutException,
)
from .options import QueryOptions
from .transcoder import encode_json

_PLANS_MAX = 5000
"""How many prepared statements are remembered."""
_PAUSE_FIRST, _PAUSE_MAX = 0.01, 0.5


class QueryScanConsistency(Enum):
    """Consistency of a query's index scans."""

    NOT_BOUNDED = "not_bounded"
    """It uses them as they are."""
    REQUEST_PLUS = "request_plus"
    """It waits until they have every mutation before the query."""
    AT_PLUS = "at_plus"
    """It waits until they have the mutations of ``consistent_with``."""


class QueryProfile(Enum):
    """Detail of the profile that the server returns."""

    OFF = "off"
    PHASES = "phases"
    TIMINGS = "timings"


class QueryStatus(Enum):
    """Final status of a query."""

    RUNNING = "running"
    SUCCESS = "success"
    ERRORS = "errors"
    COMPLETED = "completed"
    STOPPED = "stopped"
    TIMEOUT = "timeout"
    CLOSED = "closed"
    FATAL = "fatal"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class QueryProblem(_statements.Problem):
    """An error or warning of the query service."""


QueryWarning = QueryError = QueryProblem


@dataclass(frozen=True, slots=True)
class QueryMetrics(_statements.Metrics):
    """Metrics of a query. Missing numbers are 0."""

    def mutation_count(self) -> int:
        """Returns the number of changed documents."""
        return int(self.raw.get("mutationCount", 0))

    def sort_count(self) -> int:
        """Returns the number of sorted rows."""
        return int(self.raw.get("sortCount", 0))


@dataclass(frozen=True, slots=True)
class QueryMetaData(_statements.MetaData):
    """Metadata of a query."""

    def status(self) -> QueryStatus:
        """Returns the final status of the query."""
        try:
            return QueryStatus(self.raw.get("status"))
        except ValueError:
            return QueryStatus.UNKNOWN

    def warnings(self) -> list[QueryProblem]:
        """Returns the warnings."""
        return [QueryProblem(warning) for warning in self.raw.get("warnings") or ()]

    def errors(self) -> list[QueryProblem]:
        """Returns the errors."""
        return [QueryProblem(error) for error in self.raw.get("errors") or ()]

    def metrics(self) -> QueryMetrics | None:
        """Returns the metrics, or None unless ``metrics`` was set."""
        metrics = self.raw.get("metrics")
        return QueryMetrics(metrics) if isinstance(metrics, dict) else None

    def profile(self) -> Any:
        """Returns the profile, or None unless ``profile`` was set."""
        return self.raw.get("profile")


class PreparedStatements:
    """A cache of the names of prepared statements."""

    def __init__(self) -> None:
        self._names: OrderedDict[tuple[str, str | None], str] = OrderedDict()

    def get(self, key: tuple[str, str | None]) -> str | None:
        """Returns the name of a statement in a context."""
        return self._names.get(key)

    def put(self, key: tuple[str, str | None], name: str) -> None:
        """Stores a name, and evicts the oldest one."""
        self._names[key] = name
        if len(self._names) > _PLANS_MAX:
            self._names.popitem(last=False)

    def forget(self, key: tuple[str, str | None]) -> None:
        """Forgets a name."""
        self._names.pop(key, None)


class QueryResult(RowResult[Any]):
    """Rows of a query: ``async for row in cluster.query("SELECT …")``, or ``await …execute()``."""

    def __init__(
        self,
        client: KvClient,
        http: HttpClient,
        prepared: PreparedStatements,
        statement: str,
        options: QueryOptions,
        timeout: float,
        node: Address | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(statement, str) or not statement:
            raise InvalidArgumentException("a statement is a text")
        self._client = client
        self._http = http
        self._prepared = prepared
        self._statement = statement
        self._timeout = timeout
        self._node = node or _node_of(options.get("send_to_node"))
        self._reads = bool(options.get("read_only"))
        self._is_adhoc = options.get("adhoc", True)
        self._serializer = options.get("serializer")
        self._request = _request(options)
        self._watch(http.instruments, "query", Labels("query"), options)
        self._key = (statement, cast("str | None", self._request.get("query_context")))

    def metadata(self) -> QueryMetaData:
        """Returns the metadata, once all rows were read.

        Raises:
            InvalidArgumentException: if they were not.
        """
        return QueryMetaData(self._ended())

    async def _send(self) -> AsyncGenerator[Any, None]:
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._timeout
        pause = _PAUSE_FIRST
        has_rows = False
        while True:
            try:
                async with aclosing(self._attempt(deadline - clock.time())) as rows:
                    async for row in rows:
                        has_rows = True
                        yield row
                return
            except StalePlan as stale:
                self._prepared.forget(self._key)
                if has_rows or clock.time() + pause > deadline:
                    raise stale.error from None
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    async def _attempt(self, timeout: float) -> AsyncGenerator[Any, None]:
        body = {**self._request, "timeout": f"{max(int(timeout * 1000), 1)}ms"}
        name = None if self._is_adhoc else self._prepared.get(self._key)
        if self._is_adhoc:
            body["statement"] = self._statement
        elif name is not None:
            body["prepared"] = name
        else:
            body |= {"statement": f"PREPARE {self._statement}", "auto_execute": True}
        content = encode_json(body)
        request = HttpRequest(
            "POST", "/query/service", content, reads=self._reads, span=self._span
        )
        context = ErrorContext(
            operation="query",
            statement=self._statement,
            client_context_id=str(body["client_context_id"]),
        )
        parser = RowParser("results")
        try:
            async with self._http.stream(
                self._client, "n1ql", request, timeout, node=self._node
            ) as answer:
                context.endpoint, context.status = answer.context.endpoint, answer.status
                async with aclosing(answer.parts()) as parts:
                    async for part in parts:
                        for row in parser.feed(part):
                            yield self._row(row)
                last, members = parser.finish()
                for row in last:
                    yield self._row(row)
        except CouchbaseException as error:
            error.context.statement = context.statement
            error.context.client_context_id = context.client_context_id
            raise
        if errors := members.get("errors"):
            raise error_of(errors, context, self._reads)
        if members.get("status") == "timeout":
            kind = UnAmbiguousTimeoutException if self._reads else AmbiguousTimeoutException
            raise kind("the server ran out of time", context)
        if isinstance(members.get("prepared"), str) and not self._is_adhoc:
            self._prepared.put(self._key, members["prepared"])
        self._members = members

    def _row(self, row: Any) -> Any:
        if self._serializer is None:
            return row
        return self._serializer.deserialize(json.dumps(row).encode())


def _request(options: QueryOptions) -> dict[str, Any]:
    """Returns the members of a request except its statement.

    Raises:
        InvalidArgumentException: if an option has an invalid value.
    """
    request: dict[str, Any] = {
        "client_context_id": options.get("client_context_id") or os.urandom(16).hex(),
        "metrics": bool(options.get("metrics", False)),
    }
    for name, (member, convert) in _MEMBERS.items():
        value = cast(dict[str, Any], options).get(name)
        if value is not None:
            request[member] = convert(value)
    state = options.get("consistent_with")
    if state is not None:
        if "scan_consistency" in request and request["scan_consistency"] != "at_plus":
            raise InvalidArgumentException("consistent_with is a scan_consistency of its own")
        request["scan_consistency"] = "at_plus"
        request["scan_vectors"] = state.scan_vectors()
    for name, value in (options.get("named_parameters") or {}).items():
        request[name if name.startswith("$") else f"${name}"] = value
    request.update(options.get("raw") or {})
    return request


def _node_of(text: str | None) -> Address | None:
    """Returns a node, given by host and port of its query service.

    Raises:
        InvalidArgumentException: if the text is not a host and port.
    """
    return None if text is None else address_of(text)


def _milliseconds(value: Any) -> str:
    return f"{value // timedelta(milliseconds=1)}ms"


_MEMBERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "read_only": ("readonly", _statements.flag),
    "scan_consistency": ("scan_consistency", _statements.member_of(QueryScanConsistency)),
    "max_parallelism": ("max_parallelism", _statements.text),
    "positional_parameters": ("args", _statements.arguments),
    "pipeline_batch": ("pipeline_batch", _statements.text),
    "pipeline_cap": ("pipeline_cap", _statements.text),
    "scan_cap": ("scan_cap", _statements.text),
    "scan_wait": ("scan_wait", _milliseconds),
    "profile": ("profile", _statements.member_of(QueryProfile)),
    "query_context": ("query_context", _statements.text),
    "flex_index": ("use_fts", _statements.flag),
    "preserve_expiry": ("preserve_expiry", _statements.flag),
    "use_replica": ("use_replica", lambda value: "on" if value else "off"),
}
"""Options, by the members of a request that they become."""
