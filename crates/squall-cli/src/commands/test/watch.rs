//! `squall test status --watch` on a terminal: the dashboard of the fleet's test. Reads the test from
//! the API, and its keys change the test through the API. It keeps no state of the test: leaving the
//! dashboard leaves the test running.

use serde::Deserialize;
use serde_json::{Value, json};
use squall_model::{LevelUnit, LoadChange};
use squall_orchestrator::LoadCommand;
use squall_report::LiveRun;
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use crate::{
    api_client::ApiClient,
    exit::CliError,
    terminal::dashboard::{Dashboard, DashboardAction, MAX_SPAN_S},
};

/// Time between two reads of the test. A second of the test is shown soon after it has closed.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The dashboard gives up when the API has not responded for this long.
const API_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the dashboard was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// The test is over.
    TestEnded,
    /// The person has left.
    Left,
}

/// `GET /api/v1/tests/current/dashboard`.
#[derive(Debug, Deserialize)]
struct LiveResponse {
    state: String,
    /// The level after all changes that were made; only while the test runs.
    scheduled_level: Option<f64>,
    run: Option<LiveRun>,
}

/// Shows the test until it ends or the person leaves.
pub(super) fn watch(api: &mut ApiClient) -> Result<WatchEnd, CliError> {
    let (sender, actions) = channel();
    let on_action = move |action| {
        // Fails when the dashboard is being closed.
        let _ = sender.send(action);
    };
    let dashboard = Dashboard::watch(on_action)
        .map_err(|error| CliError::new(format!("cannot use the terminal: {error}; use --no-tui")))?;
    FleetDashboard { api, dashboard, latest: None, answered: Instant::now() }.run(&actions)
}

struct FleetDashboard<'a> {
    api: &'a mut ApiClient,
    dashboard: Dashboard,
    latest: Option<LiveResponse>,
    /// When the API last responded.
    answered: Instant,
}

impl FleetDashboard<'_> {
    fn run(mut self, actions: &Receiver<DashboardAction>) -> Result<WatchEnd, CliError> {
        loop {
            if self.poll()? {
                return Ok(WatchEnd::TestEnded);
            }
            let next_poll = Instant::now() + POLL_INTERVAL;
            loop {
                match actions.recv_timeout(next_poll.saturating_duration_since(Instant::now())) {
                    Ok(DashboardAction::Quit) => return Ok(WatchEnd::Left),
                    Ok(DashboardAction::ChangeLoad(command)) => {
                        let change = self.change_load(command).map_err(|error| error.to_string());
                        self.dashboard.show_load_change(&change);
                        self.draw();
                        break;
                    }
                    Ok(DashboardAction::Redraw) => self.draw(),
                    Err(RecvTimeoutError::Timeout) => break,
                    // The terminal is closed.
                    Err(RecvTimeoutError::Disconnected) => return Ok(WatchEnd::Left),
                }
            }
        }
    }

    /// Reads and draws the test. Returns whether it is over.
    fn poll(&mut self) -> Result<bool, CliError> {
        match self.api.get(&format!("/api/v1/tests/current/dashboard?seconds={MAX_SPAN_S}")) {
            Ok(response) => {
                self.answered = Instant::now();
                self.latest = Some(read_response(response)?);
            }
            // The test continues while the orchestrator is away.
            Err(error) if self.answered.elapsed() > API_TIMEOUT || self.latest.is_none() => return Err(error),
            Err(error) => self.dashboard.show_problem(&error.to_string()),
        }
        self.draw();
        Ok(self.latest.as_ref().is_some_and(|latest| latest.state == "IDLE"))
    }

    fn draw(&mut self) {
        match self.latest.as_ref().map(|latest| &latest.run) {
            Some(Some(run)) => self.dashboard.show(run),
            Some(None) => self.dashboard.show_waiting("the test has not started yet"),
            None => {}
        }
    }

    fn change_load(&mut self, command: LoadCommand) -> Result<LoadChange, CliError> {
        let post = |api: &mut ApiClient, action: &str, body: Value| {
            api.post(&format!("/api/v1/tests/current/{action}"), &body)
        };
        match command {
            LoadCommand::Pause => post(self.api, "pause", json!({})).map(|_| LoadChange::Paused),
            LoadCommand::Resume => {
                let resumes_at = self.latest.as_ref().and_then(|latest| latest.run.as_ref()?.state.resumes_at);
                let level = resumes_at.unwrap_or_default();
                post(self.api, "resume", json!({})).map(|_| LoadChange::Resumed { level })
            }
            LoadCommand::Step(step) => {
                let not_running = || CliError::new("the test does not run yet, or its load is over");
                let latest = self.latest.as_mut().ok_or_else(not_running)?;
                let level = latest.scheduled_level.ok_or_else(not_running)?;
                let unit = latest.run.as_ref().ok_or_else(not_running)?.plan.load.model.unit();
                let now = step.apply(level, unit);
                let response = match unit {
                    LevelUnit::Users => post(self.api, "scale", json!({"users": now as u64})),
                    LevelUnit::Rate => post(self.api, "rate", json!({"rate": now})),
                }?;
                // The next step may come before the next poll.
                latest.scheduled_level = Some(now);
                Ok(LoadChange::Level { before: response["before"].as_f64().unwrap_or(level), now })
            }
        }
    }
}

fn read_response(response: Value) -> Result<LiveResponse, CliError> {
    serde_json::from_value(response).map_err(|error| {
        CliError::new(format!(
            "the dashboard cannot read the response of the API ({error}): use the same release of squall here and for \
             the orchestrator, or --no-tui"
        ))
    })
}
