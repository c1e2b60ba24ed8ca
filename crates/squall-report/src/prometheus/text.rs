//! The text exposition format 0.0.4, with classic histograms.

use std::fmt::Write;

use super::{
    Scrape,
    families::{BOUNDS, Labels, Series, cumulative, families},
};

/// The scrape as text.
pub fn text(scrape: &Scrape<'_>) -> String {
    let mut out = String::new();
    for family in families(scrape) {
        let name = family.name;
        let kind = match family.series {
            Series::Counter(_) => "counter",
            Series::Gauge(_) => "gauge",
            Series::Histogram(_) => "histogram",
        };
        put(&mut out, format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", family.help));
        match family.series {
            Series::Counter(series) | Series::Gauge(series) => {
                series.iter().for_each(|(labels, value)| {
                    put(&mut out, format_args!("{name}{} {value}\n", braces(labels, None)))
                });
            }
            Series::Histogram(series) => {
                for (labels, histogram) in series {
                    for (bound, n) in BOUNDS.iter().zip(cumulative(histogram)) {
                        put(&mut out, format_args!("{name}_bucket{} {n}\n", braces(&labels, Some(&bound.to_string()))));
                    }
                    let count = histogram.count();
                    put(&mut out, format_args!("{name}_bucket{} {count}\n", braces(&labels, Some("+Inf"))));
                    let (labels, sum) = (braces(&labels, None), histogram.sum() as f64 / 1e9);
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

fn braces(labels: &Labels, bound: Option<&str>) -> String {
    let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let all: Vec<String> = labels.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
