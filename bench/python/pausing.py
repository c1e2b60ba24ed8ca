"""Users that pause, and when the last of them had its first answer: the scenario of `bench/python/run users`."""

import time

from squall import VUser, scenario, task, tear_down

last_first = 0.0


@scenario(name="pausing", pause=1)
class Pausing(VUser):
    """Stepped, because it keeps the answer."""

    seen = 0

    @task
    async def get(self, client):
        status = (await client.get("/api/user")).status_code
        if not self.seen:
            global last_first
            last_first = time.time()
        self.seen = status


@tear_down
def tell(made):
    print(last_first, flush=True)
