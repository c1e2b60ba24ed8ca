//! Counters of one processor in one process, and their Prometheus text. Does not serve them over
//! HTTP; the caller does.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::names::ProcessorName;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $field:ident $kind:literal $name:literal;)*) => {
        /// The counters of a processor in this process. Counters never decrease; gauges may.
        #[derive(Debug, Default)]
        pub struct StreamMetrics {
            $($(#[doc = $doc])* pub(crate) $field: AtomicU64,)*
        }

        impl StreamMetrics {
            $($(#[doc = $doc])* pub fn $field(&self) -> u64 { self.$field.load(Relaxed) })*

            /// Renders the counters of several processors as Prometheus text.
            pub fn render<'a>(all: impl IntoIterator<Item = (&'a ProcessorName, &'a StreamMetrics)> + Clone) -> String {
                let mut out = String::new();
                $(
                    let help = concat!($($doc),*).trim();
                    write!(out, "# HELP {0} {help}\n# TYPE {0} {1}\n", $name, $kind).expect("writing to a string never fails");
                    for (name, metrics) in all.clone() {
                        let (stream, processor) = (name.stream(), name.processor());
                        writeln!(
                            out,
                            "{}{{app=\"{}\",stream=\"{}\",processor=\"{processor}\"}} {}",
                            $name, stream.app(), stream.stream(), metrics.$field()
                        ).expect("writing to a string never fails");
                    }
                )*
                out
            }
        }
    };
}

counters! {
    /// Events acknowledged.
    acked "counter" "squall_stream_events_acked_total";
    /// Events read from Redis, replayed ones included.
    fetched "counter" "squall_stream_events_fetched_total";
    /// Events read again because their last owner had not acknowledged them.
    replayed "counter" "squall_stream_events_replayed_total";
    /// Calls of the processor that failed.
    failures "counter" "squall_stream_failures_total";
    /// Failed events that were dead-lettered or ignored.
    given_up "counter" "squall_stream_events_given_up_total";
    /// Partitions put in quarantine.
    quarantines "counter" "squall_stream_quarantines_total";
    /// Actions that the server rejected because the partition had another owner.
    fenced "counter" "squall_stream_fenced_total";
    /// Partitions taken.
    granted "counter" "squall_stream_partitions_granted_total";
    /// Partitions handed over or lost.
    returned "counter" "squall_stream_partitions_returned_total";
    /// Partitions held now.
    held "gauge" "squall_stream_partitions_held";
    /// Unacknowledged events in the partitions held, at the last count.
    lag "gauge" "squall_stream_lag";
    /// Events fetched and not yet processed.
    buffered "gauge" "squall_stream_events_buffered";
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_metrics_are_prometheus_text() {
        let metrics = StreamMetrics::default();
        add(&metrics.acked, 3);
        let name = ProcessorName::parse("myapp.orders.printer").unwrap();
        let text = StreamMetrics::render([(&name, &metrics)]);
        assert!(text.starts_with(
            "# HELP squall_stream_events_acked_total Events acknowledged.\n\
             # TYPE squall_stream_events_acked_total counter\n\
             squall_stream_events_acked_total{app=\"myapp\",stream=\"orders\",processor=\"printer\"} 3\n"
        ));
        assert!(text.contains("# TYPE squall_stream_partitions_held gauge\n"));
    }
}
