//! Renders the text exposition format 0.0.4 with classic histograms.

use std::fmt::Write;

use super::{
    ScrapeInput,
    metric_families::{BUCKET_BOUNDS, FamilySamples, LabelPairs, cumulative_counts, families},
};

/// The scrape as text.
pub fn text(scrape: &ScrapeInput<'_>) -> String {
    let mut out = String::new();
    for family in families(scrape) {
        let name = family.name;
        let kind = match family.series {
            FamilySamples::Counter(_) => "counter",
            FamilySamples::Gauge(_) => "gauge",
            FamilySamples::Histogram(_) => "histogram",
        };
        put(&mut out, format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", family.help));
        match family.series {
            FamilySamples::Counter(series) | FamilySamples::Gauge(series) => {
                series.iter().for_each(|(labels, value)| {
                    put(&mut out, format_args!("{name}{} {value}\n", format_labels(labels, None)))
                });
            }
            FamilySamples::Histogram(series) => {
                for (labels, histogram) in series {
                    for (bound, n) in BUCKET_BOUNDS.iter().zip(cumulative_counts(histogram)) {
                        put(
                            &mut out,
                            format_args!("{name}_bucket{} {n}\n", format_labels(&labels, Some(&bound.to_string()))),
                        );
                    }
                    let count = histogram.count();
                    put(&mut out, format_args!("{name}_bucket{} {count}\n", format_labels(&labels, Some("+Inf"))));
                    let (labels, sum) = (format_labels(&labels, None), histogram.sum() as f64 / 1e9);
                    put(&mut out, format_args!("{name}_sum{labels} {sum}\n{name}_count{labels} {count}\n"));
                }
            }
        }
    }
    out
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string does not fail");
}

fn format_labels(labels: &LabelPairs, bound: Option<&str>) -> String {
    let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let all: Vec<String> = labels.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

pub(crate) fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
