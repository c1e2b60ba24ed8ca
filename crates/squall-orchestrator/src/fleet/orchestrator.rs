//! The orchestrators of a fleet. A fleet may have any number of them; the one that holds the leader
//! lease leads. When it dies, another one resumes the run from its record and its checkpoint.
//! [`LeaderRun`] takes the steps of a run. `squall orchestrator` and `run_fleet` start
//! orchestrators.

use squall_coord::{
    FleetStores, LeaseEvent, MemberId, Membership, MembershipConfig, MembershipConfigError, PoolStore, RunRecord,
    RunStore, StoreError, UnitId, unique_id,
};
use squall_model::{RunPhase, RunSpec, StopReason};
use std::time::Duration;
use tokio::time::Instant;
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    FleetClient, FleetError, LEADER_UNIT, RunAggregator,
    fleet_client::{parse_run_spec, recorded_phase},
    leader_run::LeaderRun,
    store_contact::StoreContact,
    vikhry_workers::{RunStep, VikhryWorkers},
};

/// How an orchestrator behaves.
#[derive(Debug, Clone)]
pub struct OrchestratorConfig {
    pub id: String,
    /// Time between heartbeats.
    pub heartbeat_interval: Duration,
    /// How long the membership, and with it the leader lease, lasts without a heartbeat.
    pub ttl: Duration,
    /// Time between two polls of the run.
    pub poll_interval: Duration,
    /// Time between the moment when all workers are ready and the start of the load.
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

/// Time between two sweeps that return the resources of lost workers. A worker that finds a pool
/// empty sweeps it at once.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// One orchestrator.
pub struct Orchestrator<C: FleetStores> {
    fleet: FleetClient<C>,
    config: OrchestratorConfig,
    /// Unique to this process.
    member: MemberId,
    leader_run: Option<LeaderRun<C>>,
    vikhry_workers: VikhryWorkers<C>,
    last_sweep: Instant,
    /// Why the last poll failed.
    last_error: Option<String>,
    store_contact: StoreContact,
}

impl<C: FleetStores> Orchestrator<C> {
    pub fn new(stores: C, config: OrchestratorConfig) -> Orchestrator<C> {
        let member = MemberId::new(format!("{}.{}", config.id, unique_id()));
        let fleet = FleetClient::new(stores);
        Orchestrator {
            vikhry_workers: VikhryWorkers::new(fleet.clone()),
            fleet,
            config,
            member,
            leader_run: None,
            last_sweep: Instant::now(),
            last_error: None,
            store_contact: StoreContact::default(),
        }
    }

    /// Leads whenever it holds the leader lease. On `stop` it releases the lease.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), MembershipConfigError> {
        let membership = MembershipConfig {
            heartbeat_interval: self.config.heartbeat_interval,
            ttl: self.config.ttl,
            ..MembershipConfig::new(self.member.clone(), vec![UnitId::new(LEADER_UNIT)])
        };
        let (membership, mut handle) = Membership::new(self.fleet.stores().orchestrators(), membership)?;
        // A panic in a poll drops this set and ends the membership, so a leader that no longer
        // polls loses its lease.
        let mut membership_task = JoinSet::new();
        membership_task.spawn(membership.run(stop.clone()));
        let mut polls = tokio::time::interval(self.config.poll_interval);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leading = false;
        loop {
            tokio::select! {
                event = handle.events.recv() => match event {
                    Some(LeaseEvent::Granted(_)) => {
                        info!(orchestrator = self.config.id, "the orchestrator leads");
                        leading = true;
                    }
                    Some(LeaseEvent::ReturnRequested(lease)) => {
                        leading = false;
                        self.leave_run();
                        handle.release(lease);
                    }
                    Some(LeaseEvent::Lost(_)) => {
                        leading = false;
                        self.leave_run();
                    }
                    None => break,
                },
                // The validity is checked at each poll: a lease that is uncertain for a moment may
                // become valid again.
                _ = polls.tick() => if handle.validity.is_valid() {
                    // Heartbeats are answers too, and the only ones while another orchestrator leads.
                    let last_heartbeat = handle.validity.expires_at() - self.config.ttl;
                    self.store_contact = self.store_contact.heard(last_heartbeat);
                    if leading {
                        let polled = Box::pin(self.poll()).await;
                        self.log_failure(polled.err());
                    }
                },
            }
        }
        while membership_task.join_next().await.is_some() {}
        Ok(())
    }

    /// Warns once about an error that an operator has to fix. An unreachable store is not one: it
    /// comes back.
    fn log_failure(&mut self, error: Option<FleetError>) {
        let text = error.as_ref().map(ToString::to_string);
        match &error {
            Some(FleetError::Store(StoreError::WrongType { .. })) if text != self.last_error => {
                warn!(
                    orchestrator = self.config.id,
                    "the orchestrator cannot lead: {}",
                    text.as_deref().unwrap_or_default()
                );
            }
            Some(FleetError::Store(StoreError::Unreachable(_))) => {
                self.store_contact = self.store_contact.unreachable(Instant::now());
                debug!(error = text, "a poll of the run failed");
            }
            Some(error) => debug!(%error, "a poll of the run failed"),
            None => {}
        }
        self.last_error = text;
    }

    /// Leads no run any longer.
    fn leave_run(&mut self) {
        self.leader_run = None;
        self.vikhry_workers.end_all();
    }

