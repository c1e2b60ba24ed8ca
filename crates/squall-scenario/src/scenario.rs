//! The front door: text or URL in, validated scenario or every problem out.

use squall_http::HttpConfig;
use squall_model::{Plan, Segment};

use crate::{
    Files, Overrides, ScenarioDriver, ScenarioErrors, UrlRequest,
    error::{Place, Problems},
};

/// A validated scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What the engine and the report must know.
    pub plan: Plan,
    /// The settings of the HTTP client.
    pub http: HttpConfig,
}

impl Scenario {
    /// Reads a scenario file's `text`. `file` is its name for messages; `files` reads what it refers to.
    pub fn parse(
        file: &str,
        text: &str,
        files: &mut dyn Files,
        overrides: Overrides,
    ) -> Result<Scenario, ScenarioErrors> {
        let _ = (files, overrides);
        let mut problems = Problems::new(file, text);
        problems.add(&Place::Nowhere, "not built yet");
        problems.finish(None)
    }

    /// A scenario of one request.
    pub fn from_url(
        request: UrlRequest,
        files: &mut dyn Files,
        overrides: Overrides,
    ) -> Result<Scenario, ScenarioErrors> {
        let _ = (request, files, overrides);
        let mut problems = Problems::new("command line", "");
        problems.add(&Place::Nowhere, "not built yet");
        problems.finish(None)
    }

    /// The driver of the whole run.
    pub fn driver(&self) -> ScenarioDriver {
        self.driver_for(Segment::WHOLE)
    }

    /// The driver of one share of a run: data rows are dealt so that no two shares use the same one.
    pub fn driver_for(&self, segment: Segment) -> ScenarioDriver {
        let _ = segment;
        ScenarioDriver {}
    }

    /// The plan in words.
    pub fn describe(&self) -> String {
        format!("{} against {}\n", self.plan.name, self.plan.target)
    }
}
