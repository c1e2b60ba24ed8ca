//! One virtual user: takes a seed, generates its row, sends the operation until a try succeeds or the
//! tries are used up, and records the whole as one request. The engine calls it.

use super::{
    ConnectedThread, OperationChooser, RunEndReason, UserSeeds, standard_operations::OperationData,
    try_delay::NO_CONNECTION_PAUSE,
};
use crate::{
    BasicOperation, RatioSampler, Sampler, StandardRow,
    database::{NextTry, OperationError},
    populated_columns,
};
use squall_engine::{Iteration, VirtualUser};
use squall_metrics::{MetricId, Outcome, OutcomeCategory};
use std::{
    fmt::Write,
    rc::Rc,
    time::{Duration, Instant},
};

const OK: Outcome = Outcome { category: OutcomeCategory::Ok, code: squall_metrics::OutcomeCode::Named("OK") };

/// A thread of cassandra-stress.
pub struct CqlUser {
    thread: Rc<ConnectedThread>,
    chooser: OperationChooser,
    seeds: UserSeeds,
    row: StandardRow,
    add: Sampler,
    increments: Vec<i64>,
    /// `None`: every column has a value.
    row_population: Option<RatioSampler>,
}

/// Tries that failed, and the error of the last one.
struct FailedOperation {
    tries: u32,
    error: OperationError,
}

impl CqlUser {
    pub(super) fn new(thread: Rc<ConnectedThread>) -> CqlUser {
        let settings = &thread.run.settings;
        CqlUser {
            chooser: thread.run.chooser(),
            seeds: thread.run.user_seeds(),
            row: StandardRow::default(),
            add: Sampler::new(settings.command.add.clone()),
            increments: vec![0; settings.columns.names.len()],
            row_population: settings.insert.row_population.as_ref().map(crate::Ratio::sampler),
            thread,
        }
    }

    /// Generates the row of `seed`, and returns how many of its cells have a value.
    fn generate(&mut self, operation: BasicOperation, seed: i64) -> usize {
        let mut columns = self.thread.columns.borrow_mut();
        match operation {
            BasicOperation::Read | BasicOperation::Write => self.row.generate(&mut columns, seed),
            BasicOperation::CounterRead | BasicOperation::CounterWrite => self.row.generate_key(&columns, seed),
        }
        if operation == BasicOperation::CounterWrite {
            self.increments.fill_with(|| self.add.draw());
        }
        let count = self.increments.len();
        self.row_population.as_mut().map_or(count, |ratio| populated_columns(count, ratio.draw()))
    }

    /// Sends the operation until a try succeeds or `-errors retries=` is used up.
    async fn execute(&self, operation: usize, populated: usize, sent: SentOperation) -> Result<(), FailedOperation> {
        let (thread, errors) = (&self.thread, self.thread.run.errors());
        let data = OperationData { row: &self.row, populated, increments: &self.increments };
        let mut tries = 0;
        loop {
            tries += 1;
            let Err(error) = thread.statements.execute(&thread.database, operation, &data).await else { return Ok(()) };
            thread.recorder.note_error(sent.metric, sent.intended, error.outcome, &error.message);
            if error.is_validation() || tries > errors.retries {
                return Err(FailedOperation { tries, error });
            }
            let pause = errors.delay.pause(tries, errors.retries + 1).max(error.least_pause());
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Asks for the end of the run, unless failed operations are ignored.
    async fn handle_failure(&self, failed: &FailedOperation) {
        if !self.thread.run.errors().ignore {
            self.thread.run.end.request(RunEndReason::Failed(failed.message(self.row.key())));
        }
        let pause = failed.error.least_pause();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}

/// What the recorder must know about an operation.
#[derive(Clone, Copy)]
struct SentOperation {
    metric: MetricId,
    intended: Instant,
}

impl VirtualUser for CqlUser {
    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let index = self.chooser.next();
        let (operation, _) = self.thread.run.operations[index];
        let Some(seed) = self.seeds.take(operation.writes()) else {
            self.thread.run.end.request(RunEndReason::SeedsUsed);
            return false;
        };
        let populated = self.generate(operation, seed.seed);
        let thread = self.thread.clone();
        // Generating the row is no part of the operation. An open load counts from the due time.
        let started = Instant::now();
        let intended = if iteration.intended < iteration.started { iteration.intended } else { started };
        let sent = SentOperation { metric: thread.metrics[index], intended };
        let started = thread.recorder.wait_for_budget(started).await;
        let Some(request) = thread.recorder.begin(sent.metric, sent.intended, started) else { return false };
        let executed = self.execute(index, populated, sent).await;
        let outcome = executed.as_ref().map_or_else(|failed| failed.error.outcome, |()| OK);
        request.end(Instant::now(), outcome, 0, 0);
        self.seeds.finish(seed);
        match executed {
            Ok(()) => true,
            Err(failed) => {
                self.handle_failure(&failed).await;
                false
            }
        }
    }
}

impl OperationError {
    fn least_pause(&self) -> Duration {
        match self.next_try {
            NextTry::AfterPause => NO_CONNECTION_PAUSE,
            NextTry::AtOnce | NextTry::Never => Duration::ZERO,
        }
    }
}

impl FailedOperation {
    /// The line of cassandra-stress, with the key in hexadecimal digits.
    fn message(&self, key: &[u8]) -> String {
        let mut digits = String::with_capacity(2 * key.len());
        for byte in key {
            let _ = write!(digits, "{byte:02x}");
        }
        let OperationError { outcome, message, .. } = &self.error;
        if self.error.is_validation() {
            return format!("Operation x0 on key(s) [{digits}]: Data returned was not validated ({message})");
        }
        format!("Operation x{} on key(s) [{digits}]: Error executing: ({}): {message}", self.tries, outcome.code)
    }
}
