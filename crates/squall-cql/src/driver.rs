//! The operations of cassandra-stress as a driver of squall-engine: one virtual user is one thread of
//! cassandra-stress, one iteration is one operation. It knows no load model and prints nothing. The
//! command line passes it to a run.

mod coordinator_metrics;
mod cut_off;
mod operation_chooser;
mod operation_counts;
mod partition_limit;
mod partition_visits;
mod profile_operations;
mod profile_user;
mod row_values;
mod run_end;
mod seed_source;
mod standard_operations;
mod standard_user;
mod statement_error;
mod thread_connections;
mod token_ranges;
mod try_delay;
mod user;
mod workload;

use crate::{BasicOperation, Database, DatabaseTarget, ErrorSettings, StressOperation, StressSettings};
use coordinator_metrics::CoordinatorMetrics;
use cut_off::CutOff;
use operation_chooser::OperationChooser;
use operation_counts::{CountMetrics, OperationAnswer};
use partition_limit::PartitionLimit;
use partition_visits::PartitionVisits;
use profile_operations::ProfileOperations;
use seed_source::{SharedSeeds, UserSeeds};
use squall_engine::{
    Driver, DriverError, DriverThread, RequestsPerIteration, SharedCounter, ThreadDeadline, ThreadRecorder,
    UserIdentity,
};
use squall_metrics::{MetricId, MetricKey};
use standard_operations::StandardOperations;
use statement_error::{different, unreadable};
use std::{
    cell::OnceCell,
    num::NonZeroUsize,
    rc::Rc,
    sync::{Arc, OnceLock},
};
use thread_connections::ThreadConnections;
use token_ranges::TokenRanges;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::JoinSet,
};

pub use operation_counts::{OperationCounts, RunCounts};
pub use run_end::{RunEnd, RunEndReason};
pub use statement_error::StatementError;
pub use user::CqlUser;
use user::NextOperation;
use workload::ProfileOperation;
pub use workload::{ProfileWorkload, Workload, WorkloadError};

/// The operations of a command against one database.
pub struct CqlDriver {
    run: Arc<DriverRun>,
}

/// What all threads of a run share.
struct DriverRun {
    place: DriverPlace,
    settings: StressSettings,
    target: DatabaseTarget,
    workload: Workload,
    seeds: Arc<SharedSeeds>,
    visits: PartitionVisits,
    token_ranges: TokenRanges,
    limit: PartitionLimit,
    end: RunEnd,
    /// Whether the run ends when all partitions of `n=` are used, however long that takes.
    makes_all: bool,
    /// Of one of the engine's threads, which end their load together.
    deadline: OnceLock<ThreadDeadline>,
    connections: ThreadConnections,
}

/// What users take their work from, and who else does.
struct DriverData {
    seeds: SharedSeeds,
    token_ranges: TokenRanges,
    limit: PartitionLimit,
    place: DriverPlace,
}

/// Who else makes the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriverPlace {
    /// No other process.
    LocalRun,
    /// The other workers of a fleet.
    FleetWorker,
}

/// The part of a command that one run makes.
#[derive(Debug, Clone)]
pub struct DriverWork {
    /// The operations of the command, or one of them for a warm-up.
    pub workload: Workload,
    /// The partitions of all operations together; `None`: something else ends the run.
    pub partitions: Option<u64>,
    /// They share the connections to each node.
    pub engine_threads: usize,
}

/// One engine thread's connections and statements.
pub struct CqlThread {
    run: Arc<DriverRun>,
    recorder: ThreadRecorder,
    metrics: Vec<MetricId>,
    count_metrics: Vec<CountMetrics>,
    unused_iterations: Option<MetricId>,
    /// Set by `connect`, before the first user exists.
    connected: OnceCell<Rc<ConnectedThread>>,
}

/// What the users of a thread share.
struct ConnectedThread {
    run: Arc<DriverRun>,
    recorder: ThreadRecorder,
    /// In the order of the run's operations.
    metrics: Vec<MetricId>,
    /// As `metrics`, if operations may have more than one partition or row.
    count_metrics: Vec<CountMetrics>,
    /// If this is a worker of a fleet.
    unused_iterations: Option<MetricId>,
    /// If operations are sent to more than one node.
    coordinators: Option<CoordinatorMetrics>,
    database: Database,
    operations: ThreadOperations,
    /// The requests that may be in flight at the same time; `None`: any number.
    pending: Option<Semaphore>,
    cut_off: Rc<CutOff>,
    /// Follows `cut_off`.
    _tasks: JoinSet<()>,
}

