//! `squall grid status`: prints the workers and sessions of a grid, once or every second.

use squall_coord::{SlotSnapshot, SlotStore};
use std::{fmt::Write, time::Duration};

use crate::{
    exit::{CliError, error_chain},
    signals::StopSignals,
    terminal::print,
};

/// Moves the cursor to the top and clears what is below.
pub(super) const CLEAR: &str = "\x1b[H\x1b[J";

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
    let workers = snapshot.workers.iter().map(|view| WorkerRow {
        worker: view.worker.to_string(),
        version: view.versions.join(", "),
        active: view.active.into(),
        slots: view.slots.into(),
        lifetime: view.lifetime,
        status: view.state().to_owned(),
    });
    let sessions = snapshot.sessions.iter().map(|view| SessionRow {
        id: view.id.to_string(),
        worker: view.worker.to_string(),
        seconds: view.age.as_secs(),
        status: view.state().to_owned(),
        key: view.key_name().to_owned(),
    });
    let table = GridTable {
        workers: workers.collect(),
        sessions: sessions.collect(),
        servers: snapshot.servers.len() as u64,
        waiting: snapshot.waiting.len() as u64,
    };
    table.render()
}

/// What the command shows, from the store or from a server.
pub(super) struct GridTable {
    pub(super) workers: Vec<WorkerRow>,
    pub(super) sessions: Vec<SessionRow>,
    pub(super) servers: u64,
    pub(super) waiting: u64,
}

pub(super) struct WorkerRow {
    pub(super) worker: String,
    pub(super) version: String,
    pub(super) active: u64,
    pub(super) slots: u64,
    pub(super) lifetime: u64,
    pub(super) status: String,
}

pub(super) struct SessionRow {
    pub(super) id: String,
    pub(super) worker: String,
    pub(super) seconds: u64,
    pub(super) status: String,
    pub(super) key: String,
}

impl GridTable {
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        if self.workers.is_empty() {
            text.push_str("no worker has joined: `squall grid worker --help` says how to start one\n");
        } else {
            // As wide as the longest name, so that the lines fit into a terminal of 80 columns.
            let name = width("worker", self.workers.iter().map(|row| &row.worker));
            let version = width("version", self.workers.iter().map(|row| &row.version));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<name$}  {:<version$}  {:>7}  {:>8}  status",
                "worker", "version", "active", "lifetime"
            );
            for row in &self.workers {
                let active = format!("{}/{}", row.active, row.slots);
                let _ = writeln!(
                    text,
                    "{:<name$}  {:<version$}  {active:>7}  {:>8}  {}",
                    row.worker, row.version, row.lifetime, row.status
                );
            }
        }
        if !self.sessions.is_empty() {
            let id = width("session", self.sessions.iter().map(|row| &row.id));
            let worker = width("worker", self.sessions.iter().map(|row| &row.worker));
            let _ = writeln!(text, "\n{:<id$}  {:<worker$}  {:>8}  status", "session", "worker", "age");
            for row in &self.sessions {
                let (age, key) = (format!("{} s", row.seconds), &row.key);
                let key = if key.is_empty() { String::new() } else { format!(" (key {key})") };
                let _ = writeln!(text, "{:<id$}  {:<worker$}  {age:>8}  {}{key}", row.id, row.worker, row.status);
            }
        }
        let _ = writeln!(
            text,
            "\n{}, {}, {} waiting",
            counted(self.servers, "server"),
            counted(self.sessions.len() as u64, "session"),
            counted(self.waiting, "client")
        );
        text
    }
}

/// How wide a column is.
fn width<'t>(title: &str, cells: impl Iterator<Item = &'t String>) -> usize {
    cells.map(String::len).fold(title.len(), usize::max)
}

fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_grid_says_how_to_start_a_worker() {
        assert_eq!(
            render(&SlotSnapshot::default()),
            "no worker has joined: `squall grid worker --help` says how to start one\n\n\
             0 servers, 0 sessions, 0 clients waiting\n"
        );
    }
    #[test]
    fn table_is_as_wide_as_its_names() {
        let table = GridTable {
            workers: vec![WorkerRow {
                worker: "chromium:worker-1".to_owned(),
                version: "1.65".to_owned(),
                active: 1,
                slots: 5,
                lifetime: 7,
                status: "available".to_owned(),
            }],
            sessions: vec![SessionRow {
                id: "0".repeat(32),
                worker: "chromium:worker-1".to_owned(),
                seconds: 12,
                status: "running".to_owned(),
                key: "ci".to_owned(),
            }],
            servers: 1,
            waiting: 0,
        };
        let expected = "\
worker             version   active  lifetime  status
chromium:worker-1  1.65         1/5         7  available

session                           worker                  age  status
00000000000000000000000000000000  chromium:worker-1      12 s  running (key ci)

1 server, 1 session, 0 clients waiting
";
        assert_eq!(table.render(), expected);
        assert!(expected.lines().all(|line| line.len() <= 80));
    }
}
