//! The running browsers of a worker: launches, probes, recycles and ends them, and restarts their
//! Node host. [`super::browser_set`] decides which browser takes a session.
//! It opens no connection to a browser. The gateway takes browsers from it.

mod config;
mod launch;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::Pid;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

pub use self::config::PoolError;
pub(crate) use self::config::{HostStart, PoolConfig};

use self::launch::{RunningBrowser, launch, launch_failure};
use super::{
    browser_memory::anonymous_bytes_by_group,
    browser_set::{BrowserSet, Isolation},
    node_host::{BrowserClosed, HostCallError, NodeHost, kill_group},
    stopped_process::{StopCheck, has_ended},
};
use crate::error_text::with_causes;

const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed launch or a failed start of Node.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Probes in a row that a browser may miss.
const MAX_MISSES: u32 = 2;

/// The browsers. Clones share them.
#[derive(Clone)]
pub(crate) struct BrowserPool {
    shared: Arc<Shared>,
}

struct Shared {
    config: PoolConfig,
    state: Mutex<PoolState>,
    /// Wakes the manager.
    changed: Notify,
    /// Wakes sessions that wait for a browser.
    launched: Notify,
}

struct PoolState {
    set: BrowserSet,
    browsers: HashMap<u64, RunningBrowser>,
    last_id: u64,
    /// Sessions that wait for a browser.
    waiting: usize,
    launching: usize,
    /// Whether Node was started.
    started: bool,
    /// Whether a browser has run.
    launched_once: bool,
    /// Whether Node or a browser could not be started.
    failed: bool,
    /// No launch before this instant, because one has failed.
    next_launch: Instant,
}

/// A browser that a session uses, until dropped.
pub(crate) struct BrowserLease {
    pool: BrowserPool,
    id: u64,
    pub(crate) socket: PathBuf,
    /// Cancelled when the session has to end, because the browser is to be replaced.
    pub(crate) overdue: CancellationToken,
}

impl Drop for BrowserLease {
    fn drop(&mut self) {
        self.pool.lock().set.give_back(self.id);
        self.pool.shared.changed.notify_one();
    }
}

/// Counts a session that waits for a browser, until dropped.
struct WaitingSession<'a>(&'a BrowserPool);

impl<'a> WaitingSession<'a> {
    fn new(pool: &'a BrowserPool) -> Self {
        pool.lock().waiting += 1;
        pool.shared.changed.notify_one();
        Self(pool)
    }
}

impl Drop for WaitingSession<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

enum JobOutcome {
    Launched(u64, Result<RunningBrowser, HostCallError>),
    Probed(u64, bool),
    Killed(u64, Result<(), HostCallError>),
}

