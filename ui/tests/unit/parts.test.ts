import assert from "node:assert/strict";
import { test } from "node:test";
import { failingNodes } from "../../src/parts/failing_nodes";
import { type Flag, flagsOf, lettersApart } from "../../src/parts/flags";
import { lines } from "../../src/parts/lines";
import { listed } from "../../src/parts/listed";
import { logRange, logTicks } from "../../src/parts/log_axis";
import { arrangeGroups, groupOf } from "../../src/parts/metric_groups";
import { paramValue } from "../../src/parts/param_value";
import { levelAt, loadText } from "../../src/parts/profile";
import { Reduction } from "../../src/parts/reduction";
import { drawingOf, parseRange, visibleSeconds } from "../../src/parts/time_view";
import { withGaps } from "../../src/parts/with_gaps";
import { parseRoute } from "../../src/route";

test("the planned level follows the stages and ends with them", () => {
  const stages: [number, number, number][] = [
    [10, 0, 100],
    [20, 100, 100],
  ];
  assert.deepEqual(
    [0, 5, 10, 30, 31].map((t) => levelAt(stages, t)),
    [0, 50, 100, 100, null],
  );
  const plan = {
    name: "",
    target: "",
    model: "open",
    driven_by: "rate",
    stages,
    duration_s: 30,
    warm_up_s: 0,
    iterations: null,
    max_users: 1,
    started_ms: 0,
  } as const;
  assert.equal(loadText({ ...plan, stages }), "open load · up to 100/s for 30 s");
  assert.match(loadText({ ...plan, stages, duration_s: 604_800 }), /for 168 h$/);
  assert.match(loadText({ ...plan, stages, duration_s: 604_801, until_stopped: true }), / until it is stopped$/);
});

test("a parameter has the type of its default, and a text stays as typed", () => {
  const check = (standard: unknown, texts: string[], values: unknown[]): void =>
    assert.deepEqual(
      texts.map((text) => paramValue(text, standard)),
      values,
    );
  check("", ["01234", "7", "true"], ["01234", "7", "true"]);
  check(1, ["007", "1.50", "1e3"], [7, 1.5, 1000]);
  check(false, ["true", "false"], [true, false]);
  check(null, ["01234", "1.0", "12345678901234567890", "NaN", "[1]"], ["01234", "1.0", "12345678901234567890", "NaN", "[1]"]);
  check(null, ["7", "true"], [7, true]);
});

test("a log axis has doubles and fives only if it spans few powers of ten", () => {
  assert.deepEqual(logTicks(1, 50), [1, 2, 5, 10, 20, 50]);
  assert.deepEqual(logTicks(0.5, 2000), [1, 10, 100, 1000]);
  assert.deepEqual(logRange(0, 5), [0.8, 13]);
});

test("the address holds the page and its settings", () => {
  const { page, query } = parseRoute("#/metrics?sort=p99&filter=a%20b");
  assert.deepEqual([page, query.get("sort"), query.get("filter")], ["metrics", "p99", "a b"]);
  assert.equal(parseRoute("").page, "live");
});

test("a range is the last seconds or a part of the run", () => {
  assert.deepEqual(
    [parseRange("60"), parseRange("10-20"), parseRange("x"), parseRange(null)],
    [{ last: 60 }, { from: 10, to: 20 }, null, null],
  );
  assert.deepEqual(visibleSeconds({ last: 60 }, 100), [40, 100]);
  assert.deepEqual(visibleSeconds(null, 400), [0, 400]);
});

test("events and breached thresholds share one row of letters", () => {
  const threshold = {
    threshold: "p99<1s",
    statistic: "p99",
    unit: "ms",
    limit: 1000,
    value: 2000,
    passed: false,
    breached_at_s: 5,
  } as const;
  const flags = flagsOf(
    [
      [1, "worker w2 joined", "joined", "w2"],
      [9, "worker w2 was lost; its load moves to the other workers", "lost", "w2"],
    ],
    [threshold],
  );
  assert.deepEqual(
    flags.map(({ letter, t, tone }) => [letter, t, tone]),
    [
      ["A", 1, "plain"],
      ["B", 5, "bad"],
      ["C", 9, "bad"],
    ],
  );
});

test("letters of flags that are close stand beside each other, and never far from their lines", () => {
  const flags = [10, 12, 13, 14, 80].map((t) => ({ t }) as Flag);
  assert.deepEqual(
    lettersApart(flags, (t) => t),
    [10, 26, 42, 14, 80],
  );
});

test("codes of errors are listed from the most frequent on, although the highest bar is drawn first", () => {
  const bar = (label: string) => ({ label, color: "error-1", bars: true, at: () => 1 });
  assert.deepEqual(
    listed([bar("other"), bar("TIMEOUT"), bar("HTTP_503")]).map(({ label }) => label),
    ["HTTP_503", "TIMEOUT", "other"],
  );
});

