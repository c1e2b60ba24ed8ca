//! Load over time as linear stages. Constant, ramp, step, spike and stages are all lists of linear
//! stages, so one integral and one inverse serve every shape. It has no clock; time counts from the
//! start of the run.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{duration::MAX_DURATION, parse_duration};

/// One stage: the level changes linearly from `from` to `to` within `duration`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileStage {
    pub duration: Duration,
    pub from: f64,
    pub to: f64,
}

/// A level (requests per second, or users) over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawProfile")]
pub struct Profile {
    stages: Vec<ProfileStage>,
}

/// A serialized profile. It may come from an untrusted source, so it is validated like any other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    stages: Vec<ProfileStage>,
}

impl TryFrom<RawProfile> for Profile {
    type Error = ProfileError;

    fn try_from(raw: RawProfile) -> Result<Profile, ProfileError> {
        Profile::from_stages(raw.stages)
    }
}

/// The highest level; areas under it stay finite numbers.
const MAX_PROFILE_LEVEL: f64 = 1e12;

/// The highest rate or number of users that a person may give. A higher number is a typing mistake,
/// and sums over a run stay exact below it.
pub const HIGHEST_LEVEL: f64 = 1e7;

/// Why a profile cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProfileError {
    #[error("a level of {0} is not possible: give a number of 0 or more, below 10¹²")]
    BadLevel(f64),
    #[error(
        "the ramp of {} is longer than the run of {}: shorten the ramp or lengthen the run",
        crate::format_duration(*ramp), crate::format_duration(*run)
    )]
    RampTooLong { ramp: Duration, run: Duration },
    #[error("a step profile needs at least 1 step")]
    NoSteps,
    #[error("the profile never rises above 0, so nothing would be sent")]
    AlwaysZero,
    #[error("the profile has no duration")]
    Empty,
    #[error("the profile lasts longer than a hundred years")]
    TooLong,
}

/// Why `--stages` cannot be parsed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("`{part}` is not a stage: write DURATION:LEVEL, for example 10s:100,30s:500")]
pub struct ParseStagesError {
    pub part: String,
}

impl Profile {
    /// The same level for the whole run.
    pub fn constant(level: f64, run: Duration) -> Result<Profile, ProfileError> {
        Profile::from_stages(vec![ProfileStage { duration: run, from: level, to: level }])
    }

    /// From 0 to `level` within `ramp`, then constant until the end of `run`, which includes the
    /// ramp.
    pub fn ramp(level: f64, ramp: Duration, run: Duration) -> Result<Profile, ProfileError> {
        if ramp > run {
            return Err(ProfileError::RampTooLong { ramp, run });
        }
        Profile::from_stages(vec![
            ProfileStage { duration: ramp, from: 0.0, to: level },
            ProfileStage { duration: run - ramp, from: level, to: level },
        ])
    }

    /// `steps` equal plateaus: 1/n, 2/n, … of `level`.
    pub fn step(level: f64, steps: u32, run: Duration) -> Result<Profile, ProfileError> {
        if steps == 0 {
            return Err(ProfileError::NoSteps);
        }
        let plateau = |i: u32| level * f64::from(i + 1) / f64::from(steps);
        Profile::from_stages(
            (0..steps).map(|i| ProfileStage { duration: run / steps, from: plateau(i), to: plateau(i) }).collect(),
        )
    }

    /// Thirds: 20 % of `level` (at least 1, or `level` if that is less), then `level`, then 20 %
    /// again.
    pub fn spike(level: f64, run: Duration) -> Result<Profile, ProfileError> {
        let base = (level * 0.2).max(level.min(1.0));
        let third = |level: f64| ProfileStage { duration: run / 3, from: level, to: level };
        Profile::from_stages(vec![third(base), third(level), third(base)])
    }

