//! Probes in the JSON format of vikhry. squall-orchestrator reads the probe seconds from the view;
//! this module only renders them.

use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_orchestrator::{ProbeSecond, probe_names, probe_seconds};

use crate::{
    run_watcher::{WINDOW_S, WatchedRun},
    vikhry_json::{event_id, ts_ms, unix_s},
};

/// The selection of a probes request.
pub(crate) struct ProbeFilter {
    pub(crate) name: Option<String>,
    /// Maximum number of events per probe.
    pub(crate) count: usize,
    pub(crate) include_events: bool,
}

/// `/probes`.
/// `declared` are the probes of the scenario, which are listed before they run too.
pub(crate) fn probes_json<C: FleetStores>(
    watched: Option<&WatchedRun<C>>,
    declared: &[String],
    filter: &ProbeFilter,
) -> Value {
    let mut names: Vec<&str> = match &filter.name {
        Some(name) => vec![name.trim()],
        None => watched.map_or_else(Vec::new, |watched| probe_names(watched.view()).collect()),
    };
    if filter.name.is_none() {
        names.extend(declared.iter().map(String::as_str));
    }
    names.sort_unstable();
    names.dedup();
    let lags = watched.is_some_and(WatchedRun::is_lagging);
    let late: Vec<&str> = names.iter().copied().filter(|_| lags).collect();
    let probes: Vec<Value> = names.iter().map(|name| ProbeHistory::of(watched, name).to_json(filter)).collect();
    json!({
        "generated_at": unix_s(),
        "lag": {"detected": !late.is_empty(), "probes_with_backlog": late},
        "probes": probes,
        "count": filter.count,
        "include_events": filter.include_events,
    })
}

/// `/probes/history`.
pub(crate) fn probe_history_json<C: FleetStores>(watched: Option<&WatchedRun<C>>, name: &str, count: usize) -> Value {
    let probe = ProbeHistory::of(watched, name.trim());
    let events = probe.events(count);
    json!({
        "generated_at": unix_s(),
        "probe_name": name,
        "count": events.len(),
        "last_event_id": probe.last_event_id(),
        "events": events,
    })
}

struct ProbeHistory<'a> {
    name: &'a str,
    started_ms: u64,
    /// The latest complete second of the run.
    now_s: u32,
    seconds: Vec<ProbeSecond>,
}

impl<'a> ProbeHistory<'a> {
    /// An unknown probe has no seconds.
    fn of<C: FleetStores>(watched: Option<&WatchedRun<C>>, name: &'a str) -> ProbeHistory<'a> {
        match watched {
            None => ProbeHistory { name, started_ms: 0, now_s: 0, seconds: Vec::new() },
            Some(watched) => ProbeHistory {
                name,
                started_ms: watched.started_ms,
                now_s: watched.view().timeline.len() as u32,
                seconds: probe_seconds(watched.view(), name, 0),
            },
        }
    }

    fn to_json(&self, filter: &ProbeFilter) -> Value {
        json!({
            "probe_name": self.name,
            "last_event_id": self.last_event_id(),
            "aggregate": self.aggregate(),
            "latest": self.seconds.last().map(|second| self.sample_json(second)),
            "events": filter.include_events.then(|| self.events(filter.count)),
        })
    }

    fn last_event_id(&self) -> Option<String> {
        self.seconds.last().map(|second| event_id(self.started_ms, second.t_s))
    }

    fn aggregate(&self) -> Value {
        let recent = self.seconds.iter().filter(|second| second.t_s + WINDOW_S > self.now_s);
        let (samples, errors) = recent.fold((0, 0), |(samples, errors), it| (samples + it.samples, errors + it.errors));
        let last = self.seconds.last();
        json!({
            "window_s": WINDOW_S,
            "successes": samples - errors,
            "errors": errors,
            "last_ts_ms": last.map(|second| ts_ms(self.started_ms, second.t_s)),
            "last_status": last.map(ProbeSecond::is_ok),
            "last_value": last.and_then(|second| second.value.clone()),
        })
    }

    fn events(&self, count: usize) -> Vec<Value> {
        let latest = &self.seconds[self.seconds.len().saturating_sub(count)..];
        let event = |second: &ProbeSecond| {
            let mut data = self.sample_json(second);
            data["name"] = self.name.into();
            data["calls"] = second.samples.into();
            data["errors"] = second.errors.into();
            json!({"event_id": event_id(self.started_ms, second.t_s), "data": data})
        };
        latest.iter().map(event).collect()
    }

    fn sample_json(&self, second: &ProbeSecond) -> Value {
        let (error_type, error_message) = second.error.clone().unzip();
        json!({
            "ts_ms": ts_ms(self.started_ms, second.t_s),
            "status": second.is_ok(),
            "value": second.value,
            "time": second.time_ms,
            "error_type": error_type,
            "error_message": error_message,
        })
    }
}