test("a chart of an hour is drawn every few seconds, and not with all the others", () => {
  const drawings = (visible: number, turn: number): number =>
    new Set(Array.from({ length: 60 }, (_, second) => drawingOf(3600 + second, visible, 600, turn))).size;
  assert.equal(drawings(60, 0), 60, "each second of a minute is seen");
  assert.equal(drawings(1200, 0), 15, "two pixels are four seconds");
  assert.ok(drawings(36_000, 0) <= 7, "ten seconds are the longest wait");
  const drawnAt = (turn: number): number =>
    [0, 1, 2, 3].findIndex((t) => drawingOf(t, 1200, 600, turn) !== drawingOf(t - 1, 1200, 600, turn));
  assert.equal(new Set([0, 1, 2, 3].map(drawnAt)).size, 4);
});

test("a group is what stands before the slash, unless it is a method or an address", () => {
  assert.deepEqual(["cart/add", "cart", "GET /cart", "/cart", "a b/c"].map(groupOf), ["cart", null, null, null, null]);
});

test("members stand below their group in the order of the table, and folded ones are left out", () => {
  const entries = ["all requests", "b/2", "a/1", "b/1", "c", "d/1", "c/9"].map((label, id) => ({
    id: id - 1,
    metric: null,
    label,
    figure: () => id,
  }));
  const nameOf = ({ label }: { label?: string }): string => label ?? "";
  const names = (folded: string[]): string[] =>
    arrangeGroups(entries, new Set(folded), nameOf).map(
      ({ label, group, member }) => `${member ? "  " : ""}${label}${group ? ` (${group.members})` : ""}`,
    );
  assert.deepEqual(names([]), ["all requests", "b (2)", "  b/2", "  b/1", "a/1", "c (1)", "  c/9", "d/1"]);
  assert.deepEqual(names(["b"]), ["all requests", "b (2)", "a/1", "c (1)", "  c/9", "d/1"]);
  const ids = arrangeGroups(entries, new Set(), nameOf).map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, "each row has an id of its own");
});

test("failed tries are counted by node, and those beyond the failed operations were repeated", () => {
  const found = failingNodes({
    messages: [
      [0, "timeout", "WRITE_TIMEOUT", "timed out (node 10.0.0.2, data centre dc1, consistency QUORUM)", 12],
      [0, "server", "OVERLOADED", "too busy (node 10.0.0.2, data centre dc1, consistency QUORUM)", 3],
      [0, "timeout", "WRITE_TIMEOUT", "timed out (node 10.0.0.3, data centre dc2, consistency ONE)", 4],
      [1, "http", "HTTP_500", "a page that says (node 1, data centre 2, consistency ONE) within it", 9],
    ],
    outcomes: [
      [0, "timeout", "WRITE_TIMEOUT", 5, 1, 9, ["w1"], 1],
      [1, "http", "HTTP_500", 9, null, null, [], 0],
    ],
  });
  assert.equal(found.retries, 14);
  assert.deepEqual(found.nodes, [
    {
      node: "10.0.0.2",
      datacenter: "dc1",
      consistency: "QUORUM",
      tries: 15,
      codes: [
        ["WRITE_TIMEOUT", 12],
        ["OVERLOADED", 3],
      ],
    },
    { node: "10.0.0.3", datacenter: "dc2", consistency: "ONE", tries: 4, codes: [["WRITE_TIMEOUT", 4]] },
  ]);
});

test("an hour of points keeps the lowest and the highest of each pixel, and continues", () => {
  const times = Array.from({ length: 3600 }, (_, index) => index + 1);
  const values = times.map((t) => (t === 1800 ? 9000 : t === 1900 ? 1 : 100));
  const line = { label: "p99", color: "p99", at: (index: number) => values[index] };
  const reduction = new Reduction();
  const first = reduction.update("a", times, [line], [0, 3600], 400);
  assert.ok(first.times.length <= 800);
  assert.deepEqual([Math.max(...(first.values[0] as number[])), Math.min(...(first.values[0] as number[]))], [9000, 1]);
  times.push(3601);
  values.push(20_000);
  const next = reduction.update("a", times, [line], [0, 3601], 400);
  assert.deepEqual([next.times.at(-1), next.values[0]?.at(-1)], [3601, 20_000]);
  assert.equal(reduction.update("a", times, [line], [3541, 3601], 400).times.length, 62, "a minute has all its points");
});

test("a pixel without values is a gap", () => {
  const times = Array.from({ length: 1000 }, (_, index) => index + 1);
  const line = { label: "p50", color: "p50", at: (index: number) => (index < 500 ? null : 5) };
  const { values } = new Reduction().update("a", times, [line], [0, 1000], 100);
  assert.deepEqual([values[0]?.[0], values[0]?.at(-1)], [null, 5]);
});

test("seconds without a request are gaps, also between joined seconds", () => {
  assert.deepEqual(withGaps([1, 2, 5, 6]), { times: [1, 2, 3, 5, 6], places: [0, 1, null, 2, 3] });
  assert.deepEqual(withGaps([2, 4, 10]), { times: [2, 4, 6, 10], places: [0, 1, null, 2] });
  assert.deepEqual(withGaps([]), { times: [], places: [] });
});

test("a traceback keeps its lines and shows its invisible characters", () => {
  assert.equal(lines('Traceback:\n  File "a\u202e.py"'), 'Traceback:\n  File "a⟨202e⟩.py"');
});