    /// Changes linearly from one target to the next, starting at 0.
    pub fn from_targets(targets: &[(Duration, f64)]) -> Result<Profile, ProfileError> {
        let mut from = 0.0;
        let mut stages = Vec::with_capacity(targets.len());
        for &(duration, to) in targets {
            stages.push(ProfileStage { duration, from, to });
            from = to;
        }
        Profile::from_stages(stages)
    }

    /// Any list of stages; a stage without duration is a jump.
    pub fn from_stages(stages: Vec<ProfileStage>) -> Result<Profile, ProfileError> {
        for level in stages.iter().flat_map(|s| [s.from, s.to]) {
            if !(0.0..=MAX_PROFILE_LEVEL).contains(&level) {
                return Err(ProfileError::BadLevel(level));
            }
        }
        let whole = stages.iter().try_fold(Duration::ZERO, |sum, stage| sum.checked_add(stage.duration));
        if whole.is_none_or(|whole| whole > MAX_DURATION) {
            return Err(ProfileError::TooLong);
        }
        let stages: Vec<ProfileStage> = stages.into_iter().filter(|s| !s.duration.is_zero()).collect();
        if stages.is_empty() {
            return Err(ProfileError::Empty);
        }
        if stages.iter().all(|s| s.from == 0.0 && s.to == 0.0) {
            return Err(ProfileError::AlwaysZero);
        }
        Ok(Profile { stages })
    }

    /// The same up to `at`, then `tail`: how the load of a running test changes. Starts due before
    /// `at` stay due.
    pub fn replace_tail(&self, at: Duration, tail: &[ProfileStage]) -> Result<Profile, ProfileError> {
        let mut begin = Duration::ZERO;
        let mut stages = Vec::new();
        for stage in &self.stages {
            let inside = at.saturating_sub(begin).min(stage.duration);
            begin += stage.duration;
            if !inside.is_zero() {
                let to = stage.from + stage.slope() * inside.as_secs_f64();
                stages.push(ProfileStage { duration: inside, from: stage.from, to: to.max(0.0) });
            }
        }
        stages.extend_from_slice(tail);
        Profile::from_stages(stages)
    }

    /// The stages from `at` on.
    pub fn tail(&self, at: Duration) -> Vec<ProfileStage> {
        let mut begin = Duration::ZERO;
        let mut tail = Vec::new();
        for stage in &self.stages {
            let passed = at.saturating_sub(begin).min(stage.duration);
            begin += stage.duration;
            let from = stage.from + stage.slope() * passed.as_secs_f64();
            tail.push(ProfileStage { duration: stage.duration - passed, from: from.max(0.0), to: stage.to });
        }
        tail.retain(|stage| !stage.duration.is_zero());
        tail
    }

