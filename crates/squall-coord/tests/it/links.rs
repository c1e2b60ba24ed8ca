//! Connections by every kind of address, against real servers: TLS, ACL users, a socket, Sentinel with a failover, a cluster.

use std::{collections::BTreeSet, error::Error, time::Duration};

use squall_coord::{
    Epoch, ItemId, LeaseAcquireOutcome, LeaseStore, PoolItem, PoolName, PoolReleaseOutcome, PoolStore, RedisClient,
    RedisConnectError, ResourceHolder, StoreError,
};
use squall_testkit::{
    redis::{RedisCluster, RedisServer, SentinelGroup},
    tls::{CertificateAuthority, CertificateValidity},
};

use crate::support::{Cell, RedisCell, keys, member, units};

const TTL: Duration = Duration::from_secs(600);

async fn ping(link: &RedisClient) -> String {
    ::redis::cmd("PING").query_async(&mut link.connection()).await.unwrap()
}

/// A blocking read that finds nothing.
async fn waits(link: &RedisClient) {
    let mut read = ::redis::cmd("XREAD");
    read.arg("BLOCK").arg(1).arg("STREAMS").arg("nothing").arg("0");
    let answer: ::redis::Value = link.blocking_connection().query(&read, Duration::from_millis(1)).await.unwrap();
    assert_eq!(answer, ::redis::Value::Nil);
}

