"""vikhry's clients over Squall's: what a scenario says of them (a base URL, a timeout) is kept, the requests are the engine's. A scenario
names a client on its class before there is a user; the client itself is made when a user has one to send by."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Generator
from typing import Any
from urllib.parse import urljoin, urlsplit

from squall._jsonrpc import JsonRPCClient as _JsonRPC
from squall._metrics import emit_metric


class Template:
    """A client that a user does not have yet."""

    def __init__(self, base_url: str = "", timeout: float | None = None) -> None:
        self.base_url = base_url
        self.timeout = timeout

    def __call__(self, *, base_url: str = "", timeout: float | None = None) -> Any:
        """The same with another base URL or timeout."""
        return type(self)(base_url=base_url or self.base_url, timeout=self.timeout if timeout is None else timeout)

    create = __call__

    @property
    def target(self) -> str:
        """Where its requests go, without the path; nothing if it does not say."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""

    def over(self, client: Any, at_target: bool = False) -> Any:
        """The client of a user. If its base URL is the run's target, that may be another one on the command line."""
        return self.made(client, self, self.base_url.removeprefix(self.target) if at_target else self.base_url)

    made: Any = None


class UserClient:
    """A user's client: still something to be called, as its template was."""

    def __init__(self, client: Any, said: Template, base: str) -> None:
        self._client = client
        self._said = said
        self._base = base
        self.base_url = said.base_url
        self.timeout = said.timeout

    def __call__(self, *, base_url: str = "", timeout: float | None = None) -> Any:
        at_target = self._base != self.base_url and not base_url
        return self._said(base_url=base_url, timeout=timeout).over(self._client, at_target)

    def again(self, client: Any) -> Any:
        """The same over another client of the engine."""
        return self._said.over(client, self._base != self.base_url)

    async def close(self) -> None:
        """There is nothing to close: connections belong to the user."""


class Verbs:
    """The methods of HTTP over one ``request``."""

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


class ReqwestHTTPClient(UserClient, Verbs):
    """Requests below a base URL."""

    def __init__(self, client: Any, said: Template, base: str) -> None:
        super().__init__(client, said, base)
        self._root = said.target if base == said.base_url else ""

    async def request(self, method: str, url: str, **options: Any) -> Answer:
        if self.timeout is not None:
            options.setdefault("timeout", self.timeout)
        # The usual case first; a path that begins with a slash is the host's, as in every browser.
        whole = self._root + url if url[:1] == "/" and url[:2] != "//" else urljoin(self._base, url)
        return Answer(await self._client.request(method, whole, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class JsonRPCProtocolClient(UserClient):
    """Calls of methods at one URL."""

    def __init__(self, client: Any, said: Template, base: str) -> None:
        super().__init__(client, said, base)
        self._rpc = _JsonRPC(client, base, timeout=said.timeout)

    async def call(self, method: str, params: Any = None, *, headers: dict[str, str] | None = None, request_id: Any = None) -> Any:
        if not self.base_url:
            raise ValueError("JsonRPCClient needs a base_url")
        return await self._rpc.call(method, params, headers=headers, request_id=request_id)


class ReqwestClient(Template):
    """``http = ReqwestClient(base_url=…, timeout=…)``."""

    made = ReqwestHTTPClient


class JsonRPCClient(Template):
    """``http = JsonRPCClient(base_url="/rpc")``, then ``await self.http.call("sum", [1, 2])``."""

    made = JsonRPCProtocolClient


class Transport(Verbs):
    """A client of the scenario's own: what goes through it is timed, as a series of its own and not as a request."""

    def __init__(self, own: Any) -> None:
        self._own = own

    async def request(self, method: str, url: str, **options: Any) -> Any:
        return await self._timed(urlsplit(url).path or "/", self._own.request(method, url, **options))

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        return await self._timed(method, self._own.call(method, *args, **options))

    async def _timed(self, name: str, answer: Any) -> Any:
        begun, code = time.perf_counter(), "EXCEPTION"
        try:
            answer = await answer if inspect.isawaitable(answer) else answer
            status = getattr(answer, "status", 200)
            code = f"HTTP_{status}"
            return answer
        finally:
            emit_metric(name, time=(time.perf_counter() - begun) * 1e3, status=code < "HTTP_4" and code != "EXCEPTION", result_code=code)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def transport(said: Any, base_url: str = "") -> Any:
    """The client that a scenario wants by something else than a template: the client itself, or something that makes one."""
    if isinstance(said, (Transport, UserClient)):
        return said
    own = said
    if isinstance(said, type) or not (hasattr(said, "request") or hasattr(said, "call")):
        make = getattr(said, "create", said)
        try:
            own = make(base_url=base_url)
        except TypeError:
            own = make()
    return Transport(own)


class Answer:
    """An answer with the words of both: ``status`` and ``status_code``, ``await answer.json()`` and ``answer.json()``."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    @property
    def status(self) -> int:
        return self._answer.status_code  # type: ignore[no-any-return]

    @property
    def text(self) -> Text:
        return Text(self._answer.text)

    def json(self) -> Any:
        return ready(self._answer.json())

    def bytes(self) -> Any:
        return ready(self._answer.content)

    def error_for_status(self) -> None:
        self._answer.raise_for_status()

    def get_header(self, key: str) -> str | None:
        return self._answer.headers.get(key)  # type: ignore[no-any-return]

    def get_header_all(self, key: str) -> list[str]:
        return self._answer.headers.get_all(key)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)

    def __repr__(self) -> str:
        return repr(self._answer)


class _Ready:
    """Something that is there; awaiting it gives the plain thing."""

    def __await__(self) -> Generator[Any, None, Any]:
        return _plain(self)
        yield


class Text(_Ready, str):
    """``answer.text``, and ``await answer.text()``."""

    def __call__(self) -> Text:
        return self


class _Bytes(_Ready, bytes):
    pass


class _Dict(_Ready, dict[str, Any]):
    pass


class _List(_Ready, list[Any]):
    pass


class _Value(_Ready):
    """What cannot be inherited from: None, True, a number."""

    def __init__(self, value: Any) -> None:
        self.value = value


_KINDS: dict[type, Any] = {str: Text, bytes: _Bytes, dict: _Dict, list: _List}
_PLAIN: dict[type, Any] = {kind: plain for plain, kind in _KINDS.items()}


def ready(value: Any) -> Awaitable[Any]:
    """``value``, which may be awaited and, where Python allows it, used at once."""
    return _KINDS.get(type(value), _Value)(value)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Value) else _PLAIN[type(value)](value)
