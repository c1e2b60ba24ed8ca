//! Workers that hold shares and report, but make no load: enough for a leader to lead a run from phase to phase.

use squall_coord::{FleetStores, RedisClient, RedisFleetStores, RunStore, WorkerReport, fleet_key_prefix};
use squall_model::{Bundle, EngineLimits, Load, LoadModel, Pause, Plan, Profile, RunPhase, ShareSet, TaskSpec};
use squall_orchestrator::{Orchestrator, OrchestratorConfig};
use squall_testkit::redis::RedisServer;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest that anything is waited for; reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fleet without load.
pub(crate) struct Stage {
    pub(crate) cell: RedisFleetStores,
    pub(crate) link: RedisClient,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    _server: RedisServer,
}

/// What a worker says that it holds; it stops reporting when there is nothing.
pub(crate) type Held = Arc<Mutex<Option<ShareSet>>>;

impl Stage {
    pub(crate) async fn new() -> Stage {
        Stage::on(RedisServer::start()).await
    }

    pub(crate) async fn on(server: RedisServer) -> Stage {
        let link = RedisClient::open(&server.url()).await.expect("the server runs");
        let cell = RedisFleetStores::new(&link, "t");
        Stage { cell, link, tasks: JoinSet::new(), stop: CancellationToken::new(), _server: server }
    }

    /// An orchestrator that leads; it ends when the answer is cancelled.
    pub(crate) fn lead(&mut self) -> CancellationToken {
        self.lead_by(self.cell.clone())
    }

    /// The same by a way of its own.
    pub(crate) fn lead_by(&mut self, cell: RedisFleetStores) -> CancellationToken {
        let stop = self.stop.child_token();
        let ends = stop.clone();
        self.tasks.spawn(async move {
            let orchestrator = Orchestrator::new(cell, OrchestratorConfig::new("o"));
            orchestrator.run(ends).await.expect("timings that fit");
        });
        stop
    }

    /// A worker that reports.
    pub(crate) fn join(&mut self, id: &str, held: ShareSet) -> Held {
        let held: Held = Arc::new(Mutex::new(Some(held)));
        self.tasks.spawn(report(self.cell.run(), id.to_owned(), held.clone(), self.stop.clone()));
        held
    }

    /// One command with these words, the first key being one of the fleet's.
    pub(crate) async fn ask<T: redis::FromRedisValue>(&self, command: &str, key: &str, rest: &[&str]) -> T {
        let mut asked = redis::cmd(command);
        asked.arg(format!("{}{key}", fleet_key_prefix("t"))).arg(rest);
        asked.query_async(&mut self.link.connection()).await.expect("it answers")
    }

    pub(crate) async fn until<T: redis::FromRedisValue + PartialEq + std::fmt::Debug>(
        &self,
        command: &str,
        key: &str,
        wanted: T,
    ) {
        let begin = Instant::now();
        loop {
            let seen: T = self.ask(command, key, &[]).await;
            if seen == wanted {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{command} {key}: {seen:?} instead of {wanted:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// `users` of a closed load for a minute.
pub(crate) fn bundle(users: f64) -> Bundle {
    let profile = Profile::constant(users, Duration::from_secs(60)).expect("a load");
    bundle_of(LoadModel::Closed { users: profile, pause: Pause::NONE })
}

/// Any load.
pub(crate) fn bundle_of(model: LoadModel) -> Bundle {
    let plan = Plan {
        name: "p".into(),
        target: "t".into(),
        load: Load { model, iterations: None, warm_up: Duration::ZERO },
        tasks: vec![TaskSpec::new("a")],
        thresholds: Vec::new(),
        seed: 1,
    };
    let limits = EngineLimits {
        threads: None,
        max_users: 10,
        grace: Duration::from_secs(1),
        slack: Duration::from_millis(1),
        late_after: Duration::from_millis(10),
        phases: false,
    };
    Bundle::new(plan, limits)
}

async fn report<R: RunStore>(run: R, id: String, held: Held, stop: CancellationToken) {
    // Lives are told apart by it.
    let instance = format!("{:016x}", id.bytes().fold(7u64, |sum, byte| sum * 31 + u64::from(byte)));
    while !stop.is_cancelled() {
        let Some(shares) = *held.lock().expect("no panic") else { return };
        let record = run.read_record().await.expect("it answers");
        let ends = matches!(RunPhase::from_name(&record.state), Some(RunPhase::Stopping | RunPhase::Idle));
        let done = if ends { record.epoch } else { 0 };
        let report: WorkerReport = [
            ("status", "healthy".to_owned()),
            ("instance", instance.clone()),
            ("ready", record.epoch.to_string()),
            ("done", done.to_string()),
            ("shares", shares.len().to_string()),
            ("held", shares.to_hex()),
        ]
        .map(|(field, value)| (field.to_owned(), value))
        .into();
        run.report(&id, &report, Duration::from_millis(3500)).await.expect("it answers");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
