//! `squall target` as a program.

use crate::support::{Desk, get};
use std::io::{BufRead, BufReader};

#[test]
fn the_target_serves_until_it_is_told_to_stop() {
    let desk = Desk::new();
    let mut running = desk.start(&["target", "--listen", "127.0.0.1:0", "--threads", "2"]);
    let mut first = String::new();
    BufReader::new(running.stdout()).read_line(&mut first).expect("it says where it listens");
    let addr = first.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect(&first);
    let addr = addr.parse().expect("an address");
    assert!(get(addr, "/health", "*/*").contains("\"status\":\"ok\""));
    assert!(get(addr, "/stats", "*/*").contains("\"total\":1"));
    running.terminate();
    assert_eq!(running.end().code, 0);
}

#[test]
fn an_address_that_others_can_reach_needs_a_word() {
    let ended = Desk::new().squall(&["target", "--listen", "0.0.0.0:0"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("--allow-remote"), "{}", ended.stderr);
}
