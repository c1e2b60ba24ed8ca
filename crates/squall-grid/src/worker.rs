//! A worker of the grid: offers slots, and serves sessions with browsers on this machine.
//! It installs nothing and chooses no sessions. `squall grid worker` runs it.

mod browser_memory;
mod browser_pool;
mod browser_pools;
mod browser_set;
mod cdp_browser;
mod cdp_messages;
mod cdp_session;
mod confinement;
mod folder;
pub(crate) mod gateway;
mod node_host;
mod offers;
mod stopped_process;

use std::{
    collections::HashMap,
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use squall_coord::{EndReason, OfferOutcome, SlotOffer, SlotSessionId, SlotWorkerId, StoreError, unique_id};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::CancellationToken;

pub use browser_pool::PoolError;
pub use browser_set::{BrowserRules, Isolation};
pub use confinement::{ConfinementError, exec_confined};
pub use node_host::NodeHostError;
pub use offers::{ServerOffers, SlotOffers};

use self::{
    browser_pools::BrowserPools,
    cdp_browser::CdpLauncher,
    folder::WorkerFolder,
    gateway::{Gateway, GatewayConfig},
};
use crate::{error_text::with_causes, relay::frame::CloseFrame};

/// Heartbeats without the server of a session before the worker ends the session, if the store may have
/// lost its data or was away.
const MISSING_HEARTBEATS: u32 = 3;

/// How a worker runs.
#[derive(Clone, Debug)]
pub struct GridWorkerConfig {
    /// Kind (the browser) and name.
    pub id: SlotWorkerId,
    /// Where the gateway listens; port 0 takes a free port.
    pub listen: SocketAddr,
    /// The host and port under which servers reach the gateway; by default the address it listens on.
    pub advertise: Option<String>,
    /// The most sessions at once.
    pub slots: u32,
    /// Who may share a browser.
    pub isolation: Isolation,
    /// When browsers retire, and how many stand by.
    pub rules: BrowserRules,
    /// The worker drains after this many sessions.
    pub max_lifetime: Option<u64>,
    /// The browser's program; Playwright's own by default.
    pub executable: Option<PathBuf>,
    /// More arguments for the browser.
    pub args: Vec<String>,
    /// The command that calls [`exec_confined`] with the words that follow it, so that a page reads no file of
    /// another browser, and Node writes only to the folder of its browsers. Without it, or without `executable`,
    /// browsers read all that the worker's user may.
    pub confine_with: Option<Vec<OsString>>,
    /// Folders of the package `playwright-core`, at least one, each of another version. Playwright of
    /// the first starts at once, and that of each other at its first session.
    pub playwright: Vec<PathBuf>,
    /// The program of Node.
    pub node: PathBuf,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// How long the worker stays a member without a heartbeat.
    pub ttl: Duration,
    /// How long sessions may last after the worker began to drain.
    pub drain_timeout: Duration,
    /// Playwright kills a browser whose launch takes longer. Other launches and sessions wait for it,
    /// so it is shorter than the time that a session waits in the server's queue.
    pub launch_timeout: Duration,
    /// Time between probes of a browser.
    pub probe_every: Duration,
    /// How long a probe may take.
    pub probe_timeout: Duration,
}

/// Why a worker could not work.
#[derive(Debug, thiserror::Error)]
pub enum GridWorkerError {
    /// The gateway could not listen.
    #[error("the gateway cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The folder for browsers could not be created.
    #[error("cannot create a temporary folder")]
    Folder(#[source] std::io::Error),
    /// Browsers could not be started.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Another live worker has this name.
    #[error("the grid has another worker {0}: give this one a name of its own with --id, or end the other one")]
    NameTaken(SlotWorkerId),
}

/// A worker that is ready to run.
pub struct GridWorker<S> {
    store: S,
    config: GridWorkerConfig,
}

impl<S: SlotOffers> GridWorker<S> {
    /// A worker that offers its slots to `store`.
    pub fn new(store: S, config: GridWorkerConfig) -> Self {
        Self { store, config }
    }

    /// Works until it has drained: after `drain`, after a drain request in the store, or at its lifetime limit.
    pub async fn run(mut self, drain: CancellationToken) -> Result<(), GridWorkerError> {
        let folder = WorkerFolder::create().map_err(GridWorkerError::Folder)?;
        self.config.executable = browser_program(&self.config, folder.path()).await;
        let config = &self.config;
        let listen_error = |source| GridWorkerError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let pools = BrowserPools::new(config, folder.path()).map_err(PoolError::Host)?;
        let secret = unique_id();
        let gateway = Gateway::new(gateway_config(config, folder.path(), secret.clone(), pools.clone()));
        let offer = first_offer(config, address, secret);
        let (stop_pool, stop_gateway) = (CancellationToken::new(), CancellationToken::new());
        let close = CloseFrame::new(1001, format!("squall: worker {} was drained", config.id.name()));
        let serving = async {
            let ended = self.offer_until_drained(&pools, &gateway, offer, drain).await;
            stop_gateway.cancel();
            ended
        };
        let sessions = async {
            let (ended, ()) = tokio::join!(serving, gateway.serve(listener, &stop_gateway, close));
            // The sessions are over, so no server can reach them. A membership of another worker is not ours.
            if ended.is_ok()
                && let Err(error) = self.store.leave_worker(&config.id).await
            {
                let error = with_causes(&error);
                tracing::warn!(error, "the worker could not leave; its membership expires");
            }
            stop_pool.cancel();
            ended
        };
        let mut browsers = std::pin::pin!(pools.run(&stop_pool));
        let ended = tokio::select! {
            ended = &mut browsers => return ended.map_err(Into::into),
            ended = sessions => ended,
        };
        browsers.await?;
        ended
    }

    /// Sends offers until the worker drains and has no sessions, or its drain timeout is over.
    async fn offer_until_drained(
        &self,
        pools: &BrowserPools,
        gateway: &Gateway,
        mut offer: SlotOffer,
        drain: CancellationToken,
    ) -> Result<(), GridWorkerError> {
        tokio::select! {
            () = pools.wait_until_ready() => {}
            () = drain.cancelled() => return Ok(()),
        }
        tracing::info!(
            worker = %offer.worker, endpoint = offer.endpoint, slots = offer.slots,
            playwright = pools.versions().join(", "), "the worker offers its slots"
        );
        let mut heartbeat = tokio::time::interval(self.config.heartbeat);
        let mut history = OfferHistory::default();
        let mut drain_deadline = None;
        loop {
            tokio::select! {
                _ = heartbeat.tick() => {}
                () = drain.cancelled(), if !offer.draining => {}
                // The store gives the slot of such a session to a waiting client.
                () = gateway.session_ended(), if history.ending => {}
            }
            gateway.list_sessions(&mut offer);
            // Without a browser the worker keeps its membership and takes no sessions.
            offer.slots = if pools.is_ready() { self.config.slots } else { 0 };
            offer.versions = pools.versions();
            let at_limit = offer.max_lifetime.is_some_and(|limit| offer.lifetime >= limit);
            offer.draining |= at_limit || drain.is_cancelled();
            self.send_offer(gateway, &mut offer, &mut history).await;
            // The other worker may be an earlier life of this one that was killed.
            if history.name_taken_since.is_some_and(|since| since.elapsed() >= 2 * self.config.ttl) {
                return Err(GridWorkerError::NameTaken(offer.worker));
            }
            if offer.draining {
                let deadline = *drain_deadline.get_or_insert_with(|| Instant::now() + self.config.drain_timeout);
                let is_empty = gateway.is_empty() && history.pending == 0;
                if is_empty || Instant::now() >= deadline {
                    return Ok(());
                }
            }
        }
    }

    /// Sends one offer and does what the store asks for.
    async fn send_offer(&self, gateway: &Gateway, offer: &mut SlotOffer, history: &mut OfferHistory) {
        history.pending = 0;
        let outcome = match self.store.offer(offer, self.config.ttl).await {
            Ok(outcome) => outcome,
            Err(error) => return log_store_error(&error),
        };
        if outcome.name_taken && history.name_taken_since.is_none() {
            tracing::warn!(worker = %offer.worker, "the grid has another worker of this name");
        }
        if !outcome.name_taken {
            gateway.note_seen(offer);
        }
        history.note_answer(&self.config, &outcome);
        if outcome.drain && !offer.draining {
            tracing::info!(worker = %offer.worker, "the worker was asked to drain");
        }
        offer.draining |= outcome.drain;
        for (id, reason) in outcome.end {
            let close = match reason {
                EndReason::Deleted => CloseFrame::new(1001, format!("squall: session {id} was deleted")),
                EndReason::ServerLost | EndReason::ServerUnknown if history.may_return(&id, reason, &self.config) => {
                    continue;
                }
                EndReason::ServerLost | EndReason::ServerUnknown => {
                    CloseFrame::new(1011, format!("squall: the server of session {id} was lost"))
                }
            };
            gateway.end_session(&id, close);
            history.ending = true;
        }
    }
}

/// What a worker remembers of the store's answers.
#[derive(Default)]
struct OfferHistory {
    /// Since when all answers say that the server of a session is missing.
    missing_since: HashMap<SlotSessionId, Instant>,
    last_answer: Option<Instant>,
    /// The first answer after which no outage was long enough to end a membership.
    steady_since: Option<Instant>,
    /// Whether the worker has ended sessions after the last answer.
    ending: bool,
    /// Sessions that the store had granted at the last answer and the worker does not have; 0 without an answer.
    pending: u64,
    /// Since when all answers say that another worker has the name.
    name_taken_since: Option<Instant>,
}

impl OfferHistory {
    fn note_answer(&mut self, config: &GridWorkerConfig, outcome: &OfferOutcome) {
        let now = Instant::now();
        let outage = config.ttl.saturating_sub(config.heartbeat);
        if self.last_answer.is_none_or(|last| now - last >= outage) {
            self.steady_since = Some(now);
        }
        self.last_answer = Some(now);
        self.ending = false;
        self.pending = outcome.pending;
        self.name_taken_since = outcome.name_taken.then(|| self.name_taken_since.unwrap_or(now));
        self.missing_since.retain(|id, _| outcome.end.iter().any(|(ended, _)| ended == id));
    }

    /// Whether the server of a session may be alive, because the store was away or has lost its data.
    fn may_return(&mut self, session: &SlotSessionId, reason: EndReason, config: &GridWorkerConfig) -> bool {
        let since = *self.missing_since.entry(session.clone()).or_insert_with(Instant::now);
        let steady = self.steady_since.is_some_and(|since| since.elapsed() >= config.ttl);
        since.elapsed() < config.heartbeat * MISSING_HEARTBEATS && !(reason == EndReason::ServerLost && steady)
    }
}

fn gateway_config(config: &GridWorkerConfig, folder: &Path, secret: String, pools: BrowserPools) -> GatewayConfig {
    GatewayConfig {
        worker: config.id.name().to_owned(),
        secret,
        slots: config.slots as usize,
        isolation: config.isolation,
        pools,
        cdp: CdpLauncher {
            executable: config.executable.clone().filter(|_| config.id.kind() == "chromium"),
            args: config.args.clone(),
            folder: folder.to_owned(),
            launched: AtomicU64::new(0),
        },
        probe_every: config.probe_every,
        max_cdp_time: config.rules.max_age.saturating_add(config.rules.recycle_timeout),
    }
}

/// The offer of a worker that has no session and knows no versions yet.
fn first_offer(config: &GridWorkerConfig, address: SocketAddr, secret: String) -> SlotOffer {
    SlotOffer {
        worker: config.id.clone(),
        versions: Vec::new(),
        endpoint: format!("ws://{}/", config.advertise.clone().unwrap_or_else(|| address.to_string())),
        secret,
        slots: config.slots,
        lifetime: 0,
        max_lifetime: config.max_lifetime,
        draining: false,
        started_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis() as u64),
        sessions: Vec::new(),
        ended: Vec::new(),
    }
}

/// What runs as the browser: its program, or a script that confines it.
async fn browser_program(config: &GridWorkerConfig, folder: &Path) -> Option<PathBuf> {
    let Some(command) = &config.confine_with else { return config.executable.clone() };
    let reason = match &config.executable {
        // Playwright says so.
        Some(program) if !program.is_file() => return config.executable.clone(),
        None => "the browser is Playwright's own, and --executable names another".to_owned(),
        Some(program) => match confinement::confining_script(command, program, folder).await {
            Ok(script) => return Some(script),
            Err(error) => with_causes(&error),
        },
    };
    tracing::warn!(worker = %config.id, reason, "pages can read files of other sessions with file:// URLs");
    config.executable.clone()
}

fn log_store_error(error: &StoreError) {
    let error = with_causes(error);
    tracing::warn!(error, "the worker could not offer its slots; its sessions continue");
}
