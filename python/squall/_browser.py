"""Browser users: gives tasks pages of Playwright's own API, measures what their pages do, and records
named steps. Playwright drives the pages; the Rust host starts the browser and keeps the metrics. The
figures and their names are those of browser tasks in TOML."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import os
import re
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from squall import _squall
from squall._asyncio_loop import task_name
from squall._errors import display_path
from squall._sources import is_scenario_file

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

#: A page that hangs cannot be drawn, and its context closes late.
_SCREENSHOT_TIMEOUT = 10.0
_CLOSE_TIMEOUT = 10.0
#: How long a session of the grid may wait for a free slot.
_CONNECT_TIMEOUT = 60.0
#: Tries to connect to a browser that the run started, and the seconds between them.
_LAUNCHED_TRIES = 5
_LAUNCHED_PAUSE = 0.2
#: A page whose script is busy for longer has no figures.
_VITALS_TIMEOUT = 5.0
#: The most requests of one iteration that are followed, so that a page in a loop does not fill the memory.
_MAX_REQUESTS = 10_000
_BINDING = "__squall"
_READ_VITALS = "() => globalThis[Symbol.for('squall')]?.settleAndRead() ?? null"


class BrowserLost(Exception):
    """There is no browser: it cannot be started, or the grid gives no session."""


def browser_parameters(function: Callable[..., Any]) -> list[str] | None:
    """Returns the parameters of a task after ``self``, if ``page`` or ``browser`` is one of them."""
    names = list(inspect.signature(function).parameters)[1:]
    return names if {"page", "browser"} & set(names) else None


def with_browser(function: Callable[..., Awaitable[Any]], names: list[str]) -> Callable[..., Awaitable[Any]]:
    """Returns a task of ``(user, client)`` that gives ``function`` what its parameters name."""

    @functools.wraps(function)
    async def run(user: Any, client: Any) -> Any:
        given = {"browser": user.browser, "page": await user.browser.new_page() if "page" in names else None}
        return await function(user, **{name: given.get(name, client) for name in names})

    run.__squall_browser__ = True  # type: ignore[attr-defined]
    # That of `function`, which `wraps` shows, has other parameters.
    run.__signature__ = inspect.Signature(list(inspect.signature(run, follow_wrapped=False).parameters.values()))  # type: ignore[attr-defined]
    return run


class _Connection:
    """Playwright on one engine thread: its driver, the browser that the run started, and sessions of a
    grid."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._playwright: Any = None
        self._launched: Browser | None = None
        #: Sessions of the grid that no user has.
        self.idle: list[Browser] = []
        self.viewport, self.timeout, self.screenshots, self.base_url = _squall.browser_settings()
        #: The steps of which this thread has kept a picture. One is enough to see what happened.
        self.pictured: set[str] = set()

    async def acquire(self) -> Browser:
        """Returns the run's browser, or a session of the grid for one user."""
        while self.idle:
            if (session := self.idle.pop()).is_connected():
                return session
        async with self._lock:
            if self._launched is not None and self._launched.is_connected():
                return self._launched
            try:
                for tries_left in reversed(range(_LAUNCHED_TRIES)):
                    kind, url, token = await self._start_browser()
                    playwright = await self._start_playwright()
                    if kind != "cdp":
                        break
                    try:
                        self._launched = await playwright.chromium.connect_over_cdp(url)
                        return self._launched
                    except Exception:
                        # The engine may not have noticed yet that the browser was killed.
                        if tries_left == 0:
                            raise
                        await asyncio.sleep(_LAUNCHED_PAUSE)
            except Exception as error:
                raise BrowserLost(str(error)) from None
        # Outside the lock, because the grid may let a session wait for a free slot.
        engine = getattr(playwright, _engine_of(url))
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else None
            return await engine.connect(url, headers=headers, timeout=_CONNECT_TIMEOUT * 1e3)  # type: ignore[no-any-return]
        except Exception as error:
            raise BrowserLost(f"the grid gave no session: {_error_text(error)}") from None

    def is_launched(self, browser: Browser) -> bool:
        """Whether it is the browser that the run started, and not a session of a grid."""
        return browser is self._launched

    def release(self, browser: Browser) -> None:
        if not self.is_launched(browser) and browser.is_connected():
            self.idle.append(browser)

    def give_up(self, browser: Browser | None) -> None:
        """Uses a browser no more that does not answer."""
        if browser is not None and browser is self._launched:
            self._launched = None
            _squall.give_up_browser()

    async def _start_browser(self) -> tuple[str, str, str | None]:
        """Returns the kind, the URL and the token of the run's browser, which starts if none runs."""
        started: asyncio.Future[tuple[str, str, str | None]] = asyncio.get_running_loop().create_future()
        _squall.start_browser(started)
        return await started

    async def _start_playwright(self) -> Any:
        if self._playwright is None:
            from playwright.async_api import async_playwright

            loop: Any = asyncio.get_running_loop()
            with loop.starting_browser_driver():
                self._playwright = await async_playwright().start()
        return self._playwright


