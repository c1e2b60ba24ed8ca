//! Parts of the grid die, and capacity comes back.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use squall_coord::{MemorySlotStore, SlotStore};
use squall_grid::{GridWorker, GridWorkerConfig, GridWorkerError, Isolation, ServerConfig, ServerOffers};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{
    DEADLINE, EXECUTABLE, Grid, HoldingClient, RunningWorker, get, node_client, post, run, send, server_config,
    start_worker, worker_config,
};

/// The browsers whose command line has `flag`; other tests of this process have browsers too.
pub(crate) fn browsers(flag: &str) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let command = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // Child processes of a browser have a type.
    let matching = pids.filter(|pid| command(pid).contains(flag) && !command(pid).contains("--type="));
    matching.filter_map(Pid::from_raw).collect()
}

/// Waits until no browser with `flag` is left. A killed process ends when the kernel runs it again.
pub(crate) async fn wait_for_no_browsers(flag: &str) {
    let ended = async {
        while !browsers(flag).is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.expect("the end of all browsers");
}

/// The Node host that started a browser.
fn parent(browser: Pid) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{}/status", browser.as_raw_nonzero())).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    Pid::from_raw(parent.trim().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn parts_that_die_are_replaced_and_the_client_gets_the_reason() {
    let flag = format!("--squall-test={:x}", fastrand::u64(..));
    let config = GridWorkerConfig { args: vec![flag.clone()], ..worker_config("w1", 2) };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    for pid in browsers(&flag) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains("closed"), "{message}");
    client.close().await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));

    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    kill_process(parent(browsers(&flag)[0]), Signal::KILL).unwrap();
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains("squall: the browser on worker w1 ended"), "{message}");
    client.close().await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
    wait_for_no_browsers(&flag).await;
}

#[tokio::test]
async fn session_goes_to_another_worker_if_the_first_cannot_be_reached() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for unreachable in [silent.local_addr().unwrap(), "127.0.0.1:1".parse().unwrap()] {
        let config = ServerConfig { dial_timeout: Duration::from_secs(5), ..server_config() };
        let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 1)).await;
        // The store chooses `a` before `w1`. It offers once, because an offer makes it reachable again.
        let first = GridWorkerConfig {
            advertise: Some(unreachable.to_string()),
            heartbeat: DEADLINE * 2,
            ttl: DEADLINE * 4,
            ..worker_config("a", 1)
        };
        let first = start_worker(&grid.store, first);
        grid.wait_for("second worker", |snapshot| snapshot.workers.len() == 2).await;
        let mut client = HoldingClient::connect(&grid.url(), "page").await;
        assert_eq!(client.evaluate("document.title").await, "page");
        let snapshot = grid.snapshot().await;
        let workers: Vec<_> = snapshot.workers.iter().map(|view| (view.worker.name(), view.unreachable)).collect();
        assert_eq!(workers, [("a", true), ("w1", false)]);
        let sessions: Vec<_> = snapshot.sessions.iter().map(|session| session.worker.name()).collect();
        assert_eq!(sessions, ["w1"], "the slot of the first worker is free again");
        client.close().await;
        first.drain.cancel();
        first.task.await.unwrap().unwrap();
        grid.end().await;
    }
}

/// Writes a program that runs the browser.
fn script(folder: &Path, text: &str) -> PathBuf {
    let program = folder.join("chromium");
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    program
}

/// A shell stands between Node and the browser, so the process that Node knows is not stopped.
#[tokio::test]
async fn hanging_browser_is_found_by_its_probe_and_replaced() {
    let flag = format!("--squall-test={:x}", fastrand::u64(..));
    let folder = tempfile::tempdir().unwrap();
    let config = GridWorkerConfig {
        args: vec![flag.clone()],
        executable: Some(script(folder.path(), &format!("#!/bin/sh\n{EXECUTABLE} \"$@\"\n"))),
        // The spare browser may be stopped while it is launched.
        launch_timeout: Duration::from_secs(10),
        probe_every: Duration::from_millis(500),
        probe_timeout: Duration::from_secs(5),
        ..worker_config("w1", 2)
    };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    let is_browser = |pid: &Pid| {
        let program = std::fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
        program.is_ok_and(|program| program == Path::new(EXECUTABLE))
    };
    for pid in browsers(&flag).into_iter().filter(is_browser) {
        kill_process(pid, Signal::STOP).unwrap();
    }
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains("closed") || message.contains("squall:"), "{message}");
    client.close().await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    grid.end().await;
}

