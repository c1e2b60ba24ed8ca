//! The run so far in the Prometheus formats: text with classic histograms, or protobuf with classic
//! and native histograms. It serves nothing: the HTTP endpoint picks the [`ExpositionFormat`] from
//! the Accept header and sends the rendered bytes.

mod metric_families;
mod native_histogram;
mod protobuf;
mod text;

use squall_metrics::RunView;
use squall_model::{GeneratorStats, Plan};
use std::time::Duration;

pub use protobuf::protobuf;
pub use text::text;

/// The input of a scrape.
#[derive(Debug, Clone, Copy)]
pub struct ScrapeInput<'a> {
    pub view: &'a RunView,
    pub plan: &'a Plan,
    /// Since the start of the run.
    pub elapsed: Duration,
    /// The generator's cost so far, if it is known.
    pub generator: Option<&'a GeneratorStats>,
    /// Version of Squall.
    pub version: &'a str,
}

/// The format of a scrape response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    Text,
    Protobuf,
}

impl ExpositionFormat {
    /// Protobuf if the scraper's Accept header prefers it to text, else text.
    pub fn negotiate(accept: Option<&str>) -> ExpositionFormat {
        let quality = |part: &str| {
            let q = part.split(';').find_map(|param| param.trim().strip_prefix("q="));
            q.map_or(1.0, |q| q.trim().parse().unwrap_or(0.0))
        };
        let best = |wanted: &dyn Fn(&str) -> bool| {
            let parts = accept.unwrap_or_default().split(',').filter(|part| wanted(part));
            parts.map(quality).fold(0.0, f64::max)
        };
        let delimited =
            |part: &str| part.trim().starts_with("application/vnd.google.protobuf") && part.contains("delimited");
        let text = |part: &str| part.trim().starts_with("text/plain");
        if best(&delimited) > best(&text) { ExpositionFormat::Protobuf } else { ExpositionFormat::Text }
    }

    /// The Content-Type of the response.
    pub fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The body of the response.
    pub fn render(self, scrape: &ScrapeInput<'_>) -> Vec<u8> {
        match self {
            ExpositionFormat::Text => text(scrape).into_bytes(),
            ExpositionFormat::Protobuf => protobuf(scrape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_follows_the_accept_header() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                          application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        let classic = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(ExpositionFormat::negotiate(Some(prometheus)), ExpositionFormat::Protobuf);
        assert_eq!(ExpositionFormat::negotiate(Some(classic)), ExpositionFormat::Text);
        assert_eq!(ExpositionFormat::negotiate(Some("*/*")), ExpositionFormat::Text);
        assert_eq!(ExpositionFormat::negotiate(None), ExpositionFormat::Text);
    }
}
