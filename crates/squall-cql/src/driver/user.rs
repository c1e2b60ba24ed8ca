//! One virtual user: prepares the data of an operation, sends it until a try succeeds or the tries are
//! used up, and records the whole as one request. The engine calls it.

use super::{
    ConnectedThread, OperationAnswer, OperationChooser, RunEndReason, ThreadOperations, cut_off::CutOffUser,
    profile_user::ProfileUser, standard_user::StandardUser, try_delay::NO_CONNECTION_PAUSE,
};
use crate::{
    Consistency, Database,
    database::{NextTry, OperationError, TriedRequest},
};
use squall_engine::{Iteration, VirtualUser};
use squall_metrics::{MetricId, Outcome, OutcomeCategory};
use std::{
    fmt::Write,
    pin::pin,
    rc::Rc,
    time::{Duration, Instant},
};

pub(super) const OK: Outcome =
    Outcome { category: OutcomeCategory::Ok, code: squall_metrics::OutcomeCode::Named("OK") };

/// How long a user without a token range waits before it asks whether the others have read theirs.
const OTHERS_READ_PAUSE: Duration = Duration::from_millis(10);

/// Whether a user can send its next operation.
pub(super) enum NextOperation {
    Ready,
    /// This user has nothing to send, and others still read their token ranges.
    OthersRead,
    /// All seeds, partitions or ranges are used.
    AllUsed,
}

/// A thread of cassandra-stress.
pub struct CqlUser {
    thread: Rc<ConnectedThread>,
    chooser: OperationChooser,
    data: UserData,
    cut_off: CutOffUser,
}

/// The data of a user's operations.
enum UserData {
    Standard(Box<StandardUser>),
    Profiles(Box<ProfileUser>),
}

/// Tries that failed, and the error of the last one.
struct FailedOperation {
    tries: u32,
    error: OperationError,
}

impl CqlUser {
    pub(super) fn new(thread: Rc<ConnectedThread>) -> CqlUser {
        let data = match &thread.operations {
            ThreadOperations::Standard(operations) => {
                UserData::Standard(Box::new(StandardUser::new(&thread.run, operations.clone())))
            }
            ThreadOperations::Profiles(operations) => {
                UserData::Profiles(Box::new(ProfileUser::new(thread.run.clone(), operations.clone())))
            }
        };
        CqlUser { chooser: thread.run.chooser(), data, cut_off: CutOffUser::default(), thread }
    }

    /// Sends the operation until a try succeeds or `-errors retries=` is used up. Returns to which node and from
    /// when to when it was on its way, too.
    async fn execute(
        &mut self,
        operation: usize,
        begun: BegunOperation,
    ) -> (Result<OperationAnswer, FailedOperation>, TriedRequest) {
        let (thread, errors) = (&self.thread, self.thread.run.errors());
        let (cut_off, user, began) = (&thread.cut_off, &self.cut_off, begun.started);
        let (mut tries, mut sent, consistency) = (0, None, self.data.consistency());
        loop {
            tries += 1;
            let turn = cut_off.limit(user, began, pin!(thread.wait_for_turn())).await;
            let sending = pin!(self.data.send(&thread.database, operation));
            let sending =
                pin!(async { cut_off.limit(user, began, sending).await.unwrap_or_else(|| Err(cut_off_error())) });
            let (answer, request) = thread.database.with_node(consistency, sending).await;
            sent = sent.or(request.sent);
            let request = TriedRequest { sent, ..request };
            let error = match answer {
                Ok(answer) => return (Ok(answer), request),
                Err(error) => error,
            };
            drop(turn);
            thread.recorder.note_error(begun.metric, begun.intended, error.outcome, &error.message);
            let tries_are_over = tries > errors.retries || thread.run.end.tries_have_ended() || cut_off.has_begun();
            if error.is_validation() || tries_are_over {
                let answered = request.answered.filter(|_| error.is_validation());
                return (Err(FailedOperation { tries, error }), TriedRequest { answered, ..request });
            }
            let pause = errors.delay.pause(tries, errors.retries + 1).max(error.least_pause());
            let paused = !pause.is_zero();
            if paused && cut_off.limit(user, began, pin!(tokio::time::sleep(pause))).await.is_none() {
                return (Err(FailedOperation { tries, error }), TriedRequest { answered: None, ..request });
            }
        }
    }

    /// Asks for the end of the run, unless failed operations are ignored.
    fn report_failure(&self, operation: usize, failed: &FailedOperation) {
        // The run has ended before an operation that is cut off.
        if !self.thread.run.errors().ignore && failed.error.outcome != Outcome::ABORTED {
            let mut message = failed.message(&self.data.keys());
            if self.thread.run.settings.log.print_statements_on_error {
                let _ = write!(message, "\nStatement: {}", self.data.statement(operation));
            }
            self.thread.run.end.request(RunEndReason::Failed(message));
        }
    }
}

/// What the recorder must know about an operation.
#[derive(Clone, Copy)]
struct BegunOperation {
    metric: MetricId,
    intended: Instant,
    started: Instant,
}

