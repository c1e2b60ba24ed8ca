//! The load flags. Values stay texts: squall-scenario parses them like the keys of a file, and
//! reports all mistakes at once.

use clap::Args;

/// The load of a run.
#[derive(Debug, Default, Args)]
pub(crate) struct LoadArgs {
    /// Open load: starts per second, minute or hour, e.g. 500, 90/m, 0.5/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub(crate) rate: Option<String>,
    /// Closed load: number of users; each waits for a response before it continues [default: 10]
    #[arg(long, short = 'c', alias = "connections", value_name = "N", allow_hyphen_values = true)]
    pub(crate) users: Option<String>,
    /// Pause of a user between two iterations, e.g. 1s or 1s..3s
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) pause: Option<String>,
    /// Duration of the run, e.g. 30s, 5m, 1h30m [default: 30s]
    #[arg(long = "for", alias = "duration", value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) duration: Option<String>,
    /// Stop after this many iterations; an iteration of a scenario may send several requests
    #[arg(long, short = 'n', visible_alias = "iterations", value_name = "N", allow_hyphen_values = true)]
    pub(crate) requests: Option<String>,
    /// Rise from 0 to the full load in this time, which is part of --for
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ramp_up: Option<String>,
    /// Ramps from level to level, e.g. 10s:100,30s:500,10s:0
    #[arg(long, value_name = "STAGES", allow_hyphen_values = true)]
    pub(crate) stages: Option<String>,
    /// Load profile: constant, ramp, step or spike
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// Plateaus of --profile step
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) steps: Option<String>,
    /// Distribution of the starts of an open load: even or poisson
    #[arg(long, value_name = "KIND")]
    pub(crate) arrivals: Option<String>,
    /// Short for --arrivals poisson
    #[arg(long, conflicts_with = "arrivals")]
    pub(crate) poisson: bool,
    /// First part of the run, left out of the results
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) warm_up: Option<String>,
    /// Seed of all random choices; the same seed gives the same order of tasks
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}
