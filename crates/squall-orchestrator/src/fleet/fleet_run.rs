//! One run on a fleet from a command line: starts it, shows it, waits for its end and brings home what its leader wrote down. Brings
//! an orchestrator of its own, which leads only if nobody else does, so that workers alone are a fleet.

use squall_coord::{FleetStores, MemberId, StoreError};
use squall_metrics::Collector;
use squall_model::{
    Bundle, FleetEvent, FleetFacts, GeneratorStats, RunFacts, RunPhase, StopReason, protocol::RunNotes,
};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::{
    FleetClient, FleetError, FleetStatus, Orchestrator, OrchestratorConfig, RunAggregator, WorkerInfo,
    fleet_client::StopRunCommand, worker_info::unready_workers,
};
use crate::{
    ThresholdJudge,
    local_run::{LivePhase, LiveStatus, RunObserver, RunResult},
    run_control::{RunControl, StopRequest},
};

/// Why a run on a fleet could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum FleetRunError {
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(
        "the fleet carries out another test: wait for its end, or end it by `squall test stop` (it asks an orchestrator; `squall \
         orchestrator` starts one), or use another fleet (`--fleet`)"
    )]
    Busy,
    #[error("the run ended before it began: {0}")]
    NotStarted(String),
}

/// How a run ends whose leader could not say how it did.
const RESULT_LOST: &str =
    "nobody wrote down how the run ended: the store has lost it, or the fleet went on to another one";
const STORE_LOST: &str = "the store does not answer any more";
/// After this nobody makes load any more, and what was measured is lost with the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// How often the run is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How often it is said that there is nothing to show; a worker that is silent for longer is why.
const WAITING_MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

/// Users that take longer to build are spoken of.
const PREPARING_MESSAGE_DELAY: Duration = Duration::from_secs(2);

const WORKER_STARTUP_TIMEOUT: Duration = Duration::from_secs(5);
const PREVIOUS_RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// A run that ends this soon is waited for.
const NEARLY_OVER: Duration = Duration::from_secs(5);

/// What is to be run.
#[derive(Debug)]
pub struct FleetRunRequest<'a> {
    pub bundle: &'a Bundle,
    /// Parameters for the scenario, by name.
    pub params: BTreeMap<String, serde_json::Value>,
    /// How many of the latest seconds stay available with full histograms.
    pub histogram_window_s: u32,
}

/// Carries `run` out on the fleet in `cell` to its end, however it ends.
pub async fn run_fleet<C: FleetStores>(
    cell: &C,
    run: FleetRunRequest<'_>,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, FleetRunError> {
    let leave = CancellationToken::new();
    let config = OrchestratorConfig::new(format!("run-{}", &MemberId::unique().as_str()[..8]));
    let orchestrator = tokio::spawn(Orchestrator::new(cell.clone(), config).run(leave.clone()));
    let finished = Box::pin(start_and_observe(cell, run, control, observers)).await;
    leave.cancel();
    // It only hands the lead over; that it could not is no fault of the run.
    let _ = orchestrator.await;
    finished
}

