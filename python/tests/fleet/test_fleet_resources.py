"""Resources on a fleet: no two users of any worker hold the same one, resources of a killed worker
return to the pool, and files and factories fill the pools once."""

from __future__ import annotations

import signal
from pathlib import Path

from fleet_kit import Fleet, eventually

POOL = "squall:{main}:resource:users"

#: A holder creates a file with the resource's name; a second holder would fail to create it.
SHOP = """
    import os
    from squall import VUser, resource, scenario, task

    PLACE = {place!r}

    {pool}

    @scenario(users=6, duration="{lasts}", pause="50ms")
    class Shop(VUser):
        async def on_start(self, client):
            self.user = await self.resources.acquire("users", wait=60)
            os.close(os.open(self.path(), os.O_CREAT | os.O_EXCL))

        def path(self):
            return os.path.join(PLACE, self.user["name"])

        @task
        async def browse(self, client):
            assert self.user["password"] == "pw" and self.user.held
            await client.get("/health")

        async def on_stop(self, client):
            os.unlink(self.path())
"""

FACTORY = """@resource(name="users"{limit})
    def make(n):
        with open(os.path.join(PLACE, "made"), "a") as made:
            made.write(str(n) + " ")
        return {{"name": "user-" + str(n), "password": "pw"}}"""


def shop(fleet: Fleet, pool: str, lasts: str = "2s") -> tuple[Path, Path]:
    place = fleet.folder / "place"
    place.mkdir(exist_ok=True)
    return fleet.write("shop/shop.py", SHOP.format(place=str(place), pool=pool, lasts=lasts)), place


def holders(fleet: Fleet) -> list[str]:
    return sorted(value.split(" ")[3].split(".")[0] for value in fleet.redis("hvals", f"{POOL}:held").splitlines() if value)


def free(fleet: Fleet) -> int:
    return int(fleet.redis("scard", f"{POOL}:available"))


def test_factory_resources_are_made_once_and_held_by_one_user(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    scenario, place = shop(fleet, FACTORY.format(limit=""))
    for _ in range(2):
        ended = fleet.run(scenario)
        result = fleet.result(ended)
        assert result["totals"]["errors"] == 0 and result["totals"]["requests"] > 0, result["errors"]
        made = (place / "made").read_text().split()
        # Each number appears once over both runs, because the pool keeps its resources.
        assert sorted(made, key=int) == [str(number) for number in range(len(made))] and len(made) >= 6
        eventually("everything to be given back", lambda made=made: free(fleet) == len(made))


def test_resources_of_killed_worker_return_to_pool(fleet: Fleet) -> None:
    fleet.join("w1", "w2", patience="3500ms")
    fleet.write("shop/users.csv", "name,password\n" + "".join(f"user-{number},pw\n" for number in range(6)))
    scenario, place = shop(fleet, 'resource("users", file="users.csv")', "10m")
    run = fleet.begin(scenario)
    eventually("both to hold something", lambda: len(holders(fleet)) == 6 and set(holders(fleet)) == {"w1", "w2"})
    fleet.processes["w1"].kill()
    # The killed worker did not delete the files of its resources, so the test deletes them.
    for path in place.iterdir():
        path.unlink()
    eventually("the other to hold everything", lambda: holders(fleet) == ["w2"] * 6)
    run.send_signal(signal.SIGINT)
    fleet.wait(run)
    eventually("everything to be given back", lambda: free(fleet) == 6)


def test_exhausted_pool_waits_or_raises(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    scenario, _ = shop(fleet, FACTORY.format(limit=", limit=2"))
    text = scenario.read_text().replace("wait=60", "wait=0")
    scenario.write_text(text)
    result = fleet.result(fleet.run(scenario))
    exhausted = [error for error in result["errors"] if error["code"] == "ResourcesExhausted"]
    assert exhausted and "no `users` was free" in exhausted[0]["message"], result["errors"]
    assert result["totals"]["requests"] > 0


def test_jsonl_file_and_api_pools_work(fleet: Fleet) -> None:
    fleet.join("w1")
    fleet.redis("hset", "squall:{main}:resources", "carts", "1")
    fleet.redis("set", "squall:{main}:resource:carts:7", '{"size": 3}')
    fleet.redis("sadd", "squall:{main}:resource:carts:available", "7")
    fleet.write("shop/users.jsonl", '{"name": "ann", "age": 7}\n')
    scenario = fleet.write(
        "shop/shop.py",
        """
        from squall import VUser, resource, scenario, task

        resource("users", file="users.jsonl")

        @scenario(users=1, duration="1s", pause="100ms")
        class Shop(VUser):
            @task
            def browse(self, client):
                user, cart = self.resources.acquire("users"), self.resources.acquire("carts")
                assert (user["name"], user["age"], cart["size"], cart["resource_id"]) == ("ann", 7, 3, "7")
                self.resources.release(user)
                self.resources.release(cart)
                client.get("/health")
        """,
    )
    result = fleet.result(fleet.run(scenario))
    assert result["totals"]["errors"] == 0 and result["totals"]["requests"] > 0, result["errors"]


def test_toml_scenario_holds_resources(fleet: Fleet) -> None:
    fleet.join("w1", "w2")
    scenario = fleet.write(
        "shop/shop.toml",
        """
        [load]
        users = 5
        pause = "20ms"
        for = "3s"
        [[resource]]
        name = "users"
        count = 5
        fields = { name = "user-{{ n }}", password = "pw" }
        wait = "60s"
        [[task]]
        name = "look"
        get = "/api/products"
        headers = { x-user = "{{ users.name }}" }
        """,
    )
    run = fleet.begin(scenario)
    result = fleet.result(fleet.wait(run))
    assert result["totals"]["errors"] == 0 and result["totals"]["requests"] > 0, result["errors"]
    payloads = [fleet.redis("get", f"{POOL}:{number}") for number in range(5)]
    assert all(f'"user-{number}"' in payload for number, payload in enumerate(payloads)), payloads
    eventually("everything to be given back", lambda: free(fleet) == 5)
