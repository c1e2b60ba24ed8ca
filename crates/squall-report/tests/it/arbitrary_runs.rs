//! Property tests: every renderer accepts arbitrary runs and names, and its output stays
//! well-formed.

use crate::sample_run::{Recipe, Target, threshold_result};
use proptest::prelude::*;
use quick_junit::Report;
use squall_metrics::ErrorNote;
use squall_model::StopReason;
use squall_report::{
    HdrLogWriter, LiveSnapshot, LoadPhase, ResultFile, TerminalStyle, build_result, compare, csv, html, json_line,
    junit, live_line, summary,
};
use std::{sync::Arc, time::Duration};

fn recipes() -> impl Strategy<Value = Recipe> {
    let sizes = (1u32..14, 2u32..30, 0u32..14, any::<u32>());
    (sizes, any::<bool>(), any::<bool>()).prop_map(|((seconds, rate, warm_up, seed), phases, refusing)| Recipe {
        seconds,
        rate,
        warm_up,
        phases,
        seed: u64::from(seed),
        target: if refusing { Target::Refusing } else { Target::Healthy },
        ..Recipe::default()
    })
}

fn stops() -> impl Strategy<Value = StopReason> {
    let all = [StopReason::Completed, StopReason::Interrupted, StopReason::Aborted, StopReason::Threshold];
    prop::sample::select(all.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn arbitrary_runs_and_names_render_in_every_format(
        recipe in recipes(), stop in stops(), name in any::<String>(), message in any::<String>(), width in 0usize..200,
    ) {
        let mut finished = recipe.make();
        finished.facts.stop = stop;
        finished.facts.thresholds = vec![threshold_result("p99<1s", Some(5e8), true, None), threshold_result("rate>5", None, false, None)];
        finished.plan.name = name.clone();
        finished.plan.target = name.clone();
        if let Some(metric) = finished.view.metrics.first_mut() {
            let key = Arc::make_mut(&mut metric.key);
            key.name = name.clone();
            key.group = Some(message.clone());
            key.tags.insert(message.clone(), name.clone());
            let (metric, outcome) = (metric.key.clone(), *metric.outcomes.keys().next().unwrap());
            finished.view.errors.push(ErrorNote { metric, outcome, message, count: 1 });
        }
        let run = finished.run();
        let style = TerminalStyle { colour: true, width };
        let file = build_result(&run);
        prop_assert_eq!(&ResultFile::parse(&file.to_json()).unwrap(), &file);
        prop_assert!(Report::deserialize_from_str(&junit(&run)).is_ok());
        prop_assert!(summary(&run, style).ends_with('\n'));
        prop_assert!(!html(&run).contains("NaN"));
        prop_assert!(csv(&run).ends_with("\r\n"));
        let (view, plan) = (run.view, run.plan);
        let tick = LiveSnapshot { view, plan, elapsed: Duration::from_secs(1), phase: LoadPhase::Done, unix_ms: 0 };
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json_line(&tick)).is_ok());
        prop_assert!(!live_line(&tick, style).contains('\n'));
        prop_assert!(compare(&file, &file, 0.0).table(style).ends_with('\n'));
        let mut log = HdrLogWriter::new(Vec::new(), std::time::UNIX_EPOCH).unwrap();
        log.write_new_seconds(run.view, run.facts.elapsed).unwrap();
        let log = log.finish().unwrap();
        for entry in hdrhistogram::serialization::interval_log::IntervalLogIterator::new(&log) {
            prop_assert!(entry.is_ok());
        }
    }
}
