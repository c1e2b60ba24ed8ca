//! Decides which messages the subscribers of the live feed get, and renders each once for all of
//! them. It polls nothing: the watcher calls [`LiveFeed::publish`] after each poll.

use serde_json::Value;
use squall_coord::FleetStores;
use squall_model::FleetEvent;
use squall_orchestrator::{FleetStatus, WorkerInfo};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::broadcast, time::Instant};

use super::{
    figures::TablePart,
    run_messages::{event_message, events, second_message, snapshot_messages, table_message},
    status_messages::{fleet_message, state_json, state_without_store},
};
use crate::run_watcher::WatchedRun;

/// Messages that wait for a slow subscriber. If more wait it gets a snapshot in place of them, so
/// the number is small: a few seconds of messages.
const FEED_CAPACITY: usize = 16;
/// The table of more metrics than this is sent in [`TABLE_PARTS`] parts, one each second, so that no second
/// costs a page more than the others.
const SMALL_TABLE: usize = 50;
const TABLE_PARTS: u32 = 5;
const FLEET_INTERVAL: Duration = Duration::from_secs(1);

/// A message to all subscribers.
#[derive(Debug, Clone)]
pub(crate) enum Published {
    Text(Arc<str>),
    Second(PublishedSecond),
    /// Another run, or a run that has ended: each subscriber gets a whole snapshot.
    Resync,
}

/// A closed second. A subscriber whose snapshot contains it leaves it out.
#[derive(Debug, Clone)]
pub(crate) struct PublishedSecond {
    pub(crate) run: Arc<str>,
    pub(crate) t_s: u32,
    pub(crate) text: Arc<str>,
}

/// What the latest poll found in the store.
#[derive(Clone, Copy)]
pub(crate) enum StoreContact<'a> {
    Status {
        status: &'a FleetStatus,
        workers: &'a [WorkerInfo],
    },
    /// The store did not respond.
    Lost,
}

/// What the subscribers know, and the channel to them.
pub(crate) struct LiveFeed {
    version: &'static str,
    channel: broadcast::Sender<Published>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    run: Arc<str>,
    finished: bool,
    seconds: u32,
    metrics: usize,
    events: Vec<FleetEvent>,
    state: Arc<str>,
    /// The latest state that was read from the store.
    known_state: Option<Value>,
    fleet: Option<(Instant, Arc<str>)>,
    /// The age of the run, and when the store was asked for it.
    elapsed: Option<(Instant, Duration)>,
    snapshot: Option<CachedSnapshot>,
}

/// A whole snapshot of the run as it was at some second.
struct CachedSnapshot {
    run: Arc<str>,
    finished: bool,
    seconds: u32,
    texts: Vec<Arc<str>>,
}

impl CachedSnapshot {
    fn is_of<C: FleetStores>(&self, watched: &WatchedRun<C>) -> bool {
        let seconds = watched.view().timeline.len() as u32;
        (&*self.run, self.finished, self.seconds) == (watched.run_id(), watched.finished, seconds)
    }
}

impl LiveFeed {
    pub(crate) fn new(version: &'static str) -> LiveFeed {
        LiveFeed { version, channel: broadcast::Sender::new(FEED_CAPACITY), progress: Mutex::default() }
    }

    pub(crate) fn version(&self) -> &'static str {
        self.version
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Published> {
        self.channel.subscribe()
    }

    pub(crate) fn subscriber_count(&self) -> usize {
        self.channel.receiver_count()
    }

    /// The latest `state` and `fleet` messages.
    pub(crate) fn latest_status(&self) -> Vec<Arc<str>> {
        let progress = self.progress();
        let state = Some(progress.state.clone()).filter(|state| !state.is_empty());
        state.into_iter().chain(progress.fleet.as_ref().map(|(_, text)| text.clone())).collect()
    }

    /// The age of the run now, in seconds; `None` without a run in progress.
    pub(crate) fn elapsed_s(&self) -> Option<f64> {
        let (at, elapsed) = self.progress().elapsed?;
        Some((elapsed + at.elapsed()).as_secs_f64())
    }

    /// The messages of the whole snapshot, rendered once for all subscribers that need it.
    pub(crate) fn whole_snapshot<C: FleetStores>(&self, watched: Option<&WatchedRun<C>>) -> Vec<Arc<str>> {
        let render = || snapshot_messages(watched, 0).into_iter().map(Arc::from).collect::<Vec<_>>();
        let Some(run) = watched else { return render() };
        if let Some(cached) = self.progress().snapshot.as_ref().filter(|cached| cached.is_of(run)) {
            return cached.texts.clone();
        }
        let texts = render();
        let seconds = run.view().timeline.len() as u32;
        let (run, finished) = (run.run_id().into(), run.finished);
        self.progress().snapshot = Some(CachedSnapshot { run, finished, seconds, texts: texts.clone() });
        texts
    }

    /// Sends what has changed since the last call.
    pub(crate) fn publish<C: FleetStores>(&self, contact: StoreContact<'_>, watched: Option<&WatchedRun<C>>) {
        let mut progress = self.progress();
        if self.subscriber_count() == 0 {
            // No list of workers is rendered without subscribers, and the next one may not get an old list.
            progress.fleet = None;
        }
        let state = match contact {
            StoreContact::Status { status, .. } => {
                progress.known_state.insert(state_json(status, watched, self.version)).clone()
            }
            StoreContact::Lost => state_without_store(progress.known_state.clone()),
        };
        let state: Arc<str> = state.to_string().into();
        if state != progress.state {
            progress.state = state.clone();
            self.send(Published::Text(state));
        }
        progress.elapsed = watched.and_then(WatchedRun::age);
        if let Some(watched) = watched {
            self.publish_run(&mut progress, watched);
        }
        if let StoreContact::Status { status, workers } = contact {
            self.publish_fleet(&mut progress, status, workers, watched);
        }
    }

