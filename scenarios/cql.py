"""HTTP requests and CQL statements in one Python scenario. Create the table first:

    CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
    CREATE TABLE shop.orders (customer int, number bigint, total int, placed timestamp, note text,
                              PRIMARY KEY (customer, number));
"""

import datetime
import os

from squall import Client, CqlStatement, VUser, scenario, task

PORT = int(os.environ.get("CASSANDRA_PORT", "9042"))


@scenario(
    rate=50,
    duration="30s",
    target="http://127.0.0.1:8089",
    thresholds=["latest:p99<50ms", "error_rate<1%"],
    cql={"nodes": ["127.0.0.1"], "port": PORT, "user": "cassandra", "password": "cassandra", "keyspace": "shop"},
)
class Orders(VUser):
    latest: CqlStatement

    async def on_start(self, client: Client) -> None:
        self.latest = client.cql_prepared("SELECT number, total FROM orders WHERE customer = ? LIMIT 5", name="latest")

    @task
    async def order(self, client: Client) -> None:
        response = await client.get(f"/api/products/{self.random.randint(1, 20)}", name="product")
        total, customer, number = response.json()["price_cents"], self.random.randint(1, 50), self.random.getrandbits(60)
        now = datetime.datetime.now(datetime.UTC)
        insert = "INSERT INTO orders (customer, number, total, placed) VALUES (?, ?, ?, ?)"
        await client.cql(insert, [customer, number, total, now], name="store")
        rows = await client.cql("SELECT total FROM orders WHERE customer = ? AND number = ?", [customer, number], name="compare")
        assert [row.total for row in rows] == [total]

    @task(weight=2)
    async def read(self, client: Client) -> None:
        rows = await self.latest([self.random.randint(1, 50)])
        assert len(rows) <= 5
