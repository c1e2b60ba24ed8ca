//! Stop requests of a person that come before the load of a local run.

use squall_engine::{Driver, DriverError, DriverThread, Iteration, ThreadRecorder, UserIdentity, VirtualUser};
use squall_model::{Load, LoadModel, Pause, Plan, Profile, StopReason, TaskSpec};
use squall_orchestrator::{RunControl, RunOptions, run_local};
use std::time::Duration;

/// The person stops the run while it connects.
struct StoppedWhileConnecting(RunControl);

struct User;

impl Driver for StoppedWhileConnecting {
    type Thread = StoppedWhileConnecting;

    fn thread(&self, _recorder: ThreadRecorder) -> Result<StoppedWhileConnecting, DriverError> {
        Ok(StoppedWhileConnecting(self.0.clone()))
    }
}

impl DriverThread for StoppedWhileConnecting {
    type User = User;

    async fn connect(&mut self) -> Result<(), DriverError> {
        self.0.drain();
        Ok(())
    }

    fn user(&self, _identity: UserIdentity) -> User {
        User
    }
}

impl VirtualUser for User {
    async fn iterate(&mut self, _iteration: Iteration) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

#[tokio::test]
async fn a_stop_request_while_a_run_connects_ends_it() {
    let users = Profile::constant(1.0, Duration::from_secs(3600)).expect("a valid profile");
    let plan = Plan {
        name: "stopped".to_owned(),
        target: String::new(),
        load: Load {
            model: LoadModel::Closed { users, pause: Pause::NONE },
            iterations: None,
            warm_up: Duration::ZERO,
        },
        tasks: vec![TaskSpec::new("only")],
        thresholds: Vec::new(),
        seed: 0,
    };
    let control = RunControl::new();
    let driver = StoppedWhileConnecting(control.clone());
    let result = run_local(&plan, driver, RunOptions::default(), &control, &mut []).await.expect("the run ends");
    assert_eq!(result.facts.stop, StopReason::Interrupted);
}