/// The statements of a thread's connections.
enum ThreadOperations {
    Standard(Rc<StandardOperations>),
    Profiles(Rc<ProfileOperations>),
}

impl CqlDriver {
    pub fn new(settings: &StressSettings, target: &DatabaseTarget, work: DriverWork) -> CqlDriver {
        let seeds = SharedSeeds::new(&settings.population, &settings.insert);
        let (token_ranges, limit) = (TokenRanges::new(settings.token_range), PartitionLimit::new(work.partitions));
        let data = DriverData { seeds, token_ranges, limit, place: DriverPlace::LocalRun };
        CqlDriver::with_data(settings, target, work, data)
    }

    /// The driver of one worker of a fleet, and the counters that it shares with the other workers. The
    /// partitions of `work` are those of all workers together.
    pub fn for_worker(
        settings: &StressSettings,
        target: &DatabaseTarget,
        work: DriverWork,
    ) -> (CqlDriver, Vec<SharedCounter>) {
        let (has_revisits, partitions) = (settings.insert.has_revisits(), work.partitions);
        let (seed_limit, partition_limit) = match &work.workload {
            Workload::Standard(_) => (partitions, None),
            // One seed for each partition: a number that a worker gives back is used before the run ends.
            Workload::Profiles(_) if !has_revisits => (partitions, partitions),
            Workload::Profiles(_) => (None, partitions),
        };
        let (seeds, seed_counter) = SharedSeeds::of_fleet(&settings.population, &settings.insert, seed_limit);
        let (limit, partition_counter) = PartitionLimit::of_fleet(partition_limit);
        let (token_ranges, range_counter) = TokenRanges::of_fleet(settings.token_range);
        let counters = [Some(seed_counter), partition_counter, Some(range_counter)].into_iter().flatten().collect();
        let data = DriverData { seeds, token_ranges, limit, place: DriverPlace::FleetWorker };
        (CqlDriver::with_data(settings, target, work, data), counters)
    }

    fn with_data(
        settings: &StressSettings,
        target: &DatabaseTarget,
        work: DriverWork,
        DriverData { seeds, token_ranges, limit, place }: DriverData,
    ) -> CqlDriver {
        let connections = ThreadConnections::new(settings.mode.connections_per_host as usize, work.engine_threads);
        let run = DriverRun {
            place,
            settings: settings.clone(),
            target: target.clone(),
            seeds: Arc::new(seeds),
            visits: PartitionVisits::new(&settings.insert),
            token_ranges,
            limit,
            workload: work.workload,
            end: RunEnd::default(),
            makes_all: work.partitions.is_some(),
            deadline: OnceLock::new(),
            connections,
        };
        CqlDriver { run: Arc::new(run) }
    }

    /// Where the driver asks for the end of the run.
    pub fn run_end(&self) -> RunEnd {
        self.run.end.clone()
    }
}

impl StressOperation {
    /// The basic operations of a command with their weights, in alphabetical order; none for `user`.
    pub fn basic_operations(&self) -> Vec<(BasicOperation, f64)> {
        let mut operations = match self {
            StressOperation::Basic(operation) => vec![(*operation, 1.0)],
            StressOperation::Mixed { weights, .. } => {
                weights.iter().copied().filter(|(_, weight)| *weight > 0.0).collect()
            }
            StressOperation::User { .. } => Vec::new(),
        };
        operations.sort_by_key(|(operation, _)| *operation);
        operations
    }
}

impl Driver for CqlDriver {
    type Thread = CqlThread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<CqlThread, DriverError> {
        let names = self.run.workload.names();
        let metrics = names.iter().map(|name| recorder.metric(MetricKey::request(*name))).collect();
        let count_metrics = match &self.run.workload {
            Workload::Profiles(profiles) => {
                let metrics = |operation: &ProfileOperation| {
                    CountMetrics::new(&operation.name, operation.reads_token_ranges(), &recorder)
                };
                profiles.operations.iter().map(metrics).collect()
            }
            Workload::Standard(_) => Vec::new(),
        };
        // In one process the end of the run is requested at once.
        let unused_iterations =
            (self.run.place == DriverPlace::FleetWorker).then(|| operation_counts::unused_iterations(&recorder));
        let (run, connected) = (self.run.clone(), OnceCell::new());
        Ok(CqlThread { run, recorder, metrics, count_metrics, unused_iterations, connected })
    }

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        Some(RequestsPerIteration { direct: 1, redirects: 0 })
    }

    fn run_thread<R>(
        &self,
        deadline: &ThreadDeadline,
        runtime: &mut tokio::runtime::Builder,
        thread_main: impl FnOnce(&mut tokio::runtime::Builder) -> R,
    ) -> R {
        self.run.deadline.get_or_init(|| deadline.clone());
        thread_main(runtime)
    }
}

