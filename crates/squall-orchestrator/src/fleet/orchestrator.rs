//! The orchestrators of a fleet: any number may be there, one holds the lead, and when it dies the next takes the run up from the
//! record and the savings. What is done about the run is [`LeaderRun`]'s.

use squall_coord::{
    FleetStores, LeaseEvent, MemberId, Membership, MembershipConfig, MembershipConfigError, PoolStore, RunRecord,
    RunStore, StoreError, UnitId,
};
use squall_model::{RunPhase, RunSpec, StopReason};
use std::time::{Duration, Instant};
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    FleetClient, FleetError, LEADER_UNIT, RunAggregator,
    fleet_client::{parse_run_spec, recorded_phase},
    leader_run::LeaderRun,
};

/// How an orchestrator behaves.
#[derive(Debug, Clone)]
pub struct OrchestratorConfig {
    pub id: String,
    /// Time between beats.
    pub heartbeat_interval: Duration,
    /// How long it leads without one.
    pub ttl: Duration,
    /// Time between two looks at the run.
    pub poll_interval: Duration,
    /// Between the last worker's readiness and the first start.
    pub start_delay: Duration,
}

impl OrchestratorConfig {
    pub fn new(id: impl Into<String>) -> OrchestratorConfig {
        OrchestratorConfig {
            id: id.into(),
            heartbeat_interval: Duration::from_secs(1),
            ttl: Duration::from_millis(3500),
            poll_interval: Duration::from_millis(200),
            start_delay: Duration::from_millis(500),
        }
    }
}

/// How often what the dead had borrowed is given back; whoever finds a pool empty does it at once.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// One orchestrator.
pub struct Orchestrator<C: FleetStores> {
    fleet: FleetClient<C>,
    config: OrchestratorConfig,
    /// This life of it.
    member: MemberId,
    leader_run: Option<LeaderRun<C>>,
    /// When it last gave back what the dead had borrowed.
    last_sweep: Instant,
    /// Why its last look failed, if it did.
    last_error: Option<String>,
    /// When the store last answered, while it leads.
    last_response_at: Option<Instant>,
    /// Since when the store has not answered.
    store_silent_since: Option<Instant>,
}

impl<C: FleetStores> Orchestrator<C> {
    pub fn new(cell: C, config: OrchestratorConfig) -> Orchestrator<C> {
        let member = MemberId::new(format!("{}.{}", config.id, MemberId::unique()));
        let (fleet, swept) = (FleetClient::new(cell), Instant::now());
        Orchestrator {
            fleet,
            config,
            member,
            leader_run: None,
            last_sweep: swept,
            last_error: None,
            last_response_at: None,
            store_silent_since: None,
        }
    }