    fn publish_run<C: FleetStores>(&self, progress: &mut Progress, watched: &WatchedRun<C>) {
        let view = watched.view();
        let seconds = view.timeline.len() as u32;
        if (&*progress.run, progress.finished) != (watched.run_id(), watched.finished) {
            (progress.run, progress.finished) = (watched.run_id().into(), watched.finished);
            (progress.seconds, progress.metrics) = (seconds, view.metrics.len());
            progress.events = events(watched);
            progress.snapshot = None;
            return self.send(Published::Resync);
        }
        // Without subscribers nothing needs to be rendered: the next one gets a snapshot.
        if self.subscriber_count() > 0 {
            for second in view.timeline.iter().skip(progress.seconds as usize) {
                let text = second_message(watched, second, progress.metrics).into();
                self.send(Published::Second(PublishedSecond { run: progress.run.clone(), t_s: second.t_s, text }));
            }
            for part in table_parts(view.metrics.len(), progress.seconds, seconds) {
                self.send(Published::Text(table_message(watched, part).into()));
            }
        }
        self.publish_events(progress, events(watched));
        (progress.seconds, progress.metrics) = (seconds, view.metrics.len());
    }

    /// A note may be of an earlier time than events that readers know, so their number does not say
    /// which ones are new.
    fn publish_events(&self, progress: &mut Progress, events: Vec<FleetEvent>) {
        for event in events.iter().filter(|event| !progress.events.contains(event)) {
            // A snapshot that was rendered before lacks it.
            progress.snapshot = None;
            self.send(Published::Text(event_message(&progress.run, event).into()));
        }
        progress.events = events;
    }

    fn publish_fleet<C: FleetStores>(
        &self,
        progress: &mut Progress,
        status: &FleetStatus,
        workers: &[WorkerInfo],
        watched: Option<&WatchedRun<C>>,
    ) {
        let due = progress.fleet.as_ref().is_none_or(|(at, _)| at.elapsed() >= FLEET_INTERVAL);
        if !due || self.subscriber_count() == 0 {
            return;
        }
        let activity = watched.map(WatchedRun::worker_activity).unwrap_or_default();
        let text: Arc<str> = fleet_message(workers, &activity, status.now_ms, status.revision).into();
        progress.fleet = Some((Instant::now(), text.clone()));
        self.send(Published::Text(text));
    }

    pub(crate) fn send(&self, message: Published) {
        // It fails only without subscribers, which is not an error.
        let _ = self.channel.send(message);
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of the table that are due when the seconds after `from` up to `to` have closed.
fn table_parts(metrics: usize, from: u32, to: u32) -> Vec<TablePart> {
    let closed = from + 1..=to;
    if metrics <= SMALL_TABLE || closed.clone().count() as u32 >= TABLE_PARTS {
        return closed.last().map(|_| TablePart::WHOLE).into_iter().collect();
    }
    closed.map(|t_s| TablePart { place: (t_s % TABLE_PARTS) as usize, parts: TABLE_PARTS as usize }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::MemoryFleetStores;
    use squall_model::RunPhase;

    fn kinds(texts: &[Arc<str>]) -> Vec<serde_json::Value> {
        texts.iter().map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap()["type"].clone()).collect()
    }

    fn status(phase: RunPhase) -> FleetStatus {
        FleetStatus { phase, epoch: 1, revision: 2, elapsed_s: None, spec: None, now_ms: 0, workers: Vec::new() }
    }

    #[test]
    fn reader_that_comes_while_the_store_is_away_gets_the_last_known_state() {
        let feed = LiveFeed::new("test");
        let state = |contact: StoreContact<'_>| -> Value {
            feed.publish::<MemoryFleetStores>(contact, None);
            serde_json::from_str(&feed.latest_status()[0]).unwrap()
        };
        assert_eq!(state(StoreContact::Lost), serde_json::json!({"type": "state", "store_up": false}));
        let mut known = state(StoreContact::Status { status: &status(RunPhase::Running), workers: &[] });
        assert_eq!((&known["phase"], &known["store_up"]), (&"RUNNING".into(), &true.into()));
        known["store_up"] = false.into();
        assert_eq!(state(StoreContact::Lost), known);
    }

    #[tokio::test]
    async fn first_reader_gets_no_list_of_workers_of_an_earlier_one() {
        let feed = LiveFeed::new("test");
        let status = status(RunPhase::Idle);
        let publish = || {
            let contact = StoreContact::Status { status: &status, workers: &[] };
            feed.publish::<MemoryFleetStores>(contact, None);
            kinds(&feed.latest_status())
        };
        let reader = feed.subscribe();
        assert_eq!(publish(), ["state", "fleet"]);
        drop(reader);
        assert_eq!(publish(), ["state"]);
    }

    #[track_caller]
    fn check(metrics: usize, seconds: (u32, u32), expected: &[(usize, usize)]) {
        let parts = table_parts(metrics, seconds.0, seconds.1);
        assert_eq!(parts.iter().map(|part| (part.place, part.parts)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn large_table_is_sent_in_parts_and_each_metric_every_five_seconds() {
        check(50, (7, 8), &[(0, 1)]);
        check(50, (7, 7), &[]);
        check(51, (7, 8), &[(3, 5)]);
        check(51, (8, 10), &[(4, 5), (0, 5)]);
        check(51, (7, 7), &[]);
        // After a stall the whole table is smaller than its parts.
        check(51, (7, 12), &[(0, 1)]);
    }
}
