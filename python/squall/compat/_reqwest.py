"""vikhry's clients, implemented with Squall's client. A scenario declares a client with base URL
and timeout on its class, before users exist; :class:`ClientTemplate` keeps these and creates the
client of each user."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Generator
from typing import Any
from urllib.parse import urljoin, urlsplit

from squall._current_client import current_client
from squall._jsonrpc import JsonRPCClient as _JsonRPC
from squall._metrics import emit_metric
from squall.compat import _standalone


class ClientTemplate:
    """A client as the class declares it."""

    def __init__(self, base_url: str = "", timeout: float | None = None) -> None:
        self.base_url = base_url
        self.timeout = timeout

    def __call__(self, *, base_url: str = "", timeout: float | None = None) -> Any:
        """Returns a template with another base URL or timeout."""
        return type(self)(base_url=base_url or self.base_url, timeout=self.timeout if timeout is None else timeout)

    create = __call__

    @property
    def target(self) -> str:
        """Scheme and host of the base URL; empty without one."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""

    def bind_to(self, client: Any, at_target: bool = False) -> Any:
        """Creates the client of a user. With ``at_target`` the base URL keeps only its path,
        because the command line may set another target."""
        return self.client_class(client, self, self.base_url.removeprefix(self.target) if at_target else self.base_url)

    client_class: Any = None


class UserClient:
    """The client of a user; calling it gives a client with another base URL or timeout."""

    def __init__(self, client: Any, template: ClientTemplate, base: str) -> None:
        self._client = client
        self._template = template
        self._base = base
        self.base_url = template.base_url
        self.timeout = template.timeout

    def __call__(self, *, base_url: str = "", timeout: float | None = None) -> Any:
        at_target = self._base != self.base_url and not base_url
        return self._template(base_url=base_url, timeout=timeout).bind_to(self._client, at_target)

    def rebind_to(self, client: Any) -> Any:
        """Returns this client over another client of the engine."""
        return self._template.bind_to(client, self._base != self.base_url)

    async def close(self) -> None:
        """Does nothing: the engine closes a user's connections."""


class HttpVerbs:
    """HTTP methods that call ``request``."""

    async def request(self, method: str, url: str, **options: Any) -> Any:
        raise NotImplementedError

    async def get(self, url: str, **options: Any) -> Any:
        return await self.request("GET", url, **options)

    async def post(self, url: str, **options: Any) -> Any:
        return await self.request("POST", url, **options)

    async def put(self, url: str, **options: Any) -> Any:
        return await self.request("PUT", url, **options)

    async def patch(self, url: str, **options: Any) -> Any:
        return await self.request("PATCH", url, **options)

    async def delete(self, url: str, **options: Any) -> Any:
        return await self.request("DELETE", url, **options)


