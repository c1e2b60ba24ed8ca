"""Resources of a run on one machine, with pools in this process."""

from __future__ import annotations

import pytest

SHOP = """
class Shop(VUser):
    async def on_start(self, client):
        self.user = await self.resources.acquire("users"{how})
    @task
    async def browse(self, client):
        await client.get("/health", name=self.user["name"])
"""


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_file_rows_are_held_by_one_user_each(run, tmp_path, mode):
    (tmp_path / "users.csv").write_text("name,age\nann,1\nbob,2\ncid,3\n")
    ended = run('resource("users", file="users.csv")' + SHOP.format(how=""), "--mode", mode, users=3, requests=30)
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert {"ann", "bob", "cid"} <= ended.names()


@pytest.mark.parametrize("mode", ["stepped", "asyncio"])
def test_waiting_user_gets_released_resource(run, mode):
    ended = run(
        """
        @resource("users", limit=1)
        def make(n):
            return {"n": n}

        class Shop(VUser):
            @task
            async def browse(self, client):
                user = await self.resources.acquire("users", wait=60)
                assert user["n"] == 0 and user.held
                await client.get("/health")
                self.resources.release(user)
                assert not user.held
        """,
        "--mode",
        mode,
        users=4,
        requests=40,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()


def test_undeclared_pool_error_names_pool(run):
    ended = run(SHOP.format(how=""), "--for", "1s", requests=None)
    assert "there is no resource pool `users`" in ended.messages()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('resource("users", file="no.csv")', "cannot read"),
        ('resource("users", file="users.txt")', ".csv, .jsonl or .ndjson"),
        ('resource("a b")', "is not a valid resource name"),
        ('resource("users", file="short.csv")', "each with all its columns"),
        ('@resource("users", file="users.csv")\ndef make(n): ...', "on a line of its own"),
    ],
)
def test_invalid_resource_is_rejected_with_line(squall, write, tmp_path, text, said):
    (tmp_path / "short.csv").write_text("a,b\n1\n")
    (tmp_path / "users.csv").write_text("a\n1\n")
    path = write(text + SHOP.format(how=""))
    ended = squall("run", str(path), "--target", "http://127.0.0.1:9", "--users", "1", "--for", "1s")
    assert ended.code == 2 and said in ended.stderr and "shop.py:" in ended.stderr, ended.stderr


def test_release_works_with_and_without_await(run):
    ended = run(
        """
        @resource(name="users", limit=1)
        def users(n):
            return {"n": n}

        class Shop(VUser):
            @task
            async def one(self, client):
                user = await self.resources.acquire("users")
                assert await self.resources.release(user) is None
                again = await self.resources.acquire("users")
                self.resources.release(again)
                await client.get("/health")
        """,
        requests=3,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()


def test_every_user_holds_different_resource(run):
    ended = run(
        """
        @resource(name="users")
        def make_user(n):
            return {"name": f"user_{n}"}

        taken = []

        class Shop(VUser):
            async def on_start(self, client):
                self.user = await self.resources.acquire("users")
                assert self.user["name"] not in taken
                taken.append(self.user["name"])

            @task
            def browse(self, client):
                other = self.resources.acquire("users")
                assert other["name"] != self.user["name"]
                self.resources.release(other)
                client.get("/health")
        """,
        users=5,
        requests=25,
    )
    assert ended.result["totals"]["errors"] == 0, ended.messages()
    assert "on_start" not in ended.names()
