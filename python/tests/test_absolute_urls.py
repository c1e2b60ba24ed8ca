"""Runs without --target: absolute URLs work, and a scenario with only relative URLs is rejected
before the run."""

from __future__ import annotations

import json

import pytest


def alone(squall, tmp_path, path, *arguments):
    return squall("run", str(path), "--users", "1", "--requests", "3", "--json", str(tmp_path / "result.json"), *arguments)


@pytest.mark.parametrize(
    "urls",
    [
        "'{url}/health'",
        "f'http://{{HOST}}/health'",
        "BASE + '/health'",
        "self.base + '/health'",
    ],
)
def test_absolute_urls_run_without_target(squall, write, tmp_path, target, urls):
    code = f"""
        HOST = "{target.url.removeprefix("http://")}"
        BASE = "{target.url}"

        class Shop(VUser):
            async def on_init(self, base="{target.url}"):
                self.base = base

            @task
            async def look(self, client):
                await client.get({urls.format(url=target.url)}, name="look at it")
        """
    path = write(code if "BASE" in urls else code.replace(f'BASE = "{target.url}"', ""))
    ended = alone(squall, tmp_path, path)
    assert ended.code == 0, ended.stdout + ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["totals"]["requests"] == 3 and result["totals"]["errors"] == 0


def test_absolute_url_in_parameter_runs_without_target(squall, write, tmp_path, target):
    path = write(
        """
        class Shop(VUser):
            async def on_init(self, base):
                self.base = base

            @task
            async def look(self, client):
                await client.get(self.base + "/health")
        """
    )
    assert alone(squall, tmp_path, path, "--param", f"base={target.url}").code == 0


def test_scenario_without_url_or_target_is_rejected_before_run(squall, write, tmp_path):
    path = write(
        '''
        """Run it with --target http://127.0.0.1:8089."""

        class Shop(VUser):
            @task
            async def look(self, client):
                await client.get("/health")
        ''',
        head=False,
    )
    path.write_text(path.read_text().replace("class Shop", "from squall import *\n\nclass Shop"))
    ended = alone(squall, tmp_path, path)
    assert ended.code == 2
    assert "there is no target" in ended.stderr and '@scenario(target="http://…")' in ended.stderr


def test_relative_path_without_target_fails_at_request(squall, write, tmp_path, target):
    path = write(
        f"""
        class Shop(VUser):
            @task
            async def look(self, client):
                await client.get("{target.url}/health")
                await client.get("/health")
        """
    )
    ended = alone(squall, tmp_path, path, "--mode", "stepped")
    result = json.loads((tmp_path / "result.json").read_text())
    assert any("has no target to start from" in error["message"] for error in result["errors"]), ended.stdout


def test_probes_use_target_of_scenario(squall, write, tmp_path, target):
    path = write(
        f"""
        answers = []

        @probe("seen", every=0.01)
        async def seen(ctx):
            answers.append((await ctx.client.get("/health")).status_code)
            return 1

        @scenario(target="{target.url}")
        class Shop(VUser):
            @task
            async def look(self, client):
                await client.get("/health")
                while not answers:
                    await sleep(0.01)
                assert set(answers) == {{200}}
        """
    )
    ended = alone(squall, tmp_path, path)
    assert ended.code == 0, ended.stdout + ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["totals"]["errors"] == 0
