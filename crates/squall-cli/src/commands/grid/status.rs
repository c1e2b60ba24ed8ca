//! `squall grid status`: prints the workers and sessions of a grid, once or every second.

use squall_coord::{SlotSnapshot, SlotStore};
use std::{fmt::Write, time::Duration};

use crate::{
    exit::{CliError, error_chain},
    signals::StopSignals,
    terminal::print,
};

/// Moves the cursor to the top and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) async fn show<S: SlotStore>(store: &S) -> Result<(), CliError> {
    let snapshot = store.snapshot().await.map_err(|error| CliError::unreachable(error_chain(&error)))?;
    print::stdout(render(&snapshot).as_bytes())
}

/// Shows the grid every second until a stop signal.
pub(super) async fn watch<S: SlotStore>(store: &S, mut signals: StopSignals) -> Result<(), CliError> {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = signals.next() => return Ok(()),
        }
        // A store that does not respond is shown, and asked again.
        let text = match store.snapshot().await {
            Ok(snapshot) => render(&snapshot),
            Err(error) => format!("{}\n", error_chain(&error)),
        };
        print::stdout(format!("{CLEAR}{text}").as_bytes())?;
    }
}

fn render(snapshot: &SlotSnapshot) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{:<40} {:<12} {:>7} {:>8}  status", "worker", "version", "active", "lifetime");
    for view in &snapshot.workers {
        let status = match (view.draining, view.unreachable) {
            (true, _) => "draining",
            (false, true) => "unreachable",
            (false, false) => "available",
        };
        let (worker, active) = (view.worker.to_string(), format!("{}/{}", view.active, view.slots));
        let _ =
            writeln!(text, "{worker:<40} {:<12} {active:>7} {:>8}  {status}", view.versions.join(", "), view.lifetime);
    }
    if !snapshot.sessions.is_empty() {
        let _ = writeln!(text, "\n{:<40} {:<32} {:>8}  status", "session", "worker", "age");
    }
    for view in &snapshot.sessions {
        let status = match (view.held, view.attachable) {
            (true, true) => "detached",
            (true, false) => "running",
            (false, _) => "pending",
        };
        let (worker, age) = (view.worker.to_string(), format!("{} s", view.age.as_secs()));
        let key = if view.key.is_empty() { String::new() } else { format!(" (key {})", view.key) };
        let _ = writeln!(text, "{:<40} {worker:<32} {age:>8}  {status}{key}", view.id.as_str());
    }
    let _ = writeln!(
        text,
        "{} servers, {} sessions, {} clients waiting",
        snapshot.servers.len(),
        snapshot.sessions.len(),
        snapshot.waiting.len()
    );
    text
}
