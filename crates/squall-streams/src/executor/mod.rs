//! One processor in one worker: a member of the processor's space, with a consumer for each partition it holds.
//! Refuses to know records; it moves leases, entries and acknowledgements.

mod acker;
mod consumer;
mod fetcher;
mod lag_reporter;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::join_all;
use squall_coord::{
    Lease, LeaseEvent, MemberId, Membership, MembershipConfig, MembershipConfigError, MembershipHandle,
    RedisLeaseStore, UnitId,
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::consumer::ConsumerConfig;
use crate::{
    executor_context::ExecutorContext,
    leased_partition::{FenceOutcome, LeasedPartition, PartitionError},
    metrics::add,
    names::{NameError, Namespace, ProcessorName},
    partition_buffer::PartitionBuffer,
    processor::{Processor, ZeroSettingError},
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
    Settings(#[from] ZeroSettingError),
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
    consumer_config: Arc<ConsumerConfig>,
    client: squall_coord::RedisClient,
    namespace: Namespace,
    member: MemberId,
    membership: MembershipHandle,
    buffers: BTreeMap<Lease, Arc<PartitionBuffer>>,
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
        heartbeat_interval: settings.heartbeat_interval,
        ttl: settings.lease_ttl,
        join_delay: settings.join_delay,
        ..MembershipConfig::new(member.clone(), units)
    };
    let link = processor.client.clone();
    let namespace = processor.namespace.clone();
    let (seat, handle) = Membership::new(RedisLeaseStore::new(&link, namespace.lease_keys(&name)), config)?;
    let hub = ExecutorContext::new(name, settings, processor.metrics.clone());
    let policy = processor.policy;
    let (invoke, middleware) = processor.into_function();
    let mut services = JoinSet::new();
    services.spawn(fetcher::run_fetcher(hub.clone()));
    services.spawn(fetcher::watch_idle(hub.clone(), link.clone()));
    services.spawn(acker::run_acker(hub.clone()));
    services.spawn(renew_fences(hub.clone()));
    services.spawn(lag_reporter::run_lag_reporter(hub.clone(), link.clone(), namespace.clone()));
    let job = Arc::new(ConsumerConfig { context: hub, function: invoke, middleware, policy });
    let stop = stop.child_token();
    let executor = Executor {
        consumer_config: job,
        client: link,
        namespace,
        member,
        membership: handle,
        buffers: BTreeMap::new(),
        stop,
    };
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
                        Ok((lease, ended)) => { self.finish_partition(lease); ended }
                        Err(_) => Err(ExecutorError::Task(self.consumer_config.context.processor.clone())),
                    };
                    if ended.is_err() && outcome.is_ok() {
                        outcome = ended;
                        stop.cancel();
                    }
                }
                notice = self.membership.events.recv() => match notice {
                    Some(notice) => self.handle_lease_event(notice, &mut consumers),
                    None => break, // the seat has left
                },
                Some(_) = services.join_next() => {
                    outcome = Err(ExecutorError::Task(self.consumer_config.context.processor.clone()));
                    stop.cancel();
                }
            }
        }
        consumers.shutdown().await;
        seated.shutdown().await;
        outcome
    }

    fn handle_lease_event(&mut self, notice: LeaseEvent, consumers: &mut JoinSet<(Lease, Result<(), ExecutorError>)>) {
        match notice {
            LeaseEvent::Granted(lease) => self.start_partition(lease, consumers),
            LeaseEvent::Drain(lease) => {
                if let Some(lane) = self.buffers.get(&lease) {
                    lane.drain.cancel();
                }
            }
            LeaseEvent::Lost(lease) => {
                if let Some(lane) = self.buffers.get(&lease) {
                    warn!(processor = %self.consumer_config.context.processor, partition = %lease.unit, epoch = %lease.epoch, "lease lost");
                    lane.abort.cancel();
                }
            }
        }
    }

    fn start_partition(&mut self, lease: Lease, consumers: &mut JoinSet<(Lease, Result<(), ExecutorError>)>) {
        let Ok(number) = lease.unit.as_str().parse() else {
            // Only partitions are ever assigned here; whatever else it is, it is not ours to use.
            return self.membership.release(lease);
        };
        let hub = &self.consumer_config.context;
        info!(processor = %hub.processor, partition = number, epoch = %lease.epoch, member = %self.member, "partition taken");
        add(&hub.metrics.granted, 1);
        add(&hub.metrics.held, 1);
        let claim = (self.member.clone(), lease.epoch, hub.settings.lease_ttl);
        let partition = LeasedPartition::new(&self.client, &self.namespace, &hub.processor, number, claim);
        let (tenure, drain) = (self.membership.validity.clone(), self.stop.child_token());
        let lane = PartitionBuffer::new(partition, lease.clone(), tenure, drain, hub.clone());
        self.buffers.insert(lease.clone(), lane.clone());
        let job = self.consumer_config.clone();
        consumers.spawn(async move { (lease, consumer::consume(lane, job).await) });
    }

    fn finish_partition(&mut self, lease: Lease) {
        let hub = &self.consumer_config.context;
        info!(processor = %hub.processor, partition = %lease.unit, epoch = %lease.epoch, "partition given back");
        add(&hub.metrics.returned, 1);
        hub.metrics.held.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        self.buffers.remove(&lease);
        self.membership.release(lease);
    }
}

/// Keeps the fences of all lanes up, for ever.
async fn renew_fences(hub: Arc<ExecutorContext>) {
    let mut beats = interval(hub.settings.heartbeat_interval);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let lanes = hub.buffers();
        let answers =
            join_all(lanes.iter().map(|lane| async { (lane.quarantine_count(), lane.partition.renew().await) })).await;
        for (lane, (marks, answer)) in lanes.iter().zip(answers) {
            match answer {
                Ok(FenceOutcome::Done(quarantined)) => lane.sync_quarantine(quarantined, marks),
                Ok(FenceOutcome::FencedOff) => lane.abort_fenced(),
                Err(error) => hub.log_retry("renewing the fence", lane.partition.number, &error),
            }
        }
    }
}
