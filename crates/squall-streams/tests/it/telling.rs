//! What is told while processing goes on: lag, throughput, rebalances and failures, as tracing events and as Prometheus text.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use squall_streams::{App, Namespace, Policy, Processor, Settings, StreamMetrics};
use squall_testkit::redis::RedisServer;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::support::{Order, Running, eventually, orders, quick};

type Told = BTreeMap<String, String>;

/// Everything told in this process since the first test that asked.
static TOLD: OnceLock<Mutex<Vec<Told>>> = OnceLock::new();

struct Listener;

#[derive(Default)]
struct Fields(Told);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("squall_")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        TOLD.get_or_init(Mutex::default).lock().unwrap().push(fields.0);
    }
}

/// What was told about a processor under a message.
fn told(processor: &str, message: &str) -> Vec<Told> {
    let told = TOLD.get_or_init(Mutex::default).lock().unwrap();
    let about = |fields: &&Told| {
        fields.get("message").is_some_and(|text| text == message)
            && fields.get("processor").is_some_and(|name| name == processor)
    };
    told.iter().filter(about).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_throughput_rebalances_and_failures_are_told() {
    let _ = tracing::subscriber::set_global_default(Listener);
    let server = RedisServer::start();
    let app = App::connect_in("telling", &server.url(), Namespace::new("").unwrap()).await.unwrap();
    let stream = app.stream::<Order>("orders").partition_by("order_id").partitions(2).open().await.unwrap();
    let name = "telling.orders.fragile";
    let settings = || Settings { report: Duration::from_millis(50), ..quick() };
    let fragile = || {
        let fragile = Processor::new("fragile", &stream, |mut events: squall_streams::Events<Order>| async move {
            while let Some(event) = events.next().await {
                if event.record.number == 30 {
                    return Err(std::io::Error::other("unlucky"));
                }
            }
            Ok(())
        });
        fragile.policy(Policy::quarantine()).settings(settings())
    };
    let first = Running::start(&app, fragile());
    stream.send_many(&orders(40)).await.unwrap();
    let stuck = stream.route(&orders(31)[30]).unwrap();
    eventually("the failure", || async { first.metrics.quarantines() == 1 }).await;
    // Counted by the server's own words: what is pending or waiting in the partition that stands still.
    let admin = squall_streams::admin::Admin::new(app.link().clone(), Namespace::new("").unwrap());
    let processor = squall_streams::ProcessorName::parse(name).unwrap();
    let behind =
        || async { admin.lag(&processor).await.unwrap().iter().map(|one| one.pending + one.waiting).sum::<u64>() };
    let moving = || async { first.metrics.acked() + behind().await == 40 && first.metrics.lag() == behind().await };
    eventually("the lag to be counted", moving).await;
    assert!(first.metrics.lag() > 0);
    let second = Running::start(&app, fragile());
    eventually("a rebalance", || async { first.metrics.held() == 1 && second.metrics.held() == 1 }).await;

    let text = StreamMetrics::render([(&processor, &*first.metrics)]);
    let labels = r#"{app="telling",stream="orders",processor="fragile"}"#;
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

    assert_eq!(told(name, "partition taken").len(), told(name, "partition given back").len());
    assert!(told(name, "partition taken").len() >= 3, "two, and one that moved");
    let failure = &told(name, "quarantined")[0];
    assert!(failure["error"].contains("unlucky") && failure["partition"] == stuck.to_string(), "{failure:?}");
    let progress = told(name, "progress");
    assert!(progress.iter().any(|one| one["rate"] != "0.0" && one["rate"] != "0"), "throughput: {progress:?}");
    assert!(progress.iter().any(|one| one["lag"] != "0"), "lag: {progress:?}");
}
