//! Converts flags to the settings that squall-scenario takes. Every value keeps the name of its
//! flag, so that squall-scenario reports a mistake at the flag. Validates no values: squall-scenario
//! validates a flag and the same key of a file with the same code. `run_settings` calls it.

use squall_model::{Load, LoadModel};
use squall_orchestrator::processes::ProcessIndex;
use squall_scenario::{RawHttp, RawLoad, ScenarioOverrides, Sourced, UrlRequest};
use std::collections::BTreeMap;

use crate::{
    args::{HttpArgs, LoadArgs, RequestArgs, RunArgs},
    exit::CliError,
    secret_value,
};

/// The process index of a run in one process.
pub(crate) const ONLY_PROCESS: ProcessIndex = ProcessIndex { index: 0, count: 1 };

/// What the flags change about a scenario.
pub(crate) fn overrides(args: &RunArgs) -> Result<ScenarioOverrides, CliError> {
    let mut flag_errors: Vec<_> = duration_as_body(args).into_iter().collect();
    Ok(ScenarioOverrides {
        name: sourced_text("--name", &args.name),
        target: sourced_text("--target", &args.target),
        seed: args.load.seed.map(|seed| Sourced::from_flag("--seed", seed)),
        load: RawLoad { profile: load_profile(args)?, ..raw_load(&args.load) },
        thresholds: args.thresholds.iter().map(|text| Sourced::from_flag("--threshold", text.as_str())).collect(),
        http: raw_http(&args.http, &mut flag_errors),
        placeholder_target: None,
        flag_errors,
        variables: Vec::new(),
    })
}

/// The error of `-d 30s`, which other tools take as the length of the run. Sent as a body, it would make
/// every request a POST. Any other sign of a body, and a length given by `--for`, make it a body.
fn duration_as_body(args: &RunArgs) -> Option<Sourced<String>> {
    let body = args.request.body.as_deref().filter(|body| squall_model::parse_duration(body).is_ok())?;
    let short = format!("-d{body}");
    let by_short_flag = args.raw_args.iter().any(|word| word == "-d" || *word == short);
    let is_content_type = |header: &String| header.to_ascii_lowercase().starts_with("content-type");
    let meant_as_body =
        args.request.method.is_some() || args.load.duration.is_some() || args.http.headers.iter().any(is_content_type);
    let text =
        format!("`{body}` would be sent as a body: write --for {body} for the length of the run, or --body {body}");
    (by_short_flag && !meant_as_body).then(|| Sourced::from_flag("-d", text))
}

/// Refuses flags that have no effect on a run with `loads`, because the user expects one.
pub(crate) fn reject_unused_flags(args: &RunArgs, loads: &[&Load]) -> Result<(), CliError> {
    let (search, engine) = (&args.search, &args.engine);
    let searches = search.find_max.is_some();
    let is_closed = |load: &&Load| matches!(load.model, LoadModel::Closed { .. });
    let has_no_pause = |load: &&Load| matches!(&load.model, LoadModel::Closed { pause, .. } if pause.is_none());
    let only_closed = !searches && loads.iter().all(is_closed);
    let never_late = !searches && loads.iter().all(has_no_pause);
    // Not clap's `requires`: clap does not check it when the other flag conflicts with a third one.
    let precision = search.find_max_precision.is_some() && !searches;
    let probe = search.find_max_probe.is_some() && !searches;
    // SQUALL_FLEET sets the fleet for all commands, so only the flag itself counts.
    let is_fleet_flag = |word: &String| word == "--fleet" || word.starts_with("--fleet=");
    let fleet = args.fleet.cluster.is_none() && args.raw_args.iter().any(is_fleet_flag);
    let unused = [
        (
            engine.max_users.is_some() && only_closed,
            "--max-users is for an open load (--rate): a closed load has as many users as --users says",
        ),
        (
            engine.start_users.is_some() && only_closed,
            "--start-users is for an open load (--rate): a closed load starts as many users as --users says",
        ),
        (
            engine.late_after.is_some() && never_late,
            "--late-after: users without a --pause start as soon as they can, so no start is late",
        ),
        (precision, "--find-max-precision belongs to --find-max"),
        (probe, "--find-max-probe belongs to --find-max"),
        (fleet, "--fleet belongs to --cluster"),
    ];
    let errors: Vec<&str> = unused.into_iter().filter_map(|(unused, text)| unused.then_some(text)).collect();
    if errors.is_empty() { Ok(()) } else { Err(CliError::new(errors.join("\n"))) }
}

