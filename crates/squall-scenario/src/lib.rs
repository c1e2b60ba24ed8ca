//! Declared scenarios: from TOML text (or one URL) to a plan and a driver. Reads and judges everything before the first request,
//! and reports every mistake at once; sends nothing itself and keeps no time, which are the engine's and the HTTP client's work.
//!
//! The way of a scenario: `read` (text to raw settings with places) → `build` (names resolved, texts compiled, contradictions found)
//! → `program` (what is run) → `driver` (runs it).

mod build;
mod check;
mod compiled_scenario;
mod data;
mod describe;
mod driver;
mod error;
mod files;
mod raw_settings;
mod read;
mod scenario;
mod template;

pub use driver::{RequestGuard, ScenarioDriver, ScenarioThread, ScenarioUser};
pub use error::{ScenarioErrors, ScenarioProblem, SourceLocation};
pub use files::{BundledFiles, DiskFiles, NoFiles, RecordingFiles, ScenarioFiles};
pub use raw_settings::{RawHttp, RawLoad, ScenarioOverrides, Sourced, UrlRequest};
pub use scenario::Scenario;
