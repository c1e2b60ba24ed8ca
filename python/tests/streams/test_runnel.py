"""Apps written for runnel run unchanged where it is not installed, and continue its streams: the key
names, the format of entries and the choice of the partition are its own."""

from __future__ import annotations

import json
import subprocess

import pytest
from streams_kit import SQUALL, Fleet, eventually

APP = """
from runnel import App, ExceptionPolicy, Record
from runnel.constants import ExceptionPolicy as Same
from runnel.middleware import DeadLetterMiddleware

app = App(name="shop")


class Reading(Record):
    sensor: float
    value: int = 0


readings = app.stream("readings", record=Reading, partition_by="sensor", partition_count=8)


class Flat(Record, primitive=True):
    sensor: float
    on: bool = True


flat = app.stream("flat", record=Flat, partition_by="sensor", partition_count=8, hasher="md5")


@app.processor(readings, exception_policy=ExceptionPolicy.QUARANTINE)
async def printer(events):
    async for reading in events.records():
        with open("log", "a") as file:
            file.write(f"seen {reading.sensor!r} {reading.value}\\n")
"""


def send(fleet: Fleet, *words: str, code: int = 0, text: str | None = None) -> str:
    """Runs a command without --redis: the address is in the variable that runnel reads."""
    environment = {"RUNNEL_REDIS_URL": fleet.url}
    done = subprocess.run(
        [*SQUALL, "stream", *words], cwd=fleet.folder, capture_output=True, text=True, timeout=60, env=environment, input=text
    )
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_runnel_app_runs_unchanged_under_runnel_key_names(fleet: Fleet) -> None:
    fleet.write(APP, head=False)
    # An entry as runnel writes it.
    fleet.redis("xadd", "__strm:shop.readings.3", "*", "data", '{"sensor":7.5,"value":1}')
    worker = fleet.start()
    send(fleet, "send", "shop:readings", '{"sensor": 2, "value": 2}')
    eventually("both", lambda: len(fleet.log("seen")) == 2, worker)
    assert sorted(fleet.log("seen")) == [["seen", "2.0", "2"], ["seen", "7.5", "1"]]
    assert fleet.redis("exists", "__memb:shop.readings.printer") == "1"
    assert fleet.stop(worker) == 0


def test_send_to_python_stream_types_the_key_before_hashing(fleet: Fleet) -> None:
    """xxh64 of the text 2.0 leads to another partition than that of the text 2."""
    fleet.write(APP, head=False)
    as_float = send(fleet, "send", "shop:readings", '{"sensor": 2.0}').split()[0]
    assert as_float.startswith("__strm:shop.readings.")
    assert send(fleet, "send", "shop:readings", '{"sensor": 2}').split()[0] == as_float
    assert send(fleet, "send", "shop:readings", '{"sensor": "2"}').split()[0] == as_float
    plain = send(fleet, "send", "shop.readings", '{"sensor": 2}', "--partition-by", "sensor", "--namespace", "", "--redis", fleet.url)
    assert plain.split()[0] != as_float
    stored = fleet.redis("xrange", as_float, "-", "+").splitlines()[2]
    assert json.loads(stored) == {"sensor": 2.0, "value": 0}


def test_sendmany_to_python_stream_sends_every_line_with_the_options_of_the_stream(fleet: Fleet) -> None:
    fleet.write(APP, head=False)
    (fleet.folder / "flat.jsonl").write_text("".join(f'{{"sensor": {number}}}\n' for number in range(40)) + "\n")
    assert "sent 40 records to shop.flat in 8 partitions" in send(fleet, "sendmany", "shop:flat", "flat.jsonl")
    assert "sent 1 records" in send(fleet, "sendmany", "shop:flat", "-", text='{"sensor": 41, "on": false}\n')
    lengths = [int(fleet.redis("xlen", f"__strm:shop.flat.{partition}")) for partition in range(8)]
    assert sum(lengths) == 41 and min(lengths) > 0
    assert fleet.redis("hget", "__meta:shop.flat", "hasher") == "md5"
    first = fleet.redis("xrange", "__strm:shop.flat.0", "-", "+", "count", "1").splitlines()
    assert first[1] == "sensor" and first[2].endswith(".0") and first[3:5] == ["on", "True"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "shop:readings", "{"], "the record is not a JSON object: "),
        (["send", "shop:readings", "[1]"], "the record is not a JSON object but a list"),
        (["send", "shop:readings", '{"sensr": 1}'], "the record: Reading has no field 'sensr'"),
        (["send", "shop:readings", '{"sensor": "x"}'], "the record: Reading.sensor: "),
        (["send", "shop:readngs", "{}"], "module 'shop' has no 'readngs'; it has shop:readings, shop:flat"),
        (["send", "shop:app", "{}"], "shop:app is not a Stream of squall.streams but a App"),
        (["send", "shop:", "{}"], "write it as MODULE:STREAM, for example shop:orders"),
        (["send", "shop:readings", "{}", "--partition-by", "sensor"], "--partition-by does not go with `shop:readings`"),
        (["sendmany", "shop:readings", "missing.jsonl"], "cannot read `missing.jsonl`: No such file"),
        (["sendmany", "shop:readings", "bad.jsonl"], "1 record was sent before the error: line 2: Reading needs a field 'sensor'"),
    ],
)
def test_record_that_python_stream_cannot_take_is_named(fleet: Fleet, words: list[str], said: str) -> None:
    fleet.write(APP, head=False)
    (fleet.folder / "bad.jsonl").write_text('{"sensor": 1}\n{"value": 1}\n')
    answer = send(fleet, *words, code=2)
    assert said in answer and "Traceback" not in answer, answer


def test_unreachable_redis_of_python_stream_is_reported(fleet: Fleet) -> None:
    fleet.write(APP, head=False)
    answer = send(fleet, "send", "shop:readings", '{"sensor": 1}', "--redis", "redis://127.0.0.1:1", code=3)
    assert "cannot connect to Redis at redis://127.0.0.1:1" in answer


def test_membership_of_killed_runnel_worker_does_not_stop_the_app(fleet: Fleet) -> None:
    fleet.write(APP, head=False)
    fleet.redis("set", "__memb:shop.readings.printer", '{"x": {"joined_at": "2026-03-01T12:00:00+00:00", "partitions": [0, 1]}}')
    worker = fleet.start()
    send(fleet, "send", "shop:readings", '{"sensor": 2, "value": 2}')
    eventually("the event", lambda: fleet.log("seen"), worker)
    eventually("the end of the membership", lambda: '"x"' not in fleet.redis("get", "__memb:shop.readings.printer"), worker)
    assert fleet.stop(worker) == 0


def test_unreadable_membership_ends_the_worker_with_its_key(fleet: Fleet) -> None:
    fleet.write(APP, head=False)
    fleet.redis("set", "__memb:shop.readings.printer", "mine")
    worker = fleet.start()
    assert worker.wait(120) == 2
    said = fleet.said(worker)
    assert "key `__memb:shop.readings.printer` holds a text of another kind" in said and "remove the key" in said
