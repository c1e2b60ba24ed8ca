//! The settings of a browser pool, and why a pool ends by itself. It starts nothing.

use std::{path::PathBuf, time::Duration};

use super::super::{
    browser_set::BrowserRules,
    node_host::{NodeHostConfig, NodeHostError},
};

/// How browsers are launched and watched.
#[derive(Clone, Debug)]
pub(crate) struct PoolConfig {
    pub(crate) host: NodeHostConfig,
    pub(crate) start: HostStart,
    pub(crate) executable: Option<PathBuf>,
    pub(crate) args: Vec<String>,
    pub(crate) rules: BrowserRules,
    pub(crate) launch_timeout: Duration,
    pub(crate) probe_every: Duration,
    pub(crate) probe_timeout: Duration,
}

/// When a pool starts Node and its first browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostStart {
    /// With the worker, which ends if that fails.
    AtOnce,
    /// When a session asks for a browser, because Node costs 85 MiB.
    AtFirstSession,
}

/// Why the pool ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The Node host could not start.
    #[error(transparent)]
    Host(#[from] NodeHostError),
    /// The first browser could not start.
    #[error(
        "cannot launch {browser}: {reason}; --executable names the browser's program{}",
        program_hint(.browser)
    )]
    Launch {
        /// The browser.
        browser: String,
        /// What Playwright said.
        reason: String,
    },
}

/// Where the program of a browser comes from.
fn program_hint(browser: &str) -> String {
    match browser {
        "chromium" => ", for example /usr/lib/chromium/chromium-headless-shell of Debian's package \
                       chromium-headless-shell"
            .to_owned(),
        other => format!(", or `npx playwright install {other}` downloads Playwright's own"),
    }
}