    /// The sum of several profiles, as long as the longest of them; a profile that has ended adds
    /// nothing. `None` without profiles.
    pub fn sum<'p>(profiles: impl IntoIterator<Item = &'p Profile>) -> Option<Profile> {
        let profiles: Vec<&Profile> = profiles.into_iter().collect();
        let mut bounds: Vec<Duration> = Vec::new();
        for profile in &profiles {
            let ends = profile.stages.iter().scan(Duration::ZERO, |end, stage| {
                *end += stage.duration;
                Some(*end)
            });
            bounds.extend(ends);
        }
        bounds.sort_unstable();
        bounds.dedup();
        let mut begin = Duration::ZERO;
        let mut stages = Vec::new();
        for end in bounds {
            let lasts = end - begin;
            let pieces = profiles.iter().filter_map(|profile| profile.tail(begin).first().copied());
            let (from, to) = pieces.fold((0.0, 0.0), |(from, to), piece| {
                (from + piece.from, to + (piece.from + piece.slope() * lasts.as_secs_f64()).max(0.0))
            });
            stages.push(ProfileStage { duration: lasts, from, to });
            begin = end;
        }
        Profile::from_stages(stages).ok()
    }

    /// The stages, in order, none of them empty.
    pub fn pieces(&self) -> &[ProfileStage] {
        &self.stages
    }

    /// How long the whole profile lasts.
    pub fn duration(&self) -> Duration {
        self.stages.iter().map(|s| s.duration).sum()
    }

    /// The highest level reached.
    pub fn peak(&self) -> f64 {
        self.stages.iter().flat_map(|s| [s.from, s.to]).fold(0.0, f64::max)
    }

    /// The level at `at`; 0 after the end.
    pub fn level(&self, at: Duration) -> f64 {
        let mut begin = Duration::ZERO;
        for stage in &self.stages {
            if at < begin + stage.duration {
                let part = (at - begin).as_secs_f64() / stage.duration.as_secs_f64();
                return stage.from + (stage.to - stage.from) * part;
            }
            begin += stage.duration;
        }
        0.0
    }

    /// The time until which the level at `at` stays constant, if it does.
    pub fn level_until(&self, at: Duration) -> Option<Duration> {
        let mut end = Duration::ZERO;
        for stage in &self.stages {
            end += stage.duration;
            if at < end {
                return (stage.from == stage.to).then_some(end);
            }
        }
        None
    }

    /// How long there is load between `from` and `to`.
    pub fn time_under_load(&self, from: Duration, to: Duration) -> Duration {
        let (mut begin, mut loaded) = (Duration::ZERO, Duration::ZERO);
        for stage in &self.stages {
            let end = begin + stage.duration;
            if stage.from > 0.0 || stage.to > 0.0 {
                loaded += end.min(to).saturating_sub(begin.max(from));
            }
            begin = end;
        }
        loaded
    }

    /// The number of starts due before `at`: the area under the curve.
    pub fn area(&self, at: Duration) -> f64 {
        let mut begin = Duration::ZERO;
        let mut area = 0.0;
        for stage in &self.stages {
            let inside = at.saturating_sub(begin).min(stage.duration);
            area += stage.area_after(inside.as_secs_f64());
            begin += stage.duration;
        }
        area
    }

    /// When the area under the curve reaches `area`; `None` if it never does.
    pub fn time_of_area(&self, area: f64) -> Option<Duration> {
        // The areas of several stages do not add up exactly; a value this near the end of a stage
        // is at its end.
        let rounding = (area * 1e-12).max(1e-9);
        let mut begin = Duration::ZERO;
        let mut left = area;
        for stage in &self.stages {
            let whole = stage.area_after(stage.duration.as_secs_f64());
            if left < whole - rounding {
                return Some(begin + stage.time_of_area(left));
            }
            left = (left - whole).max(0.0);
            begin += stage.duration;
        }
        None
    }
}

impl ProfileStage {
    fn slope(&self) -> f64 {
        (self.to - self.from) / self.duration.as_secs_f64()
    }

    fn area_after(&self, seconds: f64) -> f64 {
        self.from * seconds + self.slope() * seconds * seconds / 2.0
    }

    /// Solves `from·t + slope·t²/2 = area` in a form that stays precise when the slope is tiny or
    /// `from` is 0.
    fn time_of_area(&self, area: f64) -> Duration {
        let root = (self.from * self.from + 2.0 * self.slope() * area).max(0.0).sqrt();
        let denominator = self.from + root;
        let seconds = if denominator > 0.0 { 2.0 * area / denominator } else { 0.0 };
        Duration::from_secs_f64(seconds.clamp(0.0, self.duration.as_secs_f64()))
    }
}

