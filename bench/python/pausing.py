"""The scenario of `bench/python/run users`: users that pause. Prints when the last user got its
first response."""

import time

from squall import VUser, scenario, task, tear_down

last_first = 0.0


@scenario(name="pausing", pause=1)
class Pausing(VUser):
    """Runs stepped, because it uses the response."""

    seen = 0

    @task
    async def get(self, client):
        status = (await client.get("/api/user")).status_code
        if not self.seen:
            global last_first
            last_first = time.time()
        self.seen = status


@tear_down
def print_last_first(made):
    print(last_first, flush=True)