async fn start_and_observe<C: FleetStores>(
    cell: &C,
    run: FleetRunRequest<'_>,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, FleetRunError> {
    let FleetRunRequest { bundle, params, histogram_window_s: keep_s } = run;
    let fleet = FleetClient::new(cell.clone());
    // Before anything is waited for: whoever wants to stop it meanwhile must not be missed.
    let mut wishes = control.subscribe();
    if control.is_stopping() {
        wishes.mark_changed();
    }
    let name = MemberId::unique();
    let Some(epoch) = start_with_retry(&fleet, (name.as_str(), bundle), params, control, observers).await? else {
        return Ok(cancelled_result(bundle, *wishes.borrow()));
    };
    let mut follower = retry_while_unreachable(control, async || {
        RunAggregator::open(cell, epoch, &bundle.plan, keep_s).await.map_err(FleetError::from)
    })
    .await?;
    let mut looks = tokio::time::interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = LivePhase::Starting;
    let mut last =
        LastKnownStatus { elapsed: Duration::ZERO, started_unix_ms: None, cpu_s: 0.0, rss_bytes: 0, threads: 0 };
    let (mut heard, mut asked) = (Instant::now(), false);
    // What was asked for and not heard by the store yet.
    let mut unheard: Option<StopRequest> = None;
    let (mut told_at, mut silence_told) = (Duration::ZERO, Duration::ZERO);
    let (began, mut preparing_told) = (Instant::now(), None);
    loop {
        tokio::select! {
            Ok(()) = wishes.changed() => {
                (asked, unheard) = (true, Some(*wishes.borrow_and_update()));
                looks.reset_immediately();
            }
            _ = looks.tick() => {
                if let Some(wish) = unheard {
                    let abort = wish == StopRequest::Abort;
                    let reason = if abort { StopReason::Aborted } else { StopReason::Interrupted };
                    match fleet.stop_run(name.as_str(), StopRunCommand { reason, abort, message: None }).await {
                        Ok(_) | Err(FleetError::InvalidState { .. }) => unheard = None,
                        // Asked again at the next look, because the load goes on; whoever has asked twice does not wait.
                        Err(FleetError::Store(_)) if !abort => {}
                        Err(FleetError::Store(_)) => return Ok(last.into_result(follower, bundle, STORE_LOST)),
                        Err(error) => return Err(error.into()),
                    }
                }
                // The store may be away for a while; the run goes on without us.
                let status = match fleet.cached_status().await {
                    Ok(status) => status,
                    Err(error) => {
                        let silent = heard.elapsed();
                        if silent > STORE_TIMEOUT {
                            return Ok(last.into_result(follower, bundle, STORE_LOST));
                        }
                        if silent > silence_told + WAITING_MESSAGE_INTERVAL {
                            silence_told = silent;
                            report_store_outage(observers, &error, silent);
                        }
                        continue;
                    }
                };
                (heard, silence_told) = (Instant::now(), Duration::ZERO);
                if status.epoch == epoch && status.order.as_ref().is_none_or(|order| order.run != name.as_str()) {
                    // A store that has forgotten everything counts from the beginning again.
                    return Ok(last.into_result(follower, bundle, RESULT_LOST));
                }
                if status.epoch != epoch || status.state == RunPhase::Idle {
                    break;
                }
                let elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0).max(0.0));
                last = LastKnownStatus::from_status(&status, elapsed, last);
                let phase = live_phase(status.state, status.elapsed_s, elapsed, bundle);
                follower.set_load_active(phase == LivePhase::Running);
                let closed = match follower.update_roster(&status.workers, elapsed).await {
                    Ok(()) => follower.poll().await.unwrap_or(0),
                    Err(_) => 0,
                };
                if closed > 0 || phase != shown {
                    (shown, told_at) = (phase, elapsed);
                    let live = LiveStatus {
                        elapsed,
                        phase,
                        level_now: status.order.as_ref().map_or(0.0, |order| order.profile.level(elapsed)),
                        cpu_s: status.workers.iter().map(|worker| worker.cpu_s).sum(),
                        rss_bytes: status.workers.iter().map(|worker| worker.rss_bytes).sum(),
                        in_flight: follower.view().engine.busy,
                        // Only the leader stops the run; this is for the eyes.
                        thresholds: follower.judge().current_results(follower.view()),
                    };
                    observers.iter_mut().for_each(|observer| observer.on_update(&bundle.plan, follower.view(), &live));
                } else if status.state == RunPhase::Preparing {
                    let why = preparing_message(&status).filter(|_| began.elapsed() >= PREPARING_MESSAGE_DELAY);
                    // Once each: there is nothing new in that it takes longer.
                    if let Some(why) = why.filter(|why| preparing_told.as_ref() != Some(why)) {
                        let why = preparing_told.insert(why);
                        observers.iter_mut().for_each(|observer| observer.on_waiting(why));
                    }
                } else if elapsed >= told_at + WAITING_MESSAGE_INTERVAL
                    && let Some(why) = silent_workers_message(&status.workers, status.now_ms)
                {
                    told_at = elapsed;
                    observers.iter_mut().for_each(|observer| observer.on_waiting(&why));
                }
            }
        }
    }
    let mut run = match retry_while_unreachable(control, async || fleet.stored_result(epoch).await).await {
        Ok(Some(run)) => run,
        Ok(None) => return Ok(last.into_result(follower, bundle, RESULT_LOST)),
        Err(FleetError::Store(StoreError::Unreachable(_))) => {
            return Ok(last.into_result(follower, bundle, STORE_LOST));
        }
        Err(error) => return Err(error.into()),
    };
    if run.facts.started_unix_ms == 0 && asked {
        // Whoever stopped it knows why nothing was measured.
        run.facts.started_unix_ms = unix_ms();
    } else if run.facts.started_unix_ms == 0 {
        let last = run.facts.fleet.as_ref().and_then(|fleet| fleet.events.last()).map(|event| event.text.clone());
        return Err(FleetRunError::NotStarted(last.unwrap_or_else(|| "it was stopped".to_owned())));
    }
    let (elapsed, generator) = (run.facts.elapsed, &run.facts.generator);
    let live = LiveStatus {
        elapsed,
        phase: LivePhase::Done,
        level_now: 0.0,
        cpu_s: generator.cpu_s,
        rss_bytes: generator.max_rss_bytes,
        in_flight: 0,
        thresholds: run.facts.thresholds.clone(),
    };
    observers.iter_mut().for_each(|observer| observer.on_update(&bundle.plan, &run.view, &live));
    Ok(RunResult { view: run.view, facts: run.facts })
}