/// The load is over, and the database has not answered.
fn cut_off_error() -> OperationError {
    OperationError {
        outcome: Outcome::ABORTED,
        message: "cut off at the end of the run, without an answer".to_owned(),
        next_try: NextTry::AtOnce,
    }
}

impl VirtualUser for CqlUser {
    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let index = self.chooser.next();
        self.data.reserve_seeds(index).await;
        match self.data.begin(index) {
            NextOperation::Ready => {}
            NextOperation::OthersRead => {
                tokio::time::sleep(OTHERS_READ_PAUSE).await;
                return false;
            }
            NextOperation::AllUsed => {
                self.thread.count_unused_iteration(iteration.started);
                self.thread.run.end.request(RunEndReason::AllUsed);
                return false;
            }
        }
        let thread = self.thread.clone();
        // Generating the data is no part of the operation. An open load counts from the due time.
        let started = Instant::now();
        let intended = if iteration.intended < iteration.started { iteration.intended } else { started };
        let started = thread.recorder.wait_for_budget(started).await;
        let begun = BegunOperation { metric: thread.metrics[index], intended, started };
        let Some(mut request) = thread.recorder.begin(begun.metric, begun.intended, started) else {
            self.data.finish();
            return false;
        };
        let (executed, sent) = self.execute(index, begun).await;
        let outcome = executed.as_ref().map_or_else(|failed| failed.error.outcome, |_| OK);
        // The wait of `-mode maxPending=` is a part of the service time, the encoding of the values is not.
        if let Some(sent) = sent.sent.filter(|_| thread.pending.is_none()) {
            request.sent_at(sent);
        }
        let ended = sent.answered.unwrap_or_else(Instant::now);
        let received = executed.as_ref().map_or(0, |answer| answer.bytes);
        request.end(ended, outcome, received, self.data.sent_bytes(index));
        match &executed {
            Ok(answer) => {
                thread.cut_off.succeeded(ended.saturating_duration_since(started));
                thread.count(index, begun.intended, answer.counts);
                if let Some(coordinators) = &thread.coordinators {
                    coordinators.record(&thread.database, &thread.recorder, sent, ended);
                }
                if self.data.ended_range() {
                    thread.count_range(index, begun.intended);
                }
            }
            Err(failed) => self.report_failure(index, failed),
        }
        self.data.finish();
        let pause = executed.as_ref().err().map_or(Duration::ZERO, |failed| failed.error.least_pause());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        executed.is_ok()
    }
}

impl UserData {
    /// Waits for the seeds of the next operation, if the workers of a fleet share the seeds.
    async fn reserve_seeds(&mut self, operation: usize) {
        match self {
            UserData::Standard(user) => user.reserve_seed().await,
            UserData::Profiles(user) => user.reserve_seeds(operation).await,
        }
    }

    /// Prepares the data of the next operation.
    fn begin(&mut self, operation: usize) -> NextOperation {
        match self {
            UserData::Standard(user) => user.begin(operation).map_or(NextOperation::AllUsed, |()| NextOperation::Ready),
            UserData::Profiles(user) => user.begin(operation),
        }
    }

    async fn send(&mut self, database: &Database, operation: usize) -> Result<OperationAnswer, OperationError> {
        match self {
            UserData::Standard(user) => user.send(database, operation).await,
            UserData::Profiles(user) => user.send(database).await,
        }
    }

    /// The bytes of the values that one try of the current operation sends.
    fn sent_bytes(&self, operation: usize) -> u64 {
        match self {
            UserData::Standard(user) => user.sent_bytes(operation),
            UserData::Profiles(user) => user.sent_bytes(),
        }
    }

    /// The level of the current operation, if it has its own.
    fn consistency(&self) -> Option<Consistency> {
        match self {
            UserData::Standard(_) => None,
            UserData::Profiles(user) => user.consistency(),
        }
    }

    /// Notes that the operation has ended, well or not.
    fn finish(&mut self) {
        match self {
            UserData::Standard(user) => user.finish(),
            UserData::Profiles(user) => user.finish(),
        }
    }

    /// Whether the operation has read the last page of a token range.
    fn ended_range(&self) -> bool {
        match self {
            UserData::Standard(_) => false,
            UserData::Profiles(user) => user.ended_range(),
        }
    }

    fn statement(&self, operation: usize) -> String {
        match self {
            UserData::Standard(user) => user.statement(operation),
            UserData::Profiles(user) => user.statement(),
        }
    }

    fn keys(&self) -> String {
        match self {
            UserData::Standard(user) => user.keys(),
            UserData::Profiles(user) => user.keys(),
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
    /// The line of cassandra-stress.
    fn message(&self, keys: &str) -> String {
        let OperationError { outcome, message, .. } = &self.error;
        if self.error.is_validation() {
            return format!("Operation x0 on key(s) [{keys}]: Data returned was not validated ({message})");
        }
        format!("Operation x{} on key(s) [{keys}]: Error executing: ({}): {message}", self.tries, outcome.code)
    }
}
