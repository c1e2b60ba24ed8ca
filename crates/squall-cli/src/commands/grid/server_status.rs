//! `squall grid status --server`: the table of a grid from a server's API, for grids without Redis.
//! It keeps nothing. [`super::status`] renders it.

use serde_json::Value;
use std::{thread, time::Duration};

use super::status::{CLEAR, GridTable, SessionRow, WorkerRow};
use crate::{api_client::ApiClient, args::GridStatusArgs, exit::CliError, secret_value, terminal::print};

const REMEDY: &str = "Is `squall grid up` or `squall grid serve` running there? --server URL names another server, and \
                      --redis URL the store of a grid on Redis";

/// Shows the grid once, or every second until the process is ended.
pub(super) fn show(url: &str, args: &GridStatusArgs) -> Result<(), CliError> {
    let secret = args.server_key.as_deref().map(secret_value::resolve).transpose();
    let secret = secret.map_err(|error| CliError::new(format!("--server-key: {error}")))?;
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(CliError::new(format!("--server: `{url}` is not a URL: write http://HOST:PORT")));
    }
    let mut api = ApiClient::with_base_url(url, secret, None)?.with_remedy(REMEDY);
    if !args.watch {
        return print::stdout(read(&mut api)?.render().as_bytes());
    }
    loop {
        // A server that does not respond is shown, and asked again.
        let text = read(&mut api).map_or_else(|error| format!("{error}\n"), |table| table.render());
        print::stdout(format!("{CLEAR}{text}").as_bytes())?;
        thread::sleep(Duration::from_secs(1));
    }
}

fn read(api: &mut ApiClient) -> Result<GridTable, CliError> {
    let (workers, sessions, capacity) = (api.get("/v1/workers")?, api.get("/v1/sessions")?, api.get("/v1/capacity")?);
    let rows = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or_default() as u64;
    let workers = rows(&workers, "workers")
        .iter()
        .map(|row| WorkerRow {
            worker: text(row, "id"),
            version: text(row, "playwright_version"),
            active: number(row, "active_sessions"),
            slots: number(row, "max_slots"),
            lifetime: number(row, "lifetime_sessions"),
            status: text(row, "status"),
        })
        .collect();
    let sessions = rows(&sessions, "sessions")
        .iter()
        .map(|row| SessionRow {
            id: text(row, "id"),
            worker: text(row, "worker_id"),
            seconds: number(row, "age_seconds"),
            status: text(row, "status"),
            key: text(row, "key"),
        })
        .collect();
    Ok(GridTable { workers, sessions, servers: number(&capacity, "servers"), waiting: number(&capacity, "queued") })
}
