"""Records and formats: validation, wire format, and reading in both languages."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import enum
import json
import uuid
from typing import Literal, Optional

import pytest
from streams_kit import Fleet, eventually

from squall.streams import LZ4, App, Gzip, JSONSerializer, Misconfigured, PartitionFull, Record, Unreachable, Zstd


class Colour(enum.Enum):
    RED = "red"


class Item(Record):
    name: str
    price: decimal.Decimal = decimal.Decimal(1)


class Everything(Record):
    number: int
    share: float
    flag: bool
    text: str
    raw: bytes
    at: datetime.datetime
    day: datetime.date
    ident: uuid.UUID
    colour: Colour
    items: list[Item]
    table: dict[str, int]
    pair: tuple[int, str]
    word: Literal["a", "b"]
    maybe: Optional[int]  # noqa: UP045
    either: int | str
    later: list[int] = []  # noqa: RUF012


FULL = Everything(
    number=1, share=2.5, flag=True, text="ä", raw=b"x", at=datetime.datetime(2026, 11, 16, 1, 2, 3), day=datetime.date(2026, 1, 2),
    ident=uuid.UUID(int=5), colour=Colour.RED, items=[Item(name="a")], table={"k": 1}, pair=(1, "x"), word="a", either="z",
)  # fmt: skip


def test_written_record_is_read_back() -> None:
    assert FULL.maybe is None and FULL.later == [] and FULL.later is not Everything.later
    again = Everything._read(json.loads(json.dumps(FULL._wire())))
    assert again == FULL
    assert again.copy(number=2).number == 2
    assert FULL.dict()["items"] == [{"name": "a", "price": decimal.Decimal(1)}]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "Item needs a field 'name'"),
        ({"name": None}, "Item.name: None (NoneType) is not a str"),
        ({"name": "a", "price": "x"}, "Item.price"),
        ({"name": ["a"]}, "is not a str"),
    ],
)
def test_value_of_wrong_type_error_names_field(values: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
        Item._read(values)


def test_record_with_invalid_values_is_rejected() -> None:
    class Order(Record):
        order_id: int
        paid: bool = False

    assert Order._read({"order_id": "7"}).order_id == 7
    for bad in (1.5, "x", None, [1]):
        with pytest.raises(ValueError, match="order_id"):
            Order._read({"order_id": bad})
    with pytest.raises(ValueError, match="paid"):
        Order._read({"order_id": 1, "paid": "yes"})
    with pytest.raises(TypeError, match="no field 'amount'"):
        Order(order_id=1, amount=2)


def test_primitive_record_with_other_type_is_rejected() -> None:
    class Flat(Record, primitive=True):
        a: int
        b: bool
        c: str
        d: float
        e: bytes

    one = Flat(a=1, b=True, c="x", d=1.5, e=b"\xff")
    assert one._wire_flat() == [(b"a", b"1"), (b"b", b"True"), (b"c", b"x"), (b"d", b"1.5"), (b"e", b"\xff")]
    assert Flat._read_flat({name.decode(): value for name, value in one._wire_flat()}) == one
    with pytest.raises(ValueError, match=r"Flat\.a"):
        Flat._read_flat({"a": b"x", "b": b"True", "c": b"", "d": b"1", "e": b""})

    class Deep(Record, primitive=True):
        a: list[int]

    with pytest.raises(Misconfigured, match="primitive"):
        Deep(a=[1])


@pytest.mark.parametrize("compressor", [None, Gzip(), LZ4(), Zstd()], ids=["none", "gzip", "lz4", "zstd"])
def test_rust_processor_reads_python_records(fleet: Fleet, compressor: object) -> None:
    app = App("shop", redis_url=fleet.url)

    class Order(Record):
        order_id: int
        note: str

    orders = app.stream("orders", record=Order, partition_by="order_id", serializer=JSONSerializer(compressor=compressor))  # type: ignore[arg-type]
    ids = asyncio.run(orders.send(*(Order(order_id=n, note="ä" * 50) for n in range(10))))
    assert len(set(ids)) >= 1 and len(ids) == 10
    shown = [json.loads(line) for line in fleet.cli("tail", "shop.orders", "--from-start", "--count", "10").splitlines()]
    assert sorted(event["record"]["order_id"] for event in shown) == list(range(10))
    assert shown[0]["record"]["note"] == "ä" * 50
    for event in shown:
        answer = fleet.cli("send", "shop.orders", json.dumps(event["record"]), "--partition-by", "order_id")
        assert f"{{{event['partition']}}}" in answer, "both route alike"


@pytest.mark.parametrize("kind", ["flat", "own"])
def test_every_record_layout_reaches_processor(fleet: Fleet, kind: str) -> None:
    fleet.write(
        """
        import base64, pickle

        class Own(Serializer):
            class compressor(Compressor):
                compress = staticmethod(base64.b64encode)
                decompress = staticmethod(base64.b64decode)

            def dumps(self, value):
                return pickle.dumps(value)

            def loads(self, value):
                return pickle.loads(value)

        class Flat(Record, primitive=True):
            a: int
            b: bool

        class Deep(Record):
            a: int
            b: bool

        flat = app.stream("flat", record=Flat, partition_by=lambda record: (record.a % 3, "x"), partition_count=2)
        own = app.stream("own", record=Deep, partition_by="a", partition_count=2, serializer=Own())

        @app.processor(flat)
        async def read_flat(events):
            async for record in events.records():
                log("flat", record.a, record.b)

        @app.processor(own)
        async def read_own(events):
            async for batch in events.take(3, within=0.01).records():
                for record in batch:
                    log("own", record.a, record.b)

        @app.task
        async def fill():
            await flat.send(*(Flat(a=n, b=n % 2 == 0) for n in range(10)))
            await own.send(*(Deep(a=n, b=n % 2 == 0) for n in range(10)))
        """
    )
    worker = fleet.start()
    eventually("all", lambda: len(fleet.log(kind)) == 10, worker)
    assert {(line[1], line[2]) for line in fleet.log(kind)} == {(str(n), str(n % 2 == 0)) for n in range(10)}
    assert fleet.stop(worker) == 0


class Small(Record):
    a: int


def test_send_to_full_partition_raises_or_waits(fleet: Fleet) -> None:
    app = App("shop", redis_url=fleet.url)
    small = app.stream("small", record=Small, partition_by="a", partition_count=1, partition_size=2, wait=None)

    async def main() -> None:
        await small.send(Small(a=1), Small(a=2))
        with pytest.raises(PartitionFull, match="no processor is registered on it"):
            await small.send(Small(a=3))
        with pytest.raises(TypeError, match="holds Small"):
            await small.send({"a": 1})
        with pytest.raises(Misconfigured, match="stream_ids is not supported"):
            await small.send(Small(a=1), stream_ids=["1-1"])  # type: ignore[arg-type]
        assert await small.route(1) == 0

    asyncio.run(main())


def test_send_without_redis_raises_unreachable() -> None:
    app = App("shop", redis_url="redis://127.0.0.1:1")
    with pytest.raises(Unreachable, match="cannot connect to Redis"):
        asyncio.run(app.stream("s", record=Small, partition_by="a").send(Small(a=1)))


def test_streams_send_from_several_event_loops(fleet: Fleet) -> None:
    app = App("shop", redis_url=fleet.url)
    stream = app.stream("s", record=Small, partition_by="a")

    async def many() -> None:
        await asyncio.gather(*(stream.send(Small(a=n)) for n in range(50)))

    for _ in range(3):
        asyncio.run(many())
    shown = fleet.cli("tail", "shop.s", "--from-start", "--count", "150").splitlines()
    assert len(shown) == 150


class Model:
    """The methods of a pydantic model that streams use."""

    def __init__(self, a: int) -> None:
        self.a = a

    @classmethod
    def model_validate(cls, values: dict[str, int]) -> Model:
        return cls(values["a"])

    def model_dump(self, mode: str) -> dict[str, int]:
        assert mode == "json"
        return {"a": self.a}


def test_model_with_model_validate_is_accepted_as_record(fleet: Fleet) -> None:
    stream = App("shop", redis_url=fleet.url).stream("models", record=Model, partition_by="a", partition_count=1)
    asyncio.run(stream.send(Model(5)))
    shown = fleet.cli("tail", "shop.models", "--from-start", "--count", "1")
    assert json.loads(shown)["record"] == {"a": 5}
    assert stream._read({"a": 7}).a == 7
