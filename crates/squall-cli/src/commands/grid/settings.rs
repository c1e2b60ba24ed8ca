//! Arguments of `squall grid` → settings of squall-grid. It starts nothing.

use squall_coord::{ApiKeyScope, SlotWorkerId, unique_id};
use squall_grid::{ApiKey, BrowserRules, GridWorkerConfig, Isolation, KeyLimits, ServerConfig};
use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    args::{
        BrowserName, FileAccessArg, GridBrowserArgs, GridClientArgs, GridUpArgs, GridWorkerArgs, IsolationArg, Switch,
    },
    commands::up::own_command,
    exit::CliError,
    secret_value,
};

/// Debian's packages of Chromium, the cheapest first. The scripts in /usr/bin do not end with the
/// browser.
const CHROMIUM_PROGRAMS: [&str; 2] = ["/usr/lib/chromium/chromium-headless-shell", "/usr/lib/chromium/chromium"];

pub(super) fn server_config(args: &GridClientArgs) -> Result<ServerConfig, CliError> {
    let limits = KeyLimits { sessions: args.key_sessions, waiting: args.key_waiting };
    let mut keys = Vec::new();
    let flags = [
        ("--key", &args.key, ApiKeyScope::Client),
        ("--admin-key", &args.admin_key, ApiKeyScope::Admin),
        ("--worker-key", &args.worker_key, ApiKeyScope::Worker),
    ];
    for (flag, texts, scope) in flags {
        for text in texts {
            let (name, key) = api_key(flag, text, scope, limits)?;
            if keys.iter().any(|other| key.has_secret_of(other)) {
                return Err(CliError::new(format!("{flag} {name}: another key has the same secret")));
            }
            keys.push(key);
        }
    }
    Ok(ServerConfig {
        keys,
        queue_limit: args.queue,
        queue_timeout: args.queue_timeout,
        compression: args.compression == Switch::On,
        direct: args.direct,
        drain_timeout: args.grace,
        ..ServerConfig::default()
    })
}

fn api_key<'a>(
    flag: &str,
    text: &'a str,
    scope: ApiKeyScope,
    limits: KeyLimits,
) -> Result<(&'a str, ApiKey), CliError> {
    // The text may be a secret, so messages do not repeat it.
    let (name, secret) = text
        .split_once('=')
        .filter(|(name, secret)| SlotWorkerId::new("key", name).is_some() && !secret.is_empty())
        .ok_or_else(|| CliError::new(format!("{flag}: write NAME=@FILE, NAME=$VARIABLE or NAME=SECRET")))?;
    let secret = secret_value::resolve(secret).map_err(|error| CliError::new(format!("{flag} {name}: {error}")))?;
    if secret.len() < 16 {
        return Err(CliError::new(format!("{flag} {name}: the secret has less than 16 characters")));
    }
    Ok((name, ApiKey::new(name, &secret, scope, limits)))
}

pub(super) fn worker_config(args: &GridWorkerArgs, interpreter: Option<&Path>) -> Result<GridWorkerConfig, CliError> {
    if args.listen.ip().is_unspecified() && args.advertise.is_none() {
        return Err(CliError::new(format!(
            "--listen {}: no server can connect to this address; add --advertise HOST:{} with a name of this machine",
            args.listen,
            args.listen.port()
        )));
    }
    let name = args.id.clone().unwrap_or_else(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
        format!("{}-{}", if host.is_empty() { "worker" } else { &host }, &unique_id()[..6])
    });
    let mut config = browser_config(&args.browsers, &name, args.drain_timeout, interpreter)?;
    config.listen = args.listen;
    config.advertise.clone_from(&args.advertise);
    config.max_lifetime = args.max_lifetime_sessions;
    Ok(config)
}

/// A worker of `squall grid up`. Its sessions may last as long as those of the server.
pub(super) fn local_worker(
    args: &GridUpArgs,
    number: u16,
    interpreter: Option<&Path>,
) -> Result<GridWorkerConfig, CliError> {
    browser_config(&args.browsers, &format!("worker-{number}"), args.clients.grace, interpreter)
}

/// The name that Playwright and the grid have for a browser.
pub(super) fn browser_name(browser: BrowserName) -> &'static str {
    match browser {
        BrowserName::Chromium => "chromium",
        BrowserName::Firefox => "firefox",
        BrowserName::Webkit => "webkit",
    }
}

fn browser_config(
    args: &GridBrowserArgs,
    name: &str,
    drain_timeout: Duration,
    interpreter: Option<&Path>,
) -> Result<GridWorkerConfig, CliError> {
    let id = SlotWorkerId::new(browser_name(args.browser), name).ok_or_else(|| {
        CliError::new(format!("--id: `{name}` is not a valid name: use up to 64 letters, digits, `-`, `_` and `.`"))
    })?;
    if let Some(missing) = args.playwright.iter().find(|folder| !folder.is_dir()) {
        return Err(CliError::new(format!(
            "there is no Playwright in {}: run `npm install playwright-core`, or give its folder with --playwright",
            missing.display()
        )));
    }
    let installed = CHROMIUM_PROGRAMS.iter().map(PathBuf::from).find(|program| program.exists());
    let installed = installed.filter(|_| args.browser == BrowserName::Chromium);
    let confined = args.file_access == FileAccessArg::Own && args.browser == BrowserName::Chromium;
    Ok(GridWorkerConfig {
        id,
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertise: None,
        slots: args.slots,
        isolation: match args.isolation {
            IsolationArg::Shared => Isolation::Shared,
            IsolationArg::Key => Isolation::Key,
            IsolationArg::Session => Isolation::Session,
        },
        rules: BrowserRules {
            recycle_after: args.recycle_after,
            max_age: args.max_age,
            max_memory: args.max_memory.map(|mebibytes| mebibytes << 20),
            recycle_timeout: args.recycle_timeout,
            spares: args.spare.into(),
            // Room for one browser per session, the spares, and one that is being replaced.
            limit: args.slots as usize + usize::from(args.spare) + 1,
        },
        max_lifetime: None,
        executable: args.executable.clone().or(installed),
        args: args.args.clone(),
        confine_with: confined.then(|| confining_command(interpreter)).transpose()?,
        playwright: args.playwright.clone(),
        node: args.node.clone(),
        heartbeat: ServerConfig::HEARTBEAT,
        ttl: ServerConfig::TTL,
        drain_timeout,
        probe_every: Duration::from_secs(10),
        launch_timeout: Duration::from_secs(15),
        probe_timeout: Duration::from_secs(10),
    })
}

fn confining_command(interpreter: Option<&Path>) -> Result<Vec<OsString>, CliError> {
    let command = own_command(interpreter)?;
    let words =
        [command.get_program()].into_iter().chain(command.get_args()).chain(["grid", "confine"].map(OsStr::new));
    Ok(words.map(OsStr::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::grid::tests::up_args;

    #[test]
    fn workers_of_up_let_sessions_last_for_the_grace_period() {
        let args = up_args(&["--grace", "5m", "--playwright", env!("CARGO_MANIFEST_DIR")]);
        assert_eq!(local_worker(&args, 1, None).expect("valid").drain_timeout, Duration::from_secs(300));
        assert_eq!(server_config(&args.clients).expect("valid").drain_timeout, Duration::from_secs(300));
    }
}
