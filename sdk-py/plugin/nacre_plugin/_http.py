"""Capability `http-out`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._faults import Retry
from ._outside import Err, bytes_of, named, outside
from ._requests import Header, Response, headers_of
from ._turns import turns


class Http:
    """Capability `http-out`: HTTP requests to the hosts that the deployment names."""

    class Error(Exception):
        """Why there is no answer."""

    class Denied(Error):
        """The host of the URL is not granted, or the URL is none."""

    class Timeout(Error, Retry):
        """The answer did not come before the deadline of the call. Not caught, it has the call made
        again.
        """

    class TooLarge(Error):
        """The answer is larger than is granted."""

    class Failed(Error, Retry):
        """There is no connection, or it broke. Not caught, it has the call made again."""

    def send(
        self, method: str, url: str, body: Any = b"", headers: Sequence[Header] = ()
    ) -> Response:
        """Sends a request and returns its response, with any status.

        A body of bytes or text is sent unchanged, everything else as JSON.

        Raises:
            Http.Error: if there is no response.
        """
        if "http_out" not in outside:
            raise Http.Denied("plugin.toml does not ask for the capability http-out")
        turns.act()
        wit = outside["http_out"]
        sent = [wit.types.Header(name, value) for name, value in headers]
        try:
            answer = wit.send(wit.Request(method, url, sent, bytes_of(body)))
        except Err as error:
            raise named(Http, error.value) from None
        return Response(answer.status, headers_of(answer.headers), answer.body)


http = Http()
