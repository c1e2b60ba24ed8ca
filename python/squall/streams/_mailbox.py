"""Delivers the engine's messages to an asyncio loop. Every loop that uses streams has one mailbox
and watches its file descriptor."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from squall._squall import StreamMailbox
from squall.streams._errors import make_error

_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = weakref.WeakKeyDictionary()


class Mailbox:
    """Hands messages of the engine to the futures and the worker that wait for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.native = StreamMailbox()
        self._loop = weakref.ref(loop)
        self._futures: dict[int, asyncio.Future[Any]] = {}
        #: Handles `call`, `task`, `ready` and `cancel`; a worker sets it.
        self.message_handler: Callable[[str, int, Any], None] | None = None
        loop.add_reader(self.native.fileno(), self._collect)

    def _collect(self) -> None:
        for kind, ident, content in self.native.collect():
            if kind in ("done", "failed"):
                future = self._futures.pop(ident, None)
                if future is None or future.done():
                    continue
                if kind == "done":
                    future.set_result(content)
                else:
                    future.set_exception(make_error(*content))
            elif self.message_handler is not None:
                self.message_handler(kind, ident, content)

    async def wait_for(self, ident: int) -> Any:
        """Waits for the reply with this number. Must be called before the loop runs again, or the
        reply is lost."""
        loop = self._loop()
        assert loop is not None
        future = self._futures[ident] = loop.create_future()
        return await future


def mailbox() -> Mailbox:
    """Returns the mailbox of the running loop."""
    loop = asyncio.get_running_loop()
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox(loop)
    return found
