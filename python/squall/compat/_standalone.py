"""An HTTP client for code that runs outside of users and probes: factories of an orchestrator,
set-up hooks, scripts. Its requests are not measured. It opens a connection for each request."""

from __future__ import annotations

import asyncio
import json as json_module
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import urlencode

#: Proxies of the environment are not used, as in the engine's client.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_DEFAULT_TIMEOUT_S = 30.0


async def send(
    method: str,
    url: str,
    *,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    data: Any = None,
    timeout: float | None = None,
) -> StandaloneResponse:
    """Sends a request and returns its response, also if its status is an error. Follows redirects."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is not a URL: a client outside of a user needs a base_url")
    given = dict(headers or {})
    body = _body(json, data, given)
    if params:
        url += ("&" if "?" in url else "?") + urlencode(params, doseq=True)
    request = urllib.request.Request(url, body, given, method=method)
    limit = _DEFAULT_TIMEOUT_S if timeout is None else timeout
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _send(request, limit)
    # The loop may have other work while this request waits.
    return await asyncio.to_thread(_send, request, limit)


def _body(json: Any, data: Any, headers: dict[str, str]) -> bytes | None:
    has_type = any(name.lower() == "content-type" for name in headers)
    if json is not None:
        if not has_type:
            headers["Content-Type"] = "application/json"
        return json_module.dumps(json).encode()
    if isinstance(data, Mapping):
        return urlencode(data, doseq=True).encode()
    if data is not None and not has_type:
        # Otherwise urllib would call it a form.
        headers["Content-Type"] = "application/octet-stream" if isinstance(data, bytes) else "text/plain; charset=utf-8"
    return data.encode() if isinstance(data, str) else data


def _send(request: urllib.request.Request, timeout: float) -> StandaloneResponse:
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return StandaloneResponse(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return StandaloneResponse(error.code, error.headers, error.read())


class StandaloneHeaders:
    """The headers of a response; names in any case."""

    def __init__(self, headers: Message) -> None:
        self._headers = headers

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._headers.get(name, default)

    def get_all(self, name: str) -> list[str]:
        return self._headers.get_all(name, [])

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value


class StandaloneResponse:
    """A response with the attributes of Squall's."""

    def __init__(self, status: int, headers: Message, content: bytes) -> None:
        self.status_code = status
        self.headers = StandaloneHeaders(headers)
        self.content = content
        self._charset = headers.get_content_charset() or "utf-8"

    @property
    def ok(self) -> bool:
        return self.status_code < 400

    @property
    def text(self) -> str:
        return self.content.decode(self._charset, errors="replace")

    def json(self) -> Any:
        return json_module.loads(self.content)

    def raise_for_status(self) -> None:
        if not self.ok:
            raise RuntimeError(f"the response has status {self.status_code}")
