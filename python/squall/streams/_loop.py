"""The engine's messages on an asyncio loop: every loop that uses streams has one mailbox and watches its bell."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import Any

from squall._squall import StreamPost
from squall.streams._errors import raised

_mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = weakref.WeakKeyDictionary()


class Mailbox:
    """What came from the engine, handed to whoever waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.post = StreamPost()
        self._loop = weakref.ref(loop)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        #: Handles calls, tasks, `ready` and `cancel`; set by a worker.
        self.worker: Callable[[str, int, Any], None] | None = None
        loop.add_reader(self.post.fileno(), self._collect)

    def _collect(self) -> None:
        for kind, ident, content in self.post.collect():
            if kind in ("done", "failed"):
                answer = self._answers.pop(ident, None)
                if answer is None or answer.done():
                    continue
                if kind == "done":
                    answer.set_result(content)
                else:
                    answer.set_exception(raised(*content))
            elif self.worker is not None:
                self.worker(kind, ident, content)

    async def answer(self, ident: int) -> Any:
        """The answer with this number. Must be asked for before the loop runs again."""
        loop = self._loop()
        assert loop is not None
        future = self._answers[ident] = loop.create_future()
        return await future


def mailbox() -> Mailbox:
    """The mailbox of the running loop."""
    loop = asyncio.get_running_loop()
    found = _mailboxes.get(loop)
    if found is None:
        found = _mailboxes[loop] = Mailbox(loop)
    return found
