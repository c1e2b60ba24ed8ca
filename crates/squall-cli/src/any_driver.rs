//! One driver for whatever a worker is sent: a declared scenario, or one of the host's language. Adds nothing but the choice, which
//! is made once per user.

use squall_engine::{
    ThreadDeadline, Driver, DriverError, DriverThread, Iteration, ThreadRecorder, RequestsPerIteration, UserIdentity, UserStartError, VirtualUser,
};
use squall_scenario::ScenarioDriver;
use tokio::runtime::Builder;

pub(crate) enum AnyDriver<D> {
    Declared(ScenarioDriver),
    Hosted(D),
}

pub(crate) enum AnyThread<D: Driver> {
    Declared(<ScenarioDriver as Driver>::Thread),
    Hosted(D::Thread),
}

type DeclaredUser = <<ScenarioDriver as Driver>::Thread as DriverThread>::User;

// Most users are declared ones; a box would cost each of their iterations a step.
#[allow(clippy::large_enum_variant)]
pub(crate) enum AnyUser<D: Driver> {
    Declared(DeclaredUser),
    Hosted(<D::Thread as DriverThread>::User),
}

impl<D: Driver> Driver for AnyDriver<D> {
    type Thread = AnyThread<D>;

    fn thread(&self, probe: ThreadRecorder) -> Result<AnyThread<D>, DriverError> {
        match self {
            AnyDriver::Declared(driver) => driver.thread(probe).map(AnyThread::Declared),
            AnyDriver::Hosted(driver) => driver.thread(probe).map(AnyThread::Hosted),
        }
    }

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        match self {
            AnyDriver::Declared(driver) => driver.requests_per_iteration(),
            AnyDriver::Hosted(driver) => driver.requests_per_iteration(),
        }
    }

    fn run_thread<R>(&self, curfew: &ThreadDeadline, runtime: &mut Builder, life: impl FnOnce(&mut Builder) -> R) -> R {
        match self {
            AnyDriver::Declared(driver) => driver.run_thread(curfew, runtime, life),
            AnyDriver::Hosted(driver) => driver.run_thread(curfew, runtime, life),
        }
    }
}

impl<D: Driver> DriverThread for AnyThread<D> {
    type User = AnyUser<D>;

    fn user(&self, seat: UserIdentity) -> AnyUser<D> {
        match self {
            AnyThread::Declared(thread) => AnyUser::Declared(thread.user(seat)),
            AnyThread::Hosted(thread) => AnyUser::Hosted(thread.user(seat)),
        }
    }
}

impl<D: Driver> VirtualUser for AnyUser<D> {
    async fn start(&mut self) -> Result<(), UserStartError> {
        match self {
            AnyUser::Declared(user) => user.start().await,
            AnyUser::Hosted(user) => user.start().await,
        }
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        match self {
            AnyUser::Declared(user) => user.iterate(iteration).await,
            AnyUser::Hosted(user) => user.iterate(iteration).await,
        }
    }

    async fn stop(&mut self) {
        match self {
            AnyUser::Declared(user) => user.stop().await,
            AnyUser::Hosted(user) => user.stop().await,
        }
    }
}
