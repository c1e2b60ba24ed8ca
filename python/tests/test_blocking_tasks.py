"""Plain functions that block, as Locust users write them: they run on threads of their own, and a run
ends on time whatever its code does."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest
from squall_command import SQUALL

SLEEPS = """
import time

@scenario(rate=10, duration="2s")
class Shop(VUser):
    @task
    def nap(self, client):
        time.sleep(1)
"""


def test_plain_tasks_that_sleep_block_only_their_own_user(run):
    ended = run(SLEEPS, "--grace", "30s", requests=None, users=None)
    assert ended.metric("nap")["requests"] == 20 and ended.metric("nap")["errors"] == 0
    assert ended.result["totals"]["dropped"] == 0
    assert ended.result["totals"]["peak_users"] > 5, "they slept at the same time"
    assert "plain functions run on up to 256 threads, because shop.py:9 in nap uses time.sleep" in ended.stderr


def test_quiet_run_prints_no_notice_of_threads(run):
    ended = run(SLEEPS, "--quiet", "--for", "1s", requests=None, users=None)
    assert "plain functions" not in ended.stderr, ended.stderr


def test_notice_of_threads_comes_before_the_first_second(write, target, tmp_path):
    path = write(SLEEPS)
    arguments = ["run", str(path), "--target", target.url, "--for", "1h", "--no-tui"]
    process = subprocess.Popen([*SQUALL, *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "threads" in line or "0:01" in line:
            break
    process.kill()
    process.communicate()
    assert "run on up to 256 threads" in lines[-1], lines


BLOCKING_CALLS = """
import http.client, socket, urllib.request
from urllib.parse import urlsplit

class Shop(VUser):
    def on_init(self, target):
        self.url = target

    @task
    def urllib(self, client):
        assert urllib.request.urlopen(self.url + "/health").status == 200

    @task
    def http_client(self, client):
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()

    @task
    def sockets(self, client):
        host, port = urlsplit(self.url).netloc.split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"GET /health HTTP/1.0\\r\\n\\r\\n")
            assert b"200 OK" in connection.recv(100)

    @task
    def ours(self, client):
        assert client.get("/health").status_code == 200