impl DriverThread for CqlThread {
    type User = CqlUser;

    async fn connect(&mut self) -> Result<(), DriverError> {
        let run = self.run.clone();
        let connections = run.connections.take();
        let connecting = Database::connect(&run.target, connections);
        let database = connecting.await.map_err(|error| DriverError::Unreachable { reason: error.to_string() })?;
        let preparing = ThreadOperations::prepare(&database, &run.settings, &run.workload);
        let limit = run.settings.mode.connect_limit();
        let prepared = tokio::time::timeout(limit, preparing).await;
        let prepared = prepared.unwrap_or(Err(StatementError::Silent { limit }));
        let operations = prepared.map_err(|error| match (error.is_lost(), error.to_string()) {
            (true, reason) => DriverError::Unreachable { reason },
            (false, reason) => DriverError::Connect { reason },
        })?;
        if run.workload.token_range_queries().next().is_some() {
            run.token_ranges.set_ring(|| database.ring_tokens());
        }
        let (cut_off, mut tasks) = (Rc::new(CutOff::default()), JoinSet::new());
        tasks.spawn_local(cut_off.clone().follow(run.clone()));
        let thread = ConnectedThread {
            cut_off,
            _tasks: tasks,
            pending: run.most_pending(&database, connections).map(Semaphore::new),
            run,
            recorder: self.recorder.clone(),
            metrics: self.metrics.clone(),
            count_metrics: self.count_metrics.clone(),
            unused_iterations: self.unused_iterations,
            coordinators: (database.used_nodes(&self.run.target) > 1).then(CoordinatorMetrics::default),
            database,
            operations,
        };
        self.connected = Rc::new(thread).into();
        Ok(())
    }

    fn user(&self, _identity: UserIdentity) -> CqlUser {
        let thread = self.connected.get().expect("the engine connects a thread before it makes users");
        CqlUser::new(thread.clone())
    }
}

impl ThreadOperations {
    async fn prepare(
        database: &Database,
        settings: &StressSettings,
        workload: &Workload,
    ) -> Result<ThreadOperations, StatementError> {
        if workload.token_range_queries().next().is_some() {
            settings.token_range.check(&database.ring_tokens())?;
        }
        Ok(match workload {
            Workload::Standard(operations) => {
                let kinds = operations.iter().map(|(operation, _)| *operation);
                ThreadOperations::Standard(Rc::new(StandardOperations::prepare(database, settings, kinds).await?))
            }
            Workload::Profiles(workload) => {
                ThreadOperations::Profiles(Rc::new(ProfileOperations::prepare(database, settings, workload).await?))
            }
        })
    }
}

impl Database {
    /// How many token ranges a run reads; `None` if it begins again after the last one.
    pub fn token_ranges(&self, settings: &StressSettings) -> Option<u64> {
        settings.token_range.count(self.ring_tokens())
    }

    /// Prepares the statements of the operations once, so that a missing table is known before the
    /// run.
    pub async fn check_statements(&self, settings: &StressSettings, workload: &Workload) -> Result<(), StatementError> {
        ThreadOperations::prepare(self, settings, workload).await.map(drop)
    }
}

impl ConnectedThread {
    /// Waits until `-mode maxPending=` allows another request.
    async fn wait_for_turn(&self) -> Option<SemaphorePermit<'_>> {
        match &self.pending {
            // Cannot fail: the semaphore is never closed.
            Some(pending) => pending.acquire().await.ok(),
            None => None,
        }
    }
}

impl DriverRun {
    /// The requests of all connections of a thread together.
    fn most_pending(&self, database: &Database, connections: NonZeroUsize) -> Option<usize> {
        let connections = connections.get() * database.used_nodes(&self.target).max(1);
        self.settings.mode.max_pending.map(|pending| pending as usize * connections)
    }

    fn errors(&self) -> &ErrorSettings {
        &self.settings.errors
    }

    /// Whether the operations in flight are the last ones, and need not all be made.
    fn load_is_over(&self) -> bool {
        let all_are_made = self.makes_all || self.end.reason() == Some(RunEndReason::AllUsed);
        let load_ended = || self.deadline.get().is_some_and(ThreadDeadline::load_is_over);
        self.end.tries_have_ended() || (!all_are_made && load_ended())
    }

    fn user_seeds(&self) -> UserSeeds {
        UserSeeds::new(self.seeds.clone())
    }

    fn chooser(&self) -> OperationChooser {
        OperationChooser::new(&self.workload.weights(), &self.settings.command.operation)
    }
}
