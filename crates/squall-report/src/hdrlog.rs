//! The HdrHistogram interval log, version 1.3, with tags: one line for each metric and second, written while the run goes on,
//! readable by every standard reader. Values are nanoseconds; the log's own maximum column is in milliseconds, as usual.

use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use squall_metrics::{Histogram, MetricKind, MetricDelta, MetricKey, RunView};
use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::run::length_of;

/// A log under way.
///
/// Untagged lines are the response times of all requests. Each metric has three tags, named as cassandra-stress names
/// them: `browse-rt` (response time), `browse-st` (service time) and `browse-wt` (wait).
pub struct HdrLog<W: Write> {
    writer: W,
    serializer: V2DeflateSerializer,
    buffer: Vec<u8>,
    /// Whose each tag is: two metrics may differ in nothing but what a tag cannot hold.
    tags: HashMap<String, Arc<MetricKey>>,
    /// Seconds of the run that are written or given up.
    done: usize,
    lost: usize,
}

impl<W: Write> HdrLog<W> {
    /// Writes the log's head.
    pub fn new(mut writer: W, start: SystemTime) -> io::Result<HdrLog<W>> {
        let start = start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        writeln!(writer, "#[Histogram log format version 1.3]")?;
        writeln!(writer, "#[StartTime: {start:.3} (seconds since epoch)]")?;
        writeln!(writer, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"")?;
        let serializer = V2DeflateSerializer::new();
        Ok(HdrLog { writer, serializer, buffer: Vec::new(), tags: HashMap::new(), done: 0, lost: 0 })
    }

    /// Writes every second that the view has closed since the last call; call it whenever one has. Seconds that the view no
    /// longer keeps are lost to the log, and it says so in a comment.
    /// `elapsed`: since the start of the run, of which the last second is seldom a whole one.
    pub fn second(&mut self, view: &RunView, elapsed: Duration) -> io::Result<()> {
        let due = view.timeline.len().saturating_sub(self.done);
        let kept: Vec<&[MetricDelta]> = view.latest_seconds(due).collect();
        let missed = due - kept.len();
        if missed > 0 {
            writeln!(self.writer, "#[{missed} seconds from {} s on are missing here]", self.done)?;
        }
        self.lost += missed;
        self.done += missed;
        for deltas in kept {
            self.interval(deltas, length_of(self.done as u32 + 1, elapsed))?;
            self.done += 1;
        }
        Ok(())
    }

    /// Flushes the log and hands the writer back.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }

    /// Seconds that were asked for too late.
    pub fn lost_seconds(&self) -> usize {
        self.lost
    }

    fn interval(&mut self, deltas: &[MetricDelta], length: f64) -> io::Result<()> {
        let mut all = Histogram::default();
        deltas.iter().filter(|delta| delta.key.kind == MetricKind::Request).for_each(|delta| all.merge(&delta.response));
        if !all.is_empty() {
            self.line("", length, &all)?;
        }
        for delta in deltas {
            let name = self.tag(&delta.key);
            for (suffix, histogram) in [("rt", &delta.response), ("st", &delta.service), ("wt", &delta.wait)] {
                self.line(&format!("Tag={name}-{suffix},"), length, histogram)?;
            }
        }
        Ok(())
    }

    fn tag(&mut self, key: &Arc<MetricKey>) -> String {
        let mut name = tag(key);
        while self.tags.get(&name).is_some_and(|other| other != key) {
            name.push('~');
        }
        if !self.tags.contains_key(&name) {
            self.tags.insert(name.clone(), key.clone());
        }
        name
    }

    fn line(&mut self, tag: &str, length: f64, histogram: &Histogram) -> io::Result<()> {
        self.buffer.clear();
        self.serializer.serialize(&histogram.to_hdr(), &mut self.buffer).map_err(io::Error::other)?;
        let max = histogram.max() as f64 / 1e6;
        writeln!(self.writer, "{tag}{}.000,{length:.3},{max:.3},{}", self.done, STANDARD.encode(&self.buffer))
    }
}

/// The metric's name as a tag may be: commas, blanks and quotes would end it.
fn tag(key: &MetricKey) -> String {
    let mut name = match &key.group {
        Some(group) => format!("{group}/{}", key.name),
        None => key.name.clone(),
    };
    for (tag, value) in &key.tags {
        name += &format!(";{tag}={value}");
    }
    if key.kind == MetricKind::Group {
        name += "(group)";
    }
    name.chars().map(|c| if c.is_whitespace() || c.is_control() || matches!(c, ',' | '"') { '_' } else { c }).collect()
}