"""


def test_other_http_libraries_and_the_client_work_together(run, target):
    ended = run(BLOCKING_CALLS, "--param", f"target={target.url}", requests=40, users=4)
    counts = {name: ended.metric(name)["requests"] for name in ("urllib", "http_client", "sockets", "ours")}
    assert counts == {"urllib": 10, "http_client": 10, "sockets": 10, "ours": 10}, ended.messages()
    assert ended.result["totals"]["errors"] == 0 and ended.metric("GET /health")["requests"] == 10


def test_whole_sdk_works_on_threads(run):
    ended = run(
        """
        import contextvars, threading
        number = contextvars.ContextVar("number")

        @resource("accounts", limit=2)
        def account(number):
            return {"number": number}

        class Shop(VUser):
            def on_start(self, client):
                number.set(self.id)
                self.thread = threading.current_thread()

            @metric("own")
            def measured(self):
                sleep(0.001)

            @task
            def go(self, client):
                assert number.get() == self.id
                assert threading.current_thread() is not threading.main_thread()
                self.measured()
                account = self.resources.acquire("accounts", wait=5)
                assert all(answer.status_code == 200 for answer in client.batch([("GET", "/health"), ("GET", "/health")]))
                self.resources.release(account)
                with client.stream("GET", "/bytes/100") as answer:
                    assert sum(len(piece) for piece in answer) == 100

            def on_stop(self, client):
                client.get("/bytes/1", name="on_stop was here")
        """,
        "--threads-for-blocking",
        "8",
        requests=30,
        users=3,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("own")["requests"] == 30 and ended.metric("GET /health")["requests"] == 60
    assert ended.metric("on_stop was here")["requests"] == 3
    assert "because of --threads-for-blocking" in ended.stderr


def test_number_of_threads_is_bounded_in_scenario_and_by_flag(run):
    code = """
    import threading, time
    lock, active, most = threading.Lock(), 0, 0

    @scenario(threads_for_blocking=3)
    class Shop(VUser):
        @task
        def nap(self, client):
            global active, most
            with lock:
                active += 1
                most = max(most, active)
            time.sleep(0.01)
            with lock:
                active -= 1
            emit_metric("most", time=most)
    """
    ended = run(code, requests=100, users=20)
    assert ended.metric("nap")["requests"] == 100 and ended.metric("most")["service_ms"]["max"] == pytest.approx(3, rel=0.01)
    ended = run(code, "--threads-for-blocking", "2", requests=100, users=20)
    assert ended.metric("most")["service_ms"]["max"] == pytest.approx(2, rel=0.01)


def test_calls_that_wait_for_a_thread_do_not_start_after_the_end(run):
    ended = run(
        """
        import time
        class Shop(VUser):
            @task
            def nap(self, client):
                time.sleep(0.7)

            def on_stop(self, client):
                client.get("/health", name="on_stop")
        """,
        "--threads-for-blocking",
        "2",
        "--for",
        "1s",
        "--grace",
        "30s",
        requests=None,
        users=6,
    )
    assert "all 2 threads for blocking code are in use" in ended.stderr
    # Two threads can begin two naps each before the end. The users that wait then only leave.
    assert ended.metric("nap")["requests"] <= 4 and ended.result["totals"]["errors"] == 0, ended.messages()
    assert ended.metric("on_stop")["requests"] == 6


def test_blocking_that_no_name_shows_is_moved_to_threads_during_the_run(run):
    ended = run(
        """
        import time
        class Shop(VUser):
            @task
            def nap(self, client):
                client.get("/health")
                getattr(time, "sl" + "eep")(0.3)
        """,
        "--for",
        "4s",
        requests=None,
        users=5,
        timeout=60,
    )
    assert "shop.py:8 in nap blocks the thread of all users: plain functions now run on up to 256 threads" in ended.stderr
    # One thread could sleep 13 times in these four seconds.
    assert ended.metric("nap")["requests"] > 20
    assert ended.metric("nap")["errors"] == 0, ended.messages()


def test_starts_that_blocking_code_prevents_are_dropped_and_counted(run):
    ended = run(SLEEPS, "--threads-for-blocking", "0", "--grace", "5s", requests=None, users=None)
    totals = ended.result["totals"]
    assert totals["iterations"] + totals["dropped"] == 20 and totals["dropped"] > 10
    assert "shop.py:9 in nap holds the generator's thread" in ended.stderr
    assert "nap held the generator's thread at shop.py:9 in nap" in ended.messages()


@pytest.mark.parametrize("clean_up", ["pass", 'client.get("/health", name="clean-up")'])
def test_task_timeout_ends_code_on_a_thread(run, clean_up):
    ended = run(
        f"""
        class Shop(VUser):
            @task(timeout=0.1)
            def endless(self, client):
                try:
                    while True:
                        pass
                finally:
                    {clean_up}
        """,
        "--threads-for-blocking",
        "4",
        requests=4,
        users=2,
        timeout=60,
    )
    assert ended.outcomes("endless") == {"TASK_TIMEOUT": 4}, ended.messages()
    assert "TaskTimeout" in ended.messages() and " in endless" in ended.messages()
    if "clean-up" in clean_up:
        assert ended.metric("clean-up")["requests"] == 4


def test_task_timeout_ends_a_request_of_code_on_a_thread(run):
    ended = run(
        """
        class Shop(VUser):
            @task(timeout=0.1)
            def slow(self, client):
                client.get("/delay/60000")
        """,
        "--threads-for-blocking",
        "4",
        requests=2,
        users=2,
        timeout=60,
    )
    assert ended.outcomes("slow") == {"TASK_TIMEOUT": 2}, ended.messages()
    assert ended.result["accounting"]["balanced"]


def test_failures_on_threads_count_once(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            def fails(self, client):
                client.get("/health")
                raise ValueError("broken")
        """,
        "--threads-for-blocking",
        "4",
        requests=4,
        users=2,
    )
    assert ended.result["totals"]["errors"] == 4 and ended.outcomes("GET /health") == {"ValueError": 4}
    assert "at shop.py:7 in fails" in ended.messages()


NEVER_RETURNS = {
    "sleeps in a coroutine": ("async def", "time.sleep(3600)", "shop.py:7 in stuck did not return"),
    "sleeps on a thread": ("def", "time.sleep(3600)", "stuck was cut off at shop.py:7 in stuck"),
    "holds the interpreter": ("async def", 're.match(r"(a+)+b", "a" * 60)', "does not release the interpreter did not return"),
    "swallows every interrupt": ("async def", "swallow()", "did not return"),
}


