//! A browser that this process started, and the pages that it opens. What happens on a page is the
//! business of [`Page`]. squall-scenario launches one browser for each engine thread.

use serde_json::json;
use std::{path::PathBuf, rc::Rc, time::Duration};

use crate::{
    CdpError, Page,
    connection::{Connection, ConnectionTasks},
    executable::{ExecutableError, find_executable},
    process::{BrowserPipes, BrowserProcess},
};

/// How to start a browser.
#[derive(Debug, Clone)]
pub struct BrowserConfig {
    /// The browser's binary; `None` takes the first one that is installed.
    pub executable: Option<PathBuf>,
    /// Further switches of Chromium.
    pub args: Vec<String>,
    /// Width and height of pages, in pixels.
    pub viewport: (u32, u32),
    /// The browser must answer within this time.
    pub launch_timeout: Duration,
}

impl Default for BrowserConfig {
    fn default() -> BrowserConfig {
        let launch_timeout = Duration::from_secs(60);
        BrowserConfig { executable: None, args: Vec::new(), viewport: (1280, 720), launch_timeout }
    }
}

/// Why a browser cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Executable(#[from] ExecutableError),
    #[error("cannot start {}: {source}", executable.display())]
    Spawn { executable: PathBuf, source: std::io::Error },
    #[error("{} did not become ready ({reason}): {last_words}", executable.display())]
    NotReady { executable: PathBuf, reason: String, last_words: String },
}

/// A running browser. Dropping the last clone ends it; pages do not keep it.
#[derive(Clone)]
pub struct Browser {
    connection: Connection,
    viewport: (u32, u32),
    process: Rc<RunningProcess>,
}

struct RunningProcess {
    _tasks: ConnectionTasks,
    process: BrowserProcess,
}

impl Browser {
    /// Starts a browser and waits until it answers. Call it inside a [`tokio::task::LocalSet`].
    pub async fn launch(config: &BrowserConfig) -> Result<Browser, LaunchError> {
        let executable = find_executable(config.executable.as_deref())?;
        let spawn_error = |source| LaunchError::Spawn { executable: executable.clone(), source };
        let (process, BrowserPipes { commands, messages }) =
            BrowserProcess::start(&executable, &config.args).map_err(spawn_error)?;
        let writer = tokio::process::ChildStdin::from_std(commands).map_err(spawn_error)?;
        let reader = tokio::process::ChildStdout::from_std(messages).map_err(spawn_error)?;
        let (connection, tasks) = Connection::over_pipe(reader, writer);
        let version = connection.call(None, "Browser.getVersion", json!({}));
        let reason = match tokio::time::timeout(config.launch_timeout, version).await {
            Ok(Ok(_)) => {
                let process = Rc::new(RunningProcess { _tasks: tasks, process });
                return Ok(Browser { connection, viewport: config.viewport, process });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", config.launch_timeout),
        };
        Err(LaunchError::NotReady { executable, reason, last_words: process.last_words() })
    }

    /// Opens a page with cookies, storage and cache of its own, all empty.
    pub async fn new_page(&self) -> Result<Page, CdpError> {
        Page::open(&self.connection, self.viewport).await
    }

    /// Whether the browser has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.connection.is_closed()
    }

    /// The process group that all processes of the browser belong to.
    pub fn process_group(&self) -> i32 {
        self.process.process.group().as_raw_nonzero().get()
    }
}
