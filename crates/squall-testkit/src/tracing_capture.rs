//! Captures tracing events of the process for tests of squall-coord and squall-streams.
//!
//! There is one subscriber for the whole process, never one per test (`set_default`): tracing
//! caches "no subscriber" for every thread when a thread without one reaches a callsite first.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, OnceLock},
    thread::{self, ThreadId},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

static CAPTURED: OnceLock<Mutex<Vec<CapturedEvent>>> = OnceLock::new();

/// One event: its thread, level and fields. The field `message` is its text.
#[derive(Debug, Clone)]
pub struct CapturedEvent {
    thread: ThreadId,
    pub level: Level,
    pub fields: BTreeMap<String, String>,
}

impl CapturedEvent {
    /// The text of the event.
    pub fn message(&self) -> &str {
        self.fields.get("message").map_or("", String::as_str)
    }
}

/// Starts to capture Squall's events in this process. Every test may call it.
pub fn start_capture() {
    CAPTURED.get_or_init(|| {
        tracing::subscriber::set_global_default(CaptureSubscriber).expect("no test sets a subscriber of its own");
        Mutex::default()
    });
    // A thread that reached a callsite while the subscriber was being set may have cached "no subscriber".
    tracing::callsite::rebuild_interest_cache();
}

/// All events captured so far, on any thread.
pub fn all_events() -> Vec<CapturedEvent> {
    lock_captured().clone()
}

/// Removes and returns this thread's events of `level` and above. A test on a single-threaded
/// runtime gets all of its events.
pub fn take_thread_events(level: Level) -> Vec<CapturedEvent> {
    let me = thread::current().id();
    let mut kept = lock_captured();
    let (mine, others) = std::mem::take(&mut *kept).into_iter().partition(|event| event.thread == me);
    *kept = others;
    let mut mine: Vec<CapturedEvent> = mine;
    mine.retain(|event| event.level <= level);
    mine
}

fn lock_captured() -> MutexGuard<'static, Vec<CapturedEvent>> {
    CAPTURED.get().expect("start_capture() was called").lock().unwrap_or_else(|broken| broken.into_inner())
}

struct CaptureSubscriber;

#[derive(Default)]
struct EventFields(BTreeMap<String, String>);

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for CaptureSubscriber {
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
        let mut fields = EventFields::default();
        event.record(&mut fields);
        // An event may arrive before `start_capture` has set the list.
        let Some(captured) = CAPTURED.get() else { return };
        let captured = &mut *captured.lock().unwrap_or_else(|broken| broken.into_inner());
        captured.push(CapturedEvent {
            thread: thread::current().id(),
            level: *event.metadata().level(),
            fields: fields.0,
        });
    }
}