@pytest.mark.parametrize("case", NEVER_RETURNS)
def test_run_ends_although_its_code_never_returns(run, case):
    fn, call, said = NEVER_RETURNS[case]
    ended = run(
        f"""
        import re, time
        class Shop(VUser):
            @task
            {fn} stuck(self, client):
                {call}

        def swallow():
            while True:
                try:
                    time.sleep(0.01)
                except BaseException:
                    pass
        """,
        "--for",
        "1s",
        "--grace",
        "0.2s",
        requests=None,
        users=3,
        timeout=60,
    )
    assert said in ended.messages(), ended.messages()


def test_second_interrupt_ends_code_that_never_returns_with_a_report(write, target, tmp_path):
    mark = tmp_path / "running"
    path = write(f"""
    import time
    class Shop(VUser):
        @task
        async def stuck(self, client):
            await client.get("/health")
            open({str(mark)!r}, "w").close()
            time.sleep(3600)
    """)
    arguments = ["run", str(path), "--target", target.url, "--users", "1", "--for", "1h", "--no-tui", "--json", "result.json"]
    process = subprocess.Popen([*SQUALL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stderr is not None
    deadline = time.monotonic() + 60
    while not mark.exists():
        assert time.monotonic() < deadline and process.poll() is None
    for expected in ("draining", "aborting"):
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if expected in line:
                break
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    result = json.loads((tmp_path / "result.json").read_text())
    assert any("shop.py:9 in stuck did not return" in error["message"] for error in result["errors"]), result["errors"]
    assert result["totals"]["requests"] + result["accounting"]["lost_at_most"] == 1 and result["accounting"]["balanced"]


@pytest.mark.parametrize("fn", ["def", "async def"])
@pytest.mark.parametrize("threads", ["0", "4"])
def test_child_that_returns_from_a_forking_task_does_not_hang_the_run(run, fn, threads):
    wait = "await " if fn == "async def" else ""
    ended = run(
        f"""
        import os
        class Shop(VUser):
            @task
            {fn} forks(self, client):
                if os.fork():
                    os.wait()
                    {wait}client.get("/health", name="parent")
        """,
        "--mode",
        "stepped",
        "--threads-for-blocking",
        threads,
        requests=6,
        users=1,
        timeout=60,
    )
    assert ended.metric("parent")["requests"] == 6 and ended.result["totals"]["errors"] == 0, ended.messages()


def test_check_says_why_plain_functions_run_on_threads(squall, write):
    path = write(
        """
        import time
        def helper():
            time.sleep(0.1)
        class Shop(VUser):
            @task
            def nap(self, client):
                helper()
        """
    )
    said = squall("run", str(path), "--check", "--target", "http://127.0.0.1:1").stdout
    assert "nap (weight 1): def on a thread" in said, said
    assert "plain functions run on up to 256 threads, because shop.py:5 in helper uses time.sleep" in said, said


@pytest.mark.parametrize("number", ["-1", "'a'", "True", "20000"])
def test_invalid_number_of_threads_is_refused(squall, write, number):
    path = write(
        f"""
        @scenario(threads_for_blocking={number})
        class Shop(VUser):
            @task
            def go(self, client): ...
        """
    )
    ended = squall("run", str(path), "--check", "--target", "http://127.0.0.1:1")
    assert ended.code == 2 and "threads_for_blocking=" in ended.stderr and "shop.py:3" in ended.stderr, ended.stderr


LONG_SLEEPS = """
import time

@scenario(rate=20, duration="2s")
class Shop(VUser):
    {hook}

    @task
    def nap(self, client):
        client.get("/health")
        time.sleep(3)
"""


@pytest.mark.parametrize("grace", ["0.5s", "30s"])
def test_starts_without_a_free_thread_are_dropped_and_fail_the_run(run, grace):
    code = LONG_SLEEPS.format(hook="")
    ended = run(code, "--threads-for-blocking", "5", "--grace", grace, requests=None, users=None)
    totals = ended.result["totals"]
    assert (totals["iterations"], totals["dropped"]) == (5, 35) and ended.code == 4, ended.stdout
    assert ended.metric("GET /health")["requests"] == 5 and "RuntimeError" not in ended.stdout, ended.messages()
    reason = "35 starts never happened because no thread for blocking code was free: raise --threads-for-blocking"
    assert reason in ended.result["generator"]["saturated_because"], ended.result["generator"]
    remedy = "because no thread for blocking code was free: raise --threads-for-blocking or lower the rate"
    assert remedy in " ".join(ended.stdout.split()) and "--max-users" not in ended.stdout, ended.stdout


def test_hook_that_gets_no_thread_is_not_an_error_of_the_scenario(run):
    code = LONG_SLEEPS.format(hook="def on_start(self, client): pass")
    ended = run(code, "--threads-for-blocking", "5", "--grace", "30s", requests=None, users=None)
    totals = ended.result["totals"]
    assert totals["iterations"] + totals["dropped"] == 40 and totals["errors"] == 0, ended.messages()
    assert "on_start" not in ended.messages() and ended.code == 4, ended.messages()


def test_planned_iterations_wait_for_threads_after_the_last_one_has_begun(run):
    ended = run(
        """
        import time
        class Shop(VUser):
            @task
            def nap(self, client):
                time.sleep(0.1)
        """,
        "--threads-for-blocking",
        "2",
        requests=20,
        users=10,
    )
    assert ended.metric("nap")["requests"] == 20 and ended.result["totals"]["dropped"] == 0, ended.stdout


WITHOUT_REQUESTS = {
    "another library": ("import urllib.request", "urllib.request.urlopen(self.url).read()"),
    "only sleeps": ("import time", "time.sleep(0.01)"),
    "own metric": ("import time", "self.measured()"),
}


@pytest.mark.parametrize("case", WITHOUT_REQUESTS)
def test_finished_tasks_without_requests_of_the_client_are_measured(run, target, case):
    imports, call = WITHOUT_REQUESTS[case]
    ended = run(
        f"""
        {imports}
        class Shop(VUser):
            def on_init(self, target):
                self.url = target + "/health"

            @metric("own")
            def measured(self):
                time.sleep(0.01)

            @task
            def go(self, client):
                {call}
        """,
        "--param",
        f"target={target.url}",
        requests=20,
        users=2,
    )
    assert ended.code == 0 and ended.result["totals"]["requests"] == 0, ended.stdout
    assert ended.metric("go")["requests"] == 20 and ended.metric("go")["errors"] == 0


def test_tasks_that_all_fail_without_a_request_are_not_a_measurement(run):
    ended = run("class Shop(VUser):\n    @task\n    def go(self, client):\n        raise ValueError\n")
    assert ended.code == 1 and "nothing was measured" in ended.stdout, ended.stdout


@pytest.mark.parametrize("fn", ["def", "async def"])
@pytest.mark.parametrize("threads", ["0", "4"])
def test_client_refuses_in_a_forked_child_and_the_child_ends(run, tmp_path, fn, threads):
    wait, said = ("await " if fn == "async def" else ""), tmp_path / "said"
    ended = run(
        f"""
        import os
        class Shop(VUser):
            @task
            {fn} forks(self, client):
                {wait}client.get("/health", name="before")
                child = os.fork()
                if child == 0:
                    try:
                        {wait}client.get("/health", name="child")
                    except RuntimeError as error:
                        open({str(said)!r}, "w").write(str(error))
                        raise ValueError("child")
                os.waitpid(child, 0)
                {wait}client.get("/health", name="parent")
        """,
        "--mode",
        "stepped",
        "--threads-for-blocking",
        threads,
        requests=3,
        users=1,
        timeout=60,
    )
    assert ended.metric("parent")["requests"] == 3 and ended.result["totals"]["errors"] == 0, ended.messages()
    assert "child" not in ended.names() and "forked by a task" in said.read_text()


def test_plain_code_that_holds_the_thread_is_told_flags_that_help(run):
    ended = run(
        """
        import time
        @scenario(rate=10, duration="2s")
        class Shop(VUser):
            @task
            def spins(self, client):
                until = time.perf_counter() + 1
                while time.perf_counter() < until:
                    pass
        """,
        "--grace",
        "5s",
        requests=None,
        users=None,
    )
    notice = next(line for line in ended.stderr.splitlines() if "holds the generator's thread" in line)
    assert "--threads-for-blocking N" in notice and "--processes N" in notice and "plain def" not in notice
    reason = next(reason for reason in ended.result["generator"]["saturated_because"] if "never happened" in reason)
    assert "spins held the generator's thread at shop.py:" in reason and "--max-users" not in ended.stdout, reason


def test_several_processes_print_the_notice_of_threads_once(run):
    ended = run(SLEEPS, "--processes", "2", "--grace", "30s", requests=None, users=None)
    assert ended.stderr.count("plain functions run on up to") == 1, ended.stderr