/// Starts the run; waits a moment for workers that are just coming up, for a run that is just ending, and for a store that is away.
/// `None` if whoever wanted it did not wait.
async fn start_with_retry<C: FleetStores>(
    fleet: &FleetClient<C>,
    (name, bundle): (&str, &Bundle),
    params: BTreeMap<String, serde_json::Value>,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<Option<u64>, FleetRunError> {
    let began = Instant::now();
    let (mut silent_since, mut told_at) = (None, Instant::now());
    let mut wishes = control.subscribe();
    loop {
        let unheard = match fleet.start_named(name, bundle, params.clone()).await {
            Err(FleetError::NoWorkers) if began.elapsed() < WORKER_STARTUP_TIMEOUT => None,
            Err(FleetError::InvalidState { current: RunPhase::Stopping, .. })
                if began.elapsed() < PREVIOUS_RUN_TIMEOUT =>
            {
                None
            }
            // Its leader may have gone with whoever started it; ours ends it then.
            Err(FleetError::InvalidState { .. })
                if began.elapsed() < PREVIOUS_RUN_TIMEOUT && is_nearly_over(fleet).await =>
            {
                None
            }
            Err(FleetError::Store(error @ StoreError::Unreachable(_))) => Some(error),
            Err(FleetError::InvalidState { .. }) => return Err(FleetRunError::Busy),
            other => return Ok(Some(other?)),
        };
        // Only between two attempts: one that is under way may have been heard.
        let asked = wishes.wait_for(|wish| *wish > StopRequest::None);
        let asked = tokio::time::timeout(POLL_INTERVAL, asked).await.is_ok();
        let Some(error) = unheard else {
            silent_since = None;
            if asked {
                return Ok(None);
            }
            continue;
        };
        let silent = silent_since.get_or_insert_with(Instant::now).elapsed();
        // It may have been begun for all we know.
        if asked || silent > STORE_TIMEOUT {
            return Err(FleetError::from(error).into());
        }
        if told_at.elapsed() > WAITING_MESSAGE_INTERVAL {
            told_at = Instant::now();
            report_store_outage(observers, &error.into(), silent);
        }
    }
}

/// Whether the run that is there has nothing left to do but to be ended by somebody, or is about to.
async fn is_nearly_over<C: FleetStores>(fleet: &FleetClient<C>) -> bool {
    let Ok(status) = fleet.status().await else { return false };
    let Some(order) = &status.order else { return false };
    let left = remaining(order.profile.duration(), status.elapsed_s);
    let mut busy = status.workers.iter().filter(|worker| worker.ready == status.epoch && worker.done != status.epoch);
    // Before its start nobody is busy, and all of it is left.
    left <= NEARLY_OVER || status.elapsed_s.is_some() && busy.next().is_none()
}

/// How much is left of a run of `planned`, which has not begun where nothing has elapsed.
fn remaining(planned: Duration, elapsed_s: Option<f64>) -> Duration {
    planned.saturating_sub(Duration::from_secs_f64(elapsed_s.unwrap_or(0.0).max(0.0)))
}

/// Asks until the store answers, which may be away for a while, or somebody has asked twice to stop.
async fn retry_while_unreachable<T>(
    control: &RunControl,
    mut ask: impl AsyncFnMut() -> Result<T, FleetError>,
) -> Result<T, FleetError> {
    let began = Instant::now();
    let wishes = control.subscribe();
    loop {
        let waits = began.elapsed() < STORE_TIMEOUT && *wishes.borrow() < StopRequest::Abort;
        match ask().await {
            Err(FleetError::Store(StoreError::Unreachable(_))) if waits => tokio::time::sleep(POLL_INTERVAL).await,
            other => return other,
        }
    }
}

/// Says what is wrong with the store for so long: what somebody can mend, in its own words.
fn report_store_outage(observers: &mut [&mut dyn RunObserver], error: &FleetError, silent: Duration) {
    let why = match error {
        FleetError::Store(StoreError::Unreachable(_)) => {
            format!("waiting for the store, which has not answered for {} s", silent.as_secs())
        }
        error => format!("waiting for the store, of which no use can be made for {} s: {error}", silent.as_secs()),
    };
    observers.iter_mut().for_each(|observer| observer.on_waiting(&why));
}

/// A run that was given up while workers were waited for.
fn cancelled_result(bundle: &Bundle, wish: StopRequest) -> RunResult {
    let view = Collector::new([], 1).finish();
    let facts = RunFacts {
        started_unix_ms: unix_ms(),
        active: Duration::ZERO,
        elapsed: Duration::ZERO,
        stop: if wish == StopRequest::Abort { StopReason::Aborted } else { StopReason::Interrupted },
        thresholds: ThresholdJudge::new(&bundle.plan).final_results(&view, Duration::ZERO),
        generator: GeneratorStats::default(),
        lost_at_most: 0,
        fleet: Some(FleetFacts { workers: Vec::new(), events: Vec::new(), missed_starts: 0 }),
    };
    RunResult { view, facts }
}

/// Who has not been heard for so long that a second may be missing for it; nobody knows yet whether it is lost.
fn silent_workers_message(workers: &[WorkerInfo], now_ms: u64) -> Option<String> {
    if workers.is_empty() {
        return Some("no worker is left; waiting for one".to_owned());
    }
    let silent_s = |worker: &WorkerInfo| now_ms as f64 / 1e3 - worker.last_heartbeat;
    let silent = workers.iter().filter(|worker| {
        worker.last_heartbeat > 0.0 && silent_s(worker) > 1.5 * WAITING_MESSAGE_INTERVAL.as_secs_f64()
    });
    let longest = silent.clone().max_by(|a, b| silent_s(a).total_cmp(&silent_s(b)))?;
    let others = match silent.count() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!("waiting for worker {}{others}, last heard {:.0} s ago", longest.id, silent_s(longest)))
}

