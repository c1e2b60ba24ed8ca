"""`squall stream worker`: rejected apps and their messages, logs, metrics."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
from streams_kit import Fleet, eventually

PRINTER = """
@app.processor(orders, report=0.1)
async def printer(events):
    async for order in events.records():
        log("done", order.number)
"""

RECORD = 'class R(Record):\n    a: int\n'
STREAM = RECORD + 's = app.stream("s", record=R, partition_by="a")\n'
HEAD = 'from squall.streams import *\napp = App("x")\n'


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        ("shop", "", "write it as MODULE:APP"),
        ("shop:", "", "write it as MODULE:APP"),
        ("shop.py:app", "", "'shop.py' is a file; write its module, as in shop:app"),
        ("missing:app", "", "module 'missing' is neither in "),
        ("shop:ap", HEAD, "module 'shop' has no 'ap'; it has shop:app"),
        ("shop:app", "app = 1", "shop:app is not an App of squall.streams but a int"),
        ("shop:app", HEAD, "app 'x' has no processors and no tasks"),
        ("shop:app", "import nothing_like_it", "cannot import 'shop': ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("shop:app", "x = 1\nraise RuntimeError('boom')", "RuntimeError: boom\n  "),
        ("shop:app", "x = 1\nraise RuntimeError('boom')", "shop.py:2: raise RuntimeError('boom')"),
        ("shop:app", "def broken(:\n", "SyntaxError"),
        ("shop:app", "raise SystemExit(7)", "SystemExit: 7"),
        ("shop:app", 'from squall.streams import *\napp = App("x", redis="y")', "App has no setting 'redis'; did you mean 'redis_url'?"),
        ("shop:app", HEAD + STREAM + "@app.processor(s)\ndef p(events): pass", "must be an async function: write async def p"),
        ("shop:app", HEAD + STREAM + "@app.processor\nasync def p(events): pass", "@app.processor needs a stream"),
        ("shop:app", HEAD + STREAM + "@app.processor(s, exception_policy='x')\nasync def p(e): pass", "there are HALT, QUARANTINE and IGNORE"),
        ("shop:app", HEAD + STREAM + "@app.processor(s, lock_expiry=0)\nasync def p(e): pass", "lock_expiry of processor 'p' must be seconds above zero, not 0"),
        ("shop:app", HEAD + STREAM + "@app.processor(s, prefetch=9)\nasync def p(e): pass", "processor 'p' has no option 'prefetch'; did you mean 'prefetch_count'?"),
        ("shop:app", HEAD + STREAM + "@app.processor(s, prefetch_count=0)\nasync def p(e): pass", "prefetch_count of processor 'p' must be a whole number of at least 1, not 0"),
        ("shop:app", HEAD + STREAM + "@app.processor(s, retries=-1)\nasync def p(e): pass", "retries of processor 'p' must be a whole number of at least 0, not -1"),
        ("shop:app", HEAD + STREAM + "@app.processor(s, join_delay='1s')\nasync def p(e): pass", "join_delay of processor 'p' must be seconds, not '1s'"),
        ("shop:app", HEAD + RECORD + "app.stream('s', R, 'a', partitions=4)", "stream 's' has no option 'partitions'; did you mean 'partition_"),
        ("shop:app", HEAD + RECORD + "app.stream('s', R, 'a', partition_count=0)", "partition_count of stream 's' must be a whole number of at least 1, not 0"),
        ("shop:app", HEAD + RECORD + "app.stream('s', R, 'a', wait=-1)", "wait of stream 's' must be seconds, not -1"),
        ("shop:app", HEAD + STREAM + "@app.processor(s, middleware=[1])\nasync def p(e): pass", "has no method handler"),
        ("shop:app", HEAD + STREAM + ("@app.processor(s)\nasync def p(e): pass\n" * 2), "has two processors 'p'"),
        ("shop:app", HEAD + "app.stream('s', record=dict, partition_by='a')", "must be a subclass of Record"),
        ("shop:app", HEAD + RECORD + "app.stream('s', R, 'a', hasher=hash)", "there are 'xxh64' (default) and 'md5'"),
        ("shop:app", HEAD + "@app.crontab('61 * * * *')\nasync def c(): pass", "`61 * * * *` is not a crontab line"),
        ("shop:app", HEAD + "@app.crontab('* * * * *', timezone='Nowhere')\nasync def c(): pass", "`Nowhere` is not a time zone"),
        ("shop:app", HEAD + "@app.timer(interval=0)\nasync def c(): pass", "a timer needs an interval above zero"),
        ("shop:app", HEAD.replace('"x"', '"a.b"') + "@app.task\nasync def t(): pass", "`a.b` cannot be an app name"),
    ],
)
def test_invalid_app_is_rejected_with_message(fleet: Fleet, spec: str, code: str, words: str) -> None:
    fleet.write(code, head=False)
    worker = fleet.start(spec=spec)
    assert worker.wait(120) == 2, fleet.said(worker)
    said = fleet.said(worker)
    assert words in said
    assert said.startswith("squall: ") and "Traceback" not in said


def test_unknown_processor_error_lists_processors(fleet: Fleet) -> None:
    fleet.write(PRINTER)
    worker = fleet.start("--processors", "printer,priter")
    assert worker.wait(120) == 2
    assert "app 'shop' has no processor 'priter'; it has: printer" in fleet.said(worker)


def test_unreachable_redis_is_reported(fleet: Fleet) -> None:
    fleet.write(PRINTER)
    worker = fleet.start(redis="redis://user:secret@127.0.0.1:1")
    assert worker.wait(120) == 3
    assert "cannot connect to Redis at redis://127.0.0.1:1; is the server running" in fleet.said(worker)
    assert "secret" not in fleet.said(worker)


def test_changed_partition_count_is_rejected_with_hint(fleet: Fleet) -> None:
    fleet.write(PRINTER, partitions=4)
    fleet.cli("send", "shop.orders", '{"order_id": 1}', "--partition-by", "order_id", "--partitions", "8")
    worker = fleet.start()
    assert worker.wait(120) == 2
    assert "stream `shop.orders` has 8 partitions in Redis" in fleet.said(worker)
    assert "Open it with 8, or use another stream name" in fleet.said(worker)


def test_redis_key_of_wrong_type_is_named(fleet: Fleet) -> None:
    fleet.write(PRINTER)
    fleet.redis("set", "squall:__strm:shop.orders.{2}", "mine")
    worker = fleet.start()
    assert worker.wait(120) == 2
    assert "squall:__strm:shop.orders.{2}" in fleet.said(worker)


def test_metrics_endpoint_responds(fleet: Fleet) -> None:
    fleet.write(PRINTER)
    worker = fleet.start("--prometheus", "127.0.0.1:0")
    url = eventually("the address", lambda: re.search(r"http://[\d.:]+/metrics", fleet.said(worker)), worker).group()
    fleet.send(30)
    wanted = 'squall_stream_events_acked_total{app="shop",stream="orders",processor="printer"} 30'

    def scrape() -> str:
        with urllib.request.urlopen(url) as answer:
            text: str = answer.read().decode()
        return text

    eventually("the count", lambda: wanted in scrape(), worker)
    text = scrape()
    assert "squall_stream_partitions_held" in text and "squall_stream_lag" in text and "squall_stream_failures_total" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("/metrics", "/"))
    assert fleet.stop(worker) == 0


def test_remote_metrics_endpoint_requires_allow_remote(fleet: Fleet) -> None:
    fleet.write(PRINTER)
    worker = fleet.start("--prometheus", "0.0.0.0:0")
    assert worker.wait(120) == 2
    assert "add --allow-remote" in fleet.said(worker)


def test_json_log_format_writes_json_lines(fleet: Fleet) -> None:
    fleet.write(PRINTER)
    worker = fleet.start("--log-format", "json")
    fleet.send(30)

    def events() -> list[dict[str, object]]:
        return [json.loads(line) for line in fleet.said(worker).splitlines() if line.endswith("}")]

    eventually("progress", lambda: any(event["message"] == "progress" and "lag" in event and "rate" in event for event in events()), worker)
    assert fleet.stop(worker) == 0
    messages = [event["message"] for event in events()]
    assert messages.count("partition taken") == 4 and messages.count("partition given back") == 4
    assert messages[0] == "worker starts" and messages[-1] == "worker ends"


def test_autodiscover_imports_matching_modules(fleet: Fleet) -> None:
    (fleet.folder / "parts" / "deep").mkdir(parents=True)
    fleet.write("orders_app = app\napp.settings.autodiscover = 'parts/**/streams.py'\n")
    (fleet.folder / "parts" / "deep" / "streams.py").write_text(
        "from shop import app, orders, log\n@app.processor(orders)\nasync def printer(events):\n    async for order in events.records():\n        log('done', order.number)\n"
    )
    worker = fleet.start()
    fleet.send(5)
    eventually("all", lambda: len(fleet.log("done")) == 5, worker)
    assert fleet.stop(worker) == 0
