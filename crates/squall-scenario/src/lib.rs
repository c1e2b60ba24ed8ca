//! TOML scenarios: turns TOML text or one URL into a plan and a driver, and what a Python scenario
//! declares into a plan. It reads and validates everything before the first request and reports every
//! mistake at once. The engine keeps the time, and the HTTP client sends.
//!
//! A scenario passes through `read` (text to raw settings with their locations), `build` (resolves
//! names, compiles templates, finds conflicts) and `compiled_scenario` (the result) to `driver` (runs
//! it). The command line and the Python module call this crate.

// Without the feature, CQL steps are read and refused, and what a statement is compiled to stays unused.
#![cfg_attr(not(feature = "cql"), allow(dead_code, unused_imports))]

mod build;
mod check;
mod code_scenario;
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

/// How to get what a program was built without.
pub const WHOLE_PROGRAM_HINT: &str =
    "`make python` builds the whole program into .venv, `make build` into target/release";

/// The CQL client, for scenarios that are written as code.
#[cfg(feature = "cql")]
pub use squall_cql as cql_client;

pub use code_scenario::{CodeScenario, RawCodeScenario, RawCodeTask};
pub use compiled_scenario::{BrowserSettings, GridSettings};
pub use driver::{
    EndedRequest, RequestFailure, RequestHandler, RequestRunner, RequestSender, RequestStart, ScenarioDriver,
    ScenarioThread, ScenarioUser, http_error_outcome,
};
#[cfg(feature = "cql")]
pub use driver::{StatementEnd, StatementRunner, record_row_count};
#[cfg(feature = "browser")]
pub use driver::{StepFigures, ThreadBrowser};
pub use error::{CodeLocation, ScenarioErrors, ScenarioProblem, SourceLocation};
pub use files::{BundledFiles, DiskFiles, NoFiles, RecordingFiles, ScenarioFiles, open_input_file, read_input_text};
pub use raw_settings::{RawCql, RawHttp, RawLoad, ScenarioOverrides, Sourced, UrlRequest};
pub use read::RawBrowser;
pub use scenario::Scenario;
#[cfg(feature = "browser")]
pub use squall_browser::{PAGE_SCRIPT, RequestResult, Vitals};
