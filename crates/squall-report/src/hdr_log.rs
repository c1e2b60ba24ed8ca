//! Writes the HdrHistogram interval log, version 1.3, with tags, while the run is in progress. Each
//! second has one line without a tag and three per metric, readable by every standard reader.
//! Values are nanoseconds; the log's maximum column is in milliseconds, as in other writers.

use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use squall_metrics::{Histogram, MetricDelta, MetricKey, MetricKind, RunView};
use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{ReportInput, report_input::second_length};

/// A log that is being written.
///
/// Untagged lines hold the response times of all requests. Each metric has three tags with the
/// names that cassandra-stress uses: `browse-rt` (response time), `browse-st` (service time) and
/// `browse-wt` (wait).
pub struct HdrLogWriter<W: Write> {
    writer: W,
    serializer: V2DeflateSerializer,
    buffer: Vec<u8>,
    /// The metric of each tag. Two metrics may differ only in characters that a tag cannot contain,
    /// so the second one gets another tag.
    tags: HashMap<String, Arc<MetricKey>>,
    /// Seconds of the run that are written or lost.
    seconds_done: usize,
    seconds_lost: usize,
}

impl<W: Write> HdrLogWriter<W> {
    /// Writes the log's header.
    pub fn new(mut writer: W, start: SystemTime) -> io::Result<HdrLogWriter<W>> {
        let start = start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
        writeln!(writer, "#[Histogram log format version 1.3]")?;
        writeln!(writer, "#[StartTime: {start:.3} (seconds since epoch)]")?;
        writeln!(writer, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"")?;
        let serializer = V2DeflateSerializer::new();
        Ok(HdrLogWriter {
            writer,
            serializer,
            buffer: Vec::new(),
            tags: HashMap::new(),
            seconds_done: 0,
            seconds_lost: 0,
        })
    }

    /// Writes every second that the view has closed since the last call. Call it after each second:
    /// the view drops old seconds, and the log then has a comment in their place. `elapsed` is the
    /// time since the start of the run; it gives the length of the last second, which is usually
    /// below 1.
    pub fn write_new_seconds(&mut self, view: &RunView, elapsed: Duration) -> io::Result<()> {
        let due = view.timeline.len().saturating_sub(self.seconds_done);
        let kept: Vec<&[MetricDelta]> = view.latest_seconds(due).collect();
        let missed = due - kept.len();
        if missed > 0 {
            writeln!(self.writer, "#[{missed} seconds from {} s on are missing here]", self.seconds_done)?;
        }
        self.seconds_lost += missed;
        self.seconds_done += missed;
        for deltas in kept {
            self.write_interval(deltas, second_length(self.seconds_done as u32 + 1, elapsed))?;
            self.seconds_done += 1;
        }
        Ok(())
    }

    /// Flushes the log and returns the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }

    /// Seconds that the view had dropped before they were written.
    pub fn lost_seconds(&self) -> usize {
        self.seconds_lost
    }

    fn write_interval(&mut self, deltas: &[MetricDelta], length: f64) -> io::Result<()> {
        let mut all = Histogram::default();
        deltas
            .iter()
            .filter(|delta| delta.key.kind == MetricKind::Request)
            .for_each(|delta| all.merge(&delta.response));
        if !all.is_empty() {
            self.write_line("", length, &all)?;
        }
        for delta in deltas {
            let name = self.unique_tag(&delta.key);
            for (suffix, histogram) in [("rt", &delta.response), ("st", &delta.service), ("wt", &delta.wait)] {
                self.write_line(&format!("Tag={name}-{suffix},"), length, histogram)?;
            }
        }
        Ok(())
    }

    fn unique_tag(&mut self, key: &Arc<MetricKey>) -> String {
        let mut name = tag_name(key);
        while self.tags.get(&name).is_some_and(|other| other != key) {
            name.push('~');
        }
        if !self.tags.contains_key(&name) {
            self.tags.insert(name.clone(), key.clone());
        }
        name
    }

    fn write_line(&mut self, tag: &str, length: f64, histogram: &Histogram) -> io::Result<()> {
        self.buffer.clear();
        self.serializer.serialize(&histogram.to_hdr(), &mut self.buffer).map_err(io::Error::other)?;
        let max = histogram.max() as f64 / 1e6;
        writeln!(self.writer, "{tag}{}.000,{length:.3},{max:.3},{}", self.seconds_done, STANDARD.encode(&self.buffer))
    }
}

/// The log of a finished run with one interval, the whole run. A recorded run has no histograms of
/// single seconds.
pub fn hdr_log_of_run(run: &ReportInput<'_>) -> String {
    let start = SystemTime::UNIX_EPOCH + Duration::from_millis(run.facts.started_unix_ms);
    let write = || -> io::Result<Vec<u8>> {
        let mut log = HdrLogWriter::new(Vec::new(), start)?;
        let length = run.facts.elapsed.as_secs_f64();
        if !run.view.all.response.is_empty() {
            log.write_line("", length, &run.view.all.response)?;
        }
        for metric in &run.view.metrics {
            let name = log.unique_tag(&metric.key);
            for (suffix, histogram) in [("rt", &metric.response), ("st", &metric.service), ("wt", &metric.wait)] {
                log.write_line(&format!("Tag={name}-{suffix},"), length, histogram)?;
            }
        }
        log.finish()
    };
    let bytes = write().expect("writing to memory does not fail");
    String::from_utf8(bytes).expect("the log is text")
}

/// The metric's name as a tag. Commas, blanks and quotes would end the tag, so they become `_`.
fn tag_name(key: &MetricKey) -> String {
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
