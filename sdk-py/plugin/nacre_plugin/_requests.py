"""Requests and responses, as in HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

Header = tuple[str, str]
"""Name and value of a header of HTTP."""


@dataclass
class Request:
    """A request, as in HTTP."""

    method: str = "GET"
    """`GET`, `POST`, …."""
    path: str = "/"
    """The path below the deployment, starting with `/`, percent-decoded."""
    query: str = ""
    """The query string as it came, without `?`."""
    headers: list[Header] = field(default_factory=list)
    """Headers that the host passes on, their names in lower case."""
    body: bytes = b""
    """The body."""
    now_us: int = 0
    """When the request arrived, in microseconds since the Unix epoch."""

    @property
    def args(self) -> dict[str, str]:
        """Returns the decoded query string. If a name occurs twice, the last value counts."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    def json(self) -> Any:
        """Returns the parsed body.

        Raises:
            ValueError: if it is not JSON.
        """
        return json.loads(self.body)


@dataclass
class Response:
    """The response to a request, or its beginning."""

    status: int = 200
    """An HTTP status."""
    headers: list[Header] = field(default_factory=list)
    """Headers."""
    body: bytes = b""
    """The body, or the first piece of it."""
    cursor: bytes | None = None
    """When there is more of the body: what `Service.more` is called with."""

    @classmethod
    def json(cls, status: int, value: Any) -> Response:
        """Returns a JSON response."""
        body = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        return cls(status, [("content-type", "application/json")], body)


class Chunk(NamedTuple):
    """A piece of a body."""

    body: bytes
    """The bytes."""
    cursor: bytes | None = None
    """When there is more: what `Service.more` is called with."""


def headers_of(headers: list[Any]) -> list[Header]:
    return [(header.name, header.value) for header in headers]


def request_of(asked: Any) -> Request:
    headers = headers_of(asked.headers)
    return Request(asked.method, asked.path, asked.query, headers, asked.body, asked.now_us)
