//! Numbers that are given out once: random draws, repeats, returns and deaths on both back ends at once, against a plain ledger.

use std::{collections::BTreeMap, ops::Range};

use proptest::{prelude::*, test_runner::TestRunner};
use squall_coord::{
    BlockGrant, BlockRequest, CounterStore, MemoryRunStore, RedisClient, RedisRunStore, RunKeys, RunStore,
};
use squall_testkit::redis::RedisServer;

const LIMIT: u64 = 40;

#[derive(Clone, Debug)]
enum Step {
    /// So many of the numbers in hand are used, the rest goes back if so, and this many are wanted.
    Draw { who: usize, use_up: u64, give_back: bool, most: u64 },
    /// The answer got lost: the same is asked again.
    Repeat(usize),
    /// Taken for dead; it may be heard again.
    WriteOff(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0usize..3;
    let step = prop_oneof![
        6 => (who.clone(), 0u64..9, any::<bool>(), 0u64..12)
            .prop_map(|(who, use_up, give_back, most)| Step::Draw { who, use_up, give_back, most }),
        2 => who.clone().prop_map(Step::Repeat),
        1 => who.prop_map(Step::WriteOff),
    ];
    proptest::collection::vec(step, 1..60)
}

/// One source as it knows itself.
#[derive(Default)]
struct Worker {
    last: BlockRequest,
    answer: Range<u64>,
    hand: Vec<u64>,
}

fn blocks(numbers: &[u64]) -> Vec<Range<u64>> {
    numbers.iter().map(|number| *number..number + 1).collect()
}

async fn begun<R: RunStore>(run: &R) -> u64 {
    let seen = run.read_record().await.unwrap();
    run.compare_and_set(&seen, "RUNNING", "{}", true).await.unwrap().expect("nobody else is here").epoch
}

/// Both must answer alike.
async fn both(model: &MemoryRunStore, real: &RedisRunStore, source: &str, draw: &BlockRequest) -> BlockGrant {
    let expected = model.acquire_block(1, "rows", source, draw).await.unwrap().expect("the run is on");
    assert_eq!(real.acquire_block(1, "rows", source, draw).await.unwrap(), Some(expected.clone()), "{source} {draw:?}");
    expected
}

async fn play(steps: &[Step], model: MemoryRunStore, real: RedisRunStore) {
    assert_eq!((begun(&model).await, begun(&real).await), (1, 1));
    let mut workers: [Worker; 3] = Default::default();
    let mut used: BTreeMap<u64, usize> = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Draw { who, use_up, give_back, most } => {
                let worker = &mut workers[who];
                let keep = worker.hand.len().saturating_sub(use_up as usize);
                for number in worker.hand.split_off(keep) {
                    assert_eq!(used.insert(number, who), None, "{number} was used twice");
                }
                let back = if give_back { std::mem::take(&mut worker.hand) } else { Vec::new() };
                let mine = used.values().filter(|by| **by == who).count() as u64;
                let draw = BlockRequest {
                    sequence: worker.last.sequence + 1,
                    used: mine,
                    returned_blocks: blocks(&back),
                    max_count: most,
                    limit: LIMIT,
                };
                let drawn = both(&model, &real, &who.to_string(), &draw).await;
                assert!(drawn.block.end - drawn.block.start <= most && drawn.block.end <= LIMIT);
                assert!(most == 0 || drawn.remaining == 0 || !drawn.block.is_empty(), "there was something");
                worker.hand.extend(drawn.block.clone());
                (worker.last, worker.answer) = (draw, drawn.block);
            }
            Step::Repeat(who) if workers[who].last.sequence > 0 => {
                let drawn = both(&model, &real, &who.to_string(), &workers[who].last).await;
                assert_eq!(drawn.block, workers[who].answer, "a repeated draw is answered as it was");
            }
            Step::Repeat(_) => {}
            Step::WriteOff(who) => {
                let expected = model.write_off(1, "rows", &who.to_string()).await.unwrap();
                assert_eq!(real.write_off(1, "rows", &who.to_string()).await.unwrap(), expected);
            }
        }
        let mut hands: Vec<u64> = workers.iter().flat_map(|worker| worker.hand.iter().copied()).collect();
        hands.sort_unstable();
        hands.dedup();
        assert_eq!(
            hands.len(),
            workers.iter().map(|worker| worker.hand.len()).sum::<usize>(),
            "one number in two hands"
        );
        assert!(hands.iter().all(|number| !used.contains_key(number)), "a used number was given out again");
        let counters = model.counters(1).await.unwrap();
        assert_eq!(real.counters(1).await.unwrap(), counters);
        if let Some(counter) = counters.get("rows") {
            let known = counter.used() + counter.sources.values().map(|source| source.unused()).sum::<u64>();
            assert_eq!(counter.remaining() + known, LIMIT, "every number is somewhere");
        }
    }
}

#[test]
fn every_number_is_given_out_once_and_none_is_forgotten() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let link = runtime.block_on(RedisClient::open(&server.url())).unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() });
    let outcome = runner.run(&steps(), |steps| {
        let keys = RunKeys::new(format!("squall:{{{:x}}}:", fastrand::u64(..)));
        runtime.block_on(play(&steps, MemoryRunStore::new(), RedisRunStore::new(&link, keys)));
        Ok(())
    });
    outcome.unwrap();
}

async fn only_in_its_run<R: RunStore>(run: R) {
    let epoch = begun(&run).await;
    let draw = BlockRequest { sequence: 1, max_count: 3, limit: 5, ..BlockRequest::default() };
    assert_eq!(
        run.acquire_block(epoch, "a b:c", "w", &draw).await.unwrap(),
        Some(BlockGrant { block: 0..3, remaining: 2, held_by_others: 0 }),
        "any name will do"
    );
    assert_eq!(run.counters(epoch).await.unwrap()["a b:c"].outstanding(), 3);
    let next = begun(&run).await;
    assert_eq!(run.acquire_block(epoch, "a b:c", "w", &draw).await.unwrap(), None, "another run is on");
    assert_eq!(run.write_off(epoch, "a b:c", "w").await.unwrap(), None);
    assert_eq!(run.acquire_block(next, "a b:c", "x", &draw).await.unwrap().unwrap().block, 0..3);
}

#[tokio::test]
async fn an_earlier_run_draws_nothing() {
    only_in_its_run(MemoryRunStore::new()).await;
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    only_in_its_run(RedisRunStore::new(&link, RunKeys::new("squall:{t}:"))).await;
}
