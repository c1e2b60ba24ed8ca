//! One driver for whatever a worker is sent: a declared scenario, or one of the host's language. Adds nothing but the choice, which
//! is made once per user.

use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, RequestsPerIteration, ThreadDeadline, ThreadRecorder, UserIdentity,
    UserStartError, VirtualUser,
};
use squall_scenario::ScenarioDriver;
use tokio::runtime::Builder;

pub(crate) enum AnyDriver<D> {
    Declarative(ScenarioDriver),
    Script(D),
}

pub(crate) enum AnyThread<D: Driver> {
    Declarative(<ScenarioDriver as Driver>::Thread),
    Script(D::Thread),
}

type DeclarativeUser = <<ScenarioDriver as Driver>::Thread as DriverThread>::User;

// Most users are declared ones; a box would cost each of their iterations a step.
#[allow(clippy::large_enum_variant)]
pub(crate) enum AnyUser<D: Driver> {
    Declarative(DeclarativeUser),
    Script(<D::Thread as DriverThread>::User),
}

impl<D: Driver> Driver for AnyDriver<D> {
    type Thread = AnyThread<D>;

    fn thread(&self, probe: ThreadRecorder) -> Result<AnyThread<D>, DriverError> {
        match self {
            AnyDriver::Declarative(driver) => driver.thread(probe).map(AnyThread::Declarative),
            AnyDriver::Script(driver) => driver.thread(probe).map(AnyThread::Script),
        }
    }

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        match self {
            AnyDriver::Declarative(driver) => driver.requests_per_iteration(),
            AnyDriver::Script(driver) => driver.requests_per_iteration(),
        }
    }

    fn run_thread<R>(&self, curfew: &ThreadDeadline, runtime: &mut Builder, life: impl FnOnce(&mut Builder) -> R) -> R {
        match self {
            AnyDriver::Declarative(driver) => driver.run_thread(curfew, runtime, life),
            AnyDriver::Script(driver) => driver.run_thread(curfew, runtime, life),
        }
    }
}

impl<D: Driver> DriverThread for AnyThread<D> {
    type User = AnyUser<D>;

    fn user(&self, seat: UserIdentity) -> AnyUser<D> {
        match self {
            AnyThread::Declarative(thread) => AnyUser::Declarative(thread.user(seat)),
            AnyThread::Script(thread) => AnyUser::Script(thread.user(seat)),
        }
    }
}

impl<D: Driver> VirtualUser for AnyUser<D> {
    async fn start(&mut self) -> Result<(), UserStartError> {
        match self {
            AnyUser::Declarative(user) => user.start().await,
            AnyUser::Script(user) => user.start().await,
        }
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        match self {
            AnyUser::Declarative(user) => user.iterate(iteration).await,
            AnyUser::Script(user) => user.iterate(iteration).await,
        }
    }

    async fn stop(&mut self) {
        match self {
            AnyUser::Declarative(user) => user.stop().await,
            AnyUser::Script(user) => user.stop().await,
        }
    }
}
