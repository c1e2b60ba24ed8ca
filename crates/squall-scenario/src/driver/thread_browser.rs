//! The browsers of one engine thread, which its users share: one that the run starts, and starts again if it
//! has ended, or sessions of a grid. Each user opens pages of its own. Called by `browser_run`, before the
//! run by the driver's thread, and by the Python module.

use squall_browser::{Browser, BrowserConfig, Page};
use squall_engine::HelperProcesses;
use std::{cell::RefCell, time::Duration};
use tokio::sync::Mutex;

use crate::compiled_scenario::{BrowserSettings, GridSettings};

/// The browsers of one engine thread.
pub struct ThreadBrowser {
    config: BrowserConfig,
    /// How long opening a page may take.
    page_timeout: Duration,
    source: BrowserSource,
}

enum BrowserSource {
    /// Locked while the browser starts, so that the users of the thread start one together.
    Launched(Mutex<Option<RunningBrowser>>),
    Grid {
        grid: GridSettings,
        /// Sessions that no iteration uses. A session serves one iteration at a time, so that the load
        /// is spread over the grid.
        idle: RefCell<Vec<Browser>>,
    },
}

struct RunningBrowser {
    /// Dropped before the browser ends: its CPU time and memory count as the generator's.
    _usage: Option<HelperProcesses>,
    browser: Browser,
}

/// A browser in use. Dropping it lets the next iteration use its session of the grid.
pub(super) struct UsedBrowser<'t> {
    browser: Browser,
    idle: Option<&'t RefCell<Vec<Browser>>>,
}

impl Drop for UsedBrowser<'_> {
    fn drop(&mut self) {
        if let Some(idle) = self.idle.filter(|_| !self.browser.has_ended()) {
            idle.borrow_mut().push(self.browser.clone());
        }
    }
}

impl ThreadBrowser {
    pub fn new(settings: &BrowserSettings) -> ThreadBrowser {
        let default = BrowserConfig::default();
        let config = BrowserConfig {
            executable: settings.executable.clone(),
            args: settings.args.clone(),
            viewport: settings.viewport.unwrap_or(default.viewport),
            tls: settings.grid.as_ref().and_then(|grid| grid.tls.clone()),
            ..default
        };
        let source = match &settings.grid {
            None => BrowserSource::Launched(Mutex::default()),
            Some(grid) => BrowserSource::Grid { grid: grid.clone(), idle: RefCell::default() },
        };
        ThreadBrowser { config, page_timeout: settings.step_timeout, source }
    }

    /// The same, with a browser that listens for clients in other processes.
    pub fn listening(settings: &BrowserSettings) -> ThreadBrowser {
        let mut browser = ThreadBrowser::new(settings);
        browser.config.listens = true;
        browser
    }

    /// Starts the browser if none runs. On a grid, the one thread that `checks_grid` opens a session and gives it
    /// back. If each thread kept one, threads without users would hold slots that the users of others need.
    pub async fn start(&self, checks_grid: bool) -> Result<(), String> {
        match &self.source {
            BrowserSource::Launched(_) => self.acquire().await.map(drop),
            BrowserSource::Grid { grid, .. } if checks_grid => self.open_session(grid).await.map(drop),
            BrowserSource::Grid { .. } => Ok(()),
        }
    }

    /// Where other CDP clients reach the browser, which is started if none runs.
    pub async fn endpoint(&self) -> Result<String, String> {
        let used = self.acquire().await?;
        used.browser.endpoint().map(str::to_owned).ok_or_else(|| "this browser does not listen".to_owned())
    }

    /// Opens a page. A browser that opens none in time is given up, so that the next call gets another.
    pub(super) async fn open_page(&self) -> Result<(Page, UsedBrowser<'_>), String> {
        let used = self.acquire().await?;
        match tokio::time::timeout(self.page_timeout, used.browser.new_page()).await {
            Ok(opened) => Ok((opened.map_err(|error| error.to_string())?, used)),
            Err(_) => {
                used.browser.give_up();
                Err(format!("the browser opened no page within {:?}", self.page_timeout))
            }
        }
    }

    /// Gives up the browser that the run started, which does not answer.
    pub fn give_up(&self) {
        // A browser that is just being started is another one.
        if let BrowserSource::Launched(running) = &self.source
            && let Ok(running) = running.try_lock()
            && let Some(running) = &*running
        {
            running.browser.give_up();
        }
    }

    async fn acquire(&self) -> Result<UsedBrowser<'_>, String> {
        match &self.source {
            BrowserSource::Launched(running) => {
                Ok(UsedBrowser { browser: self.launched(&mut *running.lock().await).await?, idle: None })
            }
            BrowserSource::Grid { grid, idle } => {
                let free = idle.borrow_mut().pop().filter(|session| !session.has_ended());
                let browser = match free {
                    Some(session) => session,
                    None => self.open_session(grid).await?,
                };
                Ok(UsedBrowser { browser, idle: Some(idle) })
            }
        }
    }

    async fn open_session(&self, grid: &GridSettings) -> Result<Browser, String> {
        let opened = Browser::connect(&grid.cdp_url(), grid.token.as_deref(), &self.config).await;
        opened.map_err(|error| error.to_string())
    }

    async fn launched(&self, running: &mut Option<RunningBrowser>) -> Result<Browser, String> {
        if let Some(running) = running.as_ref().filter(|running| !running.browser.has_ended()) {
            return Ok(running.browser.clone());
        }
        // The old one first: its folder and its processes are removed before the next one starts.
        *running = None;
        let browser = Browser::launch(&self.config).await.map_err(|error| error.to_string())?;
        let usage = browser.process_group().map(HelperProcesses::register);
        *running = Some(RunningBrowser { _usage: usage, browser: browser.clone() });
        Ok(browser)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn browser_that_opens_no_page_is_replaced() {
        let settings = BrowserSettings {
            executable: None,
            args: Vec::new(),
            viewport: None,
            screenshots: None,
            step_timeout: Duration::from_secs(5),
            grid: None,
        };
        let browsers = ThreadBrowser::new(&settings);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tokio::task::LocalSet::new().run_until(async {
            let used = browsers.acquire().await.unwrap();
            let group = used.browser.process_group().unwrap();
            drop(used);
            let stopped = Command::new("kill").args(["-STOP", "--", &format!("-{group}")]).status().unwrap();
            assert!(stopped.success());
            let error = browsers.open_page().await.err().expect("the browser is stopped");
            assert_eq!(error, "the browser opened no page within 5s");
            let (page, used) = browsers.open_page().await.unwrap_or_else(|error| panic!("{error}"));
            assert_ne!(used.browser.process_group(), Some(group));
            page.close().await;
        }));
    }
}
