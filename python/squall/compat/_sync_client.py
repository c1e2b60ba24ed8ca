"""Coroutines whose client is not awaited: a request is sent when it is called, and the call returns with its answer. Such code runs on a
greenlet of its own; what it waits for is handed to whoever awaits it, the engine or asyncio, and both go on with others meanwhile."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from greenlet import getcurrent, greenlet


def with_sync_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """The coroutine function of a user and a client, for a client whose answers may be awaited but need not be."""

    @functools.wraps(function)
    async def call(user: Any, client: Any) -> None:
        await _run_on_greenlet(function(user, SyncCallClient(client)))

    # Who looks into the code has to know how its calls are meant.
    call.__squall_sync_client__ = function  # type: ignore[attr-defined]
    return call


class _IdleGreenlets(threading.local):
    """The greenlets of a thread that have nothing to run: a new one costs more than a request."""

    def __init__(self) -> None:
        self.greenlets: list[Any] = []


_idle = _IdleGreenlets()
#: Comes out of a greenlet instead of something to wait for.
_ENDED = object()


@types.coroutine
def _run_on_greenlet(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, None]:
    """Awaits ``coroutine``, and everything that the functions it calls wait for."""
    idle = _idle.greenlets
    inside = idle.pop() if idle else _new_greenlet()
    inside.gr_context = getcurrent().gr_context
    resume, value = inside.switch, coroutine
    while True:
        # If it raises, the greenlet is gone with it.
        waits_for = resume(value)
        if waits_for is _ENDED:
            idle.append(inside)
            return
        try:
            resume, value = inside.switch, (yield waits_for)
        except BaseException as error:
            resume, value = inside.throw, error  # type: ignore[assignment]


def _new_greenlet() -> Any:
    made = greenlet(_greenlet_loop)
    # Up to where it waits: what a greenlet is started with stays with it as long as it lives.
    made.switch()
    return made


def _greenlet_loop() -> None:
    outside = getcurrent().parent.switch
    while True:
        _run_coroutine(outside(_ENDED), outside)


def _run_coroutine(coroutine: Coroutine[Any, Any, Any], outside: Callable[[Any], Any]) -> None:
    """Runs a coroutine to its end; what it waits for goes out."""
    resume: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            waits_for = resume(value)
        except StopIteration:
            return
        try:
            resume, value = coroutine.send, outside(waits_for)
        except BaseException as error:
            resume, value = coroutine.throw, error


def _wait_for(operation: Any) -> Any:
    """What comes of an operation, to code that runs in :func:`_run`."""
    while True:
        try:
            waits_for = next(operation)
        except StopIteration as ended:
            return ended.value
        getcurrent().parent.switch(waits_for)


class AwaitableResponse:
    """An answer that is there; awaiting it gives the same."""

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
    """The same for all answers of a batch."""

    def __await__(self) -> Generator[Any, None, AwaitableResponses]:
        return self
        yield


class SyncCallClient:
    """The client of such a coroutine."""

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
