//! The waits of the request runner: for the send budget of a fleet's worker, and how the task's time
//! limit cuts them.

use squall_engine::{Engine, EngineConfig, SendPermit};
use squall_metrics::{Collector, RunView};
use squall_scenario::Scenario;
use squall_target::TargetServer;
use std::time::{Duration, Instant};

use crate::harness::{block_on, scenario, target};

/// Runs one iteration of `scenario` on one thread under `budget`, beside `meanwhile`.
async fn run_with_budget(scenario: &Scenario, budget: &SendPermit, meanwhile: impl Future<Output = ()>) -> RunView {
    let config = EngineConfig::new(scenario.plan.load.clone(), scenario.plan.tasks.clone());
    let config = EngineConfig { threads: 1, send_permit: Some(budget.clone()), ..config };
    let mut engine = Engine::prepare(scenario.driver(), config).await.expect("a sound scenario");
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    engine.start(Instant::now());
    let run = async {
        while let Some(delta) = engine.next_delta().await {
            collector.merge(delta).expect("deltas in order");
        }
        collector.finish()
    };
    tokio::join!(run, meanwhile).0
}

fn one_iteration(target: &TargetServer, task: &str) -> Scenario {
    scenario(target, &format!("[load]\nusers = 1\nrequests = 1\n[[task]]\nname = 'go'\n{task}"))
}

fn outcomes(view: &RunView) -> Vec<String> {
    let code = |(outcome, n): (&squall_metrics::Outcome, &u64)| format!("{}×{n}", outcome.code);
    view.all.outcomes.iter().map(code).collect()
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Both for the fast path and for a flow: the time limit makes the task a flow.
#[test]
fn redirect_is_not_sent_before_the_budget_allows_redirects() {
    for task in ["get = '/redirect/2'", "get = '/redirect/2'\ntimeout = '60s'"] {
        let target = target();
        let budget = SendPermit::new(1);
        let view = block_on(run_with_budget(&one_iteration(&target, task), &budget, async {
            until(|| budget.redirect_pending()).await;
            assert_eq!(target.requests(), 1, "{task}");
            budget.allow_redirects();
        }));
        assert_eq!((target.requests(), view.all.errors), (3, 0), "{task}");
    }
}

#[test]
fn task_timeout_cuts_the_wait_for_the_send_budget() {
    let target = target();
    let budget = SendPermit::new(1);
    budget.raise_limits(&[0]);
    let scenario = one_iteration(&target, "get = '/health'\ntimeout = '50ms'");
    let view = block_on(run_with_budget(&scenario, &budget, async {}));
    assert_eq!((outcomes(&view), target.requests()), (vec!["TASK_TIMEOUT×1".to_owned()], 0));
    let accounting = view.accounting();
    assert_eq!((accounting.sent, accounting.unsent, accounting.balances()), (0, 1, true));
}
