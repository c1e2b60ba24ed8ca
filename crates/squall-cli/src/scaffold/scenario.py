"""Visitors of a shop browse the catalogue and look at products.

squall target                # in one terminal: a shop to test against
squall run scenario.py       # in another
"""

from squall import VUser, scenario, task


@scenario(
    target="http://127.0.0.1:8089",
    rate=50,  # or: users=20, pause="1s"
    duration="20s",
    ramp_up="5s",
    thresholds=["p99<500ms", "error_rate<1%"],
)
class Shop(VUser):
    @task(weight=5)
    async def browse(self, client):
        page = self.random.randint(1, 20)
        answer = await client.get("/api/products", params={"page": page})
        assert answer.status_code == 200

    @task(weight=3)
    async def look(self, client):
        product = self.random.randint(1, 400)
        answer = await client.get(f"/api/products/{product}", name="GET /api/products/{id}")
        assert answer.status_code == 200
