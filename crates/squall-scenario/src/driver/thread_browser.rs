//! The browser of one engine thread, which its users share: starts it, and starts it again if it has ended.
//! Each user opens pages of its own. Called by `browser_run`, and before the run by the driver's thread.

use squall_browser::{Browser, BrowserConfig, Page};
use squall_engine::HelperProcesses;
use tokio::sync::Mutex;

use crate::compiled_scenario::BrowserSettings;

/// The browser of one engine thread. It is started again after it has ended.
#[derive(Default)]
pub(super) struct ThreadBrowser {
    config: BrowserConfig,
    /// Locked while the browser starts, so that the users of the thread start one together.
    browser: Mutex<Option<RunningBrowser>>,
}

struct RunningBrowser {
    /// Dropped before the browser ends: its CPU time and memory count as the generator's.
    _usage: HelperProcesses,
    browser: Browser,
}

impl ThreadBrowser {
    pub(super) fn new(settings: &BrowserSettings) -> ThreadBrowser {
        let default = BrowserConfig::default();
        let config = BrowserConfig {
            executable: settings.executable.clone(),
            args: settings.args.clone(),
            viewport: settings.viewport.unwrap_or(default.viewport),
            ..default
        };
        ThreadBrowser { config, ..ThreadBrowser::default() }
    }

    /// Starts the browser, if none runs.
    pub(super) async fn start(&self) -> Result<Browser, String> {
        let mut browser = self.browser.lock().await;
        if let Some(running) = browser.as_ref().filter(|running| !running.browser.has_ended()) {
            return Ok(running.browser.clone());
        }
        // The old one first: its folder and its processes are removed before the next one starts.
        *browser = None;
        let started = Browser::launch(&self.config).await.map_err(|error| error.to_string())?;
        let usage = HelperProcesses::register(started.process_group());
        *browser = Some(RunningBrowser { _usage: usage, browser: started.clone() });
        Ok(started)
    }

    pub(super) async fn open_page(&self) -> Result<Page, String> {
        let browser = self.start().await?;
        browser.new_page().await.map_err(|error| error.to_string())
    }
}
