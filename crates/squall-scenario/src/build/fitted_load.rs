//! Fits the times of a declared load into the length that a flag gives the run, so that a scenario with a
//! ramp or stages can be tried for a few seconds. Changes nothing that the flags give and reports no
//! problems: text that is not a duration stays as it is, and `load` reports it.

use squall_model::{format_duration, parse_duration, parse_stages};
use std::time::Duration;

use super::load::DEFAULT_DURATION;
use crate::{RawLoad, Sourced};

/// Scales the stages, the ramp and the warm-up of `declared` that do not fit into the duration of `flags`.
/// Returns a sentence for each change.
pub(super) fn fit_to_duration(flags: &mut RawLoad, declared: &mut RawLoad) -> Vec<String> {
    let Some(run) = read(&flags.duration) else { return Vec::new() };
    let Some(declared_run) = declared_duration(declared) else { return Vec::new() };
    let mut notes = Vec::new();
    let shape_is_kept = flags.stages.is_none() && flags.profile.is_none() && flags.ramp_up.is_none();
    let times = TimeScale { run, declared_run };
    if flags.warm_up.is_none() {
        notes.extend(times.shorten("warm_up", &mut declared.warm_up, |warm_up| warm_up >= run));
    }
    if shape_is_kept {
        notes.extend(times.shorten("ramp_up", &mut declared.ramp_up, |ramp| ramp > run));
    }
    // A flag with a level and a duration is a load of its own.
    if shape_is_kept && flags.rate.is_none() && flags.users.is_none() {
        notes.extend(times.scale_stages(flags, declared));
    }
    notes
}

/// How long the declared run lasts; `None` if its settings are wrong.
fn declared_duration(declared: &RawLoad) -> Option<Duration> {
    if let Some(stages) = &declared.stages {
        return Some(parse_stages(&stages.value).ok()?.iter().map(|(duration, _)| *duration).sum());
    }
    match &declared.duration {
        Some(_) => read(&declared.duration),
        // Without a length of its own, the declared run is long enough for its ramp.
        None => Some(DEFAULT_DURATION.max(read(&declared.ramp_up).unwrap_or_default())),
    }
}

fn read(given: &Option<Sourced<String>>) -> Option<Duration> {
    parse_duration(&given.as_ref()?.value).ok().filter(|duration| !duration.is_zero())
}

/// The length of the run, and the one that the scenario declares.
struct TimeScale {
    run: Duration,
    declared_run: Duration,
}

impl TimeScale {
    /// `declared` times run / declared run, in whole microseconds.
    fn scaled(&self, declared: Duration) -> Duration {
        let seconds = declared.as_secs_f64() * self.run.as_secs_f64() / self.declared_run.as_secs_f64();
        Duration::from_micros((seconds * 1e6).round() as u64)
    }

    /// Shortens a setting for which `is_too_long` holds, unless it is too long for the declared run too.
    fn shorten(
        &self,
        name: &str,
        setting: &mut Option<Sourced<String>>,
        is_too_long: impl Fn(Duration) -> bool,
    ) -> Option<String> {
        let declared = read(setting).filter(|declared| is_too_long(*declared) && *declared <= self.declared_run)?;
        let fitted = format_duration(self.scaled(declared));
        setting.as_mut()?.value.clone_from(&fitted);
        let [declared, run, declared_run] = [declared, self.run, self.declared_run].map(format_duration);
        Some(format!("{name} is {fitted} instead of {declared}: the run lasts {run} instead of {declared_run}"))
    }

    /// Gives the stages the length of the run. The flag's duration is in them then.
    fn scale_stages(&self, flags: &mut RawLoad, declared: &mut RawLoad) -> Option<String> {
        let stages = declared.stages.as_mut()?;
        let parsed = parse_stages(&stages.value).ok().filter(|_| !self.declared_run.is_zero())?;
        let scaled = parsed.iter().map(|(duration, to)| format!("{}:{to}", format_duration(self.scaled(*duration))));
        stages.value = scaled.collect::<Vec<_>>().join(",");
        flags.duration = None;
        let [run, declared_run] = [self.run, self.declared_run].map(format_duration);
        (run != declared_run).then(|| format!("the stages last {run} instead of {declared_run}, each in proportion"))
    }
}