/// Most workers that are named.
const MAX_NAMED_WORKERS: usize = 10;

/// Whose users are not built yet. Those who are gone are not waited for, but somebody is.
fn preparing_message(status: &FleetStatus) -> Option<String> {
    if status.workers.is_empty() {
        return Some("no worker is left; waiting for one".to_owned());
    }
    let mut there = status.order.as_ref()?.expected.clone();
    there.retain(|id| status.workers.iter().any(|worker| worker.id == *id));
    let mut names = unready_workers(&there, &status.workers, status.epoch);
    let (whose, more) = (if names.len() == 1 { "its" } else { "their" }, names.len().saturating_sub(MAX_NAMED_WORKERS));
    names.truncate(MAX_NAMED_WORKERS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("waiting for {}{more} to build {whose} users", names.join(", ")))
}

fn live_phase(state: RunPhase, started: Option<f64>, elapsed: Duration, bundle: &Bundle) -> LivePhase {
    match state {
        RunPhase::Idle => LivePhase::Done,
        RunPhase::Stopping => LivePhase::Draining,
        RunPhase::Preparing => LivePhase::Starting,
        RunPhase::Running if started.is_none() => LivePhase::Starting,
        RunPhase::Running if elapsed < bundle.plan.load.warm_up => LivePhase::WarmUp,
        RunPhase::Running => LivePhase::Running,
    }
}

