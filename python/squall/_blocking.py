"""Runs plain ``def`` functions as fibers (greenlets). A fiber yields while its request is in
flight, so thousands of them share one thread. Functions that block run on threads instead, which
the engine provides; their operations wait here too."""

from __future__ import annotations

import asyncio
import sys
from asyncio import _get_running_loop
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from squall import _squall
from squall._errors import location_of

if TYPE_CHECKING:
    from squall._cql import CqlRows
    from squall._squall import Client, CqlStatement, Operation, Response

_WRONG_THREAD = (
    "the client works on the thread of its user only, and this call came from another thread; "
    "client.batch([…]) sends several requests at once, and an async def can gather them"
)

try:
    from greenlet import getcurrent, greenlet
except ImportError:
    available = False
else:
    available = True

    class Fiber(greenlet):  # type: ignore[misc]
        """A greenlet that runs plain functions."""

        __slots__ = ()

    def _fiber_loop(function: Callable[..., Any], user: Any, client: Any) -> None:
        # A fiber is reused until a function raises, because a new greenlet costs more than a
        # request.
        idle = getcurrent().parent.switch
        while True:
            function(user, client)
            function, user, client = idle()

    def _new_fiber() -> Fiber:
        return Fiber(_fiber_loop)


def in_fiber() -> bool:
    """Returns whether a plain function calls this."""
    return available and isinstance(getcurrent(), Fiber)


def fiber_location(thread: int) -> str | None:
    """Returns the line of scenario code that a thread runs as a fiber; None if it runs no fiber."""
    frame = sys._current_frames().get(thread)
    while available and frame is not None and frame.f_code is not _fiber_loop.__code__:
        frame = frame.f_back
    return location_of(thread) if frame is not None else None


def wait(operation: Operation[Any]) -> Any:
    """Yields to the engine until ``operation`` is done and returns its result."""
    try:
        yield_to_engine = getcurrent().parent.switch
    except AttributeError:
        if _squall.wait_on_thread(operation):
            return operation.result()
        operation.discard()
        raise RuntimeError(_WRONG_THREAD) from None
    yield_to_engine(operation)
    return operation.result()


def pause(seconds: float) -> Any:
    """``squall.sleep`` for callers that the engine does not resume itself: fibers and asyncio."""
    if in_fiber() or _squall.on_blocking_thread():
        return wait(_squall.timer(seconds))
    if _get_running_loop() is not None:
        return asyncio.sleep(seconds)
    return _squall.timer(seconds)


class BlockingClient:
    """The client of plain functions: a call returns the response."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, url: str, /, **options: Any) -> Response:
        return wait(self._client.get(url, **options))  # type: ignore[no-any-return]

    def post(self, url: str, /, **options: Any) -> Response:
        return wait(self._client.post(url, **options))  # type: ignore[no-any-return]

    def put(self, url: str, /, **options: Any) -> Response:
        return wait(self._client.put(url, **options))  # type: ignore[no-any-return]

    def patch(self, url: str, /, **options: Any) -> Response:
        return wait(self._client.patch(url, **options))  # type: ignore[no-any-return]

    def delete(self, url: str, /, **options: Any) -> Response:
        return wait(self._client.delete(url, **options))  # type: ignore[no-any-return]

    def head(self, url: str, /, **options: Any) -> Response:
        return wait(self._client.head(url, **options))  # type: ignore[no-any-return]

    def options(self, url: str, /, **options: Any) -> Response:
        return wait(self._client.options(url, **options))  # type: ignore[no-any-return]

    def request(self, method: str, url: str, /, **options: Any) -> Response:
        return wait(self._client.request(method, url, **options))  # type: ignore[no-any-return]

    def websocket(self, url: str, /, **options: Any) -> BlockingWebSocket:
        return BlockingWebSocket(self._client.websocket(url, **options))

    def stream(self, method: str, url: str, /, **options: Any) -> BlockingStream:
        return BlockingStream(self._client.stream(method, url, **options))

    def batch(self, requests: Iterable[Any]) -> list[Response]:
        return wait(self._client.batch(requests))  # type: ignore[no-any-return]

    def cql(self, statement: str, values: Sequence[Any] = (), /, **options: Any) -> CqlRows:
        return wait(self._client.cql(statement, values, **options))  # type: ignore[no-any-return]

    def cql_prepared(self, statement: str, /, **options: Any) -> BlockingCqlStatement:
        return BlockingCqlStatement(self._client.cql_prepared(statement, **options))


class BlockingCqlStatement:
    """A CQL statement in plain functions, to be sent many times: a call returns the rows."""

    __slots__ = ("_statement",)

    def __init__(self, statement: CqlStatement) -> None:
        self._statement = statement

    def __call__(self, values: Sequence[Any] = (), /) -> CqlRows:
        return self.execute(values)

    def execute(self, values: Sequence[Any] = (), /) -> CqlRows:
        return wait(self._statement.execute(values))  # type: ignore[no-any-return]


class BlockingWebSocket:
    """A WebSocket in plain functions: ``with client.websocket("/feed") as feed``."""

    __slots__ = ("_socket",)

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def __enter__(self) -> BlockingWebSocket:
        wait(self._socket.connect())
        return self

    def __exit__(self, *_: object) -> None:
        wait(self._socket.close())

    def send(self, message: str | bytes) -> None:
        wait(self._socket.send(message))

    def receive(self, timeout: float | None = None) -> str | bytes | None:
        return wait(self._socket.receive(timeout))  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str | bytes]:
        while (message := self.receive()) is not None:
            yield message


class BlockingStream:
    """A streamed response in plain functions: ``with client.stream("GET", "/events") as
    answer``."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __enter__(self) -> BlockingStream:
        wait(self._answer.open())
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()

    def chunk(self) -> bytes | None:
        return wait(self._answer.chunk())  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[bytes]:
        while (piece := self.chunk()) is not None:
            yield piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._answer, name)


new_fiber: Callable[[], Any] | None = _new_fiber if available else None
