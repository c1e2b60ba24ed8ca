"""Measures the CPU time of one await of Squall in a stepped coroutine: a million awaits in one
task, without requests. The time of the loop around them is subtracted."""

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SCENARIO = """
    import time
    from squall import VUser, task, sleep, emit_metric

    class Awaits(VUser):
        @task
        async def many(self, client):
            begun = time.process_time()
            for _ in range(1_000_000):
                await client.batch(())
            awaited = time.process_time()
            for _ in range(1_000_000):
                await sleep(0)
            slept = time.process_time()
            for _ in range(1_000_000):
                sleep
            ended = time.process_time()
            loop = ended - slept
            print(f"an await that does not wait: {awaited - begun - loop:.3f} us of CPU", flush=True)
            print(f"an await that yields to all other users: {slept - awaited - loop:.3f} us of CPU", flush=True)
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "awaits.py"
    path.write_text(textwrap.dedent(SCENARIO))
    subprocess.run(
        [sys.executable, "-m", "squall", "run", str(path), "--target", "http://127.0.0.1:1", "--users", "1", "--requests", "3", "--quiet"],
        check=False,
    )
