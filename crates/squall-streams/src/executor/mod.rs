//! Runs one processor in one worker: a member of the processor's lease store, with a consumer for
//! each partition that it holds. Handles leases, entries and acknowledgements; does not decode
//! records. [`crate::AppWorker`] starts it.

mod acker;
mod consumer;
mod fetcher;
mod lag_reporter;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::join_all;
use squall_coord::{
    Lease, LeaseEvent, MemberId, Membership, MembershipConfig, MembershipConfigError, MembershipHandle,
    RedisLeaseStore, StoreError, UnitId,
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

/// Why a processor ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The name of the processor is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The heartbeat interval is zero, or the lease is too short for it.
    #[error(transparent)]
    Timing(#[from] MembershipConfigError),
    /// A setting is zero.
    #[error(transparent)]
    Settings(#[from] ZeroSettingError),
    /// Processing failed, and the failure policy is halt.
    #[error(
        "processor `{processor}` halted at event {at} of partition {partition}: {error}. The partition is in quarantine; fix \
         the cause, then run `squall stream quarantine {processor} --clear {partition}` (add --skip to drop the event)"
    )]
    Halted {
        /// The processor.
        processor: ProcessorName,
        /// The partition.
        partition: u32,
        /// The first failed event; empty if no event was outstanding.
        at: String,
        /// The error of the processor, with its causes.
        error: String,
    },
    /// A key of a partition holds another type.
    #[error(transparent)]
    Partition(PartitionError),
    /// The key of the leader holds another type.
    #[error("the worker cannot run tasks of the leader: {0}")]
    UnusableLeaderKey(StoreError),
    /// A key by which workers coordinate holds data of another kind.
    #[error("processor `{processor}` cannot share its partitions: {error}")]
    UnusableStore {
        /// The processor.
        processor: ProcessorName,
        /// Which key, and what to do.
        error: StoreError,
    },
    /// A bug in this crate.
    #[error("a task of processor `{0}` ended unexpectedly; this is a bug in squall-streams")]
    Task(ProcessorName),
}

struct Executor {
    consumer_config: Arc<ConsumerConfig>,
    client: squall_coord::RedisClient,
    namespace: Namespace,
    member: MemberId,
    membership: MembershipHandle,
    buffers: BTreeMap<Lease, Arc<PartitionBuffer>>,
    /// Drains all partitions directly, because the drain events of the membership may arrive a
    /// round trip later.
    stop: CancellationToken,
}

/// Runs a processor until `stop` is cancelled, then drains it. After an error, it also drains the
/// other partitions before it returns.
pub(crate) async fn execute(processor: Processor, stop: CancellationToken) -> Result<(), ExecutorError> {
    let name = processor.name.clone()?;
    let settings = processor.settings.clone();
    settings.check()?;
    let member = MemberId::unique();
    let units = (0..processor.partitions).map(UnitId::from).collect();
    let membership_config = MembershipConfig {
        heartbeat_interval: settings.heartbeat_interval,
        ttl: settings.lease_ttl,
        join_delay: settings.join_delay,
        ..MembershipConfig::new(member.clone(), units)
    };
    let client = processor.client.clone();
    let namespace = processor.namespace.clone();
    let (membership, membership_handle) =
        Membership::new(RedisLeaseStore::new(&client, namespace.lease_keys(&name)), membership_config)?;
    let context = ExecutorContext::new(name, settings, processor.metrics.clone());
    let policy = processor.policy;
    let (function, middleware) = processor.into_function();
    let mut services = JoinSet::new();
    services.spawn(fetcher::run_fetcher(context.clone()));
    services.spawn(fetcher::watch_idle(context.clone(), client.clone()));
    services.spawn(acker::run_acker(context.clone()));
    services.spawn(renew_fences(context.clone()));
    services.spawn(lag_reporter::run_lag_reporter(context.clone(), client.clone(), namespace.clone()));
    let consumer_config = Arc::new(ConsumerConfig { context, function, middleware, policy });
    let stop = stop.child_token();
    let executor = Executor {
        consumer_config,
        client,
        namespace,
        member,
        membership: membership_handle,
        buffers: BTreeMap::new(),
        stop,
    };
    let outcome = executor.run(membership, &mut services).await;
    services.shutdown().await;
    outcome
}

