//! Declared scenarios: from TOML text (or one URL) to a plan and a driver. Reads and judges everything before the first request,
//! and reports every mistake at once; sends nothing itself and keeps no time, which are the engine's and the HTTP client's work.

mod driver;
mod error;
mod files;
mod given;
mod scenario;

pub use driver::{ScenarioDriver, ScenarioThread, ScenarioUser};
pub use error::{Place, Problem, ScenarioErrors};
pub use files::{Disk, Files, NoFiles};
pub use given::{Given, Overrides, RawHttp, RawLoad, UrlRequest};
pub use scenario::Scenario;
