//! The Node process that starts browsers with Playwright, and the calls to it.
//! It does not decide which browsers there are. [`super::browser_pool`] calls it and restarts it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::confinement::spawn_writing_into;

const SCRIPT: &str = include_str!("host.js");
/// How long Node may take to load Playwright.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How to run Node and Playwright.
#[derive(Clone, Debug)]
pub(crate) struct NodeHostConfig {
    pub(crate) node: PathBuf,
    /// The folder of the package `playwright-core` or `playwright`.
    pub(crate) playwright: PathBuf,
    pub(crate) browser: String,
    /// For the script and everything of its browsers; the script removes it at its end.
    pub(crate) folder: PathBuf,
    /// Whether it writes only into `folder`.
    pub(crate) confined: bool,
}

/// Why the host could not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeHostError {
    /// Node is missing.
    #[error("cannot start `{node}`: install Node.js 18 or later, or give its path with --node")]
    Node {
        /// The program.
        node: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Playwright is missing or broken.
    #[error(
        "cannot load Playwright from {folder}: {reason}; `npm install playwright-core` puts it into \
         node_modules/playwright-core, and --playwright names that folder"
    )]
    Playwright {
        /// Where it should be.
        folder: String,
        /// What Node said.
        reason: String,
    },
    /// Two folders have one version.
    #[error("{folder} has Playwright {version}, and another --playwright has it too: give each version once")]
    SameVersion {
        /// The second folder.
        folder: String,
        /// `major.minor`.
        version: String,
    },
    /// The script could not be written.
    #[error("cannot write the script of the browser host")]
    Script(#[source] std::io::Error),
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostCallError {
    #[error("{0}")]
    Failed(String),
    #[error("the browser host has ended")]
    Ended,
    #[error("the browser host did not answer in time")]
    Timeout,
}

/// A browser that ended.
#[derive(Debug)]
pub(crate) struct BrowserClosed {
    pub(crate) id: u64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum HostMessage {
    Answer { answer: u64, error: Option<String>, pid: Option<i32> },
    Event { event: String, id: Option<u64>, error: Option<String> },
}

/// What to launch.
#[derive(Debug, Serialize)]
pub(crate) struct LaunchCall<'a> {
    pub(crate) id: u64,
    pub(crate) executable: Option<&'a Path>,
    pub(crate) args: &'a [String],
    pub(crate) sandbox: bool,
    pub(crate) socket: &'a Path,
    pub(crate) dir: &'a Path,
    /// In milliseconds.
    pub(crate) timeout: u128,
}

#[derive(Serialize)]
struct HostRequest<'a, T> {
    request: u64,
    op: &'a str,
    #[serde(flatten)]
    call: &'a T,
}

#[derive(Serialize)]
struct BrowserCall {
    id: u64,
}

/// A running host. Dropping it ends its input, upon which it kills its browsers and exits.
pub(crate) struct NodeHost {
    pid: Option<Pid>,
    input: tokio::sync::Mutex<ChildStdin>,
    calls: Arc<Calls>,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct Calls {
    waiting: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    last: u64,
    ended: bool,
    answers: HashMap<u64, oneshot::Sender<Result<Option<i32>, String>>>,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails all calls, and those to come.
    fn end(&self) {
        let mut calls = self.lock();
        calls.ended = true;
        calls.answers.clear();
    }
}

impl NodeHost {
    /// Starts Node and waits until Playwright is loaded. `closed` gets browsers that ended; it is
    /// dropped when the host ends.
    pub(crate) async fn start(
        config: &NodeHostConfig,
        closed: mpsc::UnboundedSender<BrowserClosed>,
    ) -> Result<Self, NodeHostError> {
        let script = config.folder.join("host.js");
        std::fs::create_dir_all(&config.folder).map_err(NodeHostError::Script)?;
        std::fs::write(&script, SCRIPT).map_err(NodeHostError::Script)?;
        let mut command = Command::new(&config.node);
        command.arg(&script).arg(&config.playwright).arg(&config.browser).arg(&config.folder);
        // A group of its own, so that Ctrl-C in a terminal reaches only the worker, which drains.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(false);
        let spawned = if config.confined { spawn_writing_into(&config.folder, &mut command) } else { command.spawn() };
        let mut child =
            spawned.map_err(|source| NodeHostError::Node { node: config.node.display().to_string(), source })?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        let mut lines = BufReader::new(output).lines();
        match tokio::time::timeout(START_TIMEOUT, wait_until_loaded(&mut lines)).await {
            Ok(Ok(())) => {}
            failed => {
                kill_group(pid);
                let reason = failed.map_or_else(|_| "it took too long".to_owned(), |failed| failed.unwrap_err());
                return Err(NodeHostError::Playwright { folder: config.playwright.display().to_string(), reason });
            }
        }
        let calls = Arc::new(Calls::default());
        let reader = tokio::spawn(read_messages(lines, child, calls.clone(), closed));
        Ok(Self { pid, input: tokio::sync::Mutex::new(input), calls, reader })
    }

