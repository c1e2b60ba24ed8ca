//! Builds the load of a plan from raw settings and rejects settings that conflict. Used for files and URLs
//! alike.

use squall_model::{
    Arrivals, HIGHEST_LEVEL, Load, LoadModel, Pause, Profile, ProfileError, ProfileStage, format_duration, parse_rate,
    parse_stages,
};
use std::time::Duration;

use super::value::{MAX_DURATION, duration, pause, positive_count};
use crate::{RawLoad, Sourced, error::ProblemList, read::ScenarioLanguage};

const DEFAULT_USERS: f64 = 10.0;
pub(super) const DEFAULT_DURATION: Duration = Duration::from_secs(30);
const DEFAULT_STEPS: u32 = 5;
const MAX_STEPS: u32 = 10_000;

/// The load. `None` if a problem was reported. Messages name settings as `language` does.
pub(crate) fn build_load(raw: &RawLoad, language: ScenarioLanguage, problems: &mut ProblemList<'_>) -> Option<Load> {
    reject_two_models(raw, problems);
    reject_settings_beside_stages(raw, language, problems);
    reject_settings_of_other_shapes(raw, language, problems);
    let open = raw.rate.is_some() || (raw.users.is_none() && raw.stages.is_some());
    let level = level(raw, problems);
    let run = raw.duration.as_ref().map(|given| duration(given, problems));
    // The key is called `requests`, but counts iterations, which may send several requests each.
    let iterations = raw.requests.as_ref().map(|given| positive_count(given, problems));
    let warm_up = raw.warm_up.as_ref().map_or(Some(Duration::ZERO), |given| duration(given, problems));
    let pause = raw.pause.as_ref().map_or(Some(Pause::NONE), |given| pause(given, problems));
    let arrivals = arrivals(raw, problems);
    let run = match (run, &raw.requests) {
        (Some(run), _) => run,
        (None, Some(_)) => Some(MAX_DURATION),
        (None, None) => Some(DEFAULT_DURATION),
    };
    // A wrong level does not hide a wrong shape: the profile is built with another level.
    let profile = profile(raw, level.unwrap_or(1.0), run, language, problems);
    let whole = profile.as_ref().map(Profile::duration).or(run);
    if let (Some(given), Some(warm_up), Some(whole)) = (&raw.warm_up, warm_up, whole)
        && warm_up >= whole
    {
        let (warm_up, whole) = (format_duration(warm_up), format_duration(whole));
        problems.add_with_hint(
            &given.location,
            format!("the warm-up of {warm_up} leaves nothing of a run of {whole}"),
            "shorten warm_up or lengthen the run",
        );
    }
    let (_, profile) = (level?, profile?);
    let model = if open {
        LoadModel::Open { rate: profile, arrivals: arrivals? }
    } else {
        LoadModel::Closed { users: profile, pause: pause? }
    };
    let iterations = match iterations {
        None => None,
        Some(iterations) => Some(iterations?),
    };
    Some(Load { model, iterations, warm_up: warm_up? })
}

/// Reports a flag that replaces the stages of `declared` by a shape, without a level for it: the stages
/// were the only levels.
pub(super) fn reject_shape_without_level(flags: &RawLoad, declared: &RawLoad, problems: &mut ProblemList<'_>) {
    let has_level = [&flags.rate, &flags.users, &declared.rate, &declared.users].into_iter().any(Option::is_some);
    let shape = flags.ramp_up.as_ref().map(|given| (given, "--ramp-up"));
    let shape = shape.or(flags.profile.as_ref().map(|given| (given, "--profile")));
    if let (Some((given, flag)), Some(_), None, false) = (shape, &declared.stages, &flags.stages, has_level) {
        problems.add_with_hint(
            &given.location,
            format!("{flag} replaces the stages of the scenario and gives no level"),
            "add --rate for an open load or --users for a closed one, or give --stages",
        );
    }
}

