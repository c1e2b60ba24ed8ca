//! Connections with every kind of address, against real servers: TLS, ACL users, a socket, Sentinel
//! with a failover, a cluster.

use std::{collections::BTreeSet, error::Error, time::Duration};

use squall_coord::{
    ItemId, LeaseAcquireOutcome, LeaseStore, PoolItem, PoolName, PoolReleaseOutcome, PoolStore, RedisClient,
    RedisConnectError, ResourceHolder, RunEpoch, StoreError,
};
use squall_testkit::{
    redis::{RedisCluster, RedisServer, SentinelGroup},
    tls::{CertificateAuthority, CertificateValidity},
};

use crate::support::{RedisTestStores, TestStores, keys, member, units};

const TTL: Duration = Duration::from_secs(600);

async fn ping(client: &RedisClient) -> String {
    ::redis::cmd("PING").query_async(&mut client.connection()).await.unwrap()
}

async fn assert_blocking_read_times_out(client: &RedisClient) {
    let mut read = ::redis::cmd("XREAD");
    read.arg("BLOCK").arg(1).arg("STREAMS").arg("nothing").arg("0");
    let answer: ::redis::Value = client.blocking_connection().query(&read, Duration::from_millis(1)).await.unwrap();
    assert_eq!(answer, ::redis::Value::Nil);
}

