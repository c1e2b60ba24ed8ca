//! Notes of a run: small facts that workers and the leader leave for each other in the store, each
//! under its own name.

use super::{format_instance, parse_instance};
use crate::{FleetEvent, Profile};
use std::{collections::BTreeMap, fmt, num::ParseIntError, str::FromStr, time::Duration};

/// One fact of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunNote {
    /// `left:<share>`: up to when the starts of a share are made, or `taken` if only its holder
    /// knows.
    Share { share: u32, note: ShareNote },
    /// `sealed:<instance>`: the worker's final send limit. Its load is over, and it sends at most
    /// this many requests in total.
    FinalSendLimit { instance: u64, requests: u64 },
    /// `ended:<instance>`: the time of the run at which the worker's load was over.
    LoadEnd { instance: u64, at: Duration },
    /// `set_up`: how the scenario's set-up ended.
    SetUp(HookOutcome),
    /// `tear_down`: how the scenario's tear-down ended.
    TearDown(HookOutcome),
    /// `facts`: the facts of the finished run, in JSON.
    Facts(String),
    /// `bundle`: the name of the finished run's bundle.
    Bundle(String),
    /// `profile`: the load profile of the finished run, with the changes that people made, in JSON.
    Profile(Profile),
    /// `note:<id>`: what a person noted, in JSON.
    Person { id: String, event: FleetEvent },
}

/// What the holders of a share have noted. Without a note no worker has held the share in the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShareNote {
    /// A worker holds the share, or held it and died. Its progress is unknown.
    Taken,
    /// The last holder gave the share up after it had made every start before these times.
    Left(ResumePoints),
}

/// How a hook of the scenario ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookOutcome {
    /// With the data that it returned, in JSON; empty for a tear-down.
    Done(String),
    /// With the reason, for people.
    Failed(String),
}

/// For each scenario of a run, the time of the run before which every start of a share has been
/// made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumePoints(Vec<Duration>);

/// All notes of a run, as the store returns them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunNotes(BTreeMap<String, String>);

impl RunNote {
    /// The name and the text that the store keeps.
    pub fn encode(&self) -> (String, String) {
        match self {
            RunNote::Share { share, note } => (share_name(*share), note.to_string()),
            RunNote::FinalSendLimit { instance, requests } => (final_send_limit_name(*instance), requests.to_string()),
            RunNote::LoadEnd { instance, at } => {
                (format!("{LOAD_END_PREFIX}{}", format_instance(*instance)), at.as_nanos().to_string())
            }
            RunNote::SetUp(outcome) => (SET_UP.to_owned(), outcome.to_string()),
            RunNote::TearDown(outcome) => (TEAR_DOWN.to_owned(), outcome.to_string()),
            RunNote::Facts(json) => (FACTS.to_owned(), json.clone()),
            RunNote::Bundle(name) => (BUNDLE.to_owned(), name.clone()),
            RunNote::Profile(profile) => {
                (PROFILE.to_owned(), serde_json::to_string(profile).expect("a profile is numbers"))
            }
            RunNote::Person { id, event } => {
                (format!("{PERSON}:{id}"), serde_json::to_string(event).expect("an event is text and numbers"))
            }
        }
    }

    /// Reads what [`RunNote::encode`] wrote; `None` for a note that this version does not know.
    pub fn decode(name: &str, text: &str) -> Option<RunNote> {
        let (kind, of) = name.split_once(':').unwrap_or((name, ""));
        Some(match kind {
            "left" => RunNote::Share { share: of.parse().ok()?, note: ShareNote::decode(text) },
            "sealed" => RunNote::FinalSendLimit { instance: parse_instance(of)?, requests: text.parse().ok()? },
            "ended" => RunNote::LoadEnd { instance: parse_instance(of)?, at: Duration::from_nanos(text.parse().ok()?) },
            SET_UP => RunNote::SetUp(HookOutcome::decode(text)),
            TEAR_DOWN => RunNote::TearDown(HookOutcome::decode(text)),
            FACTS => RunNote::Facts(text.to_owned()),
            BUNDLE => RunNote::Bundle(text.to_owned()),
            PROFILE => RunNote::Profile(serde_json::from_str(text).ok()?),
            PERSON => RunNote::Person { id: of.to_owned(), event: serde_json::from_str(text).ok()? },
            _ => return None,
        })
    }
}