    /// Sweeps the pools if the last sweep is old enough.
    async fn sweep_pools(&mut self) -> Result<(), FleetError> {
        if self.last_sweep.elapsed() <= SWEEP_INTERVAL {
            return Ok(());
        }
        self.last_sweep = Instant::now();
        match self.fleet.stores().pools().sweep().await {
            Err(error @ StoreError::Unreachable(_)) => return Err(error.into()),
            // A foreign value in a pool's keys breaks only that pool. Its users get the error.
            Err(error) => debug!(%error, "a pool cannot be swept"),
            Ok(_) => {}
        }
        Ok(())
    }

    /// Reads the run once and takes the next step, if one is due.
    async fn poll(&mut self) -> Result<(), FleetError> {
        self.sweep_pools().await?;
        let run_store = self.fleet.stores().run();
        let record = run_store.read_record().await?;
        let (contact, outage) = self.store_contact.heard(Instant::now()).take_outage(Instant::now(), self.config.ttl);
        self.store_contact = contact;
        let outage = outage.filter(|outage| *outage > self.config.ttl);
        let phase = recorded_phase(&record)?;
        if phase == RunPhase::Idle {
            self.leave_run();
            return Ok(());
        }
        let spec = match parse_run_spec(&record) {
            Ok(spec) => spec,
            Err(error) => {
                // Workers of this release cannot read it either. Ending the run makes the fleet usable
                // again.
                warn!(%error, "the orchestrator abandons the run");
                run_store.compare_and_set(&record, RunPhase::Idle.name(), "", false).await?;
                return Ok(());
            }
        };
        if self
            .leader_run
            .as_ref()
            .is_none_or(|run| run.aggregator.epoch() != record.epoch || run.run_id != spec.run_id)
        {
            self.leader_run = self.resume_run(&record, &spec).await?;
        }
        let Some(leader_run) = &mut self.leader_run else { return Ok(()) };
        let mut workers = self.fleet.cached_workers().await?;
        let elapsed = elapsed(&record, &spec);
        let step = RunStep { record: &record, phase, spec: &spec, bundle: leader_run.bundle(), elapsed };
        self.vikhry_workers.update(step, &mut workers).await?;
        if let Some(outage) = outage {
            leader_run.record_outage(outage, elapsed);
        }
        leader_run.aggregate(phase, &spec, elapsed, &workers).await?;
        workers.retain(|worker| worker.protocol.is_current());
        leader_run.update_views(phase, &spec, elapsed, &workers).await;
        let used_up = leader_run.counter_monitor.poll(&self.fleet, &mut leader_run.aggregator, elapsed).await?;
        leader_run.log_new_events();
        match phase {
            RunPhase::Running if used_up => leader_run.stop(&self.fleet, StopReason::Completed, None).await,
            RunPhase::Preparing => {
                leader_run.start_when_ready(&self.fleet, &self.config, &record, spec, &workers).await
            }
            RunPhase::Running => leader_run.stop_or_save_checkpoint(&self.fleet, &spec, elapsed, &workers).await,
            RunPhase::Stopping => leader_run.finish_when_drained(&self.fleet, &record, &spec, elapsed, &workers).await,
            RunPhase::Idle => Ok(()),
        }
    }

    /// Ends a run that no orchestrator can resume, so that the fleet is usable again.
    async fn abandon_run(&self, record: &RunRecord, why: &str) -> Result<Option<LeaderRun<C>>, FleetError> {
        warn!(epoch = record.epoch, why, "the orchestrator abandons the run");
        self.fleet.stores().run().compare_and_set(record, RunPhase::Idle.name(), "", false).await?;
        Ok(None)
    }

    async fn resume_run(&self, record: &RunRecord, spec: &RunSpec) -> Result<Option<LeaderRun<C>>, FleetError> {
        let bundle = match self.fleet.load_bundle(&spec.bundle).await {
            Ok(Some(bundle)) => bundle,
            // The store may come back, or accept our login again.
            Err(FleetError::Store(error @ (StoreError::Unreachable(_) | StoreError::Rejected(_)))) => {
                return Err(error.into());
            }
            // Workers cannot read it either.
            other => {
                let error = other.err().map_or_else(|| "the store does not have it".to_owned(), |e| e.to_string());
                return self.abandon_run(record, &format!("its plan cannot be read: {error}")).await;
            }
        };
        let saved = self.fleet.stores().run().load_checkpoint(record.epoch).await?;
        if saved.is_some_and(|saved| RunAggregator::<C>::view_of_checkpoint(&saved.data).is_none()) {
            return self.abandon_run(record, "its checkpoint cannot be read").await;
        }
        info!(epoch = record.epoch, plan = bundle.plan.name, "the orchestrator takes the run up");
        let mut aggregator = RunAggregator::open(self.fleet.stores(), record.epoch, &bundle.plan, 1).await?;
        let logged_events = aggregator.roster().events.len();
        aggregator.set_leader(&self.config.id, self.member.as_str(), elapsed(record, spec));
        Ok(Some(LeaderRun::new(&self.fleet, (record, spec), bundle, (aggregator, logged_events))?))
    }
}

/// The time since the start of the run by the store's clock; zero before the start.
fn elapsed(record: &RunRecord, spec: &RunSpec) -> Duration {
    spec.start_at_ms.map_or(Duration::ZERO, |start| Duration::from_millis(record.now_ms.saturating_sub(start)))
}
