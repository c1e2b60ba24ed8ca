//! Decides which browser takes a session, which browsers retire, and how many spares are missing.
//! It starts and ends nothing. [`super::browser_pool`] performs what it decides.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Who may share a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// All sessions.
    Shared,
    /// Sessions of one API key.
    Key,
    /// No other session.
    Session,
}

impl Isolation {
    /// Reads `shared`, `key` or `session`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "shared" => Self::Shared,
            "key" => Self::Key,
            "session" => Self::Session,
            _ => return None,
        })
    }

    /// As [`Isolation::parse`] reads it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Key => "key",
            Self::Session => "session",
        }
    }

    fn strictness(self) -> u8 {
        match self {
            Self::Shared => 0,
            Self::Key => 1,
            Self::Session => 2,
        }
    }

    /// The stricter of two.
    #[must_use]
    pub fn or_stricter(self, other: Self) -> Self {
        if other.strictness() > self.strictness() { other } else { self }
    }
}

/// When browsers retire, and how many stand by.
#[derive(Clone, Copy, Debug)]
pub struct BrowserRules {
    /// A browser takes no more sessions after this number.
    pub recycle_after: u64,
    /// A browser takes no more sessions at this age.
    pub max_age: Duration,
    /// A browser takes no more sessions when its processes have more anonymous memory than this, in bytes.
    pub max_memory: Option<u64>,
    /// How long the sessions of such a browser may last from then on.
    pub recycle_timeout: Duration,
    /// Browsers that stand by without an owner.
    pub spares: usize,
    /// The most browsers at once.
    pub limit: usize,
}

/// Who a browser belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    /// No session has used it.
    None,
    /// Sessions of all keys.
    Everyone,
    /// Sessions of this key.
    Key(String),
    /// One session.
    Session,
}

#[derive(Debug)]
struct Browser {
    owner: Owner,
    sessions: u32,
    lifetime: u64,
    started: Instant,
    /// Whether it takes no more sessions.
    retired: bool,
    /// Whether it has missed its last probe, and takes no sessions until it answers.
    silent: bool,
    /// Since when a rule wants it replaced.
    due_since: Option<Instant>,
}

impl Browser {
    fn retire(&mut self, now: Instant) {
        self.retired = true;
        self.due_since.get_or_insert(now);
    }
}

/// The browsers of a worker.
#[derive(Debug)]
pub(crate) struct BrowserSet {
    rules: BrowserRules,
    browsers: BTreeMap<u64, Browser>,
}

