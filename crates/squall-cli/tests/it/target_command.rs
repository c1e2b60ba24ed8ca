//! `squall target`.

use crate::support::{TestFolder, get};
use std::io::{BufRead, BufReader};

#[test]
fn target_serves_until_a_stop_signal() {
    let folder = TestFolder::new();
    let mut running = folder.start(&["target", "--listen", "127.0.0.1:0", "--threads", "2"]);
    let mut first = String::new();
    BufReader::new(running.stdout()).read_line(&mut first).expect("it says where it listens");
    let addr = first.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect(&first);
    let addr = addr.parse().expect("an address");
    assert!(get(addr, "/health", "*/*").contains("\"status\":\"ok\""));
    assert!(get(addr, "/stats", "*/*").contains("\"total\":1"));
    assert!(get(addr, "/metrics", "*/*").contains("squall_shop_requests_total{endpoint=\"/health\"} 1"));
    running.terminate();
    assert_eq!(running.end().code, 0);
}

#[test]
fn remote_address_needs_allow_remote() {
    let ended = TestFolder::new().squall(&["target", "--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("--allow-remote"), "{}", ended.stderr);
}
