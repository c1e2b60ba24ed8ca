//! Observability: lag, rate, rebalances and failures, as tracing events and as Prometheus text.

use std::{collections::BTreeMap, time::Duration};

use squall_streams::{FailurePolicy, Namespace, Processor, ProcessorSettings, StreamApp, StreamMetrics};
use squall_testkit::{
    redis::RedisServer,
    tracing_capture::{self, CapturedEvent},
};

use crate::support::{Order, RunningWorker, eventually, fast_settings, orders};

/// The fields of all tracing events of a processor with a message.
fn events_about(processor: &str, message: &str) -> Vec<BTreeMap<String, String>> {
    let events_about = |event: &CapturedEvent| {
        event.message() == message && event.fields.get("processor").is_some_and(|name| name == processor)
    };
    tracing_capture::all_events().into_iter().filter(events_about).map(|event| event.fields).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_rate_rebalances_and_failures_are_traced_and_exported() {
    tracing_capture::start_capture();
    let server = RedisServer::start();
    let app = StreamApp::connect_in("observed", &server.url(), Namespace::new("").unwrap()).await.unwrap();
    let stream = app.stream::<Order>("orders").partition_by("order_id").partitions(2).open().await.unwrap();
    let name = "observed.orders.failing";
    let settings = || ProcessorSettings { report_interval: Duration::from_millis(50), ..fast_settings() };
    let failing_processor = || {
        let failing_processor =
            Processor::new("failing", &stream, |mut events: squall_streams::PartitionEvents<Order>| async move {
                while let Some(event) = events.next().await {
                    if event.record.number == 30 {
                        return Err(std::io::Error::other("unlucky"));
                    }
                }
                Ok(())
            });
        failing_processor.policy(FailurePolicy::quarantine()).settings(settings())
    };
    let first = RunningWorker::start(&app, failing_processor());
    stream.send_many(&orders(40)).await.unwrap();
    let bad_partition = stream.route(&orders(31)[30]).unwrap();
    eventually("the partition is in quarantine", || async { first.metrics.quarantines() == 1 }).await;
    // The lag must equal the pending and waiting events that the server reports.
    let admin = squall_streams::admin::StreamAdmin::new(app.client().clone(), Namespace::new("").unwrap());
    let processor = squall_streams::ProcessorName::parse(name).unwrap();
    let behind =
        || async { admin.lag(&processor).await.unwrap().iter().map(|one| one.pending + one.waiting).sum::<u64>() };
    let lag_is_current =
        || async { first.metrics.acked() + behind().await == 40 && first.metrics.lag() == behind().await };
    eventually("the lag metric is current", lag_is_current).await;
    assert!(first.metrics.lag() > 0);
    let second = RunningWorker::start(&app, failing_processor());
    eventually("each worker holds one partition", || async { first.metrics.held() == 1 && second.metrics.held() == 1 })
        .await;

    let text = StreamMetrics::render([(&processor, &*first.metrics)]);
    let labels = r#"{app="observed",stream="orders",processor="failing"}"#;
    for (metric, value) in [
        ("squall_stream_events_acked_total", first.metrics.acked()),
        ("squall_stream_lag", first.metrics.lag()),
        ("squall_stream_failures_total", 1),
        ("squall_stream_quarantines_total", 1),
        ("squall_stream_partitions_granted_total", 2),
        ("squall_stream_partitions_returned_total", 1),
        ("squall_stream_partitions_held", 1),
    ] {
        assert!(
            text.contains(&format!("\n{metric}{labels} {value}\n"))
                || text.contains(&format!("{metric}{labels} {value}\n")),
            "{metric} {value} in\n{text}"
        );
    }
    first.stop().await.unwrap();
    second.stop().await.unwrap();

    assert_eq!(events_about(name, "partition taken").len(), events_about(name, "partition given back").len());
    assert!(events_about(name, "partition taken").len() >= 3, "two partitions, and one of them again after it moved");
    let failure = &events_about(name, "quarantined")[0];
    assert!(failure["error"].contains("unlucky") && failure["partition"] == bad_partition.to_string(), "{failure:?}");
    let progress = events_about(name, "progress");
    assert!(progress.iter().any(|one| one["rate"] != "0.0" && one["rate"] != "0"), "throughput: {progress:?}");
    assert!(progress.iter().any(|one| one["lag"] != "0"), "lag: {progress:?}");
}