/// A worker whose probes come too late for a test.
fn worker_without_probes(flag: &str) -> GridWorkerConfig {
    GridWorkerConfig {
        args: vec![flag.to_owned()],
        // The spare browser may be stopped while it is launched.
        launch_timeout: Duration::from_secs(10),
        probe_every: DEADLINE * 10,
        ..worker_config("w1", 2)
    }
}

#[tokio::test]
async fn stopped_browser_is_replaced() {
    let flag = format!("--squall-test={:x}", fastrand::u64(..));
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), worker_without_probes(&flag)).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    for pid in browsers(&flag) {
        kill_process(pid, Signal::STOP).unwrap();
    }
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains("closed") || message.contains("squall:"), "{message}");
    client.close().await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    grid.end().await;
    wait_for_no_browsers(&flag).await;
}

#[tokio::test]
async fn stopped_browser_host_is_replaced() {
    let flag = format!("--squall-test={:x}", fastrand::u64(..));
    let config = worker_without_probes(&flag);
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    let host = parent(browsers(&flag)[0]);
    kill_process(host, Signal::STOP).unwrap();
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains("squall: the browser on worker w1 ended"), "{message}");
    client.close().await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
    assert!(!std::path::Path::new(&format!("/proc/{}/stat", host.as_raw_nonzero())).exists());
    wait_for_no_browsers(&flag).await;
}

#[tokio::test]
async fn browser_above_its_memory_limit_is_replaced_when_its_session_has_ended() {
    let flag = format!("--squall-test={:x}", fastrand::u64(..));
    let mut config = GridWorkerConfig { args: vec![flag.clone()], ..worker_config("w1", 2) };
    config.rules.max_memory = Some(1 << 20);
    config.probe_every = Duration::from_secs(1);
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    let first = browsers(&flag);
    let replaced = async {
        while browsers(&flag).iter().all(|pid| first.contains(pid)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, replaced).await.expect("another browser");
    assert_eq!(client.evaluate("document.title").await, "page");
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    client.close().await;
    grid.end().await;
}

/// Whether it is shared or belongs to the session.
#[tokio::test]
async fn endless_session_ends_with_a_reason_when_its_browser_is_overdue() {
    for isolation in [Isolation::Key, Isolation::Session] {
        let flag = format!("--squall-test={:x}", fastrand::u64(..));
        let mut config = GridWorkerConfig { args: vec![flag.clone()], isolation, ..worker_config("w1", 2) };
        // A browser of one session is due at its age.
        (config.rules.recycle_after, config.rules.max_age) = (1, Duration::from_secs(1));
        config.rules.recycle_timeout = Duration::from_millis(500);
        let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
        let mut client = HoldingClient::start(&grid.url(), "page");
        let mut message = client.line().await;
        if message == "connected" {
            message = client.evaluate("new Promise(() => {})").await;
        }
        assert!(message.contains("squall: session ") && message.contains("its browser is being replaced"), "{message}");
        grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
        client.close().await;
        grid.end().await;
        wait_for_no_browsers(&flag).await;
    }
}

#[tokio::test]
async fn launch_that_hangs_is_ended_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let launches = folder.path().join("launches");
    std::fs::create_dir(&launches).unwrap();
    let text = format!(
        "#!/bin/sh\nn=$(ls {launches} | wc -l)\ntouch {launches}/$$\n[ $n = 1 ] && exec sleep 600\n\
         exec {EXECUTABLE} \"$@\"\n",
        launches = launches.display()
    );
    let config = GridWorkerConfig {
        executable: Some(script(folder.path(), &text)),
        isolation: Isolation::Session,
        launch_timeout: Duration::from_secs(10),
        ..worker_config("w1", 2)
    };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let client = HoldingClient::connect(&grid.url(), "page").await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    assert!(std::fs::read_dir(&launches).unwrap().count() >= 3);
    client.close().await;
    grid.end().await;
}

async fn session_id(grid: &Grid<MemorySlotStore>) -> String {
    grid.store.snapshot().await.unwrap().sessions[0].id.to_string()
}

