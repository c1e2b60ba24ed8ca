//! The shapes of a scenario as written. Everything is optional; what is missing or contradictory is found when it is built.

use crate::{Given, RawHttp, RawLoad, error::Place};

pub(crate) type Pairs = Vec<(Given<String>, Given<String>)>;

#[derive(Debug, Default)]
pub(crate) struct RawScenario {
    pub(crate) name: Option<Given<String>>,
    pub(crate) target: Option<Given<String>>,
    pub(crate) seed: Option<Given<u64>>,
    pub(crate) load: RawLoad,
    pub(crate) thresholds: Vec<Given<String>>,
    pub(crate) http: RawHttp,
    pub(crate) variables: Vec<(Given<String>, RawJson)>,
    pub(crate) data: Vec<RawData>,
    pub(crate) resources: Vec<RawResource>,
    pub(crate) on_start: Vec<RawStep>,
    pub(crate) tasks: Vec<RawTask>,
}

#[derive(Debug)]
pub(crate) struct RawData {
    pub(crate) place: Place,
    pub(crate) name: Option<Given<String>>,
    pub(crate) file: Option<Given<String>>,
    pub(crate) order: Option<Given<String>>,
    pub(crate) per: Option<Given<String>>,
}

/// Things that users hold one at a time.
#[derive(Debug)]
pub(crate) struct RawResource {
    pub(crate) place: Place,
    pub(crate) name: Option<Given<String>>,
    pub(crate) file: Option<Given<String>>,
    pub(crate) count: Option<Given<u64>>,
    /// What each has, where they are counted.
    pub(crate) fields: Pairs,
    pub(crate) wait: Option<Given<String>>,
}

#[derive(Debug)]
pub(crate) struct RawTask {
    pub(crate) place: Place,
    pub(crate) name: Option<Given<String>>,
    pub(crate) weight: Option<Given<f64>>,
    pub(crate) group: Option<Given<String>>,
    pub(crate) tags: Pairs,
    pub(crate) requires: Vec<Given<String>>,
    pub(crate) every: Option<Given<String>>,
    /// Of the whole task.
    pub(crate) timeout: Option<Given<String>>,
    pub(crate) think: Option<Given<String>>,
    pub(crate) continue_on_failure: bool,
    /// Written into the task itself.
    pub(crate) request: Option<RawRequest>,
    pub(crate) steps: Vec<RawStep>,
}

impl RawTask {
    /// A task of one request and nothing else.
    pub(crate) fn of(request: RawRequest, place: Place) -> RawTask {
        RawTask {
            place,
            name: None,
            weight: None,
            group: None,
            tags: Vec::new(),
            requires: Vec::new(),
            every: None,
            timeout: None,
            think: None,
            continue_on_failure: false,
            request: Some(request),
            steps: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RawStep {
    pub(crate) place: Place,
    pub(crate) name: Option<Given<String>>,
    pub(crate) group: Option<Given<String>>,
    pub(crate) think: Option<Given<String>>,
    pub(crate) continue_on_failure: bool,
    pub(crate) request: Option<RawRequest>,
}

#[derive(Debug, Default)]
pub(crate) struct RawRequest {
    pub(crate) method: Option<Given<String>>,
    pub(crate) url: Option<Given<String>>,
    pub(crate) headers: Pairs,
    pub(crate) query: Pairs,
    pub(crate) body: Option<RawBody>,
    pub(crate) basic: Option<Given<String>>,
    pub(crate) bearer: Option<Given<String>>,
    /// Of this request alone.
    pub(crate) timeout: Option<Given<String>>,
    pub(crate) expect: Option<RawExpect>,
    pub(crate) extract: Vec<(Given<String>, RawExtract)>,
}

#[derive(Debug)]
pub(crate) enum RawBody {
    Text(Given<String>),
    File(Given<String>),
    Json(RawJson),
    /// JSON as text, sent as it stands.
    JsonText(Given<String>),
    Form(Pairs),
}

/// A JSON value whose strings may hold templates.
#[derive(Debug, Clone)]
pub(crate) enum RawJson {
    Text(Given<String>),
    /// Number or truth, as JSON writes it.
    Literal(Given<String>),
    Array(Vec<RawJson>),
    Object(Vec<(String, RawJson)>),
}

#[derive(Debug, Default)]
pub(crate) struct RawExpect {
    pub(crate) status: Vec<Given<String>>,
    pub(crate) headers: Vec<(Given<String>, RawHeaderCheck)>,
    pub(crate) body_contains: Vec<Given<String>>,
    pub(crate) body_matches: Vec<Given<String>>,
    pub(crate) json: Vec<(Given<String>, RawJsonCheck)>,
    pub(crate) max_ms: Option<Given<f64>>,
}

#[derive(Debug)]
pub(crate) enum RawHeaderCheck {
    Equals(Given<String>),
    Contains(Given<String>),
    Matches(Given<String>),
    /// Merely there, or merely not.
    Present(bool),
}

#[derive(Debug)]
pub(crate) enum RawJsonCheck {
    Equals(RawJson),
    Present(bool),
    Count(u64),
}

#[derive(Debug, Default)]
pub(crate) struct RawExtract {
    pub(crate) json: Option<Given<String>>,
    pub(crate) header: Option<Given<String>>,
    pub(crate) regex: Option<Given<String>>,
    /// Of the regex; default 1 if it has one.
    pub(crate) group: Option<Given<u64>>,
    pub(crate) default: Option<Given<String>>,
}
