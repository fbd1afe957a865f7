"""Analytics: statements over the copies of collections that the analytics service keeps.

result = cluster.analytics_query("SELECT VALUE COUNT(*) FROM orders AS o WHERE o.total > $1", 10)
async for count in result:
    print(count)
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from enum import Enum
from typing import Any, cast

from . import _statements
from ._analytics_errors import NotNow, error_of, errors_in
from ._client import KvClient
from ._http import HttpClient, HttpRequest, HttpStream
from ._instruments import Labels
from ._record import dataclass
from ._rows import RowParser, RowResult
from .exceptions import (
    AnalyticsException,
    CouchbaseException,
    ErrorContext,
    InternalServerFailureException,
    InvalidArgumentException,
    UnAmbiguousTimeoutException,
)
from .options import AnalyticsOptions
from .transcoder import encode_json

__all__ = [
    "AnalyticsError",
    "AnalyticsMetaData",
    "AnalyticsMetrics",
    "AnalyticsOptions",
    "AnalyticsProblem",
    "AnalyticsResult",
    "AnalyticsScanConsistency",
    "AnalyticsStatus",
    "AnalyticsWarning",
]

_RETRIES_MAX = 10
"""Retries of a request that the service refuses because it is starting or full: 2 s altogether."""
_PAUSE_FIRST, _PAUSE_MAX = 0.002, 0.5


class AnalyticsScanConsistency(Enum):
    """Consistency of a statement with earlier mutations."""

    NOT_BOUNDED = "not_bounded"
    """It reads the copies as they are."""
    REQUEST_PLUS = "request_plus"
    """It waits until the copies have every mutation before the request."""


class AnalyticsStatus(Enum):
    """Final status of a statement."""

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
class AnalyticsProblem(_statements.Problem):
    """An error or warning of the analytics service."""


AnalyticsWarning = AnalyticsError = AnalyticsProblem


@dataclass(frozen=True, slots=True)
class AnalyticsMetrics(_statements.Metrics):
    """Metrics of a statement. Missing numbers are 0."""

    def processed_objects(self) -> int:
        """Returns the number of documents that the service has read."""
        return int(self.raw.get("processedObjects", 0))


@dataclass(frozen=True, slots=True)
class AnalyticsMetaData(_statements.MetaData):
    """Metadata of a result."""

    def status(self) -> AnalyticsStatus:
        """Returns the final status of the statement."""
        try:
            return AnalyticsStatus(self.raw.get("status"))
        except ValueError:
            return AnalyticsStatus.UNKNOWN

    def warnings(self) -> list[AnalyticsProblem]:
        """Returns the warnings, which the server collects if ``raw`` has ``max-warnings``."""
        return [AnalyticsProblem(warning) for warning in self.raw.get("warnings") or ()]

    def errors(self) -> list[AnalyticsProblem]:
        """Returns the errors."""
        return [AnalyticsProblem(error) for error in self.raw.get("errors") or ()]

    def metrics(self) -> AnalyticsMetrics | None:
        """Returns the metrics, or None if the server has sent none."""
        metrics = self.raw.get("metrics")
        return AnalyticsMetrics(metrics) if isinstance(metrics, dict) else None


class AnalyticsResult(RowResult[Any]):
    """Rows of a statement: ``async for row in cluster.analytics_query("SELECT …")``, or ``await
    …execute()``.
    """

    def __init__(
        self,
        client: KvClient,
        http: HttpClient,
        statement: str,
        options: AnalyticsOptions,
        timeout: float,
    ) -> None:
        super().__init__()
        if not isinstance(statement, str) or not statement:
            raise InvalidArgumentException("a statement is a text")
        self._client = client
        self._http = http
        self._timeout = timeout
        self._reads = bool(options.get("read_only"))
        self._headers = {"Analytics-Priority": "-1"} if options.get("priority") else {}
        self._serializer = options.get("serializer")
        self._request = {"statement": statement, **_request(options)}
        self._watch(http.instruments, "analytics_query", Labels("analytics"), options)
        self._context = ErrorContext(
            operation="analytics_query",
            statement=statement,
            client_context_id=str(self._request["client_context_id"]),
        )

    def metadata(self) -> AnalyticsMetaData:
        """Returns the metadata, once all rows were read.

        Raises:
            InvalidArgumentException: if they were not.
        """
        return AnalyticsMetaData(self._ended())

    async def _send(self) -> AsyncGenerator[Any, None]:
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self._timeout
        pause = _PAUSE_FIRST
        has_rows = False
        refused: NotNow | None = None
        while True:
            try:
                async with aclosing(self._attempt(deadline - clock.time())) as rows:
                    async for row in rows:
                        has_rows = True
                        yield row
                return
            except NotNow as again:
                refused = again
            except UnAmbiguousTimeoutException as expired:
                if refused is None or expired.context.status is not None:
                    raise
                # The answers to earlier attempts say more than the missing one.
                raise refused.error from None
            is_last = self._context.retry_attempts >= _RETRIES_MAX
            if has_rows or is_last or clock.time() + pause > deadline:
                raise refused.error
            self._context.retry_attempts += 1
            self._context.retry_reasons = ("ANALYTICS_TEMPORARY_FAILURE",)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX)

    async def _attempt(self, timeout: float) -> AsyncGenerator[Any, None]:
        # The members in ``raw`` have precedence, also over the timeout.
        body = {"timeout": f"{max(int(timeout * 1000), 1)}ms", **self._request}
        request = HttpRequest(
            "POST",
            "/query/service",
            encode_json(body),
            reads=self._reads,
            span=self._span,
            headers=self._headers,
        )
        context = self._context
        parser = RowParser("results")
        try:
            async with self._http.stream(self._client, "cbas", request, timeout) as answer:
                context.endpoint, context.status = answer.context.endpoint, answer.status
                if answer.status != 200:
                    raise await _refusal(answer, context)
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
            raise error_of(errors, context)
        status = members.get("status")
        if status == "timeout":
            raise UnAmbiguousTimeoutException("the server ran out of time", context)
        if status != "success":
            raise AnalyticsException(f"the statement ended with the status {status!r}", context)
        self._members = members

    def _row(self, row: Any) -> Any:
        if self._serializer is None:
            return row
        return self._serializer.deserialize(json.dumps(row).encode())


async def _refusal(answer: HttpStream, context: ErrorContext) -> CouchbaseException | NotNow:
    """Returns the exception for a response without rows."""
    body = await answer.body()
    if errors := errors_in(body):
        return error_of(errors, context)
    text = body[:1000].decode(errors="replace")
    return InternalServerFailureException(f"the service answered: {text}", context)


def _request(options: AnalyticsOptions) -> dict[str, Any]:
    """Returns the members of a request except its statement and timeout.

    Raises:
        InvalidArgumentException: if an option has an invalid value.
    """
    request: dict[str, Any] = {
        "client_context_id": options.get("client_context_id") or os.urandom(16).hex()
    }
    for name, (member, convert) in _MEMBERS.items():
        value = cast(dict[str, Any], options).get(name)
        if value is not None:
            request[member] = convert(value)
    for name, value in (options.get("named_parameters") or {}).items():
        request[name if name.startswith("$") else f"${name}"] = value
    request.update(options.get("raw") or {})
    return request


_MEMBERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "read_only": ("readonly", _statements.flag),
    "scan_consistency": (
        "scan_consistency",
        _statements.member_of(AnalyticsScanConsistency),
    ),
    "positional_parameters": ("args", _statements.arguments),
    "query_context": ("query_context", _statements.text),
}
"""Options, by the members of a request that they become."""