/// Reports settings of the open and of the closed model in one load.
fn reject_two_models(raw: &RawLoad, problems: &mut ProblemList<'_>) {
    let open = raw.rate.as_ref().or(raw.stages.as_ref().filter(|_| raw.users.is_none()));
    if let (Some(_), Some(users)) = (&raw.rate, &raw.users) {
        problems.add_with_hint(
            &users.location,
            "both `rate` and `users` are given",
            "a rate starts iterations on time, users wait for their responses: choose one",
        );
    }
    if let (Some(_), Some(pause)) = (open, &raw.pause) {
        problems.add_with_hint(
            &pause.location,
            "`pause` does not go with a rate",
            "a rate sets its own pace; use `users` with a pause",
        );
    }
    if let (None, Some(arrivals)) = (open, &raw.arrivals) {
        problems.add_with_hint(&arrivals.location, "`arrivals` does not go with users", "use `rate` for arrivals");
    }
}

/// Reports settings that say the same as `stages`.
fn reject_settings_beside_stages(raw: &RawLoad, language: ScenarioLanguage, problems: &mut ProblemList<'_>) {
    if raw.stages.is_none() {
        return;
    }
    let (duration, profile) = (language.duration(), language.profile());
    for (given, name, hint) in [
        (&raw.duration, duration, format!("stages say how long the run lasts: remove `{duration}`")),
        (&raw.ramp_up, "ramp_up", "make the ramp the first stage".to_owned()),
        (&raw.profile, profile, format!("stages are a profile of their own: remove `{profile}`")),
    ] {
        if let Some(given) = given {
            problems.add_with_hint(&given.location, format!("both `stages` and `{name}` are given"), hint);
        }
    }
}

/// Reports settings that belong to another shape than the profile's.
fn reject_settings_of_other_shapes(raw: &RawLoad, language: ScenarioLanguage, problems: &mut ProblemList<'_>) {
    let profile = language.profile();
    let shape = raw.profile.as_ref().map(|profile| profile.value.as_str());
    if let (Some(ramp_up), Some(shape @ ("constant" | "step" | "spike"))) = (&raw.ramp_up, shape) {
        problems.add_with_hint(
            &ramp_up.location,
            format!("`ramp_up` does not go with {profile} `{shape}`"),
            format!("use {profile} = \"ramp\""),
        );
    }
    if let (Some(steps), true) = (&raw.steps, shape != Some("step")) {
        problems.add_with_hint(
            &steps.location,
            format!("`steps` needs {profile} `step`"),
            format!("add {profile} = \"step\""),
        );
    }
}

/// The full level: a rate per second or a number of users.
fn level(raw: &RawLoad, problems: &mut ProblemList<'_>) -> Option<f64> {
    let (given, level) = match (&raw.rate, &raw.users) {
        (Some(rate), _) => match parse_rate(&rate.value) {
            Ok(level) => (rate, level),
            Err(error) => {
                problems.add(&rate.location, error.to_string());
                return None;
            }
        },
        (None, Some(users)) => (users, positive_count(users, problems)? as f64),
        // Stages start at 0 unless a rate or users are given.
        (None, None) if raw.stages.is_some() => return Some(0.0),
        (None, None) => return Some(DEFAULT_USERS),
    };
    if level > HIGHEST_LEVEL {
        problems
            .add(&given.location, format!("`{}` is more than Squall can count: at most {HIGHEST_LEVEL}", given.value));
        return None;
    }
    Some(level)
}

fn arrivals(raw: &RawLoad, problems: &mut ProblemList<'_>) -> Option<Arrivals> {
    match raw.arrivals.as_ref().map(|given| (given.value.as_str(), given)) {
        None | Some(("even", _)) => Some(Arrivals::Even),
        Some(("poisson", _)) => Some(Arrivals::Poisson),
        Some((other, given)) => {
            problems.add_with_hint(
                &given.location,
                format!("unknown arrivals `{other}`"),
                "there are even and poisson",
            );
            None
        }
    }
}

