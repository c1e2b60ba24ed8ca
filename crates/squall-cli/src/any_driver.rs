//! The driver of a worker: a declarative scenario, a script, or `squall cql`. Adds only the choice
//! between them, once per user. `bundle` creates it.

use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, OnStartError, RequestsPerIteration, ThreadDeadline, ThreadRecorder,
    UserIdentity, UserStart, VirtualUser,
};
use squall_model::TaskIndex;
use squall_scenario::ScenarioDriver;
use tokio::runtime::Builder;

pub(crate) enum AnyDriver<D> {
    Declarative(ScenarioDriver),
    Script(D),
    #[cfg(feature = "cql")]
    Cql(squall_cql::CqlDriver),
}

pub(crate) enum AnyThread<D: Driver> {
    Declarative(<ScenarioDriver as Driver>::Thread),
    Script(D::Thread),
    #[cfg(feature = "cql")]
    Cql(<squall_cql::CqlDriver as Driver>::Thread),
}

type DeclarativeUser = <<ScenarioDriver as Driver>::Thread as DriverThread>::User;

// Most users are declarative; a box would cost each of their iterations an indirection.
#[allow(clippy::large_enum_variant)]
pub(crate) enum AnyUser<D: Driver> {
    Declarative(DeclarativeUser),
    Script(<D::Thread as DriverThread>::User),
    #[cfg(feature = "cql")]
    Cql(squall_cql::CqlUser),
}

impl<D: Driver> Driver for AnyDriver<D> {
    type Thread = AnyThread<D>;

    fn thread(&self, recorder: ThreadRecorder) -> Result<AnyThread<D>, DriverError> {
        match self {
            AnyDriver::Declarative(driver) => driver.thread(recorder).map(AnyThread::Declarative),
            AnyDriver::Script(driver) => driver.thread(recorder).map(AnyThread::Script),
            #[cfg(feature = "cql")]
            AnyDriver::Cql(driver) => driver.thread(recorder).map(AnyThread::Cql),
        }
    }

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        match self {
            AnyDriver::Declarative(driver) => driver.requests_per_iteration(),
            AnyDriver::Script(driver) => driver.requests_per_iteration(),
            #[cfg(feature = "cql")]
            AnyDriver::Cql(driver) => driver.requests_per_iteration(),
        }
    }

    fn user_start(&self) -> UserStart {
        match self {
            AnyDriver::Declarative(driver) => driver.user_start(),
            AnyDriver::Script(driver) => driver.user_start(),
            #[cfg(feature = "cql")]
            AnyDriver::Cql(driver) => driver.user_start(),
        }
    }

    fn run_thread<R>(
        &self,
        deadline: &ThreadDeadline,
        runtime: &mut Builder,
        body: impl FnOnce(&mut Builder) -> R,
    ) -> R {
        match self {
            AnyDriver::Declarative(driver) => driver.run_thread(deadline, runtime, body),
            AnyDriver::Script(driver) => driver.run_thread(deadline, runtime, body),
            #[cfg(feature = "cql")]
            AnyDriver::Cql(driver) => driver.run_thread(deadline, runtime, body),
        }
    }
}

impl<D: Driver> DriverThread for AnyThread<D> {
    type User = AnyUser<D>;

    async fn connect(&mut self) -> Result<(), DriverError> {
        match self {
            AnyThread::Declarative(thread) => thread.connect().await,
            AnyThread::Script(thread) => thread.connect().await,
            #[cfg(feature = "cql")]
            AnyThread::Cql(thread) => thread.connect().await,
        }
    }

    fn user(&self, identity: UserIdentity) -> AnyUser<D> {
        match self {
            AnyThread::Declarative(thread) => AnyUser::Declarative(thread.user(identity)),
            AnyThread::Script(thread) => AnyUser::Script(thread.user(identity)),
            #[cfg(feature = "cql")]
            AnyThread::Cql(thread) => AnyUser::Cql(thread.user(identity)),
        }
    }
}

impl<D: Driver> VirtualUser for AnyUser<D> {
    async fn on_start(&mut self) -> Result<(), OnStartError> {
        match self {
            AnyUser::Declarative(user) => user.on_start().await,
            AnyUser::Script(user) => user.on_start().await,
            #[cfg(feature = "cql")]
            AnyUser::Cql(user) => user.on_start().await,
        }
    }

    async fn acquire_thread(&mut self, task: TaskIndex) {
        match self {
            AnyUser::Declarative(user) => user.acquire_thread(task).await,
            AnyUser::Script(user) => user.acquire_thread(task).await,
            #[cfg(feature = "cql")]
            AnyUser::Cql(user) => user.acquire_thread(task).await,
        }
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        match self {
            AnyUser::Declarative(user) => user.iterate(iteration).await,
            AnyUser::Script(user) => user.iterate(iteration).await,
            #[cfg(feature = "cql")]
            AnyUser::Cql(user) => user.iterate(iteration).await,
        }
    }

    async fn on_stop(&mut self) {
        match self {
            AnyUser::Declarative(user) => user.on_stop().await,
            AnyUser::Script(user) => user.on_stop().await,
            #[cfg(feature = "cql")]
            AnyUser::Cql(user) => user.on_stop().await,
        }
    }
}
