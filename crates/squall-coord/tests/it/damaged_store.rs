//! Memberships on a Redis whose keys someone deletes or changes during the run: members get their units
//! back, and they send few commands while the store is damaged.

use std::{collections::BTreeMap, time::Duration};

use squall_coord::{
    LeaseEpoch, LeaseEvent, LeaseStore, Membership, MembershipConfig, RedisClient, RedisLeaseStore, UnitId,
};
use squall_testkit::redis::RedisServer;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::support::{keys, member, redis_lease_store, units};

const UNITS: u32 = 8;

/// Two members that share the units of one store until they are dropped.
struct TwoMembers {
    server: RedisServer,
    client: RedisClient,
    store: RedisLeaseStore,
    _tasks: JoinSet<()>,
}

impl TwoMembers {
    /// Returns when the members hold all units.
    async fn start() -> TwoMembers {
        let server = RedisServer::start();
        let client = RedisClient::open(&server.url()).await.expect("the server runs");
        let store = redis_lease_store(&server, "damaged").await;
        let mut tasks = JoinSet::new();
        for name in ["a", "b"] {
            let heartbeat_interval = Duration::from_millis(100);
            let config = MembershipConfig { heartbeat_interval, ..MembershipConfig::new(member(name), units(UNITS)) };
            // A connection of its own for each member, as in two processes.
            let (membership, mut handle) =
                Membership::new(redis_lease_store(&server, "damaged").await, config).expect("a sound configuration");
            tasks.spawn(membership.run(CancellationToken::new()));
            tasks.spawn(async move {
                while let Some(event) = handle.events.recv().await {
                    if let LeaseEvent::ReturnRequested(lease) = event {
                        handle.release(lease);
                    }
                }
            });
        }
        let members = TwoMembers { server, client, store, _tasks: tasks };
        members.all_units_held_above(LeaseEpoch(0)).await;
        members
    }

    /// Waits until both members hold all units under epochs above `epoch`. Returns the highest epoch.
    async fn all_units_held_above(&self, epoch: LeaseEpoch) -> LeaseEpoch {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let snapshot = self.store.snapshot().await.expect("the server runs");
            let epochs: BTreeMap<&UnitId, LeaseEpoch> =
                snapshot.leases.iter().map(|(unit, holder)| (unit, holder.epoch)).collect();
            if epochs.len() == UNITS as usize
                && epochs.values().all(|held| *held > epoch)
                && snapshot.members.len() == 2
            {
                return *epochs.values().max().expect("there are units");
            }
            assert!(Instant::now() < deadline, "{snapshot:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn redis<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.client.connection()).await.expect("the server runs")
    }

    /// How often `command` was called, by clients or by scripts.
    async fn calls(&self, command: &str) -> u64 {
        let stats: String = self.redis(&["INFO", "commandstats"]).await;
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    /// How many scripts and waits for changes the members send during their next 40 heartbeats.
    async fn commands_in_40_heartbeats(&self) -> u64 {
        let commands = async || self.calls("evalsha").await + self.calls("xread").await;
        let (before, first) = (commands().await, self.calls("zadd").await);
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.calls("zadd").await < first + 40 {
            assert!(Instant::now() < deadline, "the members send no heartbeats");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        commands().await - before
    }
}

/// Damages the store, and checks that the members hold all units again and do not spin.
async fn check_recovery(damage: &[&str], leases_lost: bool) {
    let members = TwoMembers::start().await;
    let highest = members.all_units_held_above(LeaseEpoch(0)).await;
    let _: redis::Value = members.redis(damage).await;
    let commands = members.commands_in_40_heartbeats().await;
    assert!(commands < 400, "{damage:?}: {commands} commands in 40 heartbeats");
    members.all_units_held_above(if leases_lost { highest } else { LeaseEpoch(0) }).await;
    let commands = members.commands_in_40_heartbeats().await;
    assert!(commands < 200, "{damage:?}: {commands} commands in 40 heartbeats after the recovery");
    assert!(members.server.port() > 0, "the server lives to the end of the test");
}

#[tokio::test]
async fn members_recover_from_deleted_leases_without_spinning() {
    check_recovery(&["DEL", &keys("damaged").leases], true).await;
}

#[tokio::test]
async fn members_recover_from_deleted_leases_and_control_stream() {
    let keys = keys("damaged");
    check_recovery(&["DEL", &keys.leases, &keys.control], true).await;
}

#[tokio::test]
async fn members_recover_from_a_deleted_members_record() {
    check_recovery(&["DEL", &keys("damaged").members], false).await;
}

/// Other programs write an empty record in other forms.
#[tokio::test]
async fn member_joins_a_record_without_members_whatever_its_spaces() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.expect("the server runs");
    for (number, record) in ["{}", "{ }", "{\n}", " { } "].into_iter().enumerate() {
        let namespace = format!("spaces-{number}");
        let store = redis_lease_store(&server, &namespace).await;
        let mut set = redis::cmd("SET");
        let () = set.arg(&*keys(&namespace).members).arg(record).query_async(&mut client.connection()).await.unwrap();
        store.join(&member("a"), Duration::from_secs(60)).await.unwrap();
        store.join(&member("b"), Duration::from_secs(60)).await.unwrap();
        let members = store.snapshot().await.unwrap_or_else(|error| panic!("{record:?}: {error}")).members;
        assert_eq!(members.iter().map(|member| member.id.as_str()).collect::<Vec<_>>(), ["a", "b"], "{record:?}");
    }
}

#[tokio::test]
async fn members_recover_from_a_deleted_list_of_live_members() {
    check_recovery(&["DEL", &keys("damaged").live], false).await;
}

#[tokio::test]
async fn members_do_not_spin_on_a_control_stream_ahead_of_the_revision() {
    check_recovery(&["XADD", &keys("damaged").control, "999999-0", "reason", "none"], false).await;
}