class ReqwestHTTPClient(UserClient, HttpVerbs):
    """An HTTP client with a base URL."""

    def __init__(self, client: Any, template: ClientTemplate, base: str) -> None:
        super().__init__(client, template, base)
        self._root = template.target if base == template.base_url else ""

    async def request(self, method: str, url: str, **options: Any) -> ReqwestResponse:
        if self.timeout is not None:
            options.setdefault("timeout", self.timeout)
        # A fast path for the usual case: as in browsers, a leading slash replaces the base URL's
        # path.
        full_url = self._root + url if url[:1] == "/" and url[:2] != "//" else urljoin(self._base, url)
        return ReqwestResponse(await self._client.request(method, full_url, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class JsonRPCProtocolClient(UserClient):
    """A JSON-RPC client for one URL."""

    def __init__(self, client: Any, template: ClientTemplate, base: str) -> None:
        super().__init__(client, template, base)
        self._rpc = _JsonRPC(client, base, timeout=template.timeout)

    async def call(self, method: str, params: Any = None, *, headers: dict[str, str] | None = None, request_id: Any = None) -> Any:
        if not self.base_url:
            raise ValueError("JsonRPCClient needs a base_url")
        return await self._rpc.call(method, params, headers=headers, request_id=request_id)


class ReqwestClient(ClientTemplate, HttpVerbs):
    """``http = ReqwestClient(base_url=…, timeout=…)``. It also sends requests itself: through the
    client of the user or probe that runs, or by itself outside of them."""

    client_class = ReqwestHTTPClient

    async def request(self, method: str, url: str, **options: Any) -> ReqwestResponse:
        client = current_client.get()
        if client is not None:
            return await self.bind_to(client).request(method, url, **options)  # type: ignore[no-any-return]
        if self.timeout is not None:
            options.setdefault("timeout", self.timeout)
        return ReqwestResponse(await _standalone.send(method, urljoin(self.base_url, url), **options))

    async def close(self) -> None:
        """Does nothing: no connection stays open."""


class JsonRPCClient(ClientTemplate):
    """``http = JsonRPCClient(base_url="/rpc")``, then ``await self.http.call("sum", [1, 2])``."""

    client_class = JsonRPCProtocolClient


class Transport(HttpVerbs):
    """Wraps a client that the scenario brings. Its calls are recorded as a custom metric, not as
    requests."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def request(self, method: str, url: str, **options: Any) -> Any:
        return await self._record_time(urlsplit(url).path or "/", self._client.request(method, url, **options))

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        return await self._record_time(method, self._client.call(method, *args, **options))

    async def _record_time(self, name: str, response: Any) -> Any:
        begun, code = time.perf_counter(), "EXCEPTION"
        try:
            response = await response if inspect.isawaitable(response) else response
            status = getattr(response, "status", 200)
            code = f"HTTP_{status}"
            return response
        finally:
            emit_metric(name, time=(time.perf_counter() - begun) * 1e3, status=code < "HTTP_4" and code != "EXCEPTION", result_code=code)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def transport(client_or_factory: Any, base_url: str = "") -> Any:
    """Returns the client for a scenario that declares its own client, or a factory of one."""
    if isinstance(client_or_factory, (Transport, UserClient)):
        return client_or_factory
    client = client_or_factory
    if isinstance(client, type) or not (hasattr(client, "request") or hasattr(client, "call")):
        make = getattr(client, "create", client)
        try:
            client = make(base_url=base_url)
        except TypeError:
            client = make()
    return Transport(client)


class ReqwestResponse:
    """A response with the attributes of both vikhry and Squall: ``status`` and ``status_code``,
    ``await answer.json()`` and ``answer.json()``."""

    __slots__ = ("_response",)

    def __init__(self, response: Any) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status_code  # type: ignore[no-any-return]

    @property
    def text(self) -> AwaitableText:
        return AwaitableText(self._response.text)

    def json(self) -> Any:
        return awaitable(self._response.json())

    def bytes(self) -> Any:
        return awaitable(self._response.content)

    def error_for_status(self) -> None:
        self._response.raise_for_status()

    def get_header(self, key: str) -> str | None:
        return self._response.headers.get(key)  # type: ignore[no-any-return]

    def get_header_all(self, key: str) -> list[str]:
        return self._response.headers.get_all(key)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def __repr__(self) -> str:
        return repr(self._response)


class _AwaitableValue:
    """A value that may be awaited; ``await`` returns the plain value."""

    def __await__(self) -> Generator[Any, None, Any]:
        return _unwrap(self)
        yield


class AwaitableText(_AwaitableValue, str):
    """``answer.text``, and ``await answer.text()``."""

    def __call__(self) -> AwaitableText:
        return self


class _AwaitableBytes(_AwaitableValue, bytes):
    pass


class _AwaitableDict(_AwaitableValue, dict[str, Any]):
    pass


class _AwaitableList(_AwaitableValue, list[Any]):
    pass


class _AwaitableObject(_AwaitableValue):
    """A value whose type has no subclasses here: None, True, a number."""

    def __init__(self, value: Any) -> None:
        self.value = value


_AWAITABLE_TYPES: dict[type, Any] = {str: AwaitableText, bytes: _AwaitableBytes, dict: _AwaitableDict, list: _AwaitableList}
_PLAIN_TYPES: dict[type, Any] = {kind: plain for plain, kind in _AWAITABLE_TYPES.items()}


def awaitable(value: Any) -> Awaitable[Any]:
    """Returns ``value`` as an awaitable that, where Python allows it, is also the value itself."""
    return _AWAITABLE_TYPES.get(type(value), _AwaitableObject)(value)  # type: ignore[no-any-return]


def _unwrap(value: Any) -> Any:
    return value.value if isinstance(value, _AwaitableObject) else _PLAIN_TYPES[type(value)](value)