def _engine_of(url: str) -> str:
    named = re.search(r"[?&]browser=(\w+)", url)
    return named[1] if named and named[1] in ("chromium", "firefox", "webkit") else "chromium"


_connections: dict[asyncio.AbstractEventLoop, _Connection] = {}


def _connection() -> _Connection:
    loop = asyncio.get_running_loop()
    if loop not in _connections:
        _connections[loop] = _Connection()
    return _connections[loop]


async def connect() -> None:
    """Starts Playwright and the browser of this thread before the first user, or checks that the grid gives a
    session. The session is given back, because this process may have no user that needs its slot."""
    connection = _connection()
    browser = await connection.acquire()
    if not connection.is_launched(browser):
        await browser.close()


def forget(loop: asyncio.AbstractEventLoop) -> None:
    """Forgets the browsers of a loop that ends."""
    _connections.pop(loop, None)


class UserBrowser:
    """The browser of a user: ``page = await self.browser.new_page()``.

    Pages and contexts are Playwright's own. Squall closes them after each iteration and measures what
    they do: ``async with self.browser.step("home")`` records a step as one request of the report, with
    the figures of the pages that it loads. Everything else, such as ``self.browser.version``, is an
    attribute of Playwright's browser."""

    def __init__(self, user: Any) -> None:
        self._user = user
        self._connection = _connection()
        self._browser: Browser | None = None
        self._contexts: list[BrowserContext] = []
        self._pages: list[Page] = []
        self._watching: set[asyncio.Task[None]] = set()
        self._step: Any = None
        #: Where figures go while no step runs: the metrics of the task itself.
        self._outside: Any = None
        #: The task that runs. Playwright's events do not have the context in which `task_name` is known.
        self._task: str | None = None
        #: Requests under way: the step in which each was sent, and its status and bytes once they are known.
        self._requests: dict[Any, _SentRequest] = {}
        #: Documents that are shown: the step that loaded each, and its latest figures.
        self._documents: dict[float, tuple[Any, dict[str, Any]]] = {}
        self._left: set[float] = set()
        #: Status of the last main document of the step that failed.
        self._failed_status: int | None = None
        #: Whether a page has crashed in the step.
        self._crashed = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._browser is None:
            raise AttributeError(f"{name!r}: open a page or a context first" if not name.startswith("_") else name)
        return getattr(self._browser, name)

    async def new_page(self, **options: Any) -> Page:
        """Opens a page in a context of its own. ``options`` are those of Playwright's ``new_context``."""
        context = await self.new_context(**options)
        page: Page = await self._in_time(context.new_page())
        await asyncio.gather(*self._watching)
        return page

    async def new_context(self, **options: Any) -> BrowserContext:
        """Opens a context: cookies, storage and cache of its own, all empty. Relative URLs start from the
        target."""
        self._task = task_name.get()
        if self._browser is None or not self._browser.is_connected():
            self._browser = await self._connection.acquire()
        if "no_viewport" not in options:
            width, height = self._connection.viewport
            options.setdefault("viewport", {"width": width, "height": height})
        if self._connection.base_url:
            options.setdefault("base_url", self._connection.base_url)
        context: BrowserContext = await self._in_time(self._browser.new_context(**options))
        self._contexts.append(context)
        context.set_default_timeout(self._connection.timeout)
        await context.add_init_script(_script())
        context.on("page", self._on_page)
        context.on("request", self._on_request)
        context.on("response", self._on_response)
        context.on("requestfinished", self._on_finished)
        context.on("requestfailed", self._on_failed)
        context.on("console", self._on_console)
        context.on("weberror", self._on_web_error)
        return context

    async def _in_time(self, opening: Awaitable[Any]) -> Any:
        """Gives up a browser that opens nothing in time, so that the next iteration gets another."""
        seconds = self._connection.timeout / 1e3
        try:
            return await asyncio.wait_for(opening, seconds)
        except TimeoutError:
            browser, self._browser = self._browser, None
            self._connection.give_up(browser)
            raise BrowserLost(f"the browser opened no page within {seconds:g} s") from None

    def step(self, name: str) -> _Step:
        """Records the code inside ``async with`` as one request, named ``task/name``."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"step({name!r}): give the step a name")
        task = task_name.get()
        return _Step(self, f"{task}/{name}" if task else name)

    # What the task of the user calls.

    async def read_outside_steps(self) -> None:
        """Reads the figures of pages that the task has used outside its steps, of which no step tells."""
        if self._outside is not None:
            await self._read_vitals()

    def finish(self) -> None:
        """Records what the pages have measured. Requests under way count as cancelled."""
        for step, vitals in self._documents.values():
            _record_load(step, vitals)
        for sent in self._requests.values():
            if sent.sent:
                sent.step.record_request(0.0, 0)
        self._documents.clear()
        self._requests.clear()
        self._left.clear()
        self._step = self._outside = None

    async def close(self) -> None:
        """Closes what the iteration has opened."""
        contexts, self._contexts, self._pages = self._contexts, [], []
        for context in contexts:
            # A browser that has ended has closed them.
            with contextlib.suppress(Exception):
                await asyncio.wait_for(context.close(), _CLOSE_TIMEOUT)
        if self._browser is not None:
            self._connection.release(self._browser)
            self._browser = None

    # What Playwright's events call. Events that come after the iteration belong to no step.

    def _current(self) -> Any:
        if self._step is not None:
            return self._step
        if self._outside is None:
            self._outside = _squall.BrowserStep(self._task or "browser")
        return self._outside

    def _on_page(self, page: Page) -> None:
        self._pages.append(page)
        page.on("crash", self._on_crash)
        if self._browser is not None and self._browser.browser_type.name == "chromium":
            task = asyncio.get_running_loop().create_task(self._watch(page))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)

    def _on_crash(self, _: Page) -> None:
        self._crashed = True

    async def _watch(self, page: Page) -> None:
        """Receives the last figures of each document that the page leaves. Playwright's own bindings do not
        report from a document that is being left."""
        with contextlib.suppress(Exception):
            session = await page.context.new_cdp_session(page)
            session.on("Runtime.bindingCalled", self._on_left)
            await session.send("Runtime.addBinding", {"name": _BINDING})

    def _on_left(self, event: dict[str, Any]) -> None:
        if event.get("name") == _BINDING:
            with contextlib.suppress(ValueError, TypeError):
                self._keep_vitals(json.loads(event["payload"]), left=True)

    def _keep_vitals(self, vitals: dict[str, Any] | None, *, left: bool = False) -> None:
        if vitals is None or vitals.get("document") is None or vitals["document"] in self._left:
            return
        document = vitals["document"]
        step, _ = self._documents.get(document, (None, None))
        if left:
            self._left.add(document)
            self._documents.pop(document, None)
            _record_load(step or self._current(), vitals)
        else:
            self._documents[document] = (step or self._current(), vitals)

    def _on_request(self, request: Any) -> None:
        if request.url.startswith("http") and self._contexts and len(self._requests) < _MAX_REQUESTS:
            self._requests[request] = _SentRequest(self._current())

    def _on_response(self, response: Any) -> None:
        request = response.request
        if (sent := self._requests.get(request)) is None:
            return
        sent.status = response.status
        # What the cache answers has no time of sending.
        sent.sent = request.timing["requestStart"] >= 0
        headers = response.headers
        sent.bytes = sum(len(name) + len(value) + 4 for name, value in headers.items())
        sent.bytes += int(headers.get("content-length", 0))
        if sent.status >= 400 and request.is_navigation_request():
            # The frame of a page that is just being opened is not known yet.
            with contextlib.suppress(Exception):
                if request.frame.parent_frame is not None:
                    return
            self._failed_status = sent.status

    def _on_finished(self, request: Any) -> None:
        sent = self._requests.pop(request, None)
        if sent is not None and sent.sent:
            timing = request.timing
            sent.step.record_request(max(timing["responseEnd"], timing["responseStart"], 0.0), sent.bytes, status=sent.status or 0)

    def _on_failed(self, request: Any) -> None:
        sent = self._requests.pop(request, None)
        if sent is None or not sent.sent:
            return
        failure = request.failure or ""
        if sent.status is not None and sent.status >= 400:
            # A browser cancels what it cannot use, such as the HTML of a 404 in place of a script.
            sent.step.record_request(0.0, sent.bytes, status=sent.status)
        elif "ERR_ABORTED" in failure or "cancelled" in failure.lower():
            sent.step.record_request(0.0, sent.bytes)
        else:
            sent.step.record_request(0.0, sent.bytes, failed=failure)

    def _on_console(self, message: Any) -> None:
        # A failed request is counted as one.
        if message.type == "error" and self._contexts and not message.text.startswith("Failed to load resource:"):
            self._current().record_console_error(message.text[:500])

    def _on_web_error(self, error: Any) -> None:
        if self._contexts:
            self._current().record_console_error(str(error.error)[:500])

    async def _read_vitals(self) -> None:
        """Waits until the pages have drawn what the step changed, and reads their figures."""
        for page in [page for page in self._pages if not page.is_closed()]:
            # A page that navigates, hangs or has crashed has no figures to read.
            with contextlib.suppress(Exception):
                self._keep_vitals(await asyncio.wait_for(page.evaluate(_READ_VITALS), _VITALS_TIMEOUT))

    async def _take_picture(self, name: str) -> str | None:
        folder = self._connection.screenshots
        pages = [page for page in self._pages if not page.is_closed()]
        if folder is None or not pages or name in self._connection.pictured:
            return None
        self._connection.pictured.add(name)
        path = os.path.join(folder, re.sub(r"\W", "-", name) + ".png")
        # A picture that cannot be kept does not change the result of the run.
        with contextlib.suppress(Exception):
            await pages[-1].screenshot(path=path, timeout=_SCREENSHOT_TIMEOUT * 1e3)
            return path
        return None


class _SentRequest:
    __slots__ = ("bytes", "sent", "status", "step")

    def __init__(self, step: Any) -> None:
        self.step = step
        self.status: int | None = None
        self.bytes = 0
        self.sent = True


class _Step:
    """The context manager of ``browser.step``."""

    def __init__(self, browser: UserBrowser, name: str) -> None:
        self._browser = browser
        self._name = name
        self._handle: Any = None
        self._operation: Any = None

    async def __aenter__(self) -> None:
        self._handle = _squall.BrowserStep(self._name)
        begun = asyncio.get_running_loop().create_future()
        self._operation = self._handle.run(self._browser._user.resources.queue, begun)
        self._operation.add_done_callback(_noop)
        await begun
        self._browser._step = self._handle
        self._browser._failed_status = None
        self._browser._crashed = False

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._handle.set_acted()
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            # The time limit of the task, or the end of the run: the engine has recorded the step.
            self._browser._step = None
            self._handle.end("exception", "CANCELLED", "the step was cancelled")
            return
        await self._browser._read_vitals()
        self._browser._step = None
        status = self._browser._failed_status
        if error is None and status is None:
            self._handle.end("ok", "OK")
        elif error is None:
            self._handle.end(status, "", f"the page answered with status {status}")
        else:
            category, code = ("exception", "PAGE_CRASHED") if self._browser._crashed else _outcome_of(error)
            picture = await self._browser._take_picture(self._name)
            note = f"{_error_text(error)} ({_scenario_line(traceback)}{f'; screenshot {picture}' if picture else ''})"
            self._handle.end(category, code, note)
            with contextlib.suppress(AttributeError):
                error.__squall_step_failed__ = True  # type: ignore[attr-defined]
        await self._operation


def _record_load(step: Any, vitals: dict[str, Any]) -> None:
    # A document that never loaded is no page load.
    if vitals.get("load"):
        step.record_load(json.dumps(vitals))


def _outcome_of(error: BaseException) -> tuple[str, str]:
    name, text = type(error).__name__, str(error)
    if isinstance(error, AssertionError):
        return "check_failed", "EXPECTATION_FAILED"
    if name == "TimeoutError":
        return "timeout", "STEP_TIMEOUT"
    if "net::ERR_" in text or "NS_ERROR_" in text:
        return "transport_error", "NAVIGATION_FAILED"
    if name == "TargetClosedError" or isinstance(error, BrowserLost):
        return "exception", "BROWSER_LOST"
    return "exception", name


def _error_text(error: BaseException) -> str:
    """Returns the text of an exception without Playwright's log of the call."""
    text = " ".join(str(error).partition("Call log:")[0].split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def _scenario_line(traceback: TracebackType | None) -> str:
    """Returns the innermost line of the scenario's own code in a traceback, as in ``shop.py:12``."""
    place = ""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if is_scenario_file(file):
            place = f"{display_path(file)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


@functools.cache
def _script() -> str:
    return _squall.browser_page_script()


def _noop(_: Any) -> None:
    pass
