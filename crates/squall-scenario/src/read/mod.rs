//! From TOML text to raw settings: every key with its place, nothing judged but types and names. Knows no HTTP and no load.

mod document;
mod json;
mod load;
mod raw;
mod request;
mod table;

pub(crate) use document::read_scenario;
pub(crate) use raw::{
    NameValuePairs, RawBody, RawData, RawExpect, RawExtract, RawHeaderCheck, RawJson, RawJsonCheck, RawRequest,
    RawResource, RawScenario, RawStep, RawTask,
};
