//! What a process tells through tracing, kept for tests that ask. It judges nothing. The tests of coord and streams use it.
//!
//! One listener for the whole process, and never one per test (`set_default`): while there is just one, a thread that meets a
//! callsite first asks its own default whether anybody listens, and "nobody" is remembered for every thread.

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

/// One event: who told it, how urgent it is, and its fields; its text is the field `message`.
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

/// From now on everything that Squall tells in this process is kept. May be called by every test.
pub fn start_capture() {
    CAPTURED.get_or_init(|| {
        tracing::subscriber::set_global_default(CaptureSubscriber).expect("no test sets a listener of its own");
        Mutex::default()
    });
    // Whoever met a callsite while the listener was being set may have noted that nobody listens.
    tracing::callsite::rebuild_interest_cache();
}

/// Everything told so far, by whomever.
pub fn all_events() -> Vec<CapturedEvent> {
    lock_captured().clone()
}

/// What was told on this thread since the last call, of `level` and above: all that a test with a runtime of one thread told.
pub fn take_thread_events(level: Level) -> Vec<CapturedEvent> {
    let me = thread::current().id();
    let mut kept = lock_captured();
    let (mine, others) = std::mem::take(&mut *kept).into_iter().partition(|told| told.thread == me);
    *kept = others;
    let mut mine: Vec<CapturedEvent> = mine;
    mine.retain(|told| told.level <= level);
    mine
}

fn lock_captured() -> MutexGuard<'static, Vec<CapturedEvent>> {
    CAPTURED.get().expect("listen() was called").lock().unwrap_or_else(|broken| broken.into_inner())
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
        // Told while the listener is being set: nobody has asked yet.
        let Some(told) = CAPTURED.get() else { return };
        let told = &mut *told.lock().unwrap_or_else(|broken| broken.into_inner());
        told.push(CapturedEvent { thread: thread::current().id(), level: *event.metadata().level(), fields: fields.0 });
    }
}