const LOAD_END_PREFIX: &str = "ended:";
const SET_UP: &str = "set_up";
const TEAR_DOWN: &str = "tear_down";
const FACTS: &str = "facts";
const BUNDLE: &str = "bundle";
const PROFILE: &str = "profile";
const PERSON: &str = "note";

fn share_name(share: u32) -> String {
    format!("left:{share}")
}

fn final_send_limit_name(instance: u64) -> String {
    format!("sealed:{}", format_instance(instance))
}

impl RunNotes {
    /// What the notes say of a share; `None` if no worker has held it.
    pub fn share(&self, share: u32) -> Option<ShareNote> {
        self.0.get(&share_name(share)).map(|text| ShareNote::decode(text))
    }

    /// The final send limit of the worker, if its load is over; see [`RunNote::FinalSendLimit`].
    pub fn final_send_limit(&self, instance: u64) -> Option<u64> {
        self.0.get(&final_send_limit_name(instance))?.parse().ok()
    }

    /// When the load of the last worker was over, if any worker has noted it.
    pub fn load_end(&self) -> Option<Duration> {
        let notes = self.0.iter().filter_map(|(name, text)| RunNote::decode(name, text));
        let end = |note| match note {
            RunNote::LoadEnd { at, .. } => Some(at),
            RunNote::Share { .. }
            | RunNote::FinalSendLimit { .. }
            | RunNote::SetUp(_)
            | RunNote::TearDown(_)
            | RunNote::Facts(_)
            | RunNote::Bundle(_)
            | RunNote::Profile(_)
            | RunNote::Person { .. } => None,
        };
        notes.filter_map(end).max()
    }

    /// What people have noted, in order of time.
    pub fn person_notes(&self) -> Vec<FleetEvent> {
        let events = self.0.iter().filter(|(name, _)| name.starts_with(PERSON));
        let mut events: Vec<FleetEvent> = events
            .filter_map(|(name, text)| match RunNote::decode(name, text)? {
                RunNote::Person { event, .. } => Some(event),
                _ => None,
            })
            .collect();
        events.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
        events
    }

    pub fn set_up(&self) -> Option<HookOutcome> {
        self.0.get(SET_UP).map(|text| HookOutcome::decode(text))
    }

    pub fn tear_down(&self) -> Option<HookOutcome> {
        self.0.get(TEAR_DOWN).map(|text| HookOutcome::decode(text))
    }

    /// The facts of the finished run, in JSON.
    pub fn facts(&self) -> Option<&str> {
        self.0.get(FACTS).map(String::as_str)
    }

    /// The name of the finished run's bundle.
    pub fn bundle(&self) -> Option<&str> {
        self.0.get(BUNDLE).map(String::as_str)
    }

    /// The load profile of the finished run.
    pub fn profile(&self) -> Option<Profile> {
        serde_json::from_str(self.0.get(PROFILE)?).ok()
    }
}

impl From<BTreeMap<String, String>> for RunNotes {
    fn from(notes: BTreeMap<String, String>) -> RunNotes {
        RunNotes(notes)
    }
}

impl ShareNote {
    /// A text that holds no times counts as taken: it proves that a worker had the share, and
    /// nothing more.
    fn decode(text: &str) -> ShareNote {
        text.parse().map_or(ShareNote::Taken, ShareNote::Left)
    }
}

impl fmt::Display for ShareNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShareNote::Taken => f.write_str("taken"),
            ShareNote::Left(points) => points.fmt(f),
        }
    }
}

impl HookOutcome {
    fn decode(text: &str) -> HookOutcome {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        match word {
            "done" => HookOutcome::Done(rest.to_owned()),
            _ => HookOutcome::Failed(rest.to_owned()),
        }
    }
}

impl fmt::Display for HookOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookOutcome::Done(data) => write!(f, "done:{data}"),
            HookOutcome::Failed(reason) => write!(f, "failed:{reason}"),
        }
    }
}

impl ResumePoints {
    /// No start has been made.
    pub const RUN_START: ResumePoints = ResumePoints(Vec::new());

    /// One point per scenario, in the order of the run's scenarios.
    pub fn new(points: Vec<Duration>) -> ResumePoints {
        ResumePoints(points)
    }

    /// The point of one scenario; `None` if the last holder did not note it.
    pub fn of_scenario(&self, scenario: usize) -> Option<Duration> {
        if self.0.is_empty() { Some(Duration::ZERO) } else { self.0.get(scenario).copied() }
    }
}

