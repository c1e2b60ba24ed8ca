"""Users that find no file descriptor to send by."""

from __future__ import annotations

import json
import subprocess

import pytest
from squall_command import SQUALL


@pytest.mark.parametrize("opening", ['client.get("/delay/50")', 'client.stream("GET", "/delay/50").open()'])
def test_user_without_a_descriptor_pauses_before_it_retries(write, target, tmp_path, opening):
    path = write(
        f"""
        class Shop(VUser):
            @task
            async def go(self, client):
                try:
                    await {opening}
                except RequestError as error:
                    assert error.code == "LOCAL_LIMIT", error.code
        """
    )
    users = 150
    command = " ".join([*SQUALL, "run", str(path), "--target", target.url, "--users", str(users), "--for", "1s", "--json", "r.json"])
    done = subprocess.run(["sh", "-c", f"ulimit -n 100; exec {command}"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    accounting = json.loads((tmp_path / "r.json").read_text())["accounting"]
    assert accounting["balanced"] and accounting["unsent"] > 0, (accounting, done.stderr)
    # A user tries again after 100 ms, so at most 11 times in a second.
    assert accounting["unsent"] <= users * 11, accounting
