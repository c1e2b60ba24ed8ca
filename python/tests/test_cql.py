"""client.cql and client.cql_prepared on a real Cassandra, beside HTTP requests."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from squall_command import SQUALL

from squall import ScenarioError
from squall._cql import make_rows, read_settings

SERVE = Path(__file__).parents[2] / "scripts" / "cassandra" / "serve"
#: The first start on a machine downloads 63 MB.
MAX_START_S = 300

SCHEMA = """
from squall import *

@scenario(cql={settings!r})
class Schema(VUser):
    @task
    async def create(self, client):
        await client.cql("CREATE KEYSPACE IF NOT EXISTS py WITH replication = "
                         "{{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        await client.cql("CREATE TABLE IF NOT EXISTS py.orders (id bigint PRIMARY KEY, name text, total int, at timestamp, "
                         "price decimal, key uuid, tags set<text>, extra map<text, int>, raw blob, day date)")
"""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The settings of a running Cassandra with the table of the tests."""
    folder = tmp_path_factory.mktemp("cassandra")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([str(SERVE), str(folder / "data"), str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    found = {"nodes": ["127.0.0.1"], "port": port, "user": "cassandra", "password": "cassandra"}
    (folder / "schema.py").write_text(SCHEMA.format(settings=found))
    command = [*SQUALL, "run", str(folder / "schema.py"), "--users", "1", "--requests", "1", "-t", "errors<1", "--target", "http://127.0.0.1:9"]
    began = time.monotonic()
    while (tried := subprocess.run(command, capture_output=True, text=True, cwd=folder)).returncode != 0:
        assert server.poll() is None and time.monotonic() - began < MAX_START_S, tried.stdout + tried.stderr
    yield found
    assert server.stdin is not None
    server.stdin.close()
    server.wait()


ORDERS = """
import datetime, decimal, uuid

AT = datetime.datetime(2026, 1, 31, 13, 30, tzinfo=datetime.UTC)
KEY = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")

@scenario(cql={settings!r})
class Orders(VUser):
    {wait_def}def on_start(self, client):
        self.find = client.cql_prepared("SELECT * FROM orders WHERE id = ?", name="find")

    @task
    {wait_def}def order(self, client):
        response = {wait}client.get("/api/products/7")
        number = self.random.randrange(2**60)
        stored = {wait}client.cql(
            "INSERT INTO orders (id, name, total, at, price, key, tags, extra, raw, day) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [number, response.json()["name"], 5, AT, decimal.Decimal("12.50"), KEY, {{"b", "a"}}, {{"x": 1}}, b"\\x0a", AT.date()],
            name="store")
        assert len(stored) == 0 and stored.one() is None
        rows = {wait}self.find([number])
        row = rows.one()
        assert len(rows) == 1 and row.id == row["id"] == number
        assert row.name == "Copper Compass 7" and row.total == 5 and row.at == AT and row.price == decimal.Decimal("12.50")
        assert row.key == KEY and row.tags == {{"a", "b"}} and row.extra == {{"x": 1}} and row.raw == b"\\x0a"
        assert row.day == AT.date() and set(rows.columns) == set(row.asdict())
"""


@pytest.mark.parametrize(("kind", "arguments"), [("async", []), ("async", ["--mode", "asyncio"]), ("plain", [])])
def test_rows_return_what_was_stored(run: Callable[..., Any], settings: dict[str, Any], kind: str, arguments: list[str]) -> None:
    wait_def, wait = ("async ", "await ") if kind == "async" else ("", "")
    code = ORDERS.format(settings={**settings, "keyspace": "py"}, wait_def=wait_def, wait=wait)
    ended = run(code, *arguments, requests=6, users=2)
    assert ended.code == 0, ended.messages()
    assert ended.outcomes("store") == ended.outcomes("find") == {"OK": 6}
    assert ended.outcomes("GET /api/products/7") == {"HTTP_200": 6}
    assert ended.metric("find:rows")["requests"] == 6
    assert ended.result["totals"]["requests"] == 18


EXAMPLE = Path(__file__).parents[2] / "scenarios" / "cql.py"

SHOP = """
@scenario(cql={settings!r})
class Shop(VUser):
    @task
    async def prepare(self, client):
        await client.cql("CREATE KEYSPACE shop WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")
        await client.cql("CREATE TABLE shop.orders (customer int, number bigint, total int, placed timestamp, note text, "
                         "PRIMARY KEY (customer, number))")
"""

COUNT = """
@scenario(cql={settings!r})
class Count(VUser):
    @task
    async def count(self, client):
        rows = await client.cql("SELECT COUNT(*) AS stored FROM shop.orders")
        assert rows.one().stored == {expected}, rows.one().stored
"""


def test_example_stores_as_many_orders_as_it_reports(
    run: Callable[..., Any], squall: Callable[..., Any], target: Any, settings: dict[str, Any], tmp_path: Path
) -> None:
    created = run(SHOP.format(settings=settings), requests=1)
    assert created.code == 0, created.messages()
    env = {**os.environ, "CASSANDRA_PORT": str(settings["port"])}
    arguments = ["--users", "2", "--requests", "30"]
    ended = squall("run", str(EXAMPLE), "--target", target.url, "--json", "example.json", *arguments, env=env)
    result = json.loads((tmp_path / "example.json").read_text())
    # A busy machine may breach the example's threshold on a time.
    assert ended.code in (0, 1) and result["totals"]["errors"] == 0, ended.stdout + ended.stderr
    metrics = {metric["name"]: metric for metric in result["metrics"]}
    stored = metrics["store"]["requests"]
    assert stored == metrics["product"]["requests"] == metrics["compare"]["requests"] == 10
    assert metrics["latest"]["requests"] == 20
    counted = run(COUNT.format(settings=settings, expected=stored), requests=1)
    assert counted.result["totals"]["errors"] == 0, counted.messages()


FAILURES = """
@scenario(cql={settings!r})
class Failures(VUser):
    @task
    async def caught(self, client):
        try:
            await client.cql("SELECT * FROM py.absent", name="absent")
        except CqlError as error:
            assert error.code == "BAD_STATEMENT" and "absent" in str(error), (error.code, str(error))
        try:
            await client.cql("SELECT * FROM py.orders WHERE id = ?", ["x"], name="value")
        except ValueError as error:
            assert "value 1 (column id, bigint)" in str(error)
        try:
            await client.cql("SELECT * FROM py.orders WHERE id = ?", [1], consistency="MOST")
        except ValueError as error:
            assert "use ANY, ONE" in str(error)

    @task
    async def uncaught(self, client):
        await client.cql("SELECT * FROM py.orders WHERE id = ?", [1], name="two", consistency="TWO")
"""


def test_failures_raise_and_are_recorded_once(run: Callable[..., Any], settings: dict[str, Any]) -> None:
    ended = run(FAILURES.format(settings=settings), requests=8)
    assert set(ended.outcomes("absent")) == {"BAD_STATEMENT"} and set(ended.outcomes("two")) == {"UNAVAILABLE"}
    failed = sum(ended.outcomes("absent").values()) + sum(ended.outcomes("two").values())
    assert ended.result["totals"]["errors"] == failed and "value" not in ended.names(), ended.messages()
    assert "Cannot achieve consistency level TWO" in ended.messages()


def test_a_database_that_refuses_ends_the_command(squall: Callable[..., Any], write: Callable[..., Path]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        path = write(f"@scenario(cql={{'port': {port}}})\nclass A(VUser):\n    @task\n    async def go(self, client):\n        pass\n")
        ended = squall("run", str(path), "--requests", "1", "--users", "1")
    assert ended.code == 3 and f"cannot connect to 127.0.0.1:{port}" in ended.stderr, ended


def test_a_call_without_settings_names_them(run: Callable[..., Any]) -> None:
    ended = run("class A(VUser):\n    @task\n    async def go(self, client):\n        await client.cql('SELECT 1')\n", requests=1)
    assert "the scenario has no database: write @scenario(cql=" in ended.messages()


def test_rows_are_named_by_column() -> None:
    rows = make_rows(["id", "total"], [(1, 5), (2, 6)])
    assert [row.total for row in rows] == [5, 6] and rows[1]["id"] == 2 and rows[0].asdict() == {"id": 1, "total": 5}
    assert repr(rows[0]) == "CqlRow(id=1, total=5)"
    with pytest.raises(KeyError, match="it has id, total"):
        rows[0]["name"]
    with pytest.raises(AttributeError, match="no column 'name'"):
        _ = rows[0].name


def test_columns_with_the_name_of_a_method_are_columns() -> None:
    names = ["count", "index", "keys", "columns", "asdict"]
    (row,) = make_rows(names, [(1, 2, 3, 4, 5)])
    assert [row.count, row.index, row.keys, row.columns, row.asdict] == [1, 2, 3, 4, 5]
    assert repr(row) == "CqlRow(count=1, index=2, keys=3, columns=4, asdict=5)" and row["keys"] == 3
    assert make_rows(["id"], [(1,)])[0].count(1) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"node": "a"}, "cql has no setting 'node': there are compression"),
        ({"port": "9042"}, "port='9042': give a whole number"),
        ({"nodes": 5}, "nodes=5: give a list of hosts"),
        ({"user": 5}, "user=5: give a string"),
        ({"password": "$SQUALL_UNSET"}, "the environment variable SQUALL_UNSET is not set"),
        ({"password": "@/absent/secret"}, "cannot read /absent/secret"),
        ({"keystore_password": "$SQUALL_UNSET"}, "cql: keystore_password: the environment variable SQUALL_UNSET"),
        ({"hostname_verification": "yes"}, "hostname_verification='yes': give True or False"),
        ([], "give a dict"),
    ],
)
def test_wrong_settings_are_explained(given: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        read_settings(given, "shop.py", 3)


def test_files_of_tls_are_beside_the_scenario(squall: Callable[..., Any], write: Callable[..., Path]) -> None:
    given = {"truststore": "trust.jks", "keystore": "/keys/client.p12", "hostname_verification": True}
    expected = {"truststore": ["tests/trust.jks"], "keystore": ["/keys/client.p12"], "hostname_verification": ["true"]}
    assert read_settings(given, "tests/shop.py", 3) == expected
    path = write(SCHEMA.format(settings={"truststore": "shop.py"}), head=False)
    ended = squall("run", str(path), "--requests", "1")
    assert ended.code == 2 and "cql: truststore: " in ended.stderr and "it is none of JKS, PKCS12 and PEM" in ended.stderr
