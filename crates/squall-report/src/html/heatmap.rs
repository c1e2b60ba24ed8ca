//! Renders the latency heatmap: a column for some seconds, a row for each two coarse buckets of
//! response times, darker where more requests are. It draws each level of darkness as one path,
//! because a file with an element for each cell would be several times as large. `charts.rs` calls it.

use squall_metrics::{RunSecond, coarse_bucket_bounds};
use std::{collections::BTreeMap, fmt::Write};

use super::{
    charts::{figure, tick_time},
    svg::ChartCanvas,
};

/// More columns would make the file large.
const MAX_COLUMNS: usize = 150;
/// Coarse buckets of a row, so that a doubling of the time has four rows.
const BUCKETS: usize = 2;
/// Levels of darkness; the style sheet has a colour for each.
const LEVELS: usize = 8;

/// The counts of all cells.
pub(super) struct HeatCells {
    /// By column: row → requests.
    columns: Vec<BTreeMap<u16, u64>>,
    /// Seconds of a column.
    stride: usize,
    low: u16,
    high: u16,
    most: u64,
    /// The lowest time of each row.
    bounds: Vec<u64>,
}

impl HeatCells {
    /// `None` if no request was measured.
    pub(super) fn of(timeline: &[RunSecond]) -> Option<HeatCells> {
        let stride = timeline.len().div_ceil(MAX_COLUMNS).max(1);
        let column = |seconds: &[RunSecond]| {
            let mut counts = BTreeMap::<u16, u64>::new();
            let buckets = seconds.iter().flat_map(|second| second.buckets.iter());
            buckets.for_each(|(bucket, n)| *counts.entry(*bucket / BUCKETS as u16).or_default() += n);
            counts
        };
        let columns: Vec<_> = timeline.chunks(stride).map(column).collect();
        let rows = || columns.iter().flat_map(BTreeMap::keys);
        let (low, high) = (*rows().min()?, *rows().max()?);
        let most = columns.iter().flat_map(BTreeMap::values).copied().max()?;
        Some(HeatCells { columns, stride, low, high, most, bounds: coarse_bucket_bounds().step_by(BUCKETS).collect() })
    }

    fn rows(&self) -> usize {
        usize::from(self.high - self.low) + 1
    }

    /// The position of a time from the bottom, 0 to 1. Rows are equally high.
    pub(super) fn position(&self, nanos: u64) -> f64 {
        let above = self.bounds.partition_point(|bound| *bound <= nanos).max(1);
        let (from, to) = (self.bounds[above - 1], self.bounds.get(above).copied().unwrap_or(u64::MAX));
        let row = (above - 1) as f64 + (nanos - from.min(nanos)) as f64 / (to - from).max(1) as f64;
        ((row - f64::from(self.low)) / self.rows() as f64).clamp(0.0, 1.0)
    }

    /// Round times between the lowest and the highest row, with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let end = self.bounds.get(usize::from(self.high) + 1).copied().unwrap_or(u64::MAX);
        let start = self.bounds[usize::from(self.low)].max(1);
        let steps = if end / start > 100 { [1].as_slice() } else { &[1, 2, 5] };
        let decades = (0..13).map(|power| 10u64.pow(power));
        let ticks = decades.flat_map(|decade| steps.iter().map(move |step| decade * step));
        let shown = ticks.filter(|tick| (start..=end).contains(tick));
        shown.map(|tick| (self.position(tick), tick_time(tick as f64))).collect()
    }

    /// Darkness of a count: logarithmic, because a bucket of the tail has few requests.
    fn level(&self, n: u64) -> usize {
        let share = (n as f64 + 1.0).ln() / (self.most as f64 + 1.0).ln();
        ((share * LEVELS as f64) as usize).min(LEVELS - 1)
    }

    /// A path for each level. Neighbours of one level in a row are one rectangle.
    fn paths(&self) -> [String; LEVELS] {
        let mut paths = [const { String::new() }; LEVELS];
        for row in self.low..=self.high {
            let levels = self.columns.iter().map(|column| column.get(&row).map(|n| self.level(*n)));
            let levels: Vec<Option<usize>> = levels.collect();
            let y = self.high - row;
            let mut x = 0;
            for same in levels.chunk_by(|a, b| a == b) {
                if let Some(level) = same[0] {
                    let width = same.len();
                    write!(paths[level], "M{x} {y}h{width}v1h-{width}z").expect("writing to a string does not fail");
                }
                x += same.len();
            }
        }
        paths
    }

    /// Draws the cells on a time axis that ends at `last_s`.
    pub(super) fn draw(&self, canvas: &mut ChartCanvas, last_s: f64) {
        // The last column may stand for fewer seconds than the others and is drawn as wide as they are.
        let end = (self.columns.len() * self.stride) as f64 / last_s;
        for (level, path) in self.paths().iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            canvas.cells(&format!("heat-{level}"), (self.columns.len(), self.rows()), end, path);
        }
    }

    /// The figure with `canvas` in it.
    pub(super) fn figure(&self, canvas: ChartCanvas) -> String {
        let title = "Where the times fell";
        let legend = [("heat-line", "p50"), ("heat-line high", "p99"), ("heat-few", "few"), ("heat-many", "many")];
        figure(title, &legend, &canvas.finish("Response times over time", "p50:p50,p95:p95,p99:p99,max:max"))
    }
}
