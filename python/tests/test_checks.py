"""Checks of responses: ``check_`` methods, and which request a failed check counts against."""

from __future__ import annotations

from function_kinds import BOTH


@BOTH
def test_failed_check_fails_request(run, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} browse(self, client):
                {wait}client.get("/health")

            def check_browse(self, status_code, body):
                assert body["status"] == "down", "it is up"
        """,
        requests=4,
    )
    assert ended.metric("GET /health")["errors"] == 4
    assert "it is up" in ended.messages()


def test_check_that_returns_false_fails_request(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                await client.get("/health")

            def check_browse(self, status_code, body):
                return status_code == 404
        """,
        requests=2,
    )
    assert ended.metric("GET /health")["errors"] == 2


def test_check_may_take_response(run):
    ended = run(
        """
        class Shop(VUser):
            @task
            async def browse(self, client):
                await client.get("/api/products/1")

            def check_browse(self, response):
                assert response.status_code == 200 and response.headers["content-type"] == "application/json"
                return response.json()["id"] == 1

            @task
            def other(self, client):
                client.get("/api/products/1")

            def check_other(self, response):
                return response.json()["id"] == 2
        """,
        requests=6,
    )
    assert ended.metric("browse")["errors"] == 0, ended.messages()
    assert ended.metric("other")["errors"] == 3


def test_check_of_strategy_step_may_take_response(run):
    ended = run(
        """
        class Shop(VUser):
            step_strategy = SequentialWeightedStrategy()

            @task
            async def browse(self, client):
                await client.get("/api/products/1")

            def check_browse(self, response):
                return response.json()["id"] == 2
        """,
        requests=3,
    )
    assert ended.metric("browse")["errors"] == 3


@BOTH
def test_failed_check_of_earlier_response_is_separate_error(run, target, fn, wait):
    ended = run(
        f"""
        class Shop(VUser):
            @task
            {fn} look(self, client):
                {wait}client.get("/health")
                try:
                    {wait}client.get("http://127.0.0.1:1/refused", name="refused")
                except RequestError:
                    pass

            def check_look(self, status_code, body):
                assert status_code == 500, "an older answer"
        """,
        requests=2,
    )
    assert ended.metric("look (failed)")["errors"] == 2 and ended.metric("refused")["errors"] == 2, ended.messages()
    assert ended.result["totals"]["errors"] == 4
