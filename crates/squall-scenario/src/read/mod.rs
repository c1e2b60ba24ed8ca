//! Reads TOML text into raw settings, each with its location. Checks only types and key names; `build`
//! validates the rest.

mod browser;
mod cql;
mod document;
mod json;
mod load;
mod raw;
mod request;
mod table;

pub(crate) use document::read_scenario;
pub use raw::RawBrowser;
pub(crate) use raw::{
    NameValuePairs, RawBody, RawBrowserStep, RawColumnExtract, RawCqlArgument, RawCqlStep, RawData, RawExpect,
    RawExtract, RawHeaderCheck, RawJson, RawJsonCheck, RawRequest, RawResource, RawScenario, RawStep, RawTask,
    ScenarioLanguage, TaskKind,
};
