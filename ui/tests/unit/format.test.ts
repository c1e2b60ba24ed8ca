import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bytes,
  clock,
  count,
  length,
  levelText,
  percent,
  short,
  shorten,
  tableMs,
  three,
  tickTime,
  timeText,
  verdictChip,
  visible,
  withoutZeros,
} from "../../src/format";

test("numbers have thousands separated and three digits", () => {
  assert.equal(count(488812), "488,812");
  assert.deepEqual([1497.4, 71.23, 6.433, 0.31, 0, -2.5].map(three), ["1,497", "71.2", "6.43", "0.310", "0", "−2.50"]);
});

test("times are milliseconds, and seconds from 10 s on", () => {
  assert.deepEqual([6433, 45_100, 1_240_000, 12_000_000].map(timeText), ["6.43 ms", "45.1 ms", "1,240 ms", "12.0 s"]);
  assert.equal(tableMs(2_240_120), "2,240.1");
  assert.deepEqual([0, 59, 408, 3661].map(clock), ["0:00", "0:59", "6:48", "1:01:01"]);
});

test("a length has its two largest units, and a level of the load the digits that it has", () => {
  const lengths = [4.5, 45, 62, 369.79, 600, 7200, 9000, 604_800].map(length);
  assert.deepEqual(lengths, ["4.5 s", "45 s", "1 min 2 s", "6 min 10 s", "10 min", "2 h", "2 h 30 min", "168 h"]);
  assert.deepEqual([60, 16.5, 1500].map(levelText), ["60", "16.5", "1,500"]);
});

test("a share that is not 0 is never shown as 0", () => {
  assert.deepEqual([0, 0.0034, 0.00001, 1].map(percent), ["0", "0.340", "<0.01", "100"]);
});

test("axes show seconds from one on, no needless zeros, and small shares one decimal", () => {
  assert.deepEqual([100, 100_000, 1_000_000, 1_500_000].map(tickTime).map(withoutZeros), ["0.1 ms", "100 ms", "1 s", "1.5 s"]);
  assert.deepEqual(["75.0/s", "2.50 ms", "100/s", "0.010 s", "1,000/s"].map(withoutZeros), [
    "75/s",
    "2.5 ms",
    "100/s",
    "0.01 s",
    "1,000/s",
  ]);
  assert.deepEqual([0, 0.94, 2.7, 12.4].map(short), ["0", "0.9", "2.7", "12"]);
});

test("bytes have a unit of thousands", () => {
  assert.deepEqual([12, 1500, 78_000_000].map(bytes), ["12.0 B", "1.50 kB", "78.0 MB"]);
});

test("a verdict has a word, a colour and an icon", () => {
  assert.deepEqual(["passed", "interrupted", "threshold_breached"].map(verdictChip), [
    { text: "Passed", tone: "good", icon: "ok" },
    { text: "Interrupted", tone: "warn", icon: "no" },
    { text: "Threshold breached", tone: "bad", icon: "no" },
  ]);
});

test("characters that hide or turn text are shown", () => {
  assert.equal(visible("a\u0000b\u202ec\u200bd"), "a⟨0⟩b⟨202e⟩c⟨200b⟩d");
  assert.equal(visible("a\u061cb\u00adc\u2066d\u3164e\u2028f"), "a⟨61c⟩b⟨ad⟩c⟨2066⟩d⟨3164⟩e⟨2028⟩f");
  assert.equal(visible("<script>ü</script>"), "<script>ü</script>");
  assert.equal(shorten("x".repeat(1000)).length, 201);
});