    /// Leads whenever it holds the lead, until `stop`; then hands it over.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), MembershipConfigError> {
        let seat = MembershipConfig {
            heartbeat_interval: self.config.heartbeat_interval,
            ttl: self.config.ttl,
            ..MembershipConfig::new(self.member.clone(), vec![UnitId::new(LEADER_UNIT)])
        };
        let (seat, mut handle) = Membership::new(self.fleet.cell().orchestrators(), seat)?;
        // Dropped with everything else if a look panics: the lead must not stay with somebody who does not look any more.
        let mut sitting = JoinSet::new();
        sitting.spawn(seat.run(stop.clone()));
        let mut looks = tokio::time::interval(self.config.poll_interval);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leading = false;
        loop {
            tokio::select! {
                notice = handle.events.recv() => match notice {
                    Some(LeaseEvent::Granted(_)) => {
                        info!(orchestrator = self.config.id, "leads");
                        leading = true;
                    }
                    Some(LeaseEvent::Drain(lease)) => {
                        leading = false;
                        (self.leader_run, self.last_response_at) = (None, None);
                        handle.release(lease);
                    }
                    Some(LeaseEvent::Lost(_)) => {
                        leading = false;
                        self.leader_run = None;
                    }
                    None => break,
                },
                // Asked only then whether the lead is certain: one that is in doubt for a moment is looked at again.
                _ = looks.tick(), if leading => if handle.validity.is_valid() {
                    let looked = Box::pin(self.poll()).await;
                    self.log_failure(looked.err());
                },
            }
        }
        while sitting.join_next().await.is_some() {}
        Ok(())
    }

    /// Says once what keeps it from leading, where somebody has to do something about it; a store that is away comes back.
    fn log_failure(&mut self, error: Option<FleetError>) {
        let text = error.as_ref().map(ToString::to_string);
        match &error {
            Some(FleetError::Store(StoreError::WrongType { .. })) if text != self.last_error => {
                warn!(orchestrator = self.config.id, "cannot lead: {}", text.as_deref().unwrap_or_default());
            }
            Some(FleetError::Store(StoreError::Unreachable(_))) => {
                self.store_silent_since.get_or_insert_with(|| self.last_response_at.unwrap_or_else(Instant::now));
                debug!(error = text, "a look at the run failed");
            }
            Some(error) => debug!(%error, "a look at the run failed"),
            None => {}
        }
        self.last_error = text;
    }

    /// One look at the run and one step, if one is due.
    async fn poll(&mut self) -> Result<(), FleetError> {
        if self.last_sweep.elapsed() > SWEEP_INTERVAL {
            self.last_sweep = Instant::now();
            match self.fleet.cell().pools().sweep().await {
                Err(error @ StoreError::Unreachable(_)) => return Err(error.into()),
                // Somebody else's value in a pool's keys is that pool's trouble, and said to whoever uses it.
                Err(error) => debug!(%error, "a pool cannot be swept"),
                Ok(_) => {}
            }
        }
        let run = self.fleet.cell().run();
        let record = run.read_record().await?;
        self.last_response_at = Some(Instant::now());
        let silent =
            self.store_silent_since.take().map(|since| since.elapsed()).filter(|silent| *silent > self.config.ttl);
        let phase = recorded_phase(&record)?;
        if phase == RunPhase::Idle {
            self.leader_run = None;
            return Ok(());
        }
        let order = match parse_run_spec(&record) {
            Ok(order) => order,
            Err(error) => {
                // Nobody can make sense of it, so nobody is working on it: leave the fleet usable.
                warn!(%error, "the run is given up");
                run.compare_and_set(&record, RunPhase::Idle.name(), "", false).await?;
                return Ok(());
            }
        };
        if self.leader_run.as_ref().is_none_or(|led| led.aggregator.epoch() != record.epoch || led.run_id != order.run)
        {
            self.leader_run = self.resume_run(&record, &order).await?;
        }
        let Some(led) = &mut self.leader_run else { return Ok(()) };
        let workers = self.fleet.cached_workers().await?;
        let elapsed = elapsed(&record, &order);
        if let Some(silent) = silent {
            let silent = silent.as_secs();
            let text = format!("the store did not answer for {silent} s; workers that it does not hear make no load");
            led.aggregator.record_event(elapsed, text);
        }
        led.aggregate(phase, &order, elapsed, &workers).await?;
        led.update_views(phase, &order, elapsed, &workers).await;
        let used_up = led.counter_monitor.poll(&self.fleet, &mut led.aggregator, elapsed).await?;
        // There may be fewer than were told, where a store has gone back to an older saving.
        for (at_s, text) in led.aggregator.roster().events.get(led.logged_events..).unwrap_or_default() {
            info!(epoch = record.epoch, at_s, "{text}");
        }
        led.logged_events = led.aggregator.roster().events.len();
        match phase {
            RunPhase::Running if used_up => led.stop(&self.fleet, StopReason::Completed, None).await,
            RunPhase::Preparing => led.start_when_ready(&self.fleet, &self.config, &record, order, &workers).await,
            RunPhase::Running => led.check_stop_rules(&self.fleet, &order, elapsed, &workers).await,
            RunPhase::Stopping => led.finish_when_drained(&self.fleet, &record, &order, elapsed, &workers).await,
            RunPhase::Idle => Ok(()),
        }
    }

    /// Ends a run that nobody can go on with, so that the fleet is usable.
    async fn abandon_run(&self, record: &RunRecord, why: &str) -> Result<Option<LeaderRun<C>>, FleetError> {
        warn!(epoch = record.epoch, why, "the run is given up");
        self.fleet.cell().run().compare_and_set(record, RunPhase::Idle.name(), "", false).await?;
        Ok(None)
    }

    async fn resume_run(&self, record: &RunRecord, order: &RunSpec) -> Result<Option<LeaderRun<C>>, FleetError> {
        let bundle = match self.fleet.load_bundle(&order.bundle).await {
            Ok(Some(bundle)) => bundle,
            // It may come back, or let us in again.
            Err(FleetError::Store(error @ (StoreError::Unreachable(_) | StoreError::Rejected(_)))) => {
                return Err(error.into());
            }
            // Nobody can read it, so nobody works on it: leave the fleet usable.
            other => {
                let error = other.err().map_or_else(|| "it is not in the store any more".to_owned(), |e| e.to_string());
                return self.abandon_run(record, &format!("its plan cannot be read: {error}")).await;
            }
        };
        let saved = self.fleet.cell().run().load_checkpoint(record.epoch).await?;
        if saved.is_some_and(|(_, made)| RunAggregator::<C>::view_of_checkpoint(&made).is_none()) {
            return self.abandon_run(record, "what was kept of it cannot be read").await;
        }
        info!(epoch = record.epoch, plan = bundle.plan.name, "takes the run up");
        let mut follower = RunAggregator::open(self.fleet.cell(), record.epoch, &bundle.plan, 1).await?;
        let told = follower.roster().events.len();
        follower.set_leader(&self.config.id, self.member.as_str(), elapsed(record, order));
        Ok(Some(LeaderRun::new(&self.fleet, (record, order), bundle, (follower, told))?))
    }
}

/// The time of the run by the store's clock; zero before it has started.
fn elapsed(record: &RunRecord, order: &RunSpec) -> Duration {
    order.start_at_ms.map_or(Duration::ZERO, |start| Duration::from_millis(record.now_ms.saturating_sub(start)))
}
