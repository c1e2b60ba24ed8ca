//! The run so far as Prometheus scrapes it: text with classic histograms, or protobuf with native ones beside them. Serves
//! nothing: an HTTP endpoint picks the [`Format`] from the Accept header and sends what it gets here.

mod families;
mod native;
mod protobuf;
mod text;

use squall_metrics::RunView;
use squall_model::{GeneratorStats, Plan};
use std::time::Duration;

pub use protobuf::protobuf;
pub use text::text;

/// What a scrape shows.
#[derive(Debug, Clone, Copy)]
pub struct Scrape<'a> {
    pub view: &'a RunView,
    pub plan: &'a Plan,
    /// Since the start of the run.
    pub elapsed: Duration,
    /// The generator's cost so far, if it is known before the end.
    pub generator: Option<&'a GeneratorStats>,
    /// Of Squall itself.
    pub version: &'a str,
}

/// How a scrape is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Protobuf,
}

impl Format {
    /// What the scraper asked for: protobuf if its Accept header puts it before text, else text.
    pub fn negotiate(accept: Option<&str>) -> Format {
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
        if best(&delimited) > best(&text) { Format::Protobuf } else { Format::Text }
    }

    /// The Content-Type of the answer.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// The answer itself.
    pub fn render(self, scrape: &Scrape<'_>) -> Vec<u8> {
        match self {
            Format::Text => text(scrape).into_bytes(),
            Format::Protobuf => protobuf(scrape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scraper_gets_what_it_prefers() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                          application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.2";
        let classic = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::negotiate(Some(prometheus)), Format::Protobuf);
        assert_eq!(Format::negotiate(Some(classic)), Format::Text);
        assert_eq!(Format::negotiate(Some("*/*")), Format::Text);
        assert_eq!(Format::negotiate(None), Format::Text);
    }
}
