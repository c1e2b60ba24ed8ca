//! Resources of declared scenarios: each user leases a row from a pool for as long as it lives.

use squall_engine::{
    Driver, DriverThread, GrantedResource, Iteration, ResourceClient, ResourceError, ResourceRequest, ThreadRecorder,
    UserIdentity, VirtualUser,
};
use squall_metrics::{MetricKind, RecorderConfig};
use squall_model::TaskIndex;
use squall_scenario::{Scenario, ScenarioOverrides};
use std::{collections::BTreeMap, time::Instant};

use crate::harness::{CapturingServer, MemoryFiles, RecordedRun, block_on, scenario, target, with_files};

const SHOP: &str = "[[resource]]\nname = 'users'\ncount = 3\nwait = '5s'\n\
    fields = { name = 'user-{{ n }}', pin = 'x{{n}}y' }\n\
    [[task]]\nname = 'x'\nget = '/echo'\nheaders = { x-who = '{{ users.name }}' }\n\
    expect = { body_contains = ['user-1'] }";

const USER_1: &str = r#"{"name":"user-1","pin":"x1y","resource_name":"users","resource_id":"1","created_at":1.5}"#;

fn granted(number: u64, id: &str, payload: &str) -> GrantedResource {
    GrantedResource { lease_id: number, id: id.to_owned(), payload: payload.to_owned() }
}

fn iteration() -> Iteration {
    let now = Instant::now();
    Iteration { number: 0, task: TaskIndex(0), intended: now, started: now }
}

#[test]
fn counted_resources_and_file_rows_become_pool_contents() {
    let target = target();
    let counted = &scenario(&target, SHOP).pool_contents()[0];
    let rows: Vec<serde_json::Value> =
        counted.payloads.iter().map(|row| serde_json::from_str(row).expect("JSON")).collect();
    let expected = |n: u32| serde_json::json!({"name": format!("user-{n}"), "pin": format!("x{n}y")});
    assert_eq!((counted.pool.as_str(), rows), ("users", (0..3).map(expected).collect()));
    let files = MemoryFiles(BTreeMap::from([("users.jsonl", "{\"name\": \"ann\", \"age\": 7}\n")]));
    let text = "[[resource]]\nname = 'users'\nfile = 'users.jsonl'\n[[task]]\nname = 'x'\nget = '/{{ users.name }}'";
    let stock = with_files(&target, text, files).pool_contents();
    // The order of members depends on the features of the JSON library.
    let row: serde_json::Value = serde_json::from_str(&stock[0].payloads[0]).expect("JSON");
    assert_eq!((stock[0].pool.as_str(), row), ("users", serde_json::json!({"name": "ann", "age": 7})));
}

#[test]
fn user_keeps_its_lease_until_it_stops_or_the_lease_expires() {
    let target = target();
    let scenario = scenario(&target, SHOP);
    block_on(async {
        let (client, mut requests) = ResourceClient::new();
        let pool = async {
            for number in 0..2 {
                let Some(ResourceRequest::Acquire { pool, wait, reply }) = requests.recv().await else {
                    panic!("no acquire")
                };
                assert_eq!((pool.as_str(), wait.as_secs()), ("users", 5));
                reply.send(Ok(granted(number, "1", USER_1)));
                // Released after the lease expired, and at the end.
                let Some(ResourceRequest::Release(returned)) = requests.recv().await else { panic!("no release") };
                assert_eq!(returned, number);
            }
        };
        let user = async {
            let recorder = ThreadRecorder::with_resources(RecorderConfig::default(), Instant::now(), client.clone());
            let mut user = scenario.driver().thread(recorder).expect("sound").user(UserIdentity { number: 0, seed: 0 });
            assert!(user.iterate(iteration()).await && user.iterate(iteration()).await);
            client.invalidate_leases();
            assert!(user.iterate(iteration()).await);
            user.on_stop().await;
        };
        tokio::join!(pool, user);
    });
}

#[test]
fn failed_acquire_fails_the_iteration_with_its_reason() {
    let (target, text) = (target(), SHOP.replace("'5s'", "0"));
    let scenario = scenario(&target, &text);
    let record = block_on(async {
        let (client, mut requests) = ResourceClient::new();
        let recorder = ThreadRecorder::with_resources(RecorderConfig::default(), Instant::now(), client);
        let mut user =
            scenario.driver().thread(recorder.clone()).expect("sound").user(UserIdentity { number: 0, seed: 0 });
        let pool = async {
            let Some(ResourceRequest::Acquire { reply, .. }) = requests.recv().await else { panic!("no acquire") };
            reply.send(Err(ResourceError::Exhausted("all are held".into())));
        };
        let (completed, ()) = tokio::join!(user.iterate(iteration()), pool);
        assert!(!completed);
        let (metrics, notes, engine) = recorder.harvest(0, 0);
        RecordedRun { metrics, notes, engine }
    });
    assert_eq!(record.lines(MetricKind::Request), ["x: RESOURCE_EXHAUSTED×1"]);
    assert_eq!((record.notes(), target.requests()), (vec!["all are held"], 0));
}

