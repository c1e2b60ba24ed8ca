"""What one await of Squall's costs in a stepped coroutine: a million of them in one task, without any request; its loop is not counted."""

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
            print(f"one await that has nothing to wait for: {awaited - begun - loop:.3f} us of CPU", flush=True)
            print(f"one await that lets all others go first: {slept - awaited - loop:.3f} us of CPU", flush=True)
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "awaits.py"
    path.write_text(textwrap.dedent(SCENARIO))
    subprocess.run(
        [sys.executable, "-m", "squall", "run", str(path), "--target", "http://127.0.0.1:1", "--users", "1", "--requests", "3", "--quiet"],
        check=False,
    )
