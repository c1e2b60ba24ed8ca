//! Makes realistic finished runs with the real recorder and collector. It is deterministic: the
//! same recipe gives the same bytes.

use squall_metrics::{
    Collector, Delta, MetricId, MetricKey, MetricRecorder, Outcome, OutcomeCategory, RecorderConfig, RunView, Sample,
    SourceId,
};
use squall_model::{
    AcceptedChange, Arrivals, FleetEvent, FleetEventKind, FleetFacts, GeneratorStats, LevelUnit, Load, LoadChange,
    LoadModel, Plan, Profile, RunFacts, StopReason, TaskSpec, Threshold, ThresholdResult, WorkerFacts, WorkerState,
};
use squall_report::{InterruptionRule, ReportInput, ScheduleRule};
use std::{collections::BTreeMap, time::Duration};

/// A finished run; it owns the data that a [`ReportInput`] borrows.
pub(crate) struct Finished {
    pub(crate) plan: Plan,
    pub(crate) view: RunView,
    pub(crate) facts: RunFacts,
    pub(crate) schedule_rule: ScheduleRule,
}

impl Finished {
    pub(crate) fn run(&self) -> ReportInput<'_> {
        ReportInput {
            plan: &self.plan,
            view: &self.view,
            facts: &self.facts,
            schedule_rule: self.schedule_rule,
            interruption_rule: InterruptionRule::default(),
            command: Some("squall run shop.toml --json result.json"),
            version: "0.1.0 (abc1234)",
        }
    }
}

/// The parameters of a sample run.
#[derive(Debug, Clone)]
pub(crate) struct Recipe {
    pub(crate) seconds: u32,
    pub(crate) rate: u32,
    pub(crate) warm_up: u32,
    pub(crate) seed: u64,
    /// Every service time is multiplied by this.
    pub(crate) slowness: f64,
    /// Amplitude of the slow drift of the target's speed, as real targets have it.
    pub(crate) drift: f64,
    /// Seconds in which `checkout` responds with 503.
    pub(crate) failing: std::ops::Range<u32>,
    pub(crate) phases: bool,
    pub(crate) target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    Healthy,
    Refusing,
}

impl Default for Recipe {
    fn default() -> Self {
        Recipe {
            seconds: 30,
            rate: 200,
            warm_up: 0,
            seed: 1,
            slowness: 1.0,
            drift: 0.15,
            failing: 14..17,
            phases: false,
            target: Target::Healthy,
        }
    }
}

/// The default run: three tasks and a group on two threads, with some failing seconds and a few
/// timeouts.
pub(crate) fn shop() -> Finished {
    Recipe::default().make()
}

impl Recipe {
    pub(crate) fn make(self) -> Finished {
        self.watch(|_| {})
    }

    /// Makes the run and calls `each_second` with the view after each second, as a live renderer
    /// sees it.
    pub(crate) fn watch(self, mut each_second: impl FnMut(&RunView)) -> Finished {
        let mut threads: Vec<Thread> = (0..2).map(|i| Thread::new(&self, i)).collect();
        let mut collector = Collector::new(threads.iter().map(|t| t.source), 10);
        for second in 0..self.seconds {
            for thread in &mut threads {
                collector.merge(thread.second(&self, second)).expect("deltas are in order");
            }
            each_second(collector.view());
        }
        Finished {
            plan: self.plan(),
            facts: self.facts(),
            view: collector.finish(),
            schedule_rule: ScheduleRule::default(),
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        let duration = Duration::from_secs(u64::from(self.seconds));
        let rate = Profile::constant(f64::from(self.rate), duration).expect("a level above 0");
        Plan {
            name: "shop".to_owned(),
            target: "http://127.0.0.1:8089".to_owned(),
            load: Load {
                model: LoadModel::Open { rate, arrivals: Arrivals::Even },
                iterations: None,
                warm_up: Duration::from_secs(u64::from(self.warm_up)),
            },
            tasks: ["browse", "login", "checkout"].map(TaskSpec::new).to_vec(),
            thresholds: Vec::new(),
            seed: 42,
        }
    }

    fn facts(&self) -> RunFacts {
        RunFacts {
            started_unix_ms: 1_794_779_763_250,
            active: Duration::from_secs(u64::from(self.seconds)),
            elapsed: Duration::from_millis(u64::from(self.seconds) * 1000 + 12),
            stop: StopReason::Completed,
            thresholds: Vec::new(),
            generator: GeneratorStats {
                threads: 2,
                cpu_s: 0.412_345,
                max_rss_bytes: 29_413_376,
                saturated: false,
                saturated_because: Vec::new(),
            },
            lost_at_most: 0,
            fleet: None,
            events: Vec::new(),
        }
    }
}

/// The default run, whose rate was raised by a key.
pub(crate) fn changed_by_hand() -> Finished {
    let mut finished = shop();
    let change = LoadChange::Level { before: 200.0, now: 220.0 };
    let accepted = AcceptedChange { at_ms: 4100, ramp_ms: 0, revision: 1, change };
    finished.facts.events = vec![accepted.event(LevelUnit::Rate)];
    finished
}

/// The default run on a fleet of three workers, one of which was lost half-way.
pub(crate) fn fleet() -> Finished {
    let mut finished = shop();
    let worker = |id: &str, state, requests, ended_s, lost_at_most| WorkerFacts {
        id: id.to_owned(),
        instance: format!("{id}-5f3a"),
        requests,
        state,
        joined_s: 0.0,
        ended_s,
        lost_at_most,
    };
    let workers = vec![
        worker("w1", WorkerState::Finished, 3500, None, 0),
        worker("w2", WorkerState::Lost, 1500, Some(15.25), 131),
        worker("w3", WorkerState::Left, 1000, Some(20.0), 0),
    ];
    let event = |t_s, text: &str| FleetEvent::new(t_s, FleetEventKind::Other, text);
    let events = vec![event(15.25, "w2 was not heard of for 3 s"), event(20.0, "w3 left")];
    finished.facts.fleet = Some(FleetFacts { workers, events, missed_starts: 412 });
    finished.facts.lost_at_most = 131;
    finished
}

/// The result of a threshold; times are in nanoseconds.
pub(crate) fn threshold_result(
    text: &str,
    value: Option<f64>,
    passed: bool,
    breached_at_s: Option<u32>,
) -> ThresholdResult {
    let threshold: Threshold = text.parse().expect("a threshold");
    ThresholdResult { threshold, value, passed, breached_at_s }
}

struct Thread {
    source: SourceId,
    recorder: MetricRecorder,
    browse: MetricId,
    login: MetricId,
    checkout: MetricId,
    purchase: MetricId,
    random: Random,
    seq: u64,
}

impl Thread {
    fn new(recipe: &Recipe, thread: u32) -> Thread {
        let mut recorder = MetricRecorder::new(RecorderConfig { phases: recipe.phases, ..RecorderConfig::default() });
        let tags = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        Thread {
            source: SourceId { instance: 0, thread },
            browse: recorder.metric(MetricKey::request("browse")),
            login: recorder.metric(MetricKey { group: Some("purchase".to_owned()), ..MetricKey::request("login") }),
            checkout: recorder.metric(MetricKey {
                group: Some("purchase".to_owned()),
                tags,
                ..MetricKey::request("checkout")
            }),
            purchase: recorder.metric(MetricKey::group("purchase")),
            recorder,
            random: Random(recipe.seed * 1000 + u64::from(thread)),
            seq: 0,
        }
    }

