"""Common parts of the managers: sending requests and parsing responses."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .._http import HttpRequest, HttpResponse, form
from .._instruments import Labels
from ..exceptions import (
    CouchbaseException,
    DecodingFailureException,
    HTTPException,
    InvalidArgumentException,
)
from ..options import TimeoutOptions, seconds_of

if TYPE_CHECKING:
    from ..cluster import Cluster

_LABELS = {"cbas": "analytics", "fts": "search", "eventingAdminPort": "eventing", "n1ql": "query"}
"""Names of services in spans and metrics, where they differ."""
FORM = "application/x-www-form-urlencoded"
T = TypeVar("T")


class Manager:
    """Base class of managers that use the management service."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._instruments = cluster.http.instruments

    def _labels(self) -> Labels:
        """Returns the labels of an operation."""
        return Labels("management")

    async def _send(
        self,
        method: str,
        path: str,
        options: TimeoutOptions,
        fields: dict[str, object] | None = None,
    ) -> HttpResponse:
        timeout = seconds_of(options.get("timeout"), self._cluster.timeouts.management_timeout)
        request = HttpRequest(method, path, form(fields or {}), FORM, reads=method == "GET")
        return await self._cluster.http_management(request, timeout)


class JsonManager:
    """Base class of managers that use another service, in JSON."""

    _SERVICE = ""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._instruments = cluster.http.instruments

    def _labels(self) -> Labels:
        """Returns the labels of an operation."""
        return Labels(_LABELS.get(self._SERVICE, self._SERVICE))

    async def _send(
        self, method: str, path: str, options: TimeoutOptions, body: object = None
    ) -> HttpResponse:
        timeout = seconds_of(options.get("timeout"), self._cluster.timeouts.management_timeout)
        content = b"" if body is None else json.dumps(body).encode()
        request = HttpRequest(method, path, content, reads=method == "GET")
        return await self._cluster.http_service(self._SERVICE, request, timeout)


def require_success(response: HttpResponse) -> None:
    """Raises the general exception for an unsuccessful response.

    Raises:
        InvalidArgumentException: if the service reports an invalid request.
        HTTPException: if it refuses the request for another reason.
    """
    if response.status == 400:
        raise InvalidArgumentException(response.text, response.context)
    if response.status >= 300:
        raise HTTPException(response.text, response.context)


def read(response: HttpResponse, convert: Callable[[Any], T]) -> T:
    """Returns the content of a successful response.

    Raises:
        CouchbaseException: if it is unsuccessful, or cannot be parsed.
    """
    require_success(response)
    try:
        return convert(json.loads(response.body))
    except CouchbaseException:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DecodingFailureException(
            f"the answer cannot be read: {error!r}", response.context
        ) from None