fn profile(
    raw: &RawLoad,
    level: f64,
    run: Option<Duration>,
    language: ScenarioLanguage,
    problems: &mut ProblemList<'_>,
) -> Option<Profile> {
    if let Some(stages) = &raw.stages {
        return staged_profile(stages, level, problems);
    }
    let ramp = raw.ramp_up.as_ref().map(|given| duration(given, problems));
    let shape = raw.profile.as_ref().map_or("constant", |given| given.value.as_str());
    let steps = steps(raw, problems);
    let shape_location = raw.profile.as_ref().or(raw.ramp_up.as_ref()).or(raw.duration.as_ref());
    if let (Some(given), Some(run)) = (&raw.profile, run)
        && run == MAX_DURATION
        && !matches!(shape, "constant")
        && ramp.is_none()
    {
        problems.add_with_hint(
            &given.location,
            format!("{} `{shape}` needs to know how long the run lasts", language.profile()),
            format!("add `{}`", language.duration()),
        );
        return None;
    }
    if !["constant", "ramp", "step", "spike"].contains(&shape) {
        let location = &raw.profile.as_ref()?.location;
        problems.add_with_hint(
            location,
            format!("unknown {} `{shape}`", language.profile()),
            "there are constant, ramp, step and spike",
        );
        return None;
    }
    let run = run?;
    let built = match (shape, ramp) {
        ("constant" | "ramp", Some(ramp)) => Profile::ramp(level, ramp?, run),
        ("constant", None) => Profile::constant(level, run),
        ("ramp", None) => Profile::ramp(level, run, run),
        ("step", _) => Profile::step(level, steps?, run),
        (_, _) => Profile::spike(level, run),
    };
    let location = match &built {
        Err(ProfileError::RampTooLong { .. }) => raw.ramp_up.as_ref(),
        _ => shape_location,
    };
    report_profile_error(built, location, problems)
}

fn steps(raw: &RawLoad, problems: &mut ProblemList<'_>) -> Option<u32> {
    let Some(given) = &raw.steps else { return Some(DEFAULT_STEPS) };
    let steps = positive_count(given, problems)?;
    let steps = u32::try_from(steps).ok().filter(|steps| *steps <= MAX_STEPS);
    if steps.is_none() {
        problems.add(&given.location, format!("at most {MAX_STEPS} steps are possible"));
    }
    steps
}

/// A profile of straight lines from level to level, starting at `begin`.
fn staged_profile(given: &Sourced<String>, begin: f64, problems: &mut ProblemList<'_>) -> Option<Profile> {
    let parsed = match parse_stages(&given.value) {
        Ok(parsed) => parsed,
        Err(error) => {
            problems.add(&given.location, error.to_string());
            return None;
        }
    };
    let mut from = begin;
    let mut stages = Vec::with_capacity(parsed.len());
    let mut whole = Duration::ZERO;
    for (duration, to) in parsed {
        whole = whole.saturating_add(duration);
        if to > HIGHEST_LEVEL || whole > MAX_DURATION {
            problems.add(&given.location, format!("a stage goes beyond {HIGHEST_LEVEL} or the run beyond ten years"));
            return None;
        }
        stages.push(ProfileStage { duration, from, to });
        from = to;
    }
    report_profile_error(Profile::from_stages(stages), Some(given), problems)
}

fn report_profile_error(
    built: Result<Profile, ProfileError>,
    given: Option<&Sourced<String>>,
    problems: &mut ProblemList<'_>,
) -> Option<Profile> {
    match built {
        Ok(profile) => Some(profile),
        Err(error) => {
            let location = given.map_or(crate::error::SourceLocation::Unknown, |given| given.location.clone());
            problems.add(&location, error.to_string());
            None
        }
    }
}
