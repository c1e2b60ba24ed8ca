//! Reads what a Python scenario declares (`squall._plan.ScenarioPlan`) into the raw settings of
//! `squall-scenario`. It validates nothing. The interpreter calls it.

use pyo3::prelude::*;
use squall_scenario::{
    CodeLocation, RawBrowser, RawCodeScenario, RawCodeTask, RawCql, RawLoad, SourceLocation, Sourced,
};
use std::collections::HashMap;

/// `squall._plan.ScenarioPlan`.
#[derive(FromPyObject)]
pub(crate) struct DeclaredPlan {
    location: SourceLine,
    name: DeclaredValue<String>,
    target: Option<DeclaredValue<String>>,
    absolute_origin: Option<String>,
    load: HashMap<String, DeclaredValue<String>>,
    thresholds: Vec<DeclaredValue<String>>,
    /// The database by the names of its settings; `None` if the scenario declares none.
    cql: Option<HashMap<String, DeclaredValue<Vec<String>>>>,
    tasks: Vec<DeclaredTask>,
    browser: HashMap<String, DeclaredValue<String>>,
    browser_args: Vec<DeclaredValue<String>>,
    notes: Vec<String>,
}

/// `squall._plan.SourceLine`.
#[derive(FromPyObject)]
struct SourceLine {
    file: String,
    line: usize,
    setting: Option<String>,
}

/// `squall._plan.Sourced`.
#[derive(FromPyObject)]
struct DeclaredValue<T> {
    value: T,
    location: SourceLine,
}

/// `squall._plan.PlanTask`.
#[derive(FromPyObject)]
struct DeclaredTask {
    name: DeclaredValue<String>,
    weight: DeclaredValue<f64>,
    requires: Vec<DeclaredValue<String>>,
    every: Option<DeclaredValue<String>>,
}

impl DeclaredPlan {
    /// The raw scenario of the file that messages call `file`.
    pub(crate) fn into_raw(self, file: String) -> RawCodeScenario {
        let location = SourceLocation::from(self.location);
        RawCodeScenario {
            file,
            cql: self.cql.map(|settings| raw_cql(settings, location.clone())).unwrap_or_default(),
            location,
            name: self.name.into(),
            target: self.target.map(Sourced::from),
            absolute_origin: self.absolute_origin,
            load: raw_load(self.load),
            thresholds: self.thresholds.into_iter().map(Sourced::from).collect(),
            tasks: self.tasks.into_iter().map(RawCodeTask::from).collect(),
            browser: raw_browser(self.browser, self.browser_args),
            notes: self.notes,
        }
    }
}

/// The load by the names of `@scenario`'s arguments.
fn raw_load(mut arguments: HashMap<String, DeclaredValue<String>>) -> RawLoad {
    let mut take = |argument: &str| arguments.remove(argument).map(Sourced::from);
    RawLoad {
        rate: take("rate").or_else(|| take("rps")),
        users: take("users"),
        pause: take("pause"),
        duration: take("duration"),
        ramp_up: take("ramp_up"),
        stages: take("stages"),
        profile: take("mode"),
        steps: take("steps"),
        warm_up: take("warm_up"),
        // Only flags give these two.
        requests: None,
        arrivals: None,
    }
}

/// The keys of `[browser]` in the argument `browser` of `@scenario`.
fn raw_browser(mut keys: HashMap<String, DeclaredValue<String>>, args: Vec<DeclaredValue<String>>) -> RawBrowser {
    let mut take = |key: &str| keys.remove(key).map(Sourced::from);
    RawBrowser {
        executable: take("executable"),
        args: args.into_iter().map(Sourced::from).collect(),
        timeout: take("timeout"),
        viewport: take("viewport"),
        screenshots: take("screenshots"),
        grid: take("grid"),
        token: take("token"),
        // Playwright takes authorities from NODE_EXTRA_CA_CERTS.
        ca: None,
    }
}

/// The database by the names of `[cql]`. The SDK has checked which of them are numbers or switches.
fn raw_cql(mut settings: HashMap<String, DeclaredValue<Vec<String>>>, location: SourceLocation) -> RawCql {
    let mut take = |setting: &str| -> Vec<Sourced<String>> {
        let given: Option<Sourced<Vec<String>>> = settings.remove(setting).map(Sourced::from);
        let one = |Sourced { value, location }: Sourced<Vec<String>>| {
            value.into_iter().map(move |value| Sourced { value, location: location.clone() })
        };
        given.into_iter().flat_map(one).collect()
    };
    let number = |text: Option<Sourced<String>>| {
        text.map(|Sourced { value, location }| Sourced { value: value.parse().unwrap_or(0), location })
    };
    let switch = |text: Option<Sourced<String>>| {
        text.map(|Sourced { value, location }| Sourced { value: value == "true", location })
    };
    RawCql {
        location: Some(location),
        nodes: take("nodes"),
        port: number(take("port").pop()),
        user: take("user").pop(),
        password: take("password").pop(),
        truststore: take("truststore").pop(),
        truststore_password: take("truststore_password").pop(),
        keystore: take("keystore").pop(),
        keystore_password: take("keystore_password").pop(),
        hostname_verification: switch(take("hostname_verification").pop()),
        keyspace: take("keyspace").pop(),
        consistency: take("consistency").pop(),
        datacenter: take("datacenter").pop(),
        connections: number(take("connections").pop()),
        timeout: take("timeout").pop(),
        compression: take("compression").pop(),
    }
}

impl From<SourceLine> for SourceLocation {
    fn from(SourceLine { file, line, setting }: SourceLine) -> SourceLocation {
        SourceLocation::Code(CodeLocation { file, line, setting })
    }
}

impl<T> From<DeclaredValue<T>> for Sourced<T> {
    fn from(declared: DeclaredValue<T>) -> Sourced<T> {
        Sourced { value: declared.value, location: declared.location.into() }
    }
}

impl From<DeclaredTask> for RawCodeTask {
    fn from(task: DeclaredTask) -> RawCodeTask {
        RawCodeTask {
            name: task.name.into(),
            weight: task.weight.into(),
            requires: task.requires.into_iter().map(Sourced::from).collect(),
            every: task.every.map(Sourced::from),
        }
    }
}
