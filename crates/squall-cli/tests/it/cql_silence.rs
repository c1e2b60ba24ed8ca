//! `squall cql` with a database that stops to answer: before the load every step ends with an error, after the
//! load the operations in flight are cut off. A proxy between program and Cassandra keeps requests back.

use crate::{
    cql::wait_for_table_line,
    support::{FinishedProcess, RunningProcess, TestFolder, wait_until},
};
use squall_testkit::{cassandra::Cassandra, fault_proxy::FaultProxy};
use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// What the proxy keeps back.
#[derive(Debug)]
enum Fault {
    /// Every request from the one on that has the last of these texts, seen in this order.
    AllFrom(Vec<&'static str>),
    /// The request that has this text, until the client has asked three times for a sign of life.
    Slow(&'static str),
    /// Everything on later connections.
    ConnectionsAfter(usize),
}

const OPTIONS: u8 = 0x05;

/// Starts a proxy in front of the shared server and returns its port. It ends with the test program.
fn proxy(fault: Fault) -> u16 {
    proxy_with(Arc::new(Mutex::new(fault)))
}

fn proxy_with(fault: Arc<Mutex<Fault>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let server_port = Cassandra::shared().port();
    let connections = AtomicUsize::new(0);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (number, fault) = (connections.fetch_add(1, SeqCst), fault.clone());
            let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { continue };
            let copies = (client.try_clone(), server.try_clone());
            let (Ok(mut to_client), Ok(mut from_server)) = copies else { continue };
            thread::spawn(move || io::copy(&mut from_server, &mut to_client));
            thread::spawn(move || forward_requests(client, server, number, &fault));
        }
    });
    port
}

fn forward_requests(mut client: TcpStream, mut server: TcpStream, number: usize, fault: &Mutex<Fault>) {
    let (mut kept, mut signs_of_life) = (Vec::new(), 0);
    while let Ok(frame) = read_frame(&mut client) {
        let has = |text: &str| frame.windows(text.len()).any(|part| part == text.as_bytes());
        let mut fault = fault.lock().expect("no forwarding panics");
        let passes = match &mut *fault {
            Fault::AllFrom(texts) => {
                if texts.first().is_some_and(|text| has(text)) {
                    texts.remove(0);
                }
                !texts.is_empty()
            }
            Fault::Slow(text) if has(text) => {
                kept.clone_from(&frame);
                false
            }
            Fault::Slow(_) => true,
            Fault::ConnectionsAfter(admitted) => number < *admitted,
        };
        drop(fault);
        if passes && server.write_all(&frame).is_err() {
            return;
        }
        signs_of_life += usize::from(!kept.is_empty() && frame[4] == OPTIONS);
        if signs_of_life == 3 && server.write_all(&std::mem::take(&mut kept)).is_err() {
            return;
        }
    }
}

/// A frame of protocol version 4.
fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 9];
    stream.read_exact(&mut frame)?;
    let length = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]);
    frame.resize(9 + length as usize, 0);
    stream.read_exact(&mut frame[9..])?;
    Ok(frame)
}

/// Runs a command through the proxy; `mode` are further words of `-mode`.
fn cql(command: &[&str], keyspace: &str, mode: &[&str], fault: Fault) -> FinishedProcess {
    let (port, schema) = (format!("native={}", proxy(fault)), format!("keyspace={keyspace}"));
    let rate = ["-rate", "threads=2", "-schema", &schema, "-node", "127.0.0.1", "-port", &port, "-log", "no-settings"];
    // A profile names its keyspace.
    let rate = if command[0] == "user" { [&rate[..2], &rate[4..]].concat() } else { rate.to_vec() };
    let login = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];
    let folder = TestFolder::new();
    folder.write("p.yaml", "keyspace: system_schema\ntable: keyspaces\n");
    folder.squall(&[&["cql"], command, &rate, &login, mode].concat())
}

