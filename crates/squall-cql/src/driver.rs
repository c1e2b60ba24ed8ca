//! The operations of cassandra-stress as a driver of squall-engine: one virtual user is one thread of
//! cassandra-stress, one iteration is one operation. It knows no load model and prints nothing. The
//! command line passes it to a run.

mod operation_chooser;
mod run_end;
mod seed_source;
mod standard_operations;
mod try_delay;
mod user;

use crate::{BasicOperation, Database, DatabaseTarget, ErrorSettings, StressOperation, StressSettings};
use operation_chooser::OperationChooser;
use seed_source::{SharedSeeds, UserSeeds};
use squall_engine::{Driver, DriverError, DriverThread, RequestsPerIteration, ThreadRecorder, UserIdentity};
use squall_metrics::{MetricId, MetricKey};
use standard_operations::StandardOperations;
use std::{
    cell::{OnceCell, RefCell},
    num::NonZeroUsize,
    rc::Rc,
    sync::Arc,
};

pub use run_end::{RunEnd, RunEndReason};
pub use standard_operations::StatementError;
pub use user::CqlUser;

/// The basic commands against one database.
pub struct CqlDriver {
    run: Arc<DriverRun>,
}

/// What all threads of a run share.
struct DriverRun {
    settings: StressSettings,
    target: DatabaseTarget,
    operations: Vec<(BasicOperation, f64)>,
    seeds: Arc<SharedSeeds>,
    end: RunEnd,
    connections_per_thread: NonZeroUsize,
}

/// One engine thread's connections and statements.
pub struct CqlThread {
    run: Arc<DriverRun>,
    recorder: ThreadRecorder,
    metrics: Vec<MetricId>,
    /// Set by `connect`, before the first user exists.
    connected: OnceCell<Rc<ConnectedThread>>,
}

/// What the users of a thread share.
struct ConnectedThread {
    run: Arc<DriverRun>,
    recorder: ThreadRecorder,
    /// In the order of the run's operations.
    metrics: Vec<MetricId>,
    database: Database,
    statements: StandardOperations,
    /// Generators that keep no state between operations.
    columns: RefCell<crate::StandardColumns>,
}

impl CqlDriver {
    /// `operations` with their weights are those of the command, or one of them for a warm-up.
    /// `engine_threads` share the connections to each node.
    pub fn new(
        settings: &StressSettings,
        target: &DatabaseTarget,
        operations: Vec<(BasicOperation, f64)>,
        engine_threads: usize,
    ) -> CqlDriver {
        let connections = settings.mode.connections_per_host as usize / engine_threads.max(1);
        let run = DriverRun {
            settings: settings.clone(),
            target: target.clone(),
            operations,
            seeds: Arc::new(SharedSeeds::new(&settings.population, &settings.insert)),
            end: RunEnd::default(),
            connections_per_thread: NonZeroUsize::new(connections).unwrap_or(NonZeroUsize::MIN),
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
        let names = self.run.operations.iter().map(|(operation, _)| operation.name());
        let metrics = names.map(|name| recorder.metric(MetricKey::request(name))).collect();
        Ok(CqlThread { run: self.run.clone(), recorder, metrics, connected: OnceCell::new() })
    }

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        Some(RequestsPerIteration { direct: 1, redirects: 0 })
    }
}

impl DriverThread for CqlThread {
    type User = CqlUser;

    async fn connect(&mut self) -> Result<(), DriverError> {
        let run = self.run.clone();
        let failed = |error: &dyn std::error::Error| DriverError::Connect { reason: error.to_string() };
        let connecting = Database::connect(&run.target, run.connections_per_thread);
        let database = connecting.await.map_err(|error| failed(&error))?;
        let operations = run.operations.iter().map(|(operation, _)| *operation);
        let preparing = StandardOperations::prepare(&database, &run.settings, operations);
        let statements = preparing.await.map_err(|error| failed(&error))?;
        let columns = RefCell::new(run.settings.standard_columns());
        let (recorder, metrics) = (self.recorder.clone(), self.metrics.clone());
        self.connected = Rc::new(ConnectedThread { run, recorder, metrics, database, statements, columns }).into();
        Ok(())
    }

    fn user(&self, _identity: UserIdentity) -> CqlUser {
        let thread = self.connected.get().expect("the engine connects a thread before it makes users");
        CqlUser::new(thread.clone())
    }
}

impl StressSettings {
    /// The generators of `standard1`.
    fn standard_columns(&self) -> crate::StandardColumns {
        crate::StandardColumns::new(&self.columns.names, self.command.key_size, self.columns.size.clone())
    }
}

impl DriverRun {
    fn errors(&self) -> &ErrorSettings {
        &self.settings.errors
    }

    fn user_seeds(&self) -> UserSeeds {
        UserSeeds::new(self.seeds.clone())
    }

    fn chooser(&self) -> OperationChooser {
        OperationChooser::new(&self.operations, &self.settings.command.operation)
    }
}
