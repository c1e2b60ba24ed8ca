//! The leader's steps for set-up and tear-down: when to assign each, how long to wait, and what to
//! record if it fails. The hooks themselves run on a worker.

use squall_coord::{FleetStores, RunRecord};
use squall_model::{FleetEvent, FleetEventKind, RunSpec, StopReason};
use std::time::Duration;
use tokio::time::Instant;

use super::{HOOK_WORKER_TIMEOUT, LeaderRun};
use crate::fleet::{
    FleetClient, FleetError, WorkerInfo,
    hooks::{HookKind, HookProgress, TEAR_DOWN_TIMEOUT},
};

impl<C: FleetStores> LeaderRun<C> {
    /// Whether set-up is done. Assigns it to a worker first, and stops the run if it fails.
    pub(super) async fn ensure_set_up(
        &mut self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        spec: &RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        match self.hook_progress(HookKind::SetUp, fleet, spec, workers).await? {
            HookProgress::NotAssigned => {
                HookKind::SetUp.assign(fleet, record, (spec, &self.bundle), workers).await.map(|_| false)
            }
            HookProgress::Running => Ok(false),
            HookProgress::Done => Ok(true),
            HookProgress::Failed(reason) => {
                self.stop(fleet, StopReason::Aborted, Some(reason)).await?;
                Ok(false)
            }
        }
    }

    /// Whether tear-down is done, or cannot be done. Assigns it to a worker first.
    pub(super) async fn ensure_torn_down(
        &mut self,
        fleet: &FleetClient<C>,
        record: &RunRecord,
        spec: &RunSpec,
        (elapsed, waited): (Duration, Duration),
        workers: &[WorkerInfo],
    ) -> Result<bool, FleetError> {
        let may_wait =
            waited < self.bundle.limits.grace + TEAR_DOWN_TIMEOUT && !spec.stop.as_ref().is_some_and(|stop| stop.abort);
        match self.hook_progress(HookKind::SetUp, fleet, spec, workers).await? {
            HookProgress::Done => {}
            // The run was stopped during set-up. Tear-down must undo what set-up is still making.
            HookProgress::Running if may_wait => return Ok(false),
            HookProgress::Running => {
                self.record_event_once(
                    elapsed,
                    "the leader stopped waiting for set-up; tear-down does not undo what it makes".to_owned(),
                );
                return Ok(true);
            }
            HookProgress::Failed(reason) => {
                if spec.stop.as_ref().is_none_or(|stop| stop.message.as_ref() != Some(&reason)) {
                    self.record_event_once(elapsed, reason);
                }
                return Ok(true);
            }
            HookProgress::NotAssigned => return Ok(true),
        }
        let problem = match self.hook_progress(HookKind::TearDown, fleet, spec, workers).await? {
            HookProgress::Done => return Ok(true),
            HookProgress::Running if waited < self.bundle.limits.grace + TEAR_DOWN_TIMEOUT => return Ok(false),
            HookProgress::NotAssigned
                if HookKind::TearDown.assign(fleet, record, (spec, &self.bundle), workers).await? =>
            {
                return Ok(false);
            }
            HookProgress::NotAssigned => "tear-down did not run: no worker is left".to_owned(),
            HookProgress::Running => "the leader stopped waiting for tear-down".to_owned(),
            HookProgress::Failed(reason) => reason,
        };
        self.record_event_once(elapsed, problem);
        Ok(true)
    }

    async fn hook_progress(
        &mut self,
        hook: HookKind,
        fleet: &FleetClient<C>,
        spec: &RunSpec,
        workers: &[WorkerInfo],
    ) -> Result<HookProgress, FleetError> {
        let silent_since = &mut self.hook_worker_silent_since[hook as usize];
        let lost = match hook.is_worker_present(spec, workers) {
            true => {
                *silent_since = None;
                false
            }
            false => silent_since.get_or_insert_with(Instant::now).elapsed() > HOOK_WORKER_TIMEOUT,
        };
        hook.progress(fleet, self.aggregator.epoch(), spec, lost).await
    }

    /// For events that every poll finds again.
    fn record_event_once(&mut self, elapsed: Duration, text: String) {
        if !self.aggregator.roster().events.iter().any(|recorded| recorded.text == text) {
            self.aggregator.record_event(FleetEvent::new(elapsed.as_secs_f64(), FleetEventKind::Other, text));
        }
    }
}