    fn second(&mut self, recipe: &Recipe, second: u32) -> Delta {
        let drift_factor = 1.0 + recipe.drift * (f64::from(second) / 4.0).sin();
        for _ in 0..recipe.rate / 2 {
            self.request(recipe, second, drift_factor);
        }
        let (metrics, errors, engine) = self.recorder.harvest(16 + u64::from(second % 3), 2);
        let (seq, last) = (self.seq, second + 1 == recipe.seconds);
        self.seq += 1;
        Delta { source: self.source, seq, second, metrics, errors, engine, last }
    }

    fn request(&mut self, recipe: &Recipe, second: u32, drift_factor: f64) {
        let lag = Duration::from_nanos(20_000 + (self.random.unit() * 60_000.0) as u64);
        self.recorder.record_iteration(lag, false);
        self.recorder.count_begun();
        let dice = self.random.unit();
        let (metric, base_ms, bytes_in) = match dice {
            d if d < 0.7 => (self.browse, 4.0, 2_400),
            d if d < 0.85 => (self.login, 12.0, 310),
            _ => (self.checkout, 21.0, 540),
        };
        let service_ms = base_ms * drift_factor * recipe.slowness * self.random.lognormal(0.35);
        let (outcome, service_ms, bytes_in) = self.outcome_of_request(recipe, second, metric, service_ms, bytes_in);
        let (service, warm_up) = (Duration::from_secs_f64(service_ms / 1e3), second < recipe.warm_up);
        let sample = Sample { metric, wait: lag, service, outcome, bytes_in, bytes_out: 180, due_in_warm_up: warm_up };
        self.recorder.record(&sample);
        let ms = |share: f64| Duration::from_secs_f64(service_ms * share / 1e3);
        self.recorder.record_phases(metric, &[Duration::ZERO, ms(0.1), Duration::ZERO, ms(0.7), ms(0.2)]);
        if metric == self.checkout {
            let service = service * 2;
            let (bytes_in, bytes_out) = (0, 0);
            let metric = self.purchase;
            self.recorder.record(&Sample { metric, wait: Duration::ZERO, service, bytes_in, bytes_out, ..sample });
        }
    }

    fn outcome_of_request(
        &mut self,
        recipe: &Recipe,
        second: u32,
        metric: MetricId,
        service_ms: f64,
        bytes: u64,
    ) -> (Outcome, f64, u64) {
        if recipe.target == Target::Refusing {
            let refused = Outcome::new(OutcomeCategory::TransportError, "CONNECT_REFUSED");
            self.recorder.note_error(metric, refused, "127.0.0.1:8089 refused the connection");
            return (refused, 0.08, 0);
        }
        if metric == self.checkout && recipe.failing.contains(&second) {
            let failed = Outcome::of_status(503);
            self.recorder.note_error(metric, failed, "503 Service Unavailable: {\"error\":\"<b>payment</b> is down\"}");
            return (failed, service_ms * 0.3, 96);
        }
        if self.random.unit() < 0.001 {
            let timeout = Outcome::new(OutcomeCategory::Timeout, "TIMEOUT");
            self.recorder.note_error(metric, timeout, "no complete response within 1s");
            return (timeout, 1000.0, 0);
        }
        (Outcome::of_status(if metric == self.checkout { 201 } else { 200 }), service_ms, bytes)
    }
}

/// A small random generator, so that samples do not change with the version of a crate.
pub(crate) struct Random(pub u64);

impl Random {
    /// In `0..1`.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal.
    pub(crate) fn normal(&mut self) -> f64 {
        let (u, v) = (self.unit().max(f64::MIN_POSITIVE), self.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// With median 1.
    pub(crate) fn lognormal(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal()).exp()
    }
}
