//! One run on a fleet from a command line: starts it, shows it, waits for its end and brings home what its leader wrote down. Brings
//! an orchestrator of its own, which leads only if nobody else does, so that workers alone are a fleet.

use squall_coord::{Cell, MemberId};
use squall_model::{Bundle, RunPhase, StopReason};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{Fleet, FleetError, Follower, Orchestrator, OrchestratorConfig};
use crate::{
    Judge,
    control::{Control, Wish},
    run::{Finished, Live, LivePhase, Observer},
};

/// Why a run on a fleet could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum FleetRunError {
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("the run ended before it began: {0}")]
    NeverBegan(String),
    #[error("nobody wrote down how the run ended: the store has lost it, or the fleet went on to another one")]
    Forgotten,
}

/// How often the run is looked at.
const LOOK: Duration = Duration::from_millis(200);

const COMING_UP: Duration = Duration::from_secs(5);
const ENDING: Duration = Duration::from_secs(30);

/// What is to be run.
#[derive(Debug)]
pub struct FleetRun<'a> {
    pub bundle: &'a Bundle,
    /// Parameters for the scenario, by name.
    pub params: BTreeMap<String, serde_json::Value>,
    /// How many of the latest seconds stay available with full histograms.
    pub keep_s: u32,
}

/// Carries `run` out on the fleet in `cell` to its end, however it ends.
pub async fn run_fleet<C: Cell>(
    cell: &C,
    run: FleetRun<'_>,
    control: &Control,
    observers: &mut [&mut dyn Observer],
) -> Result<Finished, FleetRunError> {
    let leave = CancellationToken::new();
    let config = OrchestratorConfig::new(format!("run-{}", &MemberId::unique().as_str()[..8]));
    let orchestrator = tokio::spawn(Orchestrator::new(cell.clone(), config).run(leave.clone()));
    let finished = Box::pin(watch(cell, run, control, observers)).await;
    leave.cancel();
    // It only hands the lead over; that it could not is no fault of the run.
    let _ = orchestrator.await;
    finished
}

async fn watch<C: Cell>(
    cell: &C,
    run: FleetRun<'_>,
    control: &Control,
    observers: &mut [&mut dyn Observer],
) -> Result<Finished, FleetRunError> {
    let FleetRun { bundle, params, keep_s } = run;
    let fleet = Fleet::new(cell.clone());
    let epoch = start(&fleet, bundle, params).await?;
    let mut follower = Follower::open(cell, epoch, &bundle.plan, keep_s).await.map_err(FleetError::from)?;
    let mut judge = Judge::new(&bundle.plan);
    let mut wishes = control.subscribe();
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = LivePhase::Starting;
    loop {
        tokio::select! {
            Ok(()) = wishes.changed() => {
                let wish = *wishes.borrow_and_update();
                let reason = if wish == Wish::Abort { StopReason::Aborted } else { StopReason::Interrupted };
                match fleet.stop(reason, wish == Wish::Abort, None).await {
                    Ok(_) | Err(FleetError::InvalidState { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            _ = looks.tick() => {
                // The store may be away for a while; the run goes on without us.
                let Ok(status) = fleet.status().await else { continue };
                if status.epoch != epoch || status.state == RunPhase::Idle {
                    break;
                }
                let elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0).max(0.0));
                let closed = match follower.look_at(&status.workers, elapsed).await {
                    Ok(()) => follower.follow().await.unwrap_or(0),
                    Err(_) => 0,
                };
                let phase = phase(status.state, status.elapsed_s, elapsed, bundle);
                if closed > 0 || phase != shown {
                    // Only the leader stops the run; this judge is for the eyes.
                    let _ = judge.look(follower.view(), phase == LivePhase::Running);
                    shown = phase;
                    let live = Live {
                        elapsed,
                        phase,
                        level_now: status.order.as_ref().map_or(0.0, |order| order.profile.level(elapsed)),
                        cpu_s: status.workers.iter().map(|worker| worker.cpu_s).sum(),
                        rss_bytes: status.workers.iter().map(|worker| worker.rss_bytes).sum(),
                        in_flight: follower.view().engine.busy,
                        thresholds: judge.so_far(follower.view()),
                    };
                    observers.iter_mut().for_each(|observer| observer.second(&bundle.plan, follower.view(), &live));
                }
            }
        }
    }
    let run = fleet.finished(epoch).await?.ok_or(FleetRunError::Forgotten)?;
    if run.facts.started_unix_ms == 0 {
        let last = run.facts.fleet.as_ref().and_then(|fleet| fleet.events.last()).map(|event| event.text.clone());
        return Err(FleetRunError::NeverBegan(last.unwrap_or_else(|| "it was stopped".to_owned())));
    }
    let (elapsed, generator) = (run.facts.elapsed, &run.facts.generator);
    let live = Live {
        elapsed,
        phase: LivePhase::Done,
        level_now: 0.0,
        cpu_s: generator.cpu_s,
        rss_bytes: generator.max_rss_bytes,
        in_flight: 0,
        thresholds: run.facts.thresholds.clone(),
    };
    observers.iter_mut().for_each(|observer| observer.second(&bundle.plan, &run.view, &live));
    Ok(Finished { view: run.view, facts: run.facts })
}

/// Starts the run; waits a moment for workers that are just coming up, and for a run that is just ending.
async fn start<C: Cell>(
    fleet: &Fleet<C>,
    bundle: &Bundle,
    params: BTreeMap<String, serde_json::Value>,
) -> Result<u64, FleetError> {
    let began = Instant::now();
    loop {
        match fleet.start(bundle, params.clone()).await {
            Err(FleetError::NoWorkers) if began.elapsed() < COMING_UP => {}
            Err(FleetError::InvalidState { current: RunPhase::Stopping, .. }) if began.elapsed() < ENDING => {}
            other => return other,
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn phase(state: RunPhase, started: Option<f64>, elapsed: Duration, bundle: &Bundle) -> LivePhase {
    match state {
        RunPhase::Idle => LivePhase::Done,
        RunPhase::Stopping => LivePhase::Draining,
        RunPhase::Preparing => LivePhase::Starting,
        RunPhase::Running if started.is_none() => LivePhase::Starting,
        RunPhase::Running if elapsed < bundle.plan.load.warm_up => LivePhase::WarmUp,
        RunPhase::Running => LivePhase::Running,
    }
}
