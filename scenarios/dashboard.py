"""A page that sends several requests at once, as browsers do.

squall run scenarios/dashboard.py --target http://127.0.0.1:8089 --users 20 --for 10s
"""

from squall import VUser, emit_metric, scenario, sleep, task


@scenario(users=20, duration="10s", pause="100ms")
class Dashboard(VUser):
    @task
    async def open_page(self, client):
        health, products, *details = await client.batch(
            ["/health", {"path": "/api/products", "params": {"page": 2}}, "/api/products/1", "/api/products/2"]
        )
        assert health.json()["status"] == "ok"
        assert [detail.json()["id"] for detail in details] == [1, 2]
        emit_metric("slowest part", time=max(part.elapsed_ms for part in (health, products, *details)))
        await sleep(0.05)
