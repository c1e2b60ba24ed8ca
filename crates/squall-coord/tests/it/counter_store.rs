//! Counters: random requests, repetitions, returns and write-offs on both stores at once, compared
//! with a ledger.

use std::{collections::BTreeMap, ops::Range};

use proptest::{prelude::*, test_runner::TestRunner};
use squall_coord::{
    BlockGrant, BlockRequest, CounterStore, MemoryRunStore, RedisClient, RedisRunStore, RunKeys, RunStore,
};
use squall_testkit::redis::RedisServer;

const LIMIT: u64 = 40;

#[derive(Clone, Debug)]
enum Step {
    /// The source uses `used_count` of its numbers, returns the rest if `return_rest` is set, and
    /// wants `max_count` more.
    Acquire { who: usize, used_count: u64, return_rest: bool, max_count: u64 },
    /// The reply was lost: the source repeats its request.
    Repeat(usize),
    /// The source counts as dead; it may send requests again.
    WriteOff(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0usize..3;
    let step = prop_oneof![
        6 => (who.clone(), 0u64..9, any::<bool>(), 0u64..12)
            .prop_map(|(who, used_count, return_rest, max_count)| Step::Acquire { who, used_count, return_rest, max_count }),
        2 => who.clone().prop_map(Step::Repeat),
        1 => who.prop_map(Step::WriteOff),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What a source knows of its own numbers.
#[derive(Default)]
struct TestSource {
    last_request: BlockRequest,
    last_block: Range<u64>,
    unused: Vec<u64>,
}

fn blocks(numbers: &[u64]) -> Vec<Range<u64>> {
    numbers.iter().map(|number| *number..number + 1).collect()
}

async fn start_run<R: RunStore>(run: &R) -> u64 {
    let seen = run.read_record().await.unwrap();
    run.compare_and_set(&seen, "RUNNING", "{}", true).await.unwrap().expect("no other client changes the record").epoch
}

/// Sends a request to both stores, which must reply alike.
async fn acquire_on_both(
    model: &MemoryRunStore,
    real: &RedisRunStore,
    source: &str,
    request: &BlockRequest,
) -> BlockGrant {
    let expected = model.acquire_block(1, "rows", source, request).await.unwrap().expect("the run is current");
    assert_eq!(
        real.acquire_block(1, "rows", source, request).await.unwrap(),
        Some(expected.clone()),
        "{source} {request:?}"
    );
    expected
}

async fn run_steps(steps: &[Step], model: MemoryRunStore, real: RedisRunStore) {
    assert_eq!((start_run(&model).await, start_run(&real).await), (1, 1));
    let mut sources: [TestSource; 3] = Default::default();
    let mut used: BTreeMap<u64, usize> = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Acquire { who, used_count, return_rest, max_count } => {
                let source = &mut sources[who];
                let keep = source.unused.len().saturating_sub(used_count as usize);
                for number in source.unused.split_off(keep) {
                    assert_eq!(used.insert(number, who), None, "{number} was used twice");
                }
                let returned = if return_rest { std::mem::take(&mut source.unused) } else { Vec::new() };
                let own_used = used.values().filter(|by| **by == who).count() as u64;
                let request = BlockRequest {
                    sequence: source.last_request.sequence + 1,
                    used: own_used,
                    returned_blocks: blocks(&returned),
                    max_count,
                    limit: LIMIT,
                };
                let grant = acquire_on_both(&model, &real, &who.to_string(), &request).await;
                assert!(grant.block.end - grant.block.start <= max_count && grant.block.end <= LIMIT);
                assert!(max_count == 0 || grant.remaining == 0 || !grant.block.is_empty(), "there was something");
                source.unused.extend(grant.block.clone());
                (source.last_request, source.last_block) = (request, grant.block);
            }
            Step::Repeat(who) if sources[who].last_request.sequence > 0 => {
                let grant = acquire_on_both(&model, &real, &who.to_string(), &sources[who].last_request).await;
                assert_eq!(grant.block, sources[who].last_block, "a repeated draw is answered as it was");
            }
            Step::Repeat(_) => {}
            Step::WriteOff(who) => {
                let expected = model.write_off(1, "rows", &who.to_string()).await.unwrap();
                assert_eq!(real.write_off(1, "rows", &who.to_string()).await.unwrap(), expected);
            }
        }
        let mut all_unused: Vec<u64> = sources.iter().flat_map(|source| source.unused.iter().copied()).collect();
        all_unused.sort_unstable();
        all_unused.dedup();
        assert_eq!(
            all_unused.len(),
            sources.iter().map(|source| source.unused.len()).sum::<usize>(),
            "two sources have the same number"
        );
        assert!(all_unused.iter().all(|number| !used.contains_key(number)), "a used number was given out again");
        let counters = model.counters(1).await.unwrap();
        assert_eq!(real.counters(1).await.unwrap(), counters);
        if let Some(counter) = counters.get("rows") {
            let known = counter.used() + counter.sources.values().map(|source| source.unused()).sum::<u64>();
            assert_eq!(counter.remaining() + known, LIMIT, "every number is somewhere");
        }
    }
}

#[test]
fn each_number_is_granted_once_and_none_is_lost() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(RedisClient::open(&server.url())).unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&steps(), |steps| {
        let keys = RunKeys::new(format!("squall:{{{:x}}}:", fastrand::u64(..)));
        runtime.block_on(run_steps(&steps, MemoryRunStore::new(), RedisRunStore::new(&client, keys)));
        Ok(())
    });
    outcome.unwrap();
}

async fn check_only_the_current_run_gets_blocks<R: RunStore>(run: R) {
    let epoch = start_run(&run).await;
    let request = BlockRequest { sequence: 1, max_count: 3, limit: 5, ..BlockRequest::default() };
    assert_eq!(
        run.acquire_block(epoch, "a b:c", "w", &request).await.unwrap(),
        Some(BlockGrant { block: 0..3, remaining: 2, held_by_others: 0 }),
        "any name will do"
    );
    assert_eq!(run.counters(epoch).await.unwrap()["a b:c"].outstanding(), 3);
    let next = start_run(&run).await;
    assert_eq!(run.acquire_block(epoch, "a b:c", "w", &request).await.unwrap(), None, "another run has begun");
    assert_eq!(run.write_off(epoch, "a b:c", "w").await.unwrap(), None);
    assert_eq!(run.acquire_block(next, "a b:c", "x", &request).await.unwrap().unwrap().block, 0..3);
}

#[tokio::test]
async fn ended_run_gets_no_block() {
    check_only_the_current_run_gets_blocks(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    check_only_the_current_run_gets_blocks(RedisRunStore::new(&client, RunKeys::new("squall:{t}:"))).await;
}
