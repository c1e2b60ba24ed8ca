"""The shop of `squall target`: users log in once, browse, look at products and sometimes buy.

squall target &
squall run scenarios/shop.py --target http://127.0.0.1:8089
"""

from squall import VUser, between, resource, scenario, task


@resource(name="accounts")
def make_account(number):
    return {"username": f"user_{number}", "password": "pw"}


@scenario(rate=200, duration="30s", ramp_up="5s", thresholds={"p99_ms": 500, "error_rate": 1.0})
class Shop(VUser):
    async def on_start(self, client):
        account = await self.resources.acquire("accounts")
        answer = await client.post("/auth/login", json={key: account[key] for key in ("username", "password")})
        self.auth = {"Authorization": f"Bearer {answer.json()['access_token']}"}

    @task(weight=5)
    async def browse(self, client):
        page = self.random.randint(1, 20)
        await client.get("/api/products", params={"page": page}, headers=self.auth)

    def check_browse(self, status_code, body):
        assert status_code == 200 and len(body["products"]) == 20

    @task(weight=3)
    async def look(self, client):
        product = self.random.randint(1, 400)
        await client.get(f"/api/products/{product}", name="GET /api/products/{id}", headers=self.auth)

    @task(requires="browse", every=between(0.1, 0.5), timeout=3)
    def buy(self, client):  # a task may be a plain def
        product = self.random.randint(1, 400)
        answer = client.post("/api/orders", json={"product_id": product, "quantity": 2}, headers=self.auth)
        answer.raise_for_status()