impl fmt::Display for ResumePoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos: Vec<String> = self.0.iter().map(|point| point.as_nanos().to_string()).collect();
        f.write_str(&nanos.join(","))
    }
}

impl FromStr for ResumePoints {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<ResumePoints, ParseIntError> {
        let points = text.split(',').map(|nanos| nanos.parse().map(Duration::from_nanos));
        Ok(ResumePoints(points.collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(note: &RunNote, name: &str, text: &str) {
        assert_eq!(note.encode(), (name.to_owned(), text.to_owned()));
        assert_eq!(RunNote::decode(name, text).as_ref(), Some(note));
    }

    #[test]
    fn notes_have_golden_texts_and_decode_back() {
        let points = ResumePoints::new(vec![Duration::from_nanos(7), Duration::from_secs(2)]);
        check(&RunNote::Share { share: 255, note: ShareNote::Taken }, "left:255", "taken");
        check(&RunNote::Share { share: 3, note: ShareNote::Left(points) }, "left:3", "7,2000000000");
        check(&RunNote::FinalSendLimit { instance: 0xab, requests: 12 }, "sealed:00000000000000ab", "12");
        let at = Duration::from_millis(1500);
        check(&RunNote::LoadEnd { instance: u64::MAX, at }, "ended:ffffffffffffffff", "1500000000");
        check(&RunNote::SetUp(HookOutcome::Done(r#"{"a":"b:c"}"#.into())), "set_up", r#"done:{"a":"b:c"}"#);
        check(&RunNote::TearDown(HookOutcome::Done(String::new())), "tear_down", "done:");
        check(&RunNote::TearDown(HookOutcome::Failed("no: way".into())), "tear_down", "failed:no: way");
        check(&RunNote::Facts("{}".into()), "facts", "{}");
        check(&RunNote::Bundle("b1".into()), "bundle", "b1");
        let profile = Profile::constant(2.0, Duration::from_secs(9)).unwrap();
        let text = r#"{"stages":[{"duration":{"secs":9,"nanos":0},"from":2.0,"to":2.0}]}"#;
        check(&RunNote::Profile(profile), "profile", text);
    }

    #[test]
    fn unknown_and_malformed_notes_are_ignored() {
        for (name, text) in [("", ""), ("other", "1"), ("left:x", "taken"), ("sealed:1", "many"), ("ended:?", "1")] {
            assert_eq!(RunNote::decode(name, text), None, "{name}");
        }
    }

    #[test]
    fn share_note_without_times_counts_as_taken() {
        for text in ["taken", "", "7,", "x"] {
            assert_eq!(ShareNote::decode(text), ShareNote::Taken, "{text}");
        }
    }

    #[test]
    fn resume_points_are_kept_for_each_scenario() {
        let points = ResumePoints::new(vec![Duration::from_nanos(7), Duration::from_secs(2)]);
        assert_eq!((points.of_scenario(1), points.of_scenario(2)), (Some(Duration::from_secs(2)), None));
        assert_eq!(ResumePoints::RUN_START.of_scenario(5), Some(Duration::ZERO));
    }

    #[test]
    fn notes_of_a_run_are_found_by_subject() {
        let written = [
            RunNote::Share { share: 3, note: ShareNote::Taken },
            RunNote::FinalSendLimit { instance: 1, requests: 12 },
            RunNote::LoadEnd { instance: 1, at: Duration::from_secs(1) },
            RunNote::LoadEnd { instance: 2, at: Duration::from_secs(2) },
            RunNote::SetUp(HookOutcome::Done("7".into())),
            RunNote::Facts("{}".into()),
            RunNote::Bundle("b".into()),
        ];
        let notes = RunNotes::from(written.iter().map(RunNote::encode).collect::<BTreeMap<_, _>>());
        assert_eq!((notes.share(3), notes.share(4)), (Some(ShareNote::Taken), None));
        assert_eq!((notes.final_send_limit(1), notes.final_send_limit(2)), (Some(12), None));
        assert_eq!(notes.load_end(), Some(Duration::from_secs(2)));
        assert_eq!((notes.set_up(), notes.tear_down()), (Some(HookOutcome::Done("7".into())), None));
        assert_eq!((notes.facts(), notes.bundle()), (Some("{}"), Some("b")));
    }
}
