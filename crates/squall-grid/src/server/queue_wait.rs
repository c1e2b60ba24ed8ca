//! How long clients waited for their slots, as a histogram for Prometheus and as quantiles.
//! It keeps counts per bucket since the start of the server, and no single value.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The buckets end at 1, 2, 4, … 65,536 ms; the last has no end.
const BUCKETS: usize = 18;

/// The waiting times of the sessions that this server has granted.
#[derive(Debug, Default)]
pub(crate) struct QueueWait {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl QueueWait {
    pub(crate) fn record(&self, waited: Duration) {
        let ms = waited.as_micros().div_ceil(1000).max(1);
        let bucket = (ms.next_power_of_two().trailing_zeros() as usize).min(BUCKETS - 1);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The upper end of the bucket with this quantile; 0 without a session.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> u64 {
        let counts = self.counts();
        let rank = (counts.iter().sum::<u64>() as f64 * quantile).ceil() as u64;
        let mut below = 0;
        let found = counts.iter().position(|count| {
            below += count;
            rank > 0 && below >= rank
        });
        found.map_or(0, |bucket| 1 << bucket)
    }

    fn counts(&self) -> [u64; BUCKETS] {
        self.buckets.each_ref().map(|count| count.load(Relaxed))
    }

    /// Adds the histogram to the text of `/metrics`.
    pub(crate) fn render(&self, text: &mut String) {
        const NAME: &str = "squall_grid_queue_wait_seconds";
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "# HELP {NAME} How long clients waited for their slots on this server.\n# TYPE {NAME} histogram\n"
        );
        let mut below = 0;
        for (bucket, count) in self.counts().into_iter().enumerate() {
            below += count;
            let end =
                if bucket == BUCKETS - 1 { "+Inf".to_owned() } else { (f64::from(1_u32 << bucket) / 1e3).to_string() };
            let _ = writeln!(text, "{NAME}_bucket{{le=\"{end}\"}} {below}");
        }
        let sum = self.sum_us.load(Relaxed) as f64 / 1e6;
        let _ = write!(text, "{NAME}_sum {sum}\n{NAME}_count {below}\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_buckets_agree_with_the_waits() {
        let waits = QueueWait::default();
        assert_eq!(waits.quantile_ms(0.5), 0);
        for ms in [0, 1, 1, 3, 4, 5, 900, 1000, 1024, 600_000] {
            waits.record(Duration::from_millis(ms));
        }
        assert_eq!((waits.quantile_ms(0.3), waits.quantile_ms(0.5), waits.quantile_ms(0.9)), (1, 4, 1024));
        assert_eq!(waits.quantile_ms(1.0), 1 << 17);
        let mut text = String::new();
        waits.render(&mut text);
        for line in
            ["bucket{le=\"0.001\"} 3", "bucket{le=\"0.004\"} 5", "bucket{le=\"65.536\"} 9", "bucket{le=\"+Inf\"} 10"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.ends_with("_sum 602.938\nsquall_grid_queue_wait_seconds_count 10\n"), "{text}");
    }
}