/// Every `--param NAME=VALUE`, also `NAME=@FILE` and `NAME=$VARIABLE`. The last value of a name wins.
pub(crate) fn parse_params(args: &RunArgs) -> Result<BTreeMap<String, String>, CliError> {
    let param = |text: &String| match text.split_once('=') {
        Some((name, value)) => match secret_value::resolve(value) {
            Ok(value) => Ok((name.to_owned(), value)),
            Err(error) => Err(CliError::new(format!("--param {name}: {error}"))),
        },
        None => Err(CliError::new(format!("--param: `{text}` has no `=`: write NAME=VALUE"))),
    };
    args.script.params.iter().map(param).collect()
}

/// The request of `squall run URL`. Its values can be `@FILE` or `$NAME`; a body `@FILE` is the file, of
/// any size.
pub(crate) fn url_request(url: &str, args: &RequestArgs, errors: &mut Vec<Sourced<String>>) -> UrlRequest {
    let body_file = args.body.as_deref().and_then(secret_value::referenced_file);
    let body = args.body.as_deref().filter(|_| body_file.is_none());
    UrlRequest {
        url: url.to_owned(),
        method: sourced_text("--method", &args.method),
        query: named_values("--query", &args.query, errors),
        body: body.map(|text| secret("--body", text, errors)),
        body_file: body_file
            .map(|path| Sourced::from_flag("--body", path))
            .or(sourced_text("--body-file", &args.body_file)),
        json: args.body_json.as_deref().map(|text| secret("--body-json", text, errors)),
        form: named_values("--form", &args.form, errors),
        expect_status: sourced_text("--expect-status", &args.expect_status),
        expect_body: sourced_text("--expect-body", &args.expect_body),
    }
}

/// The first flag that only makes sense with a script, if one was given.
pub(crate) fn script_only_flag(args: &RunArgs) -> Option<&'static str> {
    let given = [
        ("--scenario", args.script.scenario.is_some()),
        ("--mode", script_mode(args).is_some()),
        ("--processes", args.script.processes.is_some()),
        ("--threads-for-blocking", args.script.threads_for_blocking.is_some()),
        ("--requirements", args.script.requirements.is_some()),
    ];
    given.into_iter().find_map(|(flag, given)| given.then_some(flag))
}

/// The first flag that only makes sense with a URL, if one was given.
pub(crate) fn url_only_flag(args: &RequestArgs) -> Option<&'static str> {
    let given = [
        ("--method", args.method.is_some()),
        ("--query", !args.query.is_empty()),
        ("--body", args.body.is_some()),
        ("--body-file", args.body_file.is_some()),
        ("--body-json", args.body_json.is_some()),
        ("--form", !args.form.is_empty()),
        ("--expect-status", args.expect_status.is_some()),
        ("--expect-body", args.expect_body.is_some()),
    ];
    given.into_iter().find_map(|(flag, given)| given.then_some(flag))
}

fn sourced_text(flag: &str, value: &Option<String>) -> Option<Sourced<String>> {
    value.as_ref().map(|value| Sourced::from_flag(flag, value.as_str()))
}

/// `--mode`, if it names a way to run a script's tasks and not a load profile.
pub(crate) fn script_mode(args: &RunArgs) -> Option<&str> {
    args.script.mode.as_deref().filter(|mode| matches!(*mode, "auto" | "stepped" | "static" | "asyncio"))
}

/// `--part INDEX/COUNT/SEED`, which squall gives to the processes of a run.
pub(crate) fn parse_part(args: &RunArgs) -> Result<Option<(ProcessIndex, u64)>, CliError> {
    let Some(text) = &args.script.part else { return Ok(None) };
    let invalid = || {
        CliError::new(format!(
            "--part {text}: squall itself gives this flag to the processes of a run, as INDEX/COUNT/SEED; leave it out"
        ))
    };
    let mut numbers = text.split('/').map(str::parse::<u64>);
    let mut next = || numbers.next().and_then(Result::ok).ok_or_else(invalid);
    let (index, count, seed) = (next()? as usize, next()? as usize, next()?);
    if index >= count { Err(invalid()) } else { Ok(Some((ProcessIndex { index, count }, seed))) }
}

/// Which process of the run this one is: the only one, unless `--part` says otherwise.
pub(crate) fn process_index(args: &RunArgs) -> Result<ProcessIndex, CliError> {
    Ok(parse_part(args)?.map_or(ONLY_PROCESS, |(part, _)| part))
}