/// Says something on a channel until it is heard: whoever subscribes is not told when others know of it.
async fn hears(link: &RedisClient) {
    use futures_util::StreamExt;
    let mut subscription = link.open_pubsub().await.unwrap();
    subscription.subscribe("squall:news").await.unwrap();
    let mut messages = subscription.on_message();
    let speak = async {
        loop {
            let mut say = ::redis::cmd("PUBLISH");
            let _: i64 = say.arg("squall:news").arg("hello").query_async(&mut link.connection()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        message = messages.next() => assert_eq!(message.unwrap().get_payload::<String>().unwrap(), "hello"),
        () = speak => {}
    }
}

#[track_caller]
fn refused(outcome: Result<RedisClient, RedisConnectError>, why: &str) {
    let error = outcome.expect_err("not let in");
    let all = format!("{error} {:?}", error.source());
    assert!(matches!(error, RedisConnectError::Connect { .. }), "{all}");
    assert!(all.contains(why), "{all}");
    assert!(!all.contains("s3cret"), "{all}");
}

/// A server that speaks TLS on the port it answers, with client certificates if wanted.
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
async fn tls_with_an_authority_of_ones_own() {
    let authority = CertificateAuthority::new();
    let (_server, port) = tls_server(&authority, "no");
    let ca = authority.ca_file();
    let link = RedisClient::open(&format!("rediss://127.0.0.1:{port}/?ca={}", ca.display())).await.unwrap();
    assert_eq!(ping(&link).await, "PONG");
    waits(&link).await;
    hears(&link).await;
    refused(RedisClient::open(&format!("rediss://127.0.0.1:{port}/")).await, "UnknownIssuer");
    let stranger = CertificateAuthority::new().ca_file();
    // Gone with its authority: a file that cannot be read is told by name.
    refused(
        RedisClient::open(&format!("rediss://127.0.0.1:{port}/?ca={}", stranger.display())).await,
        "cannot read a file",
    );
    for trusting in ["?insecure=true", "#insecure"] {
        let link = RedisClient::open(&format!("rediss://127.0.0.1:{port}/{trusting}")).await.unwrap();
        assert_eq!(ping(&link).await, "PONG");
    }
}

#[tokio::test]
async fn tls_with_a_certificate_to_be_known_by() {
    let authority = CertificateAuthority::new();
    let (_server, port) = tls_server(&authority, "yes");
    let client = authority.issue(&["worker"], CertificateValidity::Current);
    let ca = authority.ca_file();
    let known = format!(
        "rediss://127.0.0.1:{port}/?ca={}&cert={}&key={}",
        ca.display(),
        client.cert_file.display(),
        client.key_file.display()
    );
    assert_eq!(ping(&RedisClient::open(&known).await.unwrap()).await, "PONG");
    assert!(RedisClient::open(&format!("rediss://127.0.0.1:{port}/?ca={}", ca.display())).await.is_err());
}

#[tokio::test]
async fn users_are_let_in_with_their_password_and_may_do_what_the_acl_allows() {
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
    let link = RedisClient::open(&url("worker:s3cret@")).await.unwrap();
    assert!(!link.url().contains("s3cret") && !format!("{link:?}").contains("s3cret"));
    // What documentation asks of an ACL is enough for members and pools.
    let cell = RedisCell::new(&link, "acl");
    cell.members().join(&member("a"), TTL).await.unwrap();
    borrow_and_return(&cell).await;
    let outside: Result<String, _> = ::redis::cmd("GET").arg("other").query_async(&mut link.connection()).await;
    assert!(outside.unwrap_err().to_string().contains("permission"));
    let error = squall_coord::RedisLeaseStore::new(&link, keys("outside")).join(&member("a"), TTL).await.unwrap_err();
    assert!(matches!(error, StoreError::Rejected(_)), "{error:?}");
    assert_eq!(ping(&RedisClient::open(&url(":s3cret-default@")).await.unwrap()).await, "PONG");
    refused(RedisClient::open(&url("worker:s3cret-wrong@")).await, "authentication");
    refused(RedisClient::open(&url("")).await, "uthentication required");
}

#[tokio::test]
async fn a_socket_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let _server = RedisServer::start_with(&["--save", "", "--unixsocket", socket.to_str().unwrap()]);
    let link = RedisClient::open(&format!("unix://{}?db=2", socket.display())).await.unwrap();
    assert_eq!(ping(&link).await, "PONG");
    waits(&link).await;
    hears(&link).await;
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_again() {
    let mut server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let cell = RedisCell::new(&link, "back");
    cell.members().join(&member("a"), TTL).await.unwrap();
    server.kill();
    assert!(matches!(cell.members().snapshot().await, Err(StoreError::Unreachable(_))));
    server.restart();
    // Empty now: the member is a stranger, and joins again.
    loop {
        match cell.members().snapshot().await {
            Ok(view) => break assert!(view.members.is_empty()),
            Err(StoreError::Unreachable(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    cell.members().join(&member("a"), TTL).await.unwrap();
    borrow_and_return(&cell).await;
}

/// A server that was just started answers before it has read its data, and whoever asked it then took that for a refusal.
#[tokio::test]
async fn a_server_that_is_loading_is_away_and_refuses_nothing() {
    let mut server = RedisServer::start_persistent();
    server.write_filler_keys();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let cell = RedisCell::new(&link, "loading");
    cell.members().join(&member("a"), TTL).await.unwrap();
    server.restart_loading_slowly();
    let mut said = Vec::new();
    loop {
        match cell.members().snapshot().await {
            Ok(view) => break assert_eq!(view.members.len(), 1),
            Err(StoreError::Unreachable(error)) => said.push(error.to_string()),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(!said.is_empty(), "it was never away");
}

/// After one login that failed nobody connected again, until the process was started anew.
#[tokio::test]
async fn a_login_that_failed_is_tried_again() {
    let server = RedisServer::start_with(&["--save", "", "--requirepass", "secret"]);
    let url = format!("redis://:secret@127.0.0.1:{}/", server.port());
    let (link, boss) = (RedisClient::open(&url).await.unwrap(), RedisClient::open(&url).await.unwrap());
    let cell = RedisCell::new(&link, "login");
    let order = async |words: &[&str]| {
        let mut order = ::redis::cmd(words[0]);
        order.arg(&words[1..]).query_async::<::redis::Value>(&mut boss.connection()).await.unwrap();
    };
    order(&["CONFIG", "SET", "requirepass", "another"]).await;
    order(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    while !matches!(cell.members().snapshot().await, Err(StoreError::Rejected(_))) {}
    order(&["CONFIG", "SET", "requirepass", "secret"]).await;
    while cell.members().snapshot().await.is_err() {}
}

/// One thing goes from hand to hand; the second waits for it.
async fn borrow_and_return(cell: &RedisCell) {
    let pool = PoolName::new("things").unwrap();
    let item = PoolItem { id: ItemId::from(1), payload: "one".into() };
    cell.pools().put(&pool, &[item], None, None).await.unwrap();
    let borrower = ResourceHolder::new(cell.pools().clone(), member("a"), Epoch(1));
    let hold = borrower.acquire(&pool, Duration::ZERO).await.unwrap();
    let (waiter, wanted) = (borrower.clone(), pool.clone());
    let waiting = tokio::spawn(async move { waiter.acquire(&wanted, Duration::from_secs(60)).await });
    while cell.pools().count_all().await.unwrap().pools[0].waiting == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(borrower.release(&hold).await.unwrap(), PoolReleaseOutcome::Released);
    let again = waiting.await.unwrap().unwrap();
    assert_eq!((again.payload.as_str(), &again.id), ("one", &hold.id));
    assert_eq!(borrower.release(&again).await.unwrap(), PoolReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_leads_to_the_new_master_after_a_failover() {
    let mut group = SentinelGroup::start();
    let link = RedisClient::open(&group.url()).await.unwrap();
    let cell = RedisCell::new(&link, "sentinel");
    cell.members().join(&member("a"), TTL).await.unwrap();
    borrow_and_return(&cell).await;
    group.kill_master();
    let group = tokio::task::spawn_blocking(move || {
        group.await_promotion();
        group
    });
    // Nothing hangs meanwhile; afterwards the same link works again, for commands and for blocking reads.
    while !group.is_finished() {
        let _ = cell.members().snapshot().await;
    }
    let _group = group.await.unwrap();
    while let Err(error) = cell.members().join(&member("b"), TTL).await {
        assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    }
    cell.members().join(&member("a"), TTL).await.unwrap();
    assert!(matches!(cell.members().acquire(&member("b"), &units(1)).await.unwrap(), LeaseAcquireOutcome::Granted(_)));
    borrow_and_return(&cell).await;
    hears(&link).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_has_cells_on_every_node() {
    let cluster = RedisCluster::start();
    let link = RedisClient::open(&cluster.url()).await.unwrap();
    assert!(link.is_cluster());
    waits(&link).await;
    hears(&link).await;
    let mut homes = BTreeSet::new();
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let cell = RedisCell::new(&link, name);
        let seen = cell.members().join(&member("a"), TTL).await.unwrap();
        let watching = cell.members().clone();
        let watcher = tokio::spawn(async move { watching.wait_for_change(seen, Duration::from_secs(50)).await });
        cell.members().join(&member("b"), TTL).await.unwrap();
        tokio::time::timeout(Duration::from_secs(40), watcher).await.expect("woken").unwrap().unwrap();
        assert!(matches!(
            cell.members().acquire(&member("a"), &units(3)).await.unwrap(),
            LeaseAcquireOutcome::Granted(_)
        ));
        assert_eq!(cell.members().snapshot().await.unwrap().leases.len(), 3);
        borrow_and_return(&cell).await;
        assert_eq!(cell.pools().sweep().await.unwrap(), 0);
        assert_eq!(cell.pools().list(&PoolName::new("things").unwrap(), 10).await.unwrap().len(), 1);
        let mut slot = ::redis::cmd("CLUSTER");
        slot.arg("KEYSLOT").arg(format!("squall:{{{name}}}:resources"));
        let slot: u32 = slot.query_async(&mut link.connection()).await.unwrap();
        homes.insert(slot * 3 / 16384);
    }
    assert_eq!(homes.len(), 3, "the cells are on all nodes");
}
