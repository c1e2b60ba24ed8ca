"""Python scenarios on a fleet: every worker gets the file with its modules and runs them, the
report equals what the target received, and a worker that cannot run them is named."""

from __future__ import annotations

import sys
from pathlib import Path

from fleet_kit import Fleet

SHOP = """
    from squall import VUser, scenario, task
    from lib.paths import PRODUCTS
    import pace

    @scenario(rate=pace.RATE, duration="2s")
    class Shop(VUser):
        def on_init(self, path=PRODUCTS):
            self.path = path

        @task
        async def browse(self, client):
            await client.get(self.path)

        def check_browse(self, status_code, body):
            assert "products" in body, "no products"
"""

REPOSITORY = Path(__file__).parents[3]


def received(fleet: Fleet) -> int:
    return sum(count for path, count in fleet.target.counts().items() if path != "/stats")


def shop(fleet: Fleet) -> Path:
    fleet.write("shop/lib/__init__.py", "")
    fleet.write("shop/lib/paths.py", "PRODUCTS = '/api/products'\n")
    fleet.write("shop/pace.py", "RATE = 50\n")
    return fleet.write("shop/shop.py", SHOP)


def test_every_worker_runs_bundled_scenario(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    scenario, before = shop(fleet), received(fleet)
    ended = fleet.run(scenario)
    result = fleet.result(ended)
    # Other tests check the exact split of the load; this one checks that no request is lost.
    assert ended.returncode == 0 and result["totals"]["requests"] == received(fleet) - before > 0, ended.stderr
    assert result["totals"]["errors"] == 0 and result["accounting"]["balanced"]
    assert {worker["id"] for worker in result["fleet"]["workers"]} == {"w1", "w2"}
    # The same workers run modules of the same names with other contents: the first run leaves no
    # module behind. Checks run on workers too.
    fleet.write("shop/lib/paths.py", "PRODUCTS = '/health'\n")
    fleet.write("shop/pace.py", "RATE = 25\n")
    ended = fleet.run(scenario)
    result = fleet.result(ended)
    assert result["totals"]["errors"] == result["totals"]["requests"] > 0, ended.stderr
    assert {metric["name"] for metric in result["metrics"]} == {"GET /health", "browse"}
    assert "no products" in result["errors"][0]["message"]


def test_same_failure_on_several_workers_is_one_message(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    fleet.write("wrong/data/text.txt", "no luck")
    scenario = fleet.write(
        "wrong/wrong.py",
        """
        from pathlib import Path
        from squall import VUser, scenario, task

        @scenario(rate=50, duration="2s")
        class Wrong(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                raise ValueError((Path(__file__).parent / "data" / "text.txt").read_text())
        """,
    )
    result = fleet.result(fleet.run(scenario))
    assert {worker["id"] for worker in result["fleet"]["workers"]} == {"w1", "w2"}
    messages = {error["message"] for error in result["errors"]}
    assert messages == {"ValueError: no luck\n  at wrong.py:10 in go"}, messages


def test_endless_task_ends_with_run_and_workers_stay_usable(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    code = """
        from squall import VUser, task
        class Shop(VUser):
            @task
            async def go(self, client):
                await client.get("/health")
                while True:
                    pass
    """
    result = fleet.result(fleet.run(fleet.write("shop/busy.py", code), "--users", "2", "--for", "1s", "--grace", "0.1s"))
    assert any("KeyboardInterrupt" in error["message"] for error in result["errors"]), result["errors"]
    ended = fleet.run(shop(fleet))
    assert ended.returncode == 0 and fleet.result(ended)["totals"]["errors"] == 0, ended.stderr


def test_parameters_reach_every_worker(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    result = fleet.result(fleet.run(shop(fleet), "--param", "path=/health", "--mode", "asyncio"))
    # A busy machine adds the time that the code held its thread.
    names = {metric["name"] for metric in result["metrics"]} - {"(held by browse)"}
    assert names == {"GET /health", "browse"}
    assert result["totals"]["requests"] > 0


def test_requirements_are_checked_on_each_worker(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    requirements = fleet.write("requirements.txt", "greenlet>=3\n")
    ended = fleet.run(shop(fleet), "--requirements", str(requirements))
    assert fleet.result(ended)["totals"]["requests"] > 0
    # The package is installed here; one worker runs a script that hides it.
    hiding = "import sys, importlib.metadata as m; real = m.version\n"
    hiding += "def version(name):\n if name == 'greenlet': raise m.PackageNotFoundError(name)\n return real(name)\n"
    hiding += "m.version = version\nfrom squall import _squall\nsys.exit(_squall.main(['squall', *sys.argv[1:]]))"
    fleet.join("poor", program=[sys.executable, "-c", hiding])
    ended = fleet.run(shop(fleet), "--requirements", str(requirements))
    assert ended.returncode == 2, ended.stderr
    assert "worker poor" in ended.stderr and "greenlet is not installed" in ended.stderr


def test_requirements_missing_locally_are_rejected_before_start(fleet: Fleet) -> None:
    fleet.join("w1")
    requirements = fleet.write("requirements.txt", "no-such-package-here\n")
    ended = fleet.run(shop(fleet), "--requirements", str(requirements))
    assert ended.returncode == 2 and "no-such-package-here is not installed" in ended.stderr
    assert fleet.redis("get", "squall:{main}:test:epoch") == ""


def test_worker_without_python_is_named(fleet: Fleet) -> None:
    built = [REPOSITORY / "target" / kind / "squall" for kind in ("debug", "release")]
    plain = next((path for path in built if path.exists()), built[0])
    assert plain.exists(), "the plain program is built by `cargo test`, or `cargo build -p squall-cli`"
    fleet.join("w1")
    fleet.join("plain", program=[str(plain)])
    ended = fleet.run(shop(fleet))
    assert ended.returncode == 2, ended.stderr
    assert "worker plain" in ended.stderr and "python3 -m squall worker" in ended.stderr