/// Parses `10s:100,30s:500`.
pub fn parse_stages(text: &str) -> Result<Vec<(Duration, f64)>, ParseStagesError> {
    let stage = |part: &str| {
        let (duration, level) = part.split_once(':')?;
        let level: f64 = level.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0)?;
        Some((parse_duration(duration.trim()).ok()?, level))
    };
    text.split(',').map(|part| stage(part.trim()).ok_or_else(|| ParseStagesError { part: part.to_owned() })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn ramp_is_part_of_the_run_and_not_longer_than_it() {
        let profile = Profile::ramp(100.0, S(10), S(30)).unwrap();
        assert_eq!(profile.duration(), S(30));
        assert_eq!(profile.level(S(5)), 50.0);
        assert_eq!(profile.area(S(30)), 500.0 + 2000.0);
        assert!(matches!(Profile::ramp(1.0, S(2), S(1)), Err(ProfileError::RampTooLong { .. })));
    }

    #[test]
    fn spike_has_thirds_of_20_100_and_20_percent() {
        let profile = Profile::spike(100.0, S(30)).unwrap();
        assert_eq!([profile.level(S(1)), profile.level(S(15)), profile.level(S(29))], [20.0, 100.0, 20.0]);
    }

    #[test]
    fn stages_change_linearly_from_target_to_target() {
        let profile = Profile::from_targets(&parse_stages("10s:100, 30s:500").unwrap()).unwrap();
        assert_eq!([profile.level(S(5)), profile.level(S(10)), profile.level(S(25))], [50.0, 100.0, 300.0]);
        assert!(parse_stages("10s").is_err() && parse_stages("10s:-1").is_err() && parse_stages("").is_err());
    }

    #[test]
    fn sum_of_profiles_lasts_as_long_as_the_longest() {
        let ramp = Profile::ramp(100.0, S(10), S(20)).unwrap();
        let short = Profile::constant(7.0, S(4)).unwrap();
        let sum = Profile::sum([&ramp, &short]).unwrap();
        assert_eq!(sum.duration(), S(20));
        assert_eq!([sum.level(S(2)), sum.level(S(5)), sum.level(S(15))], [27.0, 50.0, 100.0]);
        assert_eq!(sum.area(S(20)), ramp.area(S(20)) + short.area(S(4)));
        assert_eq!(Profile::sum([]), None);
    }

    #[test]
    fn profile_without_load_is_refused() {
        assert_eq!(Profile::constant(0.0, S(1)), Err(ProfileError::AlwaysZero));
        assert!(matches!(Profile::constant(-1.0, S(1)), Err(ProfileError::BadLevel(_))));
        assert_eq!(Profile::constant(1.0, S(0)), Err(ProfileError::Empty));
    }

    fn profiles() -> impl Strategy<Value = Profile> {
        prop::collection::vec((1u64..20_000, 0.0..500.0f64, 0.0..500.0f64), 1..6).prop_filter_map("zero", |parts| {
            let stage = |(ms, from, to)| ProfileStage { duration: Duration::from_millis(ms), from, to };
            Profile::from_stages(parts.into_iter().map(stage).collect()).ok()
        })
    }

    proptest! {
        #[test]
        fn time_of_area_is_the_inverse_of_area(profile in profiles(), part in 0.0..0.999f64) {
            let area = profile.area(profile.duration()) * part;
            let at = profile.time_of_area(area).expect("below the whole area");
            prop_assert!((profile.area(at) - area).abs() < 1e-3, "area {} at {:?}", area, at);
        }

        #[test]
        fn replacing_the_tail_by_itself_keeps_the_profile(profile in profiles(), part in 0.0..1.0f64) {
            let at = profile.duration().mul_f64(part);
            let same = profile.replace_tail(at, &profile.tail(at)).unwrap();
            prop_assert_eq!(same.duration(), profile.duration());
            for i in 0..20 {
                let t = profile.duration().mul_f64(f64::from(i) / 20.0);
                prop_assert!((same.area(t) - profile.area(t)).abs() < 1e-3);
            }
        }

        #[test]
        fn time_of_area_never_decreases(profile in profiles()) {
            let starts: Vec<_> = (0..200).map_while(|k| profile.time_of_area(f64::from(k))).collect();
            prop_assert!(starts.is_sorted());
        }
    }
}
