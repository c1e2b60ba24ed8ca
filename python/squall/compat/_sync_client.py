"""A client for coroutines that do not await it (LoadPilot): a call sends the request and returns
the response. Such a coroutine runs on a greenlet. The greenlet passes what it waits for to its
awaiter, the engine or asyncio, which runs other users meanwhile."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from greenlet import getcurrent, greenlet


def with_sync_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a coroutine function so that it gets a client whose calls need no ``await``."""

    @functools.wraps(function)
    async def call(user: Any, client: Any) -> None:
        await _run_on_greenlet(function(user, SyncCallClient(client)))

    # The mark keeps `squall.compat.loadpilot` from wrapping the function twice.
    call.__squall_sync_client__ = function  # type: ignore[attr-defined]
    return call


class _IdleGreenlets(threading.local):
    """The unused greenlets of a thread, kept because a new one costs more than a request."""

    def __init__(self) -> None:
        self.greenlets: list[Any] = []


_idle = _IdleGreenlets()
#: A greenlet switches out with this when its coroutine has ended.
_ENDED = object()


@types.coroutine
def _run_on_greenlet(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, None]:
    """Runs ``coroutine`` on a greenlet and awaits what it, or a function that it calls, waits
    for."""
    idle = _idle.greenlets
    worker = idle.pop() if idle else _new_greenlet()
    worker.gr_context = getcurrent().gr_context
    resume, value = worker.switch, coroutine
    while True:
        # An exception ends the greenlet, so it is not reused.
        awaited = resume(value)
        if awaited is _ENDED:
            idle.append(worker)
            return
        try:
            resume, value = worker.switch, (yield awaited)
        except BaseException as error:
            resume, value = worker.throw, error  # type: ignore[assignment]


def _new_greenlet() -> Any:
    made = greenlet(_greenlet_loop)
    # Runs it up to its first wait without arguments: a greenlet keeps its first arguments alive.
    made.switch()
    return made


def _greenlet_loop() -> None:
    switch_out = getcurrent().parent.switch
    while True:
        _run_coroutine(switch_out(_ENDED), switch_out)


def _run_coroutine(coroutine: Coroutine[Any, Any, Any], switch_out: Callable[[Any], Any]) -> None:
    """Runs a coroutine to its end and switches out with what it waits for."""
    resume: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            awaited = resume(value)
        except StopIteration:
            return
        try:
            resume, value = coroutine.send, switch_out(awaited)
        except BaseException as error:
            resume, value = coroutine.throw, error


def _wait_for(operation: Any) -> Any:
    """Waits for an operation in code that :func:`_run_coroutine` runs, and returns its result."""
    while True:
        try:
            awaited = next(operation)
        except StopIteration as ended:
            return ended.value
        getcurrent().parent.switch(awaited)


class AwaitableResponse:
    """A response that may be awaited; ``await`` returns it."""

    __slots__ = ("_response",)

    def __init__(self, response: Any) -> None:
        self._response = response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def __await__(self) -> Generator[Any, None, AwaitableResponse]:
        return self
        yield

    def __repr__(self) -> str:
        return repr(self._response)


class AwaitableResponses(list[AwaitableResponse]):
    """The responses of a batch, which may be awaited."""

    def __await__(self) -> Generator[Any, None, AwaitableResponses]:
        return self
        yield


class SyncCallClient:
    """A client whose calls return the response without ``await``."""

    __slots__ = ("_client",)

    def __init__(self, client: Any) -> None:
        self._client = client

    def request(self, method: str, url: str, /, **options: Any) -> AwaitableResponse:
        return AwaitableResponse(_wait_for(self._client.request(method, url, **options)))

    def get(self, url: str, /, **options: Any) -> AwaitableResponse:
        return AwaitableResponse(_wait_for(self._client.get(url, **options)))

    def post(self, url: str, /, **options: Any) -> AwaitableResponse:
        return AwaitableResponse(_wait_for(self._client.post(url, **options)))

    def put(self, url: str, /, **options: Any) -> AwaitableResponse:
        return AwaitableResponse(_wait_for(self._client.put(url, **options)))

    def patch(self, url: str, /, **options: Any) -> AwaitableResponse:
        return AwaitableResponse(_wait_for(self._client.patch(url, **options)))

    def delete(self, url: str, /, **options: Any) -> AwaitableResponse:
        return AwaitableResponse(_wait_for(self._client.delete(url, **options)))

    def head(self, url: str, /, **options: Any) -> AwaitableResponse:
        return AwaitableResponse(_wait_for(self._client.head(url, **options)))

    def batch(self, requests: Any) -> AwaitableResponses:
        return AwaitableResponses(AwaitableResponse(response) for response in _wait_for(self._client.batch(requests)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