#[tokio::test]
async fn deleted_session_ends_with_its_reason() {
    let grid = Grid::start(1).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    let id = session_id(&grid).await;
    let delete = format!("DELETE /v1/sessions/{id} HTTP/1.1\nHost: grid\nConnection: close");
    assert_eq!(send(grid.address, &delete).await.status, 204);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains(&format!("squall: session {id} was deleted")), "{message}");
    client.close().await;
    grid.end().await;
}

#[tokio::test]
async fn lost_worker_is_told_to_its_client() {
    let grid = Grid::start(1).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    grid.worker.task.abort();
    grid.wait_for("end of the worker", |snapshot| snapshot.workers.is_empty()).await;
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains("squall: worker w1 was lost"), "{message}");
    client.close().await;
    grid.stop.cancel();
    grid.server.await.unwrap();
}

/// A grid without Redis: the worker offers its slots to the server.
#[tokio::test]
async fn draining_server_keeps_its_sessions_and_refuses_new_ones_with_a_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop, drain) = (listener.local_addr().unwrap(), CancellationToken::new(), CancellationToken::new());
    let (store, config) = (MemorySlotStore::new(), ServerConfig { drain_timeout: DEADLINE, ..server_config() });
    let server = tokio::spawn(squall_grid::serve(store.clone(), config, listener, stop.clone()));
    let offers = ServerOffers::new(&format!("http://{address}"), None).unwrap();
    let task = tokio::spawn(GridWorker::new(offers, worker_config("w1", 1)).run(drain.clone()));
    let grid = Grid { store, address, stop, server, worker: RunningWorker { drain, task } };
    grid.wait_for("a worker", |snapshot| !snapshot.workers.is_empty()).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    grid.stop.cancel();
    let draining = async { while get(grid.address, "/readyz").await.status != 503 {} };
    tokio::time::timeout(DEADLINE, draining).await.expect("the server drains");
    let (ok, message) = run(node_client(&["job", &grid.url()])).await;
    assert!(!ok && message.contains("the server is shutting down; connect again"), "{message}");
    let refused = post(grid.address, "/v1/sessions", "").await;
    assert!(refused.status == 503 && refused.text.contains("retry-after: 1"), "{}", refused.text);
    assert_eq!(get(grid.address, "/metrics").await.status, 200);
    // The worker's membership would have ended by now.
    let since = grid.snapshot().await.sessions[0].age;
    grid.wait_for("more heartbeats", |snapshot| {
        snapshot.sessions.first().is_none_or(|session| session.age > since + worker_config("w1", 1).ttl * 2)
    })
    .await;
    assert_eq!(client.evaluate("document.title").await, "page");
    client.close().await;
    tokio::time::timeout(DEADLINE, grid.server).await.expect("the server ends after its last session").unwrap();
    grid.worker.task.abort();
}

#[tokio::test]
async fn reserved_session_of_a_draining_worker_gets_its_client() {
    let grid = Grid::start(1).await;
    let reserved = post(grid.address, "/v1/sessions", "").await.json()["id"].as_str().unwrap().to_owned();
    grid.worker.drain.cancel();
    grid.wait_for("draining worker", |snapshot| snapshot.workers.iter().any(|worker| worker.draining)).await;
    let url = format!("ws://{}/sessions/{reserved}", grid.address);
    assert_eq!(run(node_client(&["job", &url])).await, (true, "squall".to_owned()));
    grid.end().await;
}

#[tokio::test]
async fn second_worker_of_a_name_ends_and_leaves_the_first_its_sessions() {
    let grid = Grid::start(1).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    let again = GridWorkerConfig { ttl: Duration::from_secs(1), ..worker_config("w1", 1) };
    let second = start_worker(&grid.store, again);
    let ended = tokio::time::timeout(DEADLINE, second.task).await.expect("the second worker ends").unwrap();
    assert!(matches!(ended, Err(GridWorkerError::NameTaken(_))), "{ended:?}");
    assert_eq!(client.evaluate("document.title").await, "page");
    let snapshot = grid.snapshot().await;
    assert_eq!((snapshot.workers.len(), snapshot.sessions.len()), (1, 1));
    client.close().await;
    grid.end().await;
}
