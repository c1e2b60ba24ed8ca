//! One processor in one worker: a member of the processor's space, with a consumer for each partition it holds.
//! Refuses to know records; it moves leases, entries and acknowledgements.

mod acker;
mod consumer;
mod fetcher;
mod reporter;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::join_all;
use squall_coord::{Lease, MemberId, LeaseEvent, RedisLeaseStore, Membership, MembershipConfig, MembershipConfigError, MembershipHandle, UnitId};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::consumer::Job;
use crate::{
    hub::Hub,
    lane::Lane,
    metrics::add,
    names::{NameError, Namespace, ProcessorName},
    partition::{Fenced, Partition, PartitionError},
    processor::{Processor, ZeroSetting},
};

/// Why a processor ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// A name that cannot be used.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Timings that cannot work together.
    #[error(transparent)]
    Timing(#[from] MembershipConfigError),
    /// Settings under which nothing would ever happen.
    #[error(transparent)]
    Settings(#[from] ZeroSetting),
    /// The policy said so.
    #[error(
        "processor `{processor}` halted at event {at} of partition {partition}: {error}. The partition is marked and stands \
         still; mend the cause, then run `squall stream quarantine {processor} --clear {partition}` (add --skip to leave the \
         event out)"
    )]
    Halted {
        /// The processor.
        processor: ProcessorName,
        /// The partition.
        partition: u32,
        /// The first failed event; empty if none was in hand.
        at: String,
        /// What happened.
        error: String,
    },
    /// A key is in use for something else.
    #[error(transparent)]
    Partition(PartitionError),
    /// Our bug.
    #[error("a task of processor `{0}` ended by itself")]
    Task(ProcessorName),
}

struct Executor {
    job: Arc<Job>,
    link: squall_coord::RedisClient,
    namespace: Namespace,
    member: MemberId,
    handle: MembershipHandle,
    lanes: BTreeMap<Lease, Arc<Lane>>,
    /// Whoever stops the worker drains its lanes at once: the seat's word for it may be a round trip away.
    stop: CancellationToken,
}

/// Runs a processor until `stop`, then drains it. An error ends it early, drained as well.
pub(crate) async fn execute(processor: Processor, stop: CancellationToken) -> Result<(), ExecutorError> {
    let name = processor.name.clone()?;
    let settings = processor.settings.clone();
    settings.check()?;
    let member = MemberId::unique();
    let units = (0..processor.partitions).map(UnitId::from).collect();
    let config = MembershipConfig {
        heartbeat_interval: settings.beat,
        ttl: settings.lease,
        join_delay: settings.join_delay,
        ..MembershipConfig::new(member.clone(), units)
    };
    let link = processor.link.clone();
    let namespace = processor.namespace.clone();
    let (seat, handle) = Membership::new(RedisLeaseStore::new(&link, namespace.space(&name)), config)?;
    let hub = Hub::new(name, settings, processor.metrics.clone());
    let policy = processor.policy;
    let (invoke, middleware) = processor.into_invoke();
    let mut services = JoinSet::new();
    services.spawn(fetcher::fetch(hub.clone()));
    services.spawn(fetcher::watch(hub.clone(), link.clone()));
    services.spawn(acker::acknowledge(hub.clone()));
    services.spawn(renew(hub.clone()));
    services.spawn(reporter::report(hub.clone(), link.clone(), namespace.clone()));
    let job = Arc::new(Job { hub, invoke, middleware, policy });
    let stop = stop.child_token();
    let executor = Executor { job, link, namespace, member, handle, lanes: BTreeMap::new(), stop };
    let outcome = executor.run(seat, &mut services).await;
    services.shutdown().await;
    outcome
}

impl Executor {
    async fn run(mut self, seat: Membership<RedisLeaseStore>, services: &mut JoinSet<()>) -> Result<(), ExecutorError> {
        let stop = self.stop.clone();
        let mut seated = JoinSet::new();
        seated.spawn(seat.run(stop.clone()));
        let mut consumers: JoinSet<(Lease, Result<(), ExecutorError>)> = JoinSet::new();
        let mut outcome = Ok(());
        loop {
            tokio::select! {
                biased;
                Some(ended) = consumers.join_next() => {
                    let ended = match ended {
                        Ok((lease, ended)) => { self.returned(lease); ended }
                        Err(_) => Err(ExecutorError::Task(self.job.hub.name.clone())),
                    };
                    if ended.is_err() && outcome.is_ok() {
                        outcome = ended;
                        stop.cancel();
                    }
                }
                notice = self.handle.events.recv() => match notice {
                    Some(notice) => self.obey(notice, &mut consumers),
                    None => break, // the seat has left
                },
                Some(_) = services.join_next() => {
                    outcome = Err(ExecutorError::Task(self.job.hub.name.clone()));
                    stop.cancel();
                }
            }
        }
        consumers.shutdown().await;
        seated.shutdown().await;
        outcome
    }

    fn obey(&mut self, notice: LeaseEvent, consumers: &mut JoinSet<(Lease, Result<(), ExecutorError>)>) {
        match notice {
            LeaseEvent::Granted(lease) => self.take(lease, consumers),
            LeaseEvent::Drain(lease) => {
                if let Some(lane) = self.lanes.get(&lease) {
                    lane.drain.cancel();
                }
            }
            LeaseEvent::Lost(lease) => {
                if let Some(lane) = self.lanes.get(&lease) {
                    warn!(processor = %self.job.hub.name, partition = %lease.unit, epoch = %lease.epoch, "lease lost");
                    lane.abort.cancel();
                }
            }
        }
    }

    fn take(&mut self, lease: Lease, consumers: &mut JoinSet<(Lease, Result<(), ExecutorError>)>) {
        let Ok(number) = lease.unit.as_str().parse() else {
            // Only partitions are ever assigned here; whatever else it is, it is not ours to use.
            return self.handle.release(lease);
        };
        let hub = &self.job.hub;
        info!(processor = %hub.name, partition = number, epoch = %lease.epoch, member = %self.member, "partition taken");
        add(&hub.metrics.granted, 1);
        add(&hub.metrics.held, 1);
        let claim = (self.member.clone(), lease.epoch, hub.settings.lease);
        let partition = Partition::new(&self.link, &self.namespace, &hub.name, number, claim);
        let (tenure, drain) = (self.handle.validity.clone(), self.stop.child_token());
        let lane = Lane::new(partition, lease.clone(), tenure, drain, hub.clone());
        self.lanes.insert(lease.clone(), lane.clone());
        let job = self.job.clone();
        consumers.spawn(async move { (lease, consumer::consume(lane, job).await) });
    }

    fn returned(&mut self, lease: Lease) {
        let hub = &self.job.hub;
        info!(processor = %hub.name, partition = %lease.unit, epoch = %lease.epoch, "partition given back");
        add(&hub.metrics.returned, 1);
        hub.metrics.held.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        self.lanes.remove(&lease);
        self.handle.release(lease);
    }
}

/// Keeps the fences of all lanes up, for ever.
async fn renew(hub: Arc<Hub>) {
    let mut beats = interval(hub.settings.beat);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let lanes = hub.lanes();
        let answers = join_all(lanes.iter().map(|lane| async { (lane.marks(), lane.partition.renew().await) })).await;
        for (lane, (marks, answer)) in lanes.iter().zip(answers) {
            match answer {
                Ok(Fenced::Done(quarantined)) => lane.set_quarantined(quarantined, marks),
                Ok(Fenced::Refused) => lane.lost(),
                Err(error) => hub.complain("renewing the fence", lane.partition.number, &error),
            }
        }
    }
}