    /// Its process, which leads a group of its own.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// Launches a browser and returns its process id, which is also its process group.
    pub(crate) async fn launch(&self, call: &LaunchCall<'_>, within: Duration) -> Result<Option<Pid>, HostCallError> {
        Ok(self.call("launch", call, within).await?.and_then(Pid::from_raw))
    }

    /// Opens and closes a context in a browser.
    pub(crate) async fn probe(&self, id: u64, within: Duration) -> Result<(), HostCallError> {
        self.call("probe", &BrowserCall { id }, within).await.map(drop)
    }

    /// Kills a browser.
    pub(crate) async fn kill(&self, id: u64, within: Duration) -> Result<(), HostCallError> {
        self.call("kill", &BrowserCall { id }, within).await.map(drop)
    }

    async fn call(&self, op: &str, call: &impl Serialize, within: Duration) -> Result<Option<i32>, HostCallError> {
        let (answer, answered) = oneshot::channel();
        let request = {
            let mut calls = self.calls.lock();
            if calls.ended {
                return Err(HostCallError::Ended);
            }
            calls.last += 1;
            let request = calls.last;
            calls.answers.insert(request, answer);
            request
        };
        let mut line = serde_json::to_vec(&HostRequest { request, op, call }).expect("paths that are valid text");
        line.push(b'\n');
        let calling = async {
            self.input.lock().await.write_all(&line).await.map_err(|_| HostCallError::Ended)?;
            answered.await.map_err(|_| HostCallError::Ended)?.map_err(HostCallError::Failed)
        };
        let outcome = tokio::time::timeout(within, calling).await.unwrap_or(Err(HostCallError::Timeout));
        self.calls.lock().answers.remove(&request);
        outcome
    }

    /// Ends the host and waits for it. Kills it if it does not end within `grace`.
    pub(crate) async fn end(self, grace: Duration) {
        let Self { input, mut reader, pid, .. } = self;
        drop(input);
        if tokio::time::timeout(grace, &mut reader).await.is_err() {
            kill_group(pid);
            let _ = reader.await;
        }
    }
}

async fn wait_until_loaded(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<(), String> {
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(HostMessage::Event { error: Some(error), .. }) => return Err(error),
            Ok(HostMessage::Event { event, .. }) if event == "ready" => return Ok(()),
            _ => {}
        }
    }
    Err("Node ended".to_owned())
}

/// Passes answers and events on until the host ends, and waits for its process.
async fn read_messages(
    mut lines: Lines<BufReader<ChildStdout>>,
    mut child: Child,
    calls: Arc<Calls>,
    closed: mpsc::UnboundedSender<BrowserClosed>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(HostMessage::Answer { answer, error, pid }) => {
                if let Some(waiting) = calls.lock().answers.remove(&answer) {
                    // The caller may have given up.
                    let _ = waiting.send(error.map_or(Ok(pid), Err));
                }
            }
            Ok(HostMessage::Event { event, id: Some(id), .. }) if event == "closed" => {
                let _ = closed.send(BrowserClosed { id });
            }
            Ok(HostMessage::Event { .. }) | Err(_) => tracing::debug!(line, "the browser host printed a line"),
        }
    }
    calls.end();
    let _ = child.wait().await;
}

pub(crate) fn kill_group(pid: Option<Pid>) {
    if let Some(pid) = pid {
        // Fails if the group has ended.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}