/// The load profile: `--profile`, or `--mode` if it names one.
fn load_profile(args: &RunArgs) -> Result<Option<Sourced<String>>, CliError> {
    let by_mode = sourced_text("--mode", &args.script.mode).filter(|_| script_mode(args).is_none());
    match (sourced_text("--profile", &args.load.profile), by_mode) {
        (Some(_), Some(_)) => Err(CliError::new("--profile and --mode both name a load profile: give only one")),
        (profile, by_mode) => Ok(profile.or(by_mode)),
    }
}

fn raw_load(args: &LoadArgs) -> RawLoad {
    let poisson = args.poisson.then(|| Sourced::from_flag("--poisson", "poisson"));
    RawLoad {
        rate: sourced_text("--rate", &args.rate),
        users: sourced_text("--users", &args.users),
        pause: sourced_text("--pause", &args.pause),
        duration: sourced_text("--for", &args.duration),
        requests: sourced_text("--requests", &args.requests),
        ramp_up: sourced_text("--ramp-up", &args.ramp_up),
        stages: sourced_text("--stages", &args.stages),
        steps: sourced_text("--steps", &args.steps),
        arrivals: sourced_text("--arrivals", &args.arrivals).or(poisson),
        warm_up: sourced_text("--warm-up", &args.warm_up),
        profile: None,
    }
}

fn raw_http(args: &HttpArgs, errors: &mut Vec<Sourced<String>>) -> RawHttp {
    let switch = |flag: &str, given: bool, value: bool| given.then(|| Sourced::<bool>::from_flag(flag, value));
    let choice = |flag: &str, given: bool, value: &str| given.then(|| Sourced::<String>::from_flag(flag, value));
    let no_redirects = args.no_redirects.then(|| Sourced::from_flag("--no-redirects", 0u32));
    RawHttp {
        headers: headers(&args.headers, errors),
        timeout: sourced_text("--timeout", &args.timeout),
        connect_timeout: sourced_text("--connect-timeout", &args.connect_timeout),
        version: choice("--http1", args.http1, "1.1").or(choice("--http2", args.http2, "2")),
        keep_alive: switch("--no-keep-alive", args.no_keep_alive, false),
        insecure: switch("--insecure", args.insecure, true),
        ca: sourced_text("--ca", &args.ca),
        cert: sourced_text("--cert", &args.cert),
        key: sourced_text("--key", &args.key),
        server_name: sourced_text("--server-name", &args.server_name),
        proxy: sourced_text("--proxy", &args.proxy),
        redirects: args.max_redirects.map(|limit| Sourced::from_flag("--max-redirects", limit)).or(no_redirects),
        compression: switch("--compressed", args.compressed, true).or(switch(
            "--no-compression",
            args.no_compression,
            false,
        )),
        cookies: switch("--cookies", args.cookies, true).or(switch("--no-cookies", args.no_cookies, false)),
        basic: args.basic.as_deref().map(|text| secret("--basic", text, errors)),
        bearer: args.bearer.as_deref().map(|text| secret("--bearer", text, errors)),
        unix_socket: sourced_text("--unix-socket", &args.unix_socket),
        phases: switch("--phases", args.phases, true),
        ip: choice("--ipv4", args.ipv4, "4").or(choice("--ipv6", args.ipv6, "6")),
        resolve: parse_pairs("--resolve", &args.resolve, '=', "HOST=ADDRESS:PORT", errors),
    }
}

/// The headers. Each value can be `@FILE` or `$NAME`.
fn headers(values: &[String], errors: &mut Vec<Sourced<String>>) -> Vec<SourcedPair> {
    let pairs = parse_pairs("--header", values, ':', "NAME: VALUE", errors);
    pairs.into_iter().map(|(name, value)| (name, secret("--header", &value.value, errors))).collect()
}

/// The value of a flag that can be `@FILE` or `$NAME`.
fn secret(flag: &str, text: &str, errors: &mut Vec<Sourced<String>>) -> Sourced<String> {
    let value = match secret_value::resolve(text) {
        // A secret is no template.
        Ok(value) if secret_value::is_reference(text) => value.replace("{{", "{{ '{{' }}"),
        Ok(value) => value,
        Err(error) => {
            errors.push(Sourced::from_flag(flag, error.to_string()));
            String::new()
        }
    };
    Sourced::from_flag(flag, value)
}

/// Texts `NAME=VALUE`, each value of which can be `@FILE` or `$NAME`.
fn named_values(flag: &str, texts: &[String], errors: &mut Vec<Sourced<String>>) -> Vec<Sourced<String>> {
    let resolve = |text: &String| match text.split_once('=') {
        Some((name, value)) => Sourced::from_flag(flag, format!("{name}={}", secret(flag, value, errors).value)),
        None => Sourced::from_flag(flag, text.as_str()),
    };
    texts.iter().map(resolve).collect()
}