/// Publishes until the message arrives, because a subscriber cannot know when other nodes know of
/// its subscription.
async fn assert_pubsub_delivers(client: &RedisClient) {
    use futures_util::StreamExt;
    let mut subscription = client.open_pubsub().await.unwrap();
    subscription.subscribe("squall:news").await.unwrap();
    let mut messages = subscription.on_message();
    let publish = async {
        loop {
            let mut command = ::redis::cmd("PUBLISH");
            let _: i64 = command.arg("squall:news").arg("hello").query_async(&mut client.connection()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        message = messages.next() => assert_eq!(message.unwrap().get_payload::<String>().unwrap(), "hello"),
        () = publish => {}
    }
}

#[track_caller]
fn assert_connect_rejected(outcome: Result<RedisClient, RedisConnectError>, reason: &str) {
    let error = outcome.expect_err("the server rejects the login");
    let message = format!("{error} {:?}", error.source());
    assert!(matches!(error, RedisConnectError::Connect { .. }), "{message}");
    assert!(message.contains(reason), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
}

/// A server with TLS, and with client certificates if `clients` is "yes".
fn tls_server(authority: &CertificateAuthority, clients: &str) -> (RedisServer, u16) {
    let identity = authority.issue(&["127.0.0.1"], CertificateValidity::Current);
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let (cert, key, ca) = (identity.cert_file, identity.key_file, authority.ca_file());
    let [cert, key, ca] = [&cert, &key, &ca].map(|path| path.to_str().unwrap());
    let tls_port = port.to_string();
    let mut arguments = vec!["--save", "", "--tls-port", &tls_port, "--tls-cert-file", cert, "--tls-key-file", key];
    arguments.extend(["--tls-ca-cert-file", ca, "--tls-auth-clients", clients]);
    (RedisServer::start_with(&arguments), port)
}

#[tokio::test]
async fn tls_with_a_custom_ca_connects() {
    let authority = CertificateAuthority::new();
    let (_server, port) = tls_server(&authority, "no");
    let ca = authority.ca_file();
    let client = RedisClient::open(&format!("rediss://127.0.0.1:{port}/?ca={}", ca.display())).await.unwrap();
    assert_eq!(ping(&client).await, "PONG");
    assert_blocking_read_times_out(&client).await;
    assert_pubsub_delivers(&client).await;
    assert_connect_rejected(RedisClient::open(&format!("rediss://127.0.0.1:{port}/")).await, "UnknownIssuer");
    let deleted_ca = CertificateAuthority::new().ca_file();
    // The file is deleted with its authority; the error says that it cannot be read.
    assert_connect_rejected(
        RedisClient::open(&format!("rediss://127.0.0.1:{port}/?ca={}", deleted_ca.display())).await,
        "cannot read a file",
    );
    for insecure in ["?insecure=true", "#insecure"] {
        let client = RedisClient::open(&format!("rediss://127.0.0.1:{port}/{insecure}")).await.unwrap();
        assert_eq!(ping(&client).await, "PONG");
    }
}

#[tokio::test]
async fn tls_with_a_client_certificate_connects() {
    let authority = CertificateAuthority::new();
    let (_server, port) = tls_server(&authority, "yes");
    let client = authority.issue(&["worker"], CertificateValidity::Current);
    let ca = authority.ca_file();
    let with_certificate = format!(
        "rediss://127.0.0.1:{port}/?ca={}&cert={}&key={}",
        ca.display(),
        client.cert_file.display(),
        client.key_file.display()
    );
    assert_eq!(ping(&RedisClient::open(&with_certificate).await.unwrap()).await, "PONG");
    assert!(RedisClient::open(&format!("rediss://127.0.0.1:{port}/?ca={}", ca.display())).await.is_err());
}

#[tokio::test]
async fn acl_user_connects_and_is_limited_to_its_keys() {
    let server = RedisServer::start_with(&[
        "--save",
        "",
        "--requirepass",
        "s3cret-default",
        "--user",
        "worker",
        "on",
        ">s3cret",
        "~squall:*",
        "+@all",
        "-@dangerous",
    ]);
    let url = |login: &str| format!("redis://{login}127.0.0.1:{}/0", server.port());
    let client = RedisClient::open(&url("worker:s3cret@")).await.unwrap();
    assert!(!client.url().contains("s3cret") && !format!("{client:?}").contains("s3cret"));
    // The documented ACL is sufficient for members and pools.
    let stores = RedisTestStores::new(&client, "acl");
    stores.members().join(&member("a"), TTL).await.unwrap();
    acquire_and_release(&stores).await;
    let outside: Result<String, _> = ::redis::cmd("GET").arg("other").query_async(&mut client.connection()).await;
    assert!(outside.unwrap_err().to_string().contains("permission"));
    let error = squall_coord::RedisLeaseStore::new(&client, keys("outside")).join(&member("a"), TTL).await.unwrap_err();
    assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
    assert_eq!(ping(&RedisClient::open(&url(":s3cret-default@")).await.unwrap()).await, "PONG");
    assert_connect_rejected(RedisClient::open(&url("worker:s3cret-wrong@")).await, "authentication");
    assert_connect_rejected(RedisClient::open(&url("")).await, "uthentication required");
}

#[tokio::test]
async fn unix_socket_connects() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let _server = RedisServer::start_with(&["--save", "", "--unixsocket", socket.to_str().unwrap()]);
    let client = RedisClient::open(&format!("unix://{}?db=2", socket.display())).await.unwrap();
    assert_eq!(ping(&client).await, "PONG");
    assert_blocking_read_times_out(&client).await;
    assert_pubsub_delivers(&client).await;
}

#[tokio::test]
async fn client_reconnects_after_a_server_restart() {
    let mut server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "back");
    stores.members().join(&member("a"), TTL).await.unwrap();
    server.kill();
    assert!(matches!(stores.members().snapshot().await, Err(StoreError::Unreachable(_))));
    server.restart();
    // The server is empty now, so the member has to join again.
    loop {
        match stores.members().snapshot().await {
            Ok(snapshot) => break assert!(snapshot.members.is_empty()),
            Err(StoreError::Unreachable(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    stores.members().join(&member("a"), TTL).await.unwrap();
    acquire_and_release(&stores).await;
}

/// A starting server responds before it has loaded its data; that must not count as a rejection.
#[tokio::test]
async fn loading_server_counts_as_unreachable() {
    let mut server = RedisServer::start_persistent();
    server.write_filler_keys();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "loading");
    stores.members().join(&member("a"), TTL).await.unwrap();
    server.restart_loading_slowly();
    let mut errors = Vec::new();
    loop {
        match stores.members().snapshot().await {
            Ok(snapshot) => break assert_eq!(snapshot.members.len(), 1),
            Err(StoreError::Unreachable(error)) => errors.push(error.to_string()),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(!errors.is_empty(), "the server was never loading");
}

/// A failed login must not prevent later reconnects.
#[tokio::test]
async fn client_reconnects_after_a_failed_login() {
    let server = RedisServer::start_with(&["--save", "", "--requirepass", "secret"]);
    let url = format!("redis://:secret@127.0.0.1:{}/", server.port());
    let (client, admin) = (RedisClient::open(&url).await.unwrap(), RedisClient::open(&url).await.unwrap());
    let stores = RedisTestStores::new(&client, "login");
    let admin_command = async |words: &[&str]| {
        let mut admin_command = ::redis::cmd(words[0]);
        admin_command.arg(&words[1..]).query_async::<::redis::Value>(&mut admin.connection()).await.unwrap();
    };
    admin_command(&["CONFIG", "SET", "requirepass", "another"]).await;
    admin_command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    while !matches!(stores.members().snapshot().await, Err(StoreError::Rejected(_))) {}
    admin_command(&["CONFIG", "SET", "requirepass", "secret"]).await;
    while stores.members().snapshot().await.is_err() {}
}

/// Acquires the only item twice; the second request waits for the release.
async fn acquire_and_release(stores: &RedisTestStores) {
    let pool = PoolName::new("items").unwrap();
    let item = PoolItem { id: ItemId::from(1), payload: "one".into() };
    stores.pools().put(&pool, &[item], None, None).await.unwrap();
    let holder = ResourceHolder::new(stores.pools().clone(), member("a"), RunEpoch(1));
    let lease = holder.acquire(&pool, Duration::ZERO).await.unwrap();
    let (waiter, wanted) = (holder.clone(), pool.clone());
    let waiting = tokio::spawn(async move { waiter.acquire(&wanted, Duration::from_secs(60)).await });
    while stores.pools().count_all().await.unwrap().pools[0].waiting == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(holder.release(&lease).await.unwrap(), PoolReleaseOutcome::Released);
    let second_lease = waiting.await.unwrap().unwrap();
    assert_eq!((second_lease.payload.as_str(), &second_lease.id), ("one", &lease.id));
    assert_eq!(holder.release(&second_lease).await.unwrap(), PoolReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_client_follows_a_failover() {
    let mut group = SentinelGroup::start();
    let client = RedisClient::open(&group.url()).await.unwrap();
    let stores = RedisTestStores::new(&client, "sentinel");
    stores.members().join(&member("a"), TTL).await.unwrap();
    acquire_and_release(&stores).await;
    group.kill_master();
    let group = tokio::task::spawn_blocking(move || {
        group.await_promotion();
        group
    });
    // No call hangs meanwhile. Afterwards the same client works again, for commands and for
    // blocking reads.
    while !group.is_finished() {
        let _ = stores.members().snapshot().await;
    }
    let _group = group.await.unwrap();
    while let Err(error) = stores.members().join(&member("b"), TTL).await {
        assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    }
    stores.members().join(&member("a"), TTL).await.unwrap();
    assert!(matches!(
        stores.members().acquire(&member("b"), &units(1)).await.unwrap(),
        LeaseAcquireOutcome::Granted(_)
    ));
    acquire_and_release(&stores).await;
    assert_pubsub_delivers(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_spreads_fleets_over_all_nodes() {
    let cluster = RedisCluster::start();
    let client = RedisClient::open(&cluster.url()).await.unwrap();
    assert!(client.is_cluster());
    assert_blocking_read_times_out(&client).await;
    assert_pubsub_delivers(&client).await;
    let mut nodes = BTreeSet::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let stores = RedisTestStores::new(&client, name);
        let seen = stores.members().join(&member("a"), TTL).await.unwrap();
        let watching = stores.members().clone();
        let watcher = tokio::spawn(async move { watching.wait_for_change(seen, Duration::from_secs(50)).await });
        stores.members().join(&member("b"), TTL).await.unwrap();
        tokio::time::timeout(Duration::from_secs(40), watcher).await.expect("woken").unwrap().unwrap();
        assert!(matches!(
            stores.members().acquire(&member("a"), &units(3)).await.unwrap(),
            LeaseAcquireOutcome::Granted(_)
        ));
        assert_eq!(stores.members().snapshot().await.unwrap().leases.len(), 3);
        acquire_and_release(&stores).await;
        assert_eq!(stores.pools().sweep().await.unwrap(), 0);
        assert_eq!(stores.pools().list(&PoolName::new("items").unwrap(), 10).await.unwrap().len(), 1);
        let mut slot = ::redis::cmd("CLUSTER");
        slot.arg("KEYSLOT").arg(format!("squall:{{{name}}}:resources"));
        let slot: u32 = slot.query_async(&mut client.connection()).await.unwrap();
        nodes.insert(slot * 3 / 16384);
    }
    assert_eq!(nodes.len(), 3, "the fleets are on all nodes");
}