/// What was last seen of a run from outside.
struct LastKnownStatus {
    elapsed: Duration,
    started_unix_ms: Option<u64>,
    cpu_s: f64,
    rss_bytes: u64,
    threads: u32,
}

impl LastKnownStatus {
    fn from_status(status: &FleetStatus, elapsed: Duration, before: LastKnownStatus) -> LastKnownStatus {
        let started_unix_ms = status.order.as_ref().and_then(|order| order.start_at_ms).or(before.started_unix_ms);
        let workers = &status.workers;
        LastKnownStatus {
            elapsed,
            started_unix_ms,
            cpu_s: workers.iter().map(|worker| worker.cpu_s).sum::<f64>().max(before.cpu_s),
            rss_bytes: workers.iter().map(|worker| worker.max_rss_bytes).max().unwrap_or(0).max(before.rss_bytes),
            threads: workers.iter().map(|worker| worker.threads).sum::<u32>().max(before.threads),
        }
    }

    /// The run as far as it is known here: nobody will say how it ended.
    fn into_result<C: FleetStores>(self, mut follower: RunAggregator<C>, bundle: &Bundle, why: &str) -> RunResult {
        let LastKnownStatus { elapsed, started_unix_ms, cpu_s, rss_bytes, threads } = self;
        follower.close_with_notes(elapsed, started_unix_ms.is_some(), &RunNotes::default());
        let text = format!("{why}; this is what was known then, and workers may have sent more since");
        follower.record_event(elapsed, text);
        let workers = follower.worker_facts(elapsed, u64::MAX);
        let view = follower.final_view().unwrap_or_else(|| follower.view().clone());
        let events = follower.roster().events.iter().map(|(t_s, text)| FleetEvent { t_s: *t_s, text: text.clone() });
        let facts = RunFacts {
            started_unix_ms: started_unix_ms.unwrap_or_else(unix_ms),
            active: elapsed,
            elapsed,
            stop: StopReason::Aborted,
            thresholds: follower.judge().clone().final_results(&view, elapsed.saturating_sub(bundle.plan.load.warm_up)),
            generator: GeneratorStats { threads, cpu_s, max_rss_bytes: rss_bytes, ..GeneratorStats::default() },
            lost_at_most: workers.iter().map(|worker| worker.lost_at_most).sum(),
            fleet: Some(FleetFacts { workers, events: events.collect(), missed_starts: 0 }),
        };
        RunResult { view, facts }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_not_built_its_users_is_named_and_who_is_gone_too() {
        let worker = |id: &str, ready| WorkerInfo { id: id.to_owned(), ready, ..WorkerInfo::default() };
        let workers = [worker("w1", 7), worker("w2", 6)];
        let names = |expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|id| (*id).to_owned()).collect();
            unready_workers(&expected, &workers, 7)
        };
        assert!(names(&["w1"]).is_empty());
        assert_eq!(names(&["w1", "w2", "w3"]), ["w2", "w3 (gone)"]);
    }

    #[test]
    fn all_of_a_run_that_has_not_begun_is_left() {
        let planned = Duration::from_secs(8);
        let left = |elapsed_s| remaining(planned, elapsed_s).as_secs();
        assert_eq!([None, Some(-0.5), Some(3.0), Some(9.0)].map(left), [8, 8, 5, 0]);
    }

    #[test]
    fn a_silent_worker_is_named_while_it_is_awaited() {
        let heard = |id: &str, last_heartbeat: f64| {
            let (id, status) = (id.to_owned(), "healthy".to_owned());
            WorkerInfo { id, status, last_heartbeat, ..WorkerInfo::default() }
        };
        let said = |workers: &[WorkerInfo]| silent_workers_message(workers, 10_000);
        assert_eq!(said(&[heard("w1", 9.5), heard("w2", 9.0)]), None);
        assert_eq!(said(&[]).as_deref(), Some("no worker is left; waiting for one"));
        let one = said(&[heard("w1", 9.5), heard("w2", 8.0)]);
        assert_eq!(one.as_deref(), Some("waiting for worker w2, last heard 2 s ago"));
        let two = said(&[heard("w1", 7.0), heard("w2", 8.0)]);
        assert_eq!(two.as_deref(), Some("waiting for worker w1 and 1 more, last heard 3 s ago"));
    }
}