/// `POST /ensure_resource` adds resources during a run, under ids that need not be row numbers.
#[test]
fn foreign_resource_is_used_with_its_stored_values() {
    #[track_caller]
    fn check(id: &str, payload: &str) {
        let capture = CapturingServer::start();
        let text = format!("target = '{}'\n{}", capture.url, SHOP.split("expect").next().expect("its beginning"));
        let scenario = Scenario::parse("shop.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default());
        let scenario = scenario.unwrap_or_else(|errors| panic!("{errors}"));
        block_on(async {
            let (client, mut requests) = ResourceClient::new();
            let pool = async {
                let Some(ResourceRequest::Acquire { reply, .. }) = requests.recv().await else { panic!("no acquire") };
                reply.send(Ok(granted(0, id, payload)));
                let Some(ResourceRequest::Release(0)) = requests.recv().await else { panic!("a second acquire") };
            };
            let user = async {
                let recorder =
                    ThreadRecorder::with_resources(RecorderConfig::default(), Instant::now(), client.clone());
                let mut user =
                    scenario.driver().thread(recorder).expect("sound").user(UserIdentity { number: 0, seed: 0 });
                assert!(user.iterate(iteration()).await && user.iterate(iteration()).await);
                user.on_stop().await;
            };
            tokio::join!(pool, user);
        });
        let sent = capture.take();
        assert!(sent.len() == 2 && sent.iter().all(|request| request.contains("x-who: late\r\n")), "{sent:?}");
    }
    check("3", r#"{"name":"late","resource_name":"users","resource_id":"3","created_at":1.5}"#);
    // Its id is a row's number, but its values are not that row's.
    check("0", r#"{"name":"late"}"#);
}

/// Released, the pool would hand it to the same user again.
#[test]
fn resource_without_a_used_field_fails_once_and_stays_leased() {
    let target = target();
    let scenario = scenario(&target, SHOP);
    let (record, returned) = block_on(async {
        let (client, mut requests) = ResourceClient::new();
        let recorder = ThreadRecorder::with_resources(RecorderConfig::default(), Instant::now(), client);
        let mut user =
            scenario.driver().thread(recorder.clone()).expect("sound").user(UserIdentity { number: 0, seed: 0 });
        let pool = async {
            for (number, id, payload) in [(0, "3", r#"{"pin":"x"}"#), (1, "4", "7"), (2, "1", USER_1)] {
                let Some(ResourceRequest::Acquire { reply, .. }) = requests.recv().await else {
                    panic!("it was given back")
                };
                reply.send(Ok(granted(number, id, payload)));
            }
        };
        let iterate = async {
            let mut completed = Vec::new();
            for _ in 0..3 {
                completed.push(user.iterate(iteration()).await);
            }
            completed
        };
        let (completed, ()) = tokio::join!(iterate, pool);
        assert_eq!(completed, [false, false, true]);
        let (metrics, notes, engine) = recorder.harvest(0, 0);
        user.on_stop().await;
        drop((user, recorder));
        let mut returned = Vec::new();
        while let Some(ResourceRequest::Release(number)) = requests.recv().await {
            returned.push(number);
        }
        (RecordedRun { metrics, notes, engine }, returned)
    });
    assert_eq!(record.lines(MetricKind::Request), ["x: RESOURCE_REFUSED×2 HTTP_200×1"]);
    let notes = [
        "`3` of the pool `users` cannot be used: it has no field `name`",
        "`4` of the pool `users` cannot be used: what is stored with it is not a JSON object",
    ];
    assert_eq!((record.notes(), target.requests()), (notes.to_vec(), 1));
    assert_eq!(returned, [2, 0, 1], "those that cannot be used go back with the run");
}

/// The lease expires in the middle of an iteration.
#[test]
fn request_with_an_expired_lease_is_not_sent() {
    let target = target();
    let scenario = scenario(&target, SHOP);
    let record = block_on(async {
        let (client, mut requests) = ResourceClient::new();
        let recorder = ThreadRecorder::with_resources(RecorderConfig::default(), Instant::now(), client.clone());
        let mut user =
            scenario.driver().thread(recorder.clone()).expect("sound").user(UserIdentity { number: 0, seed: 0 });
        let pool = async {
            let Some(ResourceRequest::Acquire { reply, .. }) = requests.recv().await else { panic!("no acquire") };
            reply.send(Ok(granted(0, "1", USER_1)));
            client.invalidate_leases();
        };
        let (completed, ()) = tokio::join!(user.iterate(iteration()), pool);
        assert!(!completed);
        let (metrics, notes, engine) = recorder.harvest(0, 0);
        RecordedRun { metrics, notes, engine }
    });
    assert_eq!(record.lines(MetricKind::Request), ["x: RESOURCE_LOST×1"]);
    assert!(record.notes()[0].starts_with("the lease of `users` has expired"), "{:?}", record.notes());
    assert_eq!(target.requests(), 0);
}

#[test]
fn invalid_resources_are_rejected() {
    #[track_caller]
    fn reject(table: &str, message: &str) {
        let text = format!("target = 'http://h'\n[[resource]]\n{table}\n[[task]]\nget = '/'");
        let errors =
            Scenario::parse("shop.toml", &text, &mut MemoryFiles::default(), ScenarioOverrides::default()).unwrap_err();
        assert!(errors.to_string().contains(message), "{errors}");
    }
    reject("count = 1", "a resource needs a name");
    reject("name = 'u'", "a file or a count");
    reject("name = 'u'\ncount = 1", "need fields");
    reject("name = 'u'\ncount = 0\nfields = { a = 'b' }", "from 1 to");
    reject("name = 'u'\ncount = 1\nfields = { a = '{{ uuid() }}' }", "only the resource's number");
    reject("name = 'u'\ncount = 1\nfile = 'x.csv'", "not both");
    reject("name = 'ü'\nfile = 'x.csv'", "cannot be a name of a resource");
    reject("name = 'u'\ncount = 1\nfields = { a = 'b' }\nwait = 'soon'", "soon");
    reject("name = 'u'\nfile = 'none.csv'", "cannot read none.csv");
    reject("name = 'u'\ncuont = 1", "did you mean `count`?");
}
