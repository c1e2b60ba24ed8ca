//! `squall cql -transport` against a real Cassandra that speaks TLS and wants a client certificate. The
//! stores are made by keytool and openssl.

use crate::{
    cql::wait_for_table_line,
    support::{FinishedProcess, RunningProcess, TestFolder},
};
use squall_testkit::cassandra::{Cassandra, STORE_PASSWORD};

const MODE: [&str; 5] = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];
const WRITE: [&str; 5] = ["write", "n=50", "no-warmup", "-rate", "threads=3"];

/// The words of a command through TLS; `transport` are further words of `-transport`.
fn words(command: &[&str], node: &str, port: u16, transport: &[String]) -> Vec<String> {
    let connection = ["-node", node, "-port", &format!("native={port}"), "-log", "no-settings", "-transport"];
    let all = [&["cql"], command, &MODE, &connection].concat();
    all.into_iter().map(str::to_owned).chain(transport.iter().cloned()).collect()
}

fn cql(command: &[&str], node: &str, port: u16, transport: &[String]) -> FinishedProcess {
    let words = words(command, node, port, transport);
    TestFolder::new().squall(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The words for a trust store and a key store.
fn stores(trust: &str, key: Option<&str>) -> Vec<String> {
    let folder = Cassandra::stores();
    let mut words =
        vec![format!("truststore={}", folder.join(trust).display()), format!("truststore-password={STORE_PASSWORD}")];
    if let Some(key) = key {
        words.push(format!("keystore={}", folder.join(key).display()));
        words.push(format!("keystore-password={STORE_PASSWORD}"));
    }
    words
}

fn with(stores: Vec<String>, words: &[&str]) -> Vec<String> {
    stores.into_iter().chain(words.iter().map(|word| (*word).to_owned())).collect()
}

#[track_caller]
fn failed(ended: &FinishedProcess, code: i32, reason: &str) {
    assert!(ended.code == code && ended.stderr.contains(reason), "{ended:?}");
}

#[test]
fn every_connection_is_encrypted_whatever_the_form_of_the_stores() {
    let server = Cassandra::start_with_tls();
    let port = server.port();
    for (trust, key) in [("trust.p12", "client.p12"), ("trust.jks", "client.jks"), ("trust.pem", "client.pem")] {
        let written = cql(&WRITE, "127.0.0.1", port, &stores(trust, Some(key)));
        assert!(written.code == 0 && written.stdout.ends_with("\nEND\n"), "{trust}: {written:?}");
    }
    let transport = with(stores("trust.p12", Some("client.p12")), &["hostname-verification=true"]);
    let command = ["read", "duration=1h", "no-warmup", "-pop", "seq=1..50", "-rate", "threads=3", "throttle=50/s"];
    let words = words(&command, "localhost", port, &transport);
    let folder = TestFolder::new();
    let mut running = folder.start(&words.iter().map(String::as_str).collect::<Vec<_>>());
    wait_for_table_line(&mut running);
    let clients = |encrypted: bool| {
        let condition = format!("ssl_enabled = {encrypted} AND driver_name = 'ScyllaDB Rust Driver' ALLOW FILTERING");
        server.count(&format!("SELECT COUNT(*) FROM system_views.clients WHERE {condition}"))
    };
    assert!(clients(true) >= 2, "a control connection and one for operations");
    assert_eq!(clients(false), 0);
    running.interrupt();
    let ended = running.end();
    assert!(ended.code == 130 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");

    let all = || stores("trust.p12", Some("client.p12"));
    for words in [&["ssl-protocol=TLSv1.2"][..], &["ssl-ciphers=TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_256_GCM_SHA384"]] {
        let written = cql(&WRITE, "127.0.0.1", port, &with(all(), words));
        assert_eq!(written.code, 0, "{words:?}: {written:?}");
    }
    let refused = |transport: Vec<String>, reason| failed(&cql(&WRITE, "127.0.0.1", port, &transport), 3, reason);
    refused(stores("other.p12", Some("client.p12")), "no certificate of the truststore has signed");
    refused(stores("trust.p12", None), "it may want a client certificate: add a keystore");
    refused(with(all(), &["hostname-verification=true"]), "list the node by a name of its certificate");

    statements_of_a_scenario_are_encrypted(&server);
}

/// `[cql]` through TLS; `stores` are further keys.
fn scenario(port: u16, stores: &str) -> String {
    let statement = "statement = \"SELECT key FROM system.local\"\nexpect = { rows = 1 }";
    format!(
        "[load]\nusers = 2\nfor = \"1h\"\n[cql]\nnodes = [\"localhost:{port}\"]\nuser = \"cassandra\"\n\
         password = \"cassandra\"\n{stores}\n[[task]]\nname = \"local\"\nkind = \"cql\"\n{statement}\n"
    )
}

/// The keys for a trust store and a key store; the passwords are in a file and a variable.
fn store_keys(trust: &str, key: &str) -> String {
    let folder = Cassandra::stores();
    format!(
        "truststore = {:?}\ntruststore_password = \"@secret.txt\"\nkeystore = {:?}\nkeystore_password = \"$KEY_SECRET\"",
        folder.join(trust),
        folder.join(key)
    )
}

fn run_scenario(text: &str) -> FinishedProcess {
    let folder = TestFolder::new();
    folder.write("tls.toml", text);
    folder.write("secret.txt", STORE_PASSWORD);
    let mut command = folder.command(&["run", "tls.toml", "--requests", "20", "--no-tui"]);
    command.env("KEY_SECRET", STORE_PASSWORD);
    RunningProcess::from_child(command.spawn().expect("the program starts")).end()
}

/// Part of the test above, because a server takes seconds to start.
fn statements_of_a_scenario_are_encrypted(server: &Cassandra) {
    let port = server.port();
    for (trust, key) in [("trust.p12", "client.p12"), ("trust.jks", "client.jks")] {
        let keys = store_keys(trust, key) + "\nhostname_verification = true";
        let ended = run_scenario(&scenario(port, &keys));
        assert!(ended.code == 0 && ended.stdout.contains("local"), "{trust}: {ended:?}");
    }
    let refused = |stores: String, code, reason| failed(&run_scenario(&scenario(port, &stores)), code, reason);
    refused(store_keys("other.p12", "client.p12"), 3, "no certificate of the truststore has signed");
    let wrong = store_keys("trust.jks", "client.jks").replace("@secret.txt", "wrong");
    refused(wrong, 2, "tls.toml:8:14: ");
    let wrong = store_keys("trust.jks", "client.jks").replace("$KEY_SECRET", "wrong");
    refused(wrong, 2, "client.jks: the password is wrong, or the file is damaged");
}

#[test]
fn unusable_stores_and_plain_servers_are_named() {
    let port = Cassandra::shared().port();
    let refused = |transport: &[String], code, reason| failed(&cql(&WRITE, "127.0.0.1", port, transport), code, reason);
    refused(&stores("trust.p12", None), 3, "the node does not speak TLS on this port: remove the truststore");
    refused(&stores("no-such.p12", None), 2, "no-such.p12: No such file");
    refused(&stores("trust.p12", Some("trust.p12")), 2, "the file has no private key with a certificate");
    for trust in ["trust.p12", "trust.jks"] {
        let mut words = stores(trust, None);
        words[1] = "truststore-password=wrong".to_owned();
        refused(&words, 2, "the password is wrong, or the file is damaged");
    }
    let words = with(stores("trust.pem", None), &["ssl-ciphers=TLS_RSA_WITH_AES_128_CBC_SHA"]);
    refused(&words, 2, "none of them is possible; choose from TLS_AES_256_GCM_SHA384");
}