impl Executor {
    async fn run(
        mut self,
        membership: Membership<RedisLeaseStore>,
        services: &mut JoinSet<()>,
    ) -> Result<(), ExecutorError> {
        let stop = self.stop.clone();
        let mut membership_task = JoinSet::new();
        membership_task.spawn(membership.run(stop.clone()));
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
                event = self.membership.events.recv() => match event {
                    Some(event) => self.handle_lease_event(event, &mut consumers),
                    None => break, // the membership has ended
                },
                Some(error) = self.membership.unusable_store.recv() => {
                    let processor = self.consumer_config.context.processor.clone();
                    outcome = outcome.and(Err(ExecutorError::UnusableStore { processor, error }));
                    stop.cancel();
                }
                Some(_) = services.join_next() => {
                    outcome = Err(ExecutorError::Task(self.consumer_config.context.processor.clone()));
                    stop.cancel();
                }
            }
        }
        consumers.shutdown().await;
        membership_task.shutdown().await;
        outcome
    }

    fn handle_lease_event(&mut self, event: LeaseEvent, consumers: &mut JoinSet<(Lease, Result<(), ExecutorError>)>) {
        match event {
            LeaseEvent::Granted(lease) => self.start_partition(lease, consumers),
            LeaseEvent::ReturnRequested(lease) => {
                if let Some(buffer) = self.buffers.get(&lease) {
                    buffer.drain.cancel();
                }
            }
            LeaseEvent::Lost(lease) => {
                if let Some(buffer) = self.buffers.get(&lease) {
                    warn!(processor = %self.consumer_config.context.processor, partition = %lease.unit, epoch = %lease.epoch, "lease lost");
                    buffer.abort.cancel();
                }
            }
        }
    }

    fn start_partition(&mut self, lease: Lease, consumers: &mut JoinSet<(Lease, Result<(), ExecutorError>)>) {
        let Ok(number) = lease.unit.as_str().parse() else {
            // The lease store assigns only partition numbers here. Releases any other unit without
            // using it.
            return self.membership.release(lease);
        };
        let context = &self.consumer_config.context;
        info!(processor = %context.processor, partition = number, epoch = %lease.epoch, member = %self.member, "partition taken");
        add(&context.metrics.granted, 1);
        add(&context.metrics.held, 1);
        let owner = (self.member.clone(), lease.epoch, context.settings.lease_ttl);
        let partition = LeasedPartition::new(&self.client, &self.namespace, &context.processor, number, owner);
        let (membership_validity, drain) = (self.membership.validity.clone(), self.stop.child_token());
        let buffer = PartitionBuffer::new(partition, lease.clone(), membership_validity, drain, context.clone());
        self.buffers.insert(lease.clone(), buffer.clone());
        let consumer_config = self.consumer_config.clone();
        consumers.spawn(async move { (lease, consumer::consume(buffer, consumer_config).await) });
    }

    fn finish_partition(&mut self, lease: Lease) {
        let context = &self.consumer_config.context;
        info!(processor = %context.processor, partition = %lease.unit, epoch = %lease.epoch, "partition given back");
        add(&context.metrics.returned, 1);
        context.metrics.held.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        self.buffers.remove(&lease);
        self.membership.release(lease);
    }
}

/// Renews the fences of all held partitions until the task is aborted.
async fn renew_fences(context: Arc<ExecutorContext>) {
    let mut ticks = interval(context.settings.heartbeat_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let buffers = context.buffers();
        let outcomes = join_all(
            buffers.iter().map(|buffer| async { (buffer.quarantine_count(), buffer.partition.renew().await) }),
        )
        .await;
        for (buffer, (quarantine_count, outcome)) in buffers.iter().zip(outcomes) {
            match outcome {
                Ok(FenceOutcome::Done(quarantined)) => buffer.sync_quarantine(quarantined, quarantine_count),
                Ok(FenceOutcome::FencedOff) => buffer.abort_fenced(),
                Err(error) => context.log_retry("renewing the fence", buffer.partition.number, &error),
            }
        }
    }
}
