//! Runs: starts load generators, collects what they measure, applies the stop rules and states the
//! facts, on this machine (`local_run`) or on a fleet (`fleet`). It sends no requests and renders
//! nothing; observers show a run.

mod fleet;
mod live_load;
mod load_generator;
mod local_run;
mod process_usage;
pub mod processes;
mod run_control;
mod saturation;
mod threshold_judge;

pub use fleet::{
    FleetClient, FleetError, FleetRunError, FleetRunRequest, FleetStatus, Orchestrator, OrchestratorConfig,
    ProbeSecond, ProbeValue, RunAggregator, StopRunCommand, StoredRunResult, WorkerActivity, WorkerInfo, WorkerKind,
    WorkerSecond, is_start_hook, metric_event, probe_names, probe_seconds, run_fleet, share_holders, vikhry_metrics,
};
pub use live_load::LoadChangeError;
pub use load_generator::{GeneratorOutcome, LoadGenerator, StopHandle};
pub use local_run::{
    LivePhase, LiveStatus, RunError, RunObserver, RunOptions, RunResult, run_local, run_scenarios, run_with_generator,
};
pub use run_control::{LoadCommand, RunControl};
pub use threshold_judge::{ThresholdJudge, threshold_value};
