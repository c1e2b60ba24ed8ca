import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { EventMessage, Hello, History, Second, Snapshot, TableMessage } from "../../src/feed/messages";
import { reconnectDelay } from "../../src/feed/reconnect";
import { RunData } from "../../src/feed/run_data";
import { Trends } from "../../src/feed/trends";

// The golden files that the server's tests compare its messages with.
const golden = <T>(name: string): T =>
  JSON.parse(readFileSync(join(process.cwd(), `../crates/squall-web/src/live/golden/${name}.json`), "utf8")) as T;
const hello = golden<Hello>("hello");

test("a snapshot fills the columns and the next second extends them", () => {
  const data = new RunData(hello.columns);
  const first = golden<Snapshot>("snapshot");
  data.applySnapshot({ ...first, seconds: first.seconds.map((column) => column.slice(0, 1)) });
  assert.deepEqual(data.times, [1]);
  assert.ok(data.applySecond(golden<Second>("second")));
  assert.deepEqual([data.times, data.column("requests"), data.heat.length], [[1, 2], [3, 3], 2]);
  assert.deepEqual(data.metrics.get(1)?.name, "shop");
});

test("a second that is known already is ignored, and a gap is reported", () => {
  const data = new RunData(hello.columns);
  data.applySnapshot(golden<Snapshot>("snapshot"));
  const second = golden<Second>("second");
  assert.ok(data.applySecond(second));
  assert.deepEqual(data.times, [1, 2]);
  const t = hello.columns.indexOf("t");
  const later = { ...second, row: second.row.with(t, 4) };
  assert.equal(data.applySecond(later), false);
  assert.equal(data.applySecond({ ...second, run: "another" }), false);
});

test("a snapshot since a second continues the columns, and one of another run replaces them", () => {
  const data = new RunData(hello.columns);
  const whole = golden<Snapshot>("snapshot");
  data.applySnapshot({ ...whole, seconds: whole.seconds.map((column) => column.slice(0, 1)) });
  data.applySnapshot(golden<Snapshot>("snapshot_since"));
  assert.deepEqual(data.times, [1, 2]);
  const generation = data.generation;
  data.applySnapshot({ ...whole, run: "another" });
  assert.deepEqual(data.times, [1, 2]);
  assert.ok(data.generation > generation, "the heatmap is drawn anew");
  data.applySnapshot(golden<Snapshot>("snapshot_empty"));
  assert.deepEqual([data.run, data.times], [null, []]);
});

test("an event that the snapshot contained is not listed twice", () => {
  const data = new RunData(hello.columns);
  data.applySnapshot(golden<Snapshot>("snapshot"));
  const { event } = golden<EventMessage>("event");
  data.addEvent(event);
  data.addEvent([9, "worker w2 was lost", "lost", "w2"]);
  assert.deepEqual(data.events, [event, [9, "worker w2 was lost", "lost", "w2"]]);
});

test("the history of a snapshot fills the heatmap and the trends", () => {
  const data = new RunData(hello.columns);
  data.applySnapshot(golden<Snapshot>("snapshot"));
  const drawn = data.heats;
  data.applyHistory(golden<History>("history_heat"));
  data.applyHistory(golden<History>("history_trends"));
  assert.deepEqual([data.heat.length, data.heat[1]?.length], [2, 6]);
  assert.ok(data.heats > drawn, "the heatmap is drawn anew");
  assert.deepEqual(data.trends.of(1), [9000, 9000]);
});

test("the figures of the latest second belong to their metrics", () => {
  const data = new RunData(hello.columns);
  const first = golden<Snapshot>("snapshot");
  data.applySnapshot({ ...first, seconds: first.seconds.map((column) => column.slice(0, 1)) });
  assert.ok(data.applySecond({ ...golden<Second>("second"), metrics: [1, 5, 9000] }));
  assert.deepEqual([data.latestOf(0), data.latestOf(1)], [0, 5]);
  assert.deepEqual(data.trends.of(1), [9000]);
});

test("a trend contains the minute before the latest request of its metric", () => {
  const trends = new Trends();
  for (const t of [1, 2, 59, 61]) trends.add(200, t, t * 10);
  assert.deepEqual(trends.of(200), [20, 590, 610]);
  trends.add(200, 300, 7);
  assert.deepEqual([trends.of(200), trends.of(3), trends.of(900)], [[7], [], []]);
});

test("a part of the table replaces the rows and errors of its metrics and no others", () => {
  const data = new RunData(hello.columns);
  data.applySnapshot(golden<Snapshot>("snapshot"));
  const before = data.table?.total.slice();
  const part: TableMessage = {
    ...golden<TableMessage>("table"),
    part: [1, 3],
    total: [[0, 77]],
    window: [],
    messages: [],
    outcomes: [[0, "timeout", "TIMEOUT", 9, 1, 2, ["w1"], 1]],
  };
  data.setTable(part);
  assert.deepEqual(data.table?.total, [before?.[0], [0, 77], before?.[2]]);
  assert.deepEqual([data.table?.window[0]?.[0], data.table?.window[1], data.table?.window[2]?.[0]], [-1, undefined, 1]);
  assert.deepEqual([data.table?.messages, data.table?.outcomes], [[], [[0, "timeout", "TIMEOUT", 9, 1, 2, ["w1"], 1]]]);
});

test("a known metric keeps its row, whose figures change in it", () => {
  const data = new RunData(golden<Hello>("hello").columns);
  data.applySnapshot(golden<Snapshot>("snapshot"));
  const send = (row: number[]): void => data.setTable({ ...golden<TableMessage>("table"), part: [1, 3], total: [row], window: [] });
  send([0, 77]);
  const [row, changed] = [data.table?.total[1], data.table?.changed.slice()];
  send([0, 78]);
  assert.equal(data.table?.total[1], row);
  assert.deepEqual(row, [0, 78]);
  assert.notEqual(data.table?.changed[1], changed?.[1]);
  assert.equal(data.table?.changed[0], changed?.[0], "a metric of another part");
});

test("attempts to reconnect are 0.5 to 8 s apart, each within 20 %", () => {
  const middle = [0, 1, 2, 3, 4, 9].map((attempt) => reconnectDelay(attempt, 0.5));
  assert.deepEqual(middle, [500, 1000, 2000, 4000, 8000, 8000]);
  assert.deepEqual([reconnectDelay(0, 0), reconnectDelay(0, 1)], [400, 600]);
});