#[test]
fn every_step_before_the_load_ends_when_the_database_falls_silent() {
    type Words = &'static [&'static str];
    let check = |command: Words, keyspace: &'static str, texts: &[&'static str], step: &'static str| {
        let fault = Fault::AllFrom(texts.to_vec());
        thread::spawn(move || {
            let ended = cql(command, keyspace, &["connectTimeout=2000"], fault);
            assert_eq!(ended.code, 3, "{ended:?}");
            assert!(ended.stderr.contains(step), "{step}: {ended:?}");
        })
    };
    let write: &[&str] = &["write", "n=1", "no-warmup"];
    let silent = |step: &str| -> &'static str {
        let reason = "node 127.0.0.1 has not answered for 2 s: check it, or wait longer with -mode connectTimeout=";
        format!("squall: {step}: {reason}\n").leak()
    };
    let checks = [
        check(write, "silent_a", &["CREATE KEYSPACE"], silent("cannot create the keyspace silent_a")),
        check(write, "silent_b", &["CREATE TABLE"], silent("cannot create the table silent_b.standard1")),
        check(write, "silent_c", &["CREATE KEYSPACE", "schema_version"], silent("cannot create the keyspace silent_c")),
        check(write, "silent_d", &["UPDATE"], "squall: cannot prepare WRITE: "),
        check(
            &["write", "n=1", "no-warmup", "truncate=once"],
            "silent_e",
            &["TRUNCATE"],
            silent("cannot truncate silent_e.standard1"),
        ),
        check(
            &["user", "profile=p.yaml", "ops(insert=1)", "n=1"],
            "",
            &["SELECT column_name, clustering_order"],
            silent("cannot read the columns of system_schema.keyspaces"),
        ),
    ];
    for check in checks {
        check.join().expect("the step fails as it should");
    }
}

