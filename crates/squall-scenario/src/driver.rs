//! Runs the tasks of a scenario over HTTP.

use squall_engine::{Driver, DriverError, DriverThread, Iteration, Probe, Seat, VirtualUser};

/// A scenario, ready to make load.
#[derive(Debug)]
pub struct ScenarioDriver {}

/// One engine thread's share.
pub struct ScenarioThread {}

/// One virtual user of a scenario.
pub struct ScenarioUser {}

impl Driver for ScenarioDriver {
    type Thread = ScenarioThread;

    fn thread(&self, _: Probe) -> Result<ScenarioThread, DriverError> {
        Err(DriverError("not built yet".to_owned()))
    }
}

impl DriverThread for ScenarioThread {
    type User = ScenarioUser;

    fn user(&self, _: Seat) -> ScenarioUser {
        ScenarioUser {}
    }
}

impl VirtualUser for ScenarioUser {
    async fn iterate(&mut self, _: Iteration) -> bool {
        false
    }
}
