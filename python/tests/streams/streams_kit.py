"""A real redis-server and real workers for every test. Processors append the events that they see
to a file."""

from __future__ import annotations

import signal
import subprocess
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from server_kit import Server, end, eventually, redis_server
from squall_command import SQUALL

__all__ = ["SQUALL", "Fleet", "eventually", "fleet"]

#: The first lines of every app in these tests: stream `orders` of app `shop`, and `log(words…)`.
HEAD = """
import asyncio, os, sys
from squall.streams import *

app = App("shop", default_lock_expiry={lease}, default_join_delay=0.05)

def log(*words):
    with open("log", "a") as file:
        file.write(" ".join(str(word) for word in words) + "\\n")

class Order(Record):
    order_id: int
    number: int = 0

orders = app.stream("orders", record=Order, partition_by="order_id", partition_count={partitions})

def seen(events, event):
    log("seen", events.partition.number, event.xid.decode(), events.fence[1], os.getpid())
"""


@dataclass
class Fleet(Server):
    """A redis-server, an app file and any number of workers."""

    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    partitions: int = 4

    def write(self, code: str, *, partitions: int = 4, lease: float = 30, name: str = "shop.py", head: bool = True) -> None:
        self.partitions = partitions
        start = HEAD.format(partitions=partitions, lease=lease) if head else ""
        (self.folder / name).write_text(start + textwrap.dedent(code))

    def start(self, *arguments: str, spec: str = "shop:app", redis: str | None = None) -> subprocess.Popen[str]:
        number = len(self.workers)
        with open(self.folder / f"out.{number}", "w") as out, open(self.folder / f"err.{number}", "w") as err:
            command = [*SQUALL, "stream", "worker", spec, "--redis", redis or self.url, *arguments]
            worker = subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=err, text=True)
        self.workers.append(worker)
        return worker

    def said(self, worker: subprocess.Popen[str]) -> str:
        return (self.folder / f"err.{self.workers.index(worker)}").read_text()

    def stop(self, worker: subprocess.Popen[str]) -> int:
        worker.send_signal(signal.SIGTERM)
        return worker.wait(120)

    def cli(self, *arguments: str, code: int = 0) -> str:
        command = [*SQUALL, "stream", *arguments, "--redis", self.url]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def send(self, count: int, *, start: int = 0, keys: int = 97) -> None:
        lines = "".join(f'{{"order_id":{number % keys},"number":{number}}}\n' for number in range(start, start + count))
        (self.folder / "orders.jsonl").write_text(lines)
        self.cli("sendmany", "shop.orders", "orders.jsonl", "--partition-by", "order_id", "--partitions", str(self.partitions))

    def log(self, first: str = "") -> list[list[str]]:
        path = self.folder / "log"
        text = path.read_text() if path.exists() else ""
        # A worker may be writing the last line: only lines with an end are whole.
        lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line for line in lines if not first or line[0] == first]

    def workers_of(self, *, after: int) -> set[str]:
        """Returns the processes that processed an event under a later lease than `after`."""
        return {pid for _, _, _, epoch, pid in self.log("seen") if int(epoch) > after}

    def seen(self) -> set[tuple[str, str]]:
        return {(partition, xid) for _, partition, xid, _, _ in self.log("seen")}

    def sent(self) -> dict[str, list[str]]:
        """Returns the event ids of every partition, in order."""
        ids: dict[str, list[str]] = {}
        for partition in range(self.partitions):
            key = f"squall:__strm:shop.orders.{{{partition}}}"
            # redis-cli prints three lines per entry: id, `data` and the record.
            ids[str(partition)] = self.redis("xrange", key, "-", "+").split("\n")[::3]
        return ids

    def pending(self, processor: str = "printer") -> int:
        found = 0
        for partition in range(self.partitions):
            found += int(self.redis("xpending", f"squall:__strm:shop.orders.{{{partition}}}", processor).split("\n")[0])
        return found

    def check(self, *, exactly_once: bool, in_hand: int = 1) -> int:
        """Asserts that every event was processed, new events in order, with epochs that never
        decrease. Returns the number of repeated events. A worker that was paused in an iteration of
        `in_hand` events may finish that iteration, and no other, after another worker has replaced
        it.
        """
        by_partition: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for _, partition, xid, epoch, _ in self.log("seen"):
            by_partition[partition].append((xid, int(epoch)))
        again = 0
        for partition, ids in self.sent().items():
            ids = [one for one in ids if one]
            first_time: dict[str, int] = {}
            known: set[tuple[str, int]] = set()
            late: Counter[int] = Counter()
            last_epoch = 0
            for xid, epoch in by_partition[partition]:
                assert (xid, epoch) not in known, f"partition {partition}: {xid} twice by one owner"
                known.add((xid, epoch))
                if epoch < last_epoch:
                    late[epoch] += 1
                    assert late[epoch] <= in_hand, f"partition {partition}: the owner of epoch {epoch} went on when {last_epoch} had begun"
                    again += 1
                    continue
                last_epoch = epoch
                if xid in first_time:
                    again += 1
                else:
                    first_time[xid] = epoch
            assert list(first_time) == ids, f"partition {partition} out of order or incomplete"
        assert not (exactly_once and again), f"{again} events were processed again"
        return again


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with redis_server(tmp_path) as port:
        fleet = Fleet(tmp_path, port)
        yield fleet
        end(fleet.workers)
