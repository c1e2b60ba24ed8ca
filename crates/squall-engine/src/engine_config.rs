//! What an engine must know before it starts. It checks nothing: plans and limits arrive validated.

use squall_metrics::RecorderConfig;
use squall_model::{EngineLimits, Load, LoadModel, ShareSet, TaskSpec};
use std::time::Duration;

use crate::{ResourceClient, SendPermit, number_quota::NumberQuota};

/// The settings of one [`Engine`](crate::Engine).
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The instance of the worker process in the fleet; 0 for a local run.
    pub instance: u64,
    /// The shares of the run that this process holds at the start; all of them in a local run.
    pub shares: ShareSet,
    /// Threads of this engine, at least 1. [`EngineConfig::with_limits`] derives it from `limits.threads`.
    pub threads: usize,
    pub limits: EngineLimits,
    /// The number of this engine's first thread. Lower numbers belong to other engines of the process.
    pub first_thread: u32,
    pub load: Load,
    pub tasks: Vec<TaskSpec>,
    pub seed: u64,
    /// How long a run with an iteration limit continues while every user fails to start. Default: 30 s.
    pub on_start_failure_timeout: Duration,
    /// The engine sets its `phases` from the limits.
    pub recorder: RecorderConfig,
    /// The requests that a worker of a fleet may send. With a budget, shares may change until the load
    /// ends.
    pub send_permit: Option<SendPermit>,
    /// Leases resources to users, if the scenario has pools.
    pub resources: Option<ResourceClient>,
    /// The iterations of a closed model with a limit, if several processes share them. Without it, the
    /// engine runs its shares' part of the limit.
    pub iteration_quota: Option<NumberQuota>,
}

impl EngineConfig {
    /// A local run of `load` over `tasks` with the default limits.
    pub fn new(load: Load, tasks: Vec<TaskSpec>) -> EngineConfig {
        EngineConfig::with_limits(load, tasks, EngineLimits::default())
    }

    /// A local run of `load` over `tasks` with these limits.
    pub fn with_limits(load: Load, tasks: Vec<TaskSpec>, limits: EngineLimits) -> EngineConfig {
        let per_core = || std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads = limits.threads.unwrap_or_else(per_core).max(1);
        if matches!(load.model, LoadModel::Open { .. }) {
            // Each thread of an open model has at least one user, so more threads would exceed `max_users`.
            threads = threads.min(limits.max_users.max(1));
        }
        EngineConfig {
            instance: 0,
            shares: ShareSet::ALL,
            threads,
            limits,
            first_thread: 0,
            load,
            tasks,
            seed: 0,
            on_start_failure_timeout: Duration::from_secs(30),
            recorder: RecorderConfig::default(),
            send_permit: None,
            resources: None,
            iteration_quota: None,
        }
    }

    /// The quota of a closed model with an iteration limit. Its users share one quota, so that the limit
    /// is exact. The limit of an open model is part of its schedule.
    pub(crate) fn effective_quota(&self) -> Option<NumberQuota> {
        let closed = matches!(self.load.model, LoadModel::Closed { .. });
        let limit = self.load.iterations.filter(|_| closed)?;
        Some(self.iteration_quota.clone().unwrap_or_else(|| NumberQuota::fixed(self.local_iterations(limit))))
    }

    /// This process's part of `limit` iterations. The iterations are divided by users, because a process
    /// without users would never run its part.
    fn local_iterations(&self, limit: u64) -> u64 {
        let users = (self.load.model.profile().peak().ceil() as u64).max(1);
        let local_users = (0..users.min(limit)).filter(|user| self.shares.contains(*user));
        local_users.map(|user| limit / users + u64::from(user < limit % users)).sum()
    }
}