impl BrowserSet {
    pub(crate) fn new(rules: BrowserRules) -> Self {
        Self { rules, browsers: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, id: u64, now: Instant) {
        let browser = Browser {
            owner: Owner::None,
            sessions: 0,
            lifetime: 0,
            started: now,
            retired: false,
            silent: false,
            due_since: None,
        };
        self.browsers.insert(id, browser);
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.browsers.remove(&id);
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.browsers.keys().copied().collect()
    }

    /// The browser for a new session, which counts from now on; `None` if one must be launched first.
    pub(crate) fn take(&mut self, key: &str, isolation: Isolation, now: Instant) -> Option<u64> {
        let wanted = match isolation {
            Isolation::Shared => Owner::Everyone,
            Isolation::Key => Owner::Key(key.to_owned()),
            Isolation::Session => Owner::Session,
        };
        let shareable = |browser: &Browser| isolation != Isolation::Session && browser.owner == wanted;
        let open = || self.browsers.iter().filter(|(_, browser)| !browser.retired && !browser.silent);
        let chosen = open().find(|(_, browser)| shareable(browser));
        let chosen = chosen.or_else(|| open().find(|(_, browser)| browser.owner == Owner::None)).map(|(id, _)| *id)?;
        let (recycle_after, browser) = (self.rules.recycle_after, self.browsers.get_mut(&chosen)?);
        browser.owner = wanted;
        browser.sessions += 1;
        browser.lifetime += 1;
        browser.retired = isolation == Isolation::Session;
        if browser.lifetime >= recycle_after {
            browser.retire(now);
        }
        Some(chosen)
    }

    /// Ends a session of a browser.
    pub(crate) fn give_back(&mut self, id: u64) {
        if let Some(browser) = self.browsers.get_mut(&id) {
            browser.sessions = browser.sessions.saturating_sub(1);
        }
    }

    /// Gives a browser no more sessions.
    pub(crate) fn retire(&mut self, id: u64, now: Instant) {
        if let Some(browser) = self.browsers.get_mut(&id) {
            browser.retire(now);
        }
    }

    /// Notes whether a browser has answered its probe. One that has not would let a session wait for nothing.
    pub(crate) fn note_probe(&mut self, id: u64, answered: bool) {
        if let Some(browser) = self.browsers.get_mut(&id) {
            browser.silent = !answered;
        }
    }

    /// Browsers whose sessions have lasted for too long since a rule wanted the browser replaced.
    pub(crate) fn overdue(&self, now: Instant) -> Vec<u64> {
        let timeout = self.rules.recycle_timeout;
        let is_overdue = |browser: &Browser| browser.due_since.is_some_and(|since| now - since >= timeout);
        self.browsers.iter().filter(|(_, browser)| is_overdue(browser)).map(|(id, _)| *id).collect()
    }

    /// Retired browsers without sessions, which should end.
    pub(crate) fn finished(&self) -> Vec<u64> {
        let finished = self.browsers.iter().filter(|(_, browser)| browser.retired && browser.sessions == 0);
        finished.map(|(id, _)| *id).collect()
    }

    /// How many browsers to launch as spares. Old browsers retire when the spares that follow them run, so
    /// that no session waits for a launch. If the limit leaves no room, an idle browser retires first.
    pub(crate) fn missing_spares(&mut self, now: Instant) -> usize {
        let max_age = self.rules.max_age;
        let is_old = |browser: &Browser| now.duration_since(browser.started) >= max_age;
        let is_spare =
            |browser: &Browser| browser.owner == Owner::None && !browser.retired && !browser.silent && !is_old(browser);
        let spares = self.browsers.values().filter(|browser| is_spare(browser)).count();
        let missing = self.rules.spares.saturating_sub(spares);
        if missing == 0 {
            self.browsers.values_mut().filter(|browser| is_old(browser)).for_each(|browser| browser.retire(now));
        }
        let room = self.rules.limit.saturating_sub(self.browsers.len());
        if missing > room
            && let Some(idle) = self.browsers.values_mut().find(|browser| {
                !browser.retired && browser.sessions == 0 && (browser.owner != Owner::None || is_old(browser))
            })
        {
            idle.retire(now);
        }
        missing.min(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spares: usize, recycle_after: u64) -> (BrowserSet, Instant) {
        let (max_age, recycle_timeout) = (Duration::from_secs(60), Duration::from_secs(30));
        let mut set = BrowserSet::new(BrowserRules {
            recycle_after,
            max_age,
            max_memory: None,
            recycle_timeout,
            spares,
            limit: 4,
        });
        let now = Instant::now();
        set.add(1, now);
        set.add(2, now);
        (set, now)
    }

    #[test]
    fn keys_never_share_a_browser() {
        let (mut set, now) = set(1, 100);
        assert_eq!(set.take("blue", Isolation::Key, now), Some(1));
        assert_eq!(set.take("red", Isolation::Key, now), Some(2));
        assert_eq!(set.take("blue", Isolation::Key, now), Some(1));
        assert_eq!(set.take("green", Isolation::Key, now), None);
        set.give_back(2);
        assert_eq!(set.take("green", Isolation::Key, now), None, "an empty browser of another key is not reused");
        assert_eq!(set.take("green", Isolation::Shared, now), None, "nor by a shared session");
    }

    #[test]
    fn session_isolation_never_reuses_a_browser() {
        let (mut set, now) = set(1, 100);
        assert_eq!(set.take("", Isolation::Session, now), Some(1));
        assert_eq!(set.take("", Isolation::Key, now), Some(2));
        set.give_back(1);
        assert_eq!(set.finished(), [1]);
        assert_eq!(set.take("", Isolation::Session, now), None);
        assert_eq!(Isolation::Key.or_stricter(Isolation::Session), Isolation::Session);
        assert_eq!(Isolation::Key.or_stricter(Isolation::Shared), Isolation::Key);
    }

    #[test]
    fn browser_that_missed_a_probe_takes_no_session_until_it_answers() {
        let (mut set, now) = set(1, 100);
        assert_eq!(set.take("", Isolation::Key, now), Some(1));
        set.note_probe(1, false);
        assert_eq!(set.take("", Isolation::Key, now), Some(2), "the spare");
        set.add(3, now);
        set.note_probe(3, false);
        assert_eq!((set.take("red", Isolation::Key, now), set.missing_spares(now)), (None, 1));
        set.note_probe(3, true);
        assert_eq!((set.take("red", Isolation::Key, now), set.finished().len()), (Some(3), 0));
    }

    #[test]
    fn browser_retires_after_its_sessions_and_ends_when_empty() {
        let (mut set, now) = set(1, 2);
        assert_eq!((set.take("", Isolation::Key, now), set.take("", Isolation::Key, now)), (Some(1), Some(1)));
        assert_eq!(set.take("", Isolation::Key, now), Some(2), "the spare takes over at once");
        assert!(set.finished().is_empty());
        set.give_back(1);
        set.give_back(1);
        assert_eq!(set.finished(), [1]);
        assert_eq!(set.missing_spares(now), 1);
    }

    #[test]
    fn old_browsers_retire_when_their_spares_run() {
        let (mut set, now) = set(2, 100);
        assert_eq!(set.missing_spares(now), 0);
        let later = now + Duration::from_secs(60);
        assert_eq!(set.missing_spares(later), 2);
        assert!(set.finished().is_empty(), "a session that comes now has a browser");
        set.add(3, later);
        assert_eq!(set.missing_spares(later), 1);
        assert_eq!(set.take("", Isolation::Key, now), Some(1));
        set.add(4, later);
        assert_eq!(set.missing_spares(later), 0);
        assert_eq!(set.finished(), [2]);
        assert_eq!(set.take("", Isolation::Key, now), Some(3), "an old browser takes no more sessions");
        set.give_back(1);
        assert_eq!(set.finished(), [1, 2]);
    }

    #[test]
    fn sessions_of_a_browser_that_is_to_be_replaced_are_overdue_at_the_deadline() {
        let (mut set, now) = set(0, 1);
        let deadline = now + Duration::from_secs(30);
        assert_eq!(set.take("", Isolation::Key, now), Some(1));
        assert_eq!(set.overdue(deadline - Duration::from_millis(1)), [] as [u64; 0]);
        assert_eq!(set.overdue(deadline), [1]);
    }

    #[test]
    fn browser_of_one_session_is_overdue_only_after_its_age() {
        let (mut set, now) = set(0, 100);
        assert_eq!(set.take("", Isolation::Session, now), Some(1));
        let later = now + Duration::from_secs(60);
        assert_eq!((set.overdue(later), set.missing_spares(later)), (Vec::new(), 0));
        assert_eq!(set.overdue(later + Duration::from_secs(29)), [] as [u64; 0]);
        assert_eq!(set.overdue(later + Duration::from_secs(30)), [1, 2]);
    }

    #[test]
    fn old_idle_browser_makes_room_for_its_spare() {
        let (mut set, now) = set(1, 100);
        set.add(3, now);
        set.add(4, now);
        let later = now + Duration::from_secs(60);
        assert_eq!(set.missing_spares(later), 0, "the limit is reached");
        assert_eq!(set.finished(), [1]);
        set.remove(1);
        assert_eq!(set.missing_spares(later), 1);
    }

    #[test]
    fn idle_browser_of_a_key_makes_room_for_a_spare() {
        let (mut set, now) = set(1, 100);
        set.add(3, now);
        set.add(4, now);
        for key in ["a", "b", "c", "d"] {
            assert!(set.take(key, Isolation::Key, now).is_some());
        }
        assert_eq!(set.missing_spares(now), 0);
        assert!(set.finished().is_empty(), "no browser with a session retires");
        set.give_back(3);
        assert_eq!(set.missing_spares(now), 0);
        assert_eq!(set.finished(), [3]);
    }
}
