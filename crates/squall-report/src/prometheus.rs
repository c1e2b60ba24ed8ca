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
pub(crate) use text::escaped;
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

const TEXT: &str = "text/plain";
const OPEN_METRICS: &str = "application/openmetrics-text";
const PROTOBUF: &str = "application/vnd.google.protobuf";

/// The highest quality that the Accept header gives to a media type that is `wanted`; 0 if it names none.
fn accepted_quality(accept: Option<&str>, wanted: impl Fn(&str) -> bool) -> f64 {
    let quality = |part: &str| {
        let q = part.split(';').find_map(|param| param.trim().strip_prefix("q="));
        q.map_or(1.0, |q| q.trim().parse().unwrap_or(0.0))
    };
    let parts = accept.unwrap_or_default().split(',').map(str::trim).filter(|part| wanted(part));
    parts.map(quality).fold(0.0, f64::max)
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
        let delimited = |part: &str| part.starts_with(PROTOBUF) && part.contains("delimited");
        let text = |part: &str| part.starts_with(TEXT);
        match accepted_quality(accept, delimited) > accepted_quality(accept, text) {
            true => ExpositionFormat::Protobuf,
            false => ExpositionFormat::Text,
        }
    }

    /// Whether the Accept header names a Prometheus format and does not prefer JSON. Scrapers name one;
    /// `*/*` names none.
    ///
    /// ```
    /// use squall_report::prometheus::ExpositionFormat;
    /// assert!(ExpositionFormat::is_named_by(Some("application/openmetrics-text;version=1.0.0,*/*;q=0.1")));
    /// assert!(!ExpositionFormat::is_named_by(Some("*/*")));
    /// ```
    pub fn is_named_by(accept: Option<&str>) -> bool {
        let exposition = |part: &str| [TEXT, OPEN_METRICS, PROTOBUF].iter().any(|format| part.starts_with(format));
        let json = |part: &str| part.starts_with("application/json");
        accepted_quality(accept, exposition) > accepted_quality(accept, json)
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
        assert!([prometheus, classic].into_iter().all(|accept| ExpositionFormat::is_named_by(Some(accept))));
    }

    #[test]
    fn only_scrapers_name_an_exposition_format() {
        let is_named_by = |accept| ExpositionFormat::is_named_by(Some(accept));
        // Prometheus without native histograms, vmagent and the Datadog agent.
        assert!(is_named_by(
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        ));
        assert!(is_named_by("text/plain;version=0.0.4;q=1,*/*;q=0.1"));
        assert!(is_named_by("text/plain"));
        // curl, Python and fetch; axios; a browser.
        assert!(!is_named_by("*/*"));
        assert!(!is_named_by("application/json, text/plain, */*"));
        assert!(!is_named_by("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(!ExpositionFormat::is_named_by(None));
    }
}