type SourcedPair = (Sourced<String>, Sourced<String>);

fn parse_pairs(
    flag: &str,
    values: &[String],
    separator: char,
    form: &str,
    errors: &mut Vec<Sourced<String>>,
) -> Vec<SourcedPair> {
    let mut pairs = Vec::new();
    for text in values {
        let defect = match text.split_once(separator) {
            Some((name, value)) if !name.trim().is_empty() => {
                pairs.push((Sourced::from_flag(flag, name.trim()), Sourced::from_flag(flag, value.trim())));
                continue;
            }
            Some(_) => format!("nothing before its `{separator}`"),
            None => format!("no `{separator}`"),
        };
        errors.push(Sourced::from_flag(flag, format!("`{text}` has {defect}: write '{form}'")));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, CliCommand};
    use clap::Parser;

    fn parse_run_args(line: &str) -> RunArgs {
        let words = ["squall", "run", "http://x/"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).expect(line).command {
            CliCommand::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn override_is_located_at_the_flag_that_sets_it() {
        let overrides =
            overrides(&parse_run_args("--rate 5 --poisson --for 1s -H a:b --no-redirects -4 --http2 --seed 7"))
                .unwrap();
        assert_eq!(overrides.load.rate, Some(Sourced::from_flag("--rate", "5")));
        assert_eq!(overrides.load.arrivals, Some(Sourced::from_flag("--poisson", "poisson")));
        assert_eq!(
            overrides.http.headers,
            [(Sourced::from_flag("--header", "a"), Sourced::from_flag("--header", "b"))]
        );
        assert_eq!(overrides.http.redirects, Some(Sourced::from_flag("--no-redirects", 0u32)));
        assert_eq!(overrides.http.ip, Some(Sourced::from_flag("--ipv4", "4")));
        assert_eq!(overrides.http.version, Some(Sourced::from_flag("--http2", "2")));
        assert_eq!(overrides.seed, Some(Sourced::from_flag("--seed", 7u64)));
        assert_eq!(overrides.http.keep_alive, None);
    }

    #[test]
    fn negative_rate_is_passed_on_to_validation() {
        assert_eq!(
            overrides(&parse_run_args("--rate -5")).unwrap().load.rate,
            Some(Sourced::from_flag("--rate", "-5"))
        );
    }

    #[test]
    fn header_without_colon_and_resolve_without_equals_are_flag_errors() {
        let errors = overrides(&parse_run_args("-H nonsense -H :x -H a:b --resolve y")).unwrap().flag_errors;
        let texts: Vec<&str> = errors.iter().map(|error| error.value.as_str()).collect();
        assert_eq!(
            texts,
            [
                "`nonsense` has no `:`: write 'NAME: VALUE'",
                "`:x` has nothing before its `:`: write 'NAME: VALUE'",
                "`y` has no `=`: write 'HOST=ADDRESS:PORT'",
            ]
        );
    }

    #[test]
    fn values_of_the_request_are_read_from_files_and_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "s3 {{ x }}\n").unwrap();
        let at = format!("@{}", token.display());
        let request = |line: &str| {
            let mut errors = Vec::new();
            let request = url_request("http://x/", &parse_run_args(line).request, &mut errors);
            (request, errors)
        };
        let (read, errors) = request(&format!("--query a={at} -F password={at} -F mail=a@b --query c=@@d"));
        let texts = |values: &[Sourced<String>]| values.iter().map(|value| value.value.clone()).collect::<Vec<_>>();
        let secret = "s3 {{ '{{' }} x }}";
        assert_eq!(texts(&read.query), [format!("a={secret}"), "c=@d".to_owned()]);
        assert_eq!(texts(&read.form), [format!("password={secret}"), "mail=a@b".to_owned()]);
        assert_eq!(errors, []);
        let (read, _) = request(&format!("-d {at}"));
        assert_eq!((read.body, read.body_file.map(|path| path.value)), (None, Some(token.display().to_string())));
        let (read, _) = request("--body-json $PATH");
        assert_eq!(read.json.map(|json| json.value), std::env::var("PATH").ok());
        let (_, errors) = request("-F a=@/missing/file");
        assert!(errors[0].value.contains("cannot read /missing/file"), "{errors:?}");
    }

    #[test]
    fn url_only_flag_names_a_request_flag() {
        assert_eq!(url_only_flag(&parse_run_args("").request), None);
        assert_eq!(url_only_flag(&parse_run_args("-d x").request), Some("--body"));
    }
}