impl BrowserPool {
    pub(crate) fn new(config: PoolConfig) -> Self {
        let state = PoolState {
            set: BrowserSet::new(config.rules),
            browsers: HashMap::new(),
            last_id: 0,
            waiting: 0,
            launching: 0,
            started: config.start == HostStart::AtOnce,
            launched_once: false,
            failed: false,
            next_launch: Instant::now(),
        };
        let shared = Shared { config, state: Mutex::new(state), changed: Notify::new(), launched: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a browser runs.
    pub(crate) fn is_ready(&self) -> bool {
        !self.lock().browsers.is_empty()
    }

    /// Whether sessions may ask for a browser: one has run, or no launch has failed. A session waits
    /// while the first browser, or one in place of those that ended, is launched.
    pub(crate) fn is_usable(&self) -> bool {
        let state = self.lock();
        state.launched_once || !state.failed
    }

    /// Waits until the first browser runs.
    pub(crate) async fn wait_until_ready(&self) {
        loop {
            let launched = self.shared.launched.notified();
            if self.is_ready() {
                return;
            }
            launched.await;
        }
    }

    /// A browser for a session; `None` if none can be had within the time.
    pub(crate) async fn take(&self, key: &str, isolation: Isolation, within: Duration) -> Option<BrowserLease> {
        let taking = async {
            let mut _waiting = None;
            loop {
                let mut launched = std::pin::pin!(self.shared.launched.notified());
                launched.as_mut().enable();
                if let Some(lease) = self.try_take(key, isolation) {
                    return lease;
                }
                if _waiting.is_none() {
                    _waiting = Some(WaitingSession::new(self));
                }
                launched.await;
            }
        };
        tokio::time::timeout(within, taking).await.ok()
    }

    fn try_take(&self, key: &str, isolation: Isolation) -> Option<BrowserLease> {
        let mut state = self.lock();
        let (id, socket, overdue) = loop {
            let id = state.set.take(key, isolation, Instant::now())?;
            let browser = state.browsers.get(&id)?;
            if !browser.pid.is_some_and(has_ended) {
                break (id, browser.socket.clone(), browser.overdue.clone());
            }
            // Node reports its end a moment later.
            state.set.give_back(id);
            state.set.note_probe(id, false);
        };
        drop(state);
        self.shared.changed.notify_one();
        Some(BrowserLease { pool: self.clone(), id, socket, overdue })
    }

    /// Keeps the browsers running until `stop`, and ends them.
    pub(crate) async fn run(&self, stop: &CancellationToken) -> Result<(), PoolError> {
        if !self.wait_for_start(stop).await {
            return Ok(());
        }
        let mut first = self.shared.config.start == HostStart::AtOnce;
        loop {
            let (closed_tx, closed) = mpsc::unbounded_channel();
            match NodeHost::start(&self.shared.config.host, closed_tx).await {
                Ok(host) => {
                    let outcome = self.run_host(Arc::new(host), closed, stop).await;
                    self.forget_all();
                    outcome?;
                }
                Err(error) if first => return Err(error.into()),
                Err(error) => {
                    self.lock().failed = true;
                    let error = with_causes(&error);
                    tracing::error!(error, "the browser host cannot start; trying again");
                }
            }
            first = false;
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(RESTART_PAUSE) => {}
            }
        }
    }

    /// Waits until Node must be started; `false` if `stop` came first.
    async fn wait_for_start(&self, stop: &CancellationToken) -> bool {
        loop {
            {
                let mut state = self.lock();
                state.started |= state.waiting > 0;
                if state.started {
                    return true;
                }
            }
            tokio::select! {
                () = self.shared.changed.notified() => {}
                () = stop.cancelled() => return false,
            }
        }
    }

    /// Runs one host until it ends, hangs or `stop`.
    async fn run_host(
        &self,
        host: Arc<NodeHost>,
        mut closed: mpsc::UnboundedReceiver<BrowserClosed>,
        stop: &CancellationToken,
    ) -> Result<(), PoolError> {
        let mut jobs = JoinSet::new();
        let mut probes = tokio::time::interval(self.shared.config.probe_every);
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let mut host_check = StopCheck::default();
        let ended = loop {
            self.start_jobs(&host, &mut jobs);
            tokio::select! {
                () = stop.cancelled() => break Ok(()),
                () = self.shared.changed.notified() => {}
                _ = tick.tick() => {
                    self.kill_stopped();
                    self.end_overdue_sessions();
                    if host_check.is_stopped(host.pid()) {
                        tracing::error!("the browser host was stopped; killing it");
                        kill_group(host.pid());
                    }
                }
                _ = probes.tick() => {
                    self.retire_large();
                    self.start_probes(&host, &mut jobs);
                }
                event = closed.recv() => match event {
                    Some(BrowserClosed { id }) => self.forget(id),
                    None => {
                        tracing::error!("the browser host ended; starting another");
                        break Ok(());
                    }
                },
                Some(Ok(outcome)) = jobs.join_next() => match self.finish_job(outcome) {
                    Ok(true) => {}
                    Ok(false) => {
                        tracing::error!("the browser host does not answer; starting another");
                        break Ok(());
                    }
                    Err(error) => break Err(error),
                },
            }
        };
        jobs.shutdown().await;
        let pids: Vec<Option<Pid>> = self.lock().browsers.values().map(|browser| browser.pid).collect();
        if let Some(host) = Arc::into_inner(host) {
            host.end(KILL_TIMEOUT).await;
        }
        pids.into_iter().for_each(kill_group);
        ended
    }

    /// Starts launches and kills that are due.
    fn start_jobs(&self, host: &Arc<NodeHost>, jobs: &mut JoinSet<JobOutcome>) {
        let mut state = self.lock();
        for id in state.set.finished() {
            state.set.remove(id);
            let host = host.clone();
            jobs.spawn(async move { JobOutcome::Killed(id, host.kill(id, KILL_TIMEOUT).await) });
        }
        if Instant::now() < state.next_launch {
            return;
        }
        let missing = state.set.missing_spares(Instant::now());
        let room = self.shared.config.rules.limit.saturating_sub(state.set.ids().len());
        let wanted = (missing + state.waiting).min(room).saturating_sub(state.launching);
        for _ in 0..wanted {
            state.last_id += 1;
            state.launching += 1;
            let (config, host, id) = (self.shared.config.clone(), host.clone(), state.last_id);
            jobs.spawn(async move { JobOutcome::Launched(id, launch(&config, &host, id).await) });
        }
    }

    /// Kills browsers that were stopped. Probes find those that hang for another reason.
    fn kill_stopped(&self) {
        let mut state = self.lock();
        let stopped = state.browsers.iter_mut().filter_map(|(id, browser)| {
            let stopped = browser.stop_check.is_stopped(browser.pid);
            stopped.then_some((*id, browser.pid))
        });
        for (id, pid) in stopped.collect::<Vec<_>>() {
            tracing::error!(id, "a browser was stopped; killing it");
            kill_group(pid);
            state.set.retire(id, Instant::now());
        }
    }

    /// Ends the sessions of browsers that should have been replaced long ago.
    fn end_overdue_sessions(&self) {
        let state = self.lock();
        for id in state.set.overdue(Instant::now()) {
            if let Some(browser) = state.browsers.get(&id).filter(|browser| !browser.overdue.is_cancelled()) {
                tracing::info!(id, "ending the sessions of a browser that is to be replaced");
                browser.overdue.cancel();
            }
        }
    }

    /// Gives browsers above the memory limit no more sessions.
    fn retire_large(&self) {
        let Some(limit) = self.shared.config.rules.max_memory else { return };
        let memory = anonymous_bytes_by_group();
        let mut state = self.lock();
        let size = |browser: &RunningBrowser| memory.get(&browser.pid?.as_raw_nonzero().get()).copied();
        let large = state.browsers.iter().filter(|(_, browser)| size(browser).is_some_and(|size| size > limit));
        let large: Vec<u64> = large.map(|(id, _)| *id).collect();
        large.into_iter().for_each(|id| state.set.retire(id, Instant::now()));
    }

    fn start_probes(&self, host: &Arc<NodeHost>, jobs: &mut JoinSet<JobOutcome>) {
        for (&id, browser) in self.lock().browsers.iter_mut().filter(|(_, browser)| !browser.probing) {
            browser.probing = true;
            let (host, within) = (host.clone(), self.shared.config.probe_timeout);
            jobs.spawn(async move {
                let probed = host.probe(id, within).await;
                // A browser that ended meanwhile is not a miss.
                JobOutcome::Probed(id, !matches!(probed, Err(HostCallError::Timeout)))
            });
        }
    }

    /// Takes note of a finished job. `false` if the host does not answer.
    fn finish_job(&self, outcome: JobOutcome) -> Result<bool, PoolError> {
        let mut state = self.lock();
        match outcome {
            JobOutcome::Launched(id, Ok(browser)) => {
                state.launching -= 1;
                state.launched_once = true;
                state.browsers.insert(id, browser);
                state.set.add(id, Instant::now());
                drop(state);
                self.shared.launched.notify_waiters();
            }
            JobOutcome::Launched(_, Err(error)) => {
                state.launching -= 1;
                let reason = launch_failure(&error, &self.shared.config.host.folder);
                (state.failed, state.next_launch) = (true, Instant::now() + RESTART_PAUSE);
                if !state.launched_once && self.shared.config.start == HostStart::AtOnce {
                    return Err(PoolError::Launch { browser: self.shared.config.host.browser.clone(), reason });
                }
                tracing::error!(reason, "a browser could not be launched; trying again");
            }
            JobOutcome::Probed(id, answered) => {
                let Some(browser) = state.browsers.get_mut(&id) else { return Ok(true) };
                browser.probing = false;
                browser.misses = if answered { 0 } else { browser.misses + 1 };
                let (misses, pid) = (browser.misses, browser.pid);
                state.set.note_probe(id, answered);
                if misses == MAX_MISSES {
                    tracing::error!(id, "a browser does not answer; killing it");
                    kill_group(pid);
                    state.set.retire(id, Instant::now());
                }
                drop(state);
                if answered {
                    // A session may wait for a browser that had missed a probe.
                    self.shared.launched.notify_waiters();
                }
                // The host reports the end of a killed browser, unless the host hangs itself.
                return Ok(misses <= MAX_MISSES);
            }
            JobOutcome::Killed(id, killed) => {
                drop(state);
                self.forget(id);
                return Ok(!matches!(killed, Err(HostCallError::Timeout)));
            }
        }
        Ok(true)
    }

    /// Removes a browser that has ended, with its processes and its folder.
    fn forget(&self, id: u64) {
        let mut state = self.lock();
        state.set.remove(id);
        if let Some(browser) = state.browsers.remove(&id) {
            kill_group(browser.pid);
            // Chromium may still write for a moment; the worker's folder is removed at its end.
            let _ = std::fs::remove_dir_all(&browser.folder);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    fn forget_all(&self) {
        let ids: Vec<u64> = self.lock().browsers.keys().copied().collect();
        ids.into_iter().for_each(|id| self.forget(id));
        self.lock().launching = 0;
    }
}
