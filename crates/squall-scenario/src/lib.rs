//! Declared scenarios: from TOML text (or one URL) to a plan and a driver. Reads and judges everything before the first request,
//! and reports every mistake at once; sends nothing itself and keeps no time, which are the engine's and the HTTP client's work.
//!
//! The way of a scenario: `read` (text to raw settings with places) → `build` (names resolved, texts compiled, contradictions found)
//! → `program` (what is run) → `driver` (runs it).

mod build;
mod check;
mod data;
mod describe;
mod driver;
mod error;
mod files;
mod given;
mod program;
mod read;
mod scenario;
mod template;

pub use driver::{Aloft, ScenarioDriver, ScenarioThread, ScenarioUser};
pub use error::{Place, Problem, ScenarioErrors};
pub use files::{Disk, Files, NoFiles, Recording, Travelled};
pub use given::{Given, Overrides, RawHttp, RawLoad, UrlRequest};
pub use scenario::Scenario;