/// Starts a command through a proxy that keeps everything back from the last of `texts` on, interrupts it there,
/// and returns how it ended.
fn interrupted_at(folder: &TestFolder, command: &[&str], texts: &[&'static str]) -> FinishedProcess {
    let fault = Arc::new(Mutex::new(Fault::AllFrom(texts.to_vec())));
    let port = proxy_with(fault.clone());
    let command: Vec<String> = command.iter().map(|word| word.replace("PORT", &port.to_string())).collect();
    let running = folder.start(&command.iter().map(String::as_str).collect::<Vec<_>>());
    end_in_silence(running, &fault)
}

/// Interrupts a command as soon as the proxy keeps everything back.
fn end_in_silence(running: RunningProcess, fault: &Mutex<Fault>) -> FinishedProcess {
    let is_silent = || match &*fault.lock().expect("no forwarding panics") {
        Fault::AllFrom(texts) => texts.is_empty(),
        Fault::Slow(_) | Fault::ConnectionsAfter(_) => false,
    };
    wait_until("the silence", is_silent);
    running.interrupt();
    running.end()
}

#[test]
fn an_interrupt_ends_every_step_before_the_load() {
    let stopped = |ended: &FinishedProcess| {
        assert_eq!(ended.code, 130, "{ended:?}");
        assert!(ended.stderr.ends_with("squall: stopped before the run began\n"), "{ended:?}");
    };
    let write =
        ["cql", "write", "n=1", "no-warmup", "truncate=once", "-rate", "threads=2", "-schema", "keyspace=stopped"];
    // Long enough that no step ends because of the silence itself.
    let mode = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra", "connectTimeout=600000"];
    let command = [&write[..], &["-node", "127.0.0.1", "-port", "native=PORT"], &mode].concat();
    let steps: &[&[&str]] = &[
        &["CQL_VERSION"],
        &["CREATE KEYSPACE"],
        &["UPDATE"],
        &["TRUNCATE"],
        // The first statement is prepared for its check, and then by the thread of the load.
        &["UPDATE", "CQL_VERSION"],
        &["UPDATE", "CQL_VERSION", "UPDATE"],
    ];
    for step in steps {
        stopped(&interrupted_at(&TestFolder::new(), &command, step));
    }
    let folder = TestFolder::new();
    let database = "[cql]\nport = PORT\nuser = \"cassandra\"\npassword = \"cassandra\"\n";
    let task = "[[task]]\nname = \"a\"\nkind = \"cql\"\nstatement = \"SELECT key FROM system.local\"";
    let scenario = format!("[load]\nusers = 1\nfor = \"1s\"\n{database}{task}\n");
    let fault = Arc::new(Mutex::new(Fault::AllFrom(vec!["CQL_VERSION"])));
    folder.write("cql.toml", &scenario.replace("PORT", &proxy_with(fault.clone()).to_string()));
    let running = folder.start(&["run", "cql.toml", "--no-tui"]);
    stopped(&end_in_silence(running, &fault));
}

#[test]
fn a_database_that_is_slow_and_alive_is_waited_for() {
    let command = ["write", "n=1", "no-warmup", "truncate=once"];
    // The statement takes longer than any answer to an operation may take.
    let mode = ["connectTimeout=2000", "requestTimeout=1000"];
    let ended = cql(&command, "slow_truncate", &mode, Fault::Slow("TRUNCATE"));
    assert!(ended.code == 0 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
}

#[test]
fn a_run_begins_with_all_connections_or_not_at_all() {
    // Two for the schema, then one for the list of nodes and three of eight for the load.
    let ended =
        cql(&["write", "n=1", "no-warmup"], "connections", &["connectTimeout=2000"], Fault::ConnectionsAfter(6));
    assert_eq!(ended.code, 3, "{ended:?}");
    let message = "squall: 3 of 8 connections stand after 4 s: the nodes may limit their number, or need longer; \
                   use a lower -mode connectionsPerHost= or a higher connectTimeout=\n";
    assert!(ended.stderr.contains(message), "{ended:?}");
    let enough = ["connectionsPerHost=3", "connectTimeout=5000"];
    let ended = cql(&["write", "n=1", "no-warmup"], "connections", &enough, Fault::ConnectionsAfter(6));
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// Starts a command of four threads through a proxy that forwards nothing once the load is seen.
fn hanging_run(folder: &TestFolder, stop: &str) -> RunningProcess {
    let proxy = FaultProxy::start(Cassandra::shared().port());
    let port = format!("native={}", proxy.port());
    let command = ["cql", "write", stop, "no-warmup", "-rate", "threads=4", "-schema", "keyspace=hanging"];
    let connection = ["-node", "127.0.0.1", "-port", &port, "-log", "no-settings", "--json=run.json"];
    let login = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];
    let mut running = folder.start(&[&command[..], &connection, &login].concat());
    wait_for_table_line(&mut running);
    proxy.half_open();
    // An interrupt that came earlier could find no operation without an answer.
    proxy.wait_until_it_holds_bytes();
    running
}

/// The operations in flight are reported once, and none of them has waited for its time limit.
#[track_caller]
fn check_cut_off(folder: &TestFolder, ended: &FinishedProcess) {
    let message = " times: cut off at the end of the run, without an answer (node 127.0.0.1, data centre dc1, consistency LOCAL_ONE)\n";
    assert!(ended.stderr.contains("WRITE ABORTED: ") && ended.stderr.contains(message), "{ended:?}");
    assert!(ended.stdout.ends_with("\nEND\n"), "{ended:?}");
    let result = folder.json("run.json");
    assert_eq!(result["accounting"]["balanced"], true, "{result}");
    let outcomes = result["metrics"][0]["outcomes"].as_array().expect("a list");
    let codes: Vec<_> = outcomes.iter().map(|outcome| outcome["code"].as_str().expect("a code")).collect();
    assert_eq!(codes, ["OK", "ABORTED"], "{result}");
}

#[test]
fn operations_without_an_answer_are_cut_off_at_the_end_of_the_duration() {
    let folder = TestFolder::new();
    let ended = hanging_run(&folder, "duration=3s").end();
    assert!(ended.code == 1 && ended.stderr.contains("errors<1: 4"), "{ended:?}");
    check_cut_off(&folder, &ended);
    assert_eq!(folder.json("run.json")["run"]["stop"], "completed");
}

#[test]
fn an_interrupt_cuts_off_operations_without_an_answer() {
    for stop in ["duration=1h", "n=1000M"] {
        let folder = TestFolder::new();
        let running = hanging_run(&folder, stop);
        running.interrupt();
        let ended = running.end();
        assert_eq!(ended.code, 130, "{ended:?}");
        check_cut_off(&folder, &ended);
    }
}
