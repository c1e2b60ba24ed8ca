//! From flags to what the scenario room takes. Every value keeps the name of its flag, so that a mistake is reported there.

use squall_model::{Load, LoadModel};
use squall_orchestrator::processes::Part;
use squall_scenario::{Given, Overrides, Place, RawHttp, RawLoad, UrlRequest};
use std::path::Path;

use crate::{
    args::{HttpArgs, LoadArgs, RequestArgs, RunArgs},
    exit::Refusal,
    program::Script,
};

/// What the flags change about a scenario.
pub(crate) fn overrides(args: &RunArgs) -> Result<Overrides, Refusal> {
    let mut wrong = Vec::new();
    Ok(Overrides {
        name: text("--name", &args.name),
        target: text("--target", &args.target),
        seed: args.load.seed.map(|seed| Given::flag("--seed", seed)),
        load: RawLoad { profile: profile(args)?, ..load(&args.load) },
        thresholds: args.thresholds.iter().map(|promise| Given::flag("--threshold", promise.as_str())).collect(),
        http: http(&args.http, &mut wrong),
        stand_in: None,
        wrong,
        variables: Vec::new(),
        unnamed_metrics: false,
    })
}

/// Refuses flags that a run of `loads` would not look at: whoever gave them expects something of them.
pub(crate) fn refuse_unused(args: &RunArgs, loads: &[&Load]) -> Result<(), Refusal> {
    let (search, engine) = (&args.search, &args.engine);
    let searches = search.find_max.is_some();
    let closed = |load: &&Load| matches!(load.model, LoadModel::Closed { .. });
    let restless = |load: &&Load| matches!(&load.model, LoadModel::Closed { pause, .. } if pause.is_none());
    let only_closed = !searches && loads.iter().all(closed);
    let never_late = !searches && loads.iter().all(restless);
    // Not `requires`: that is not asked where the other flag could not be given anyway.
    let precision = search.find_max_precision.is_some() && !searches;
    let probe = search.find_max_probe.is_some() && !searches;
    // It may also be in the environment, for all commands alike.
    let named = |word: &String| word == "--fleet" || word.starts_with("--fleet=");
    let fleet = args.fleet.cluster.is_none() && args.words.iter().any(named);
    let unused = [
        (
            engine.max_users.is_some() && only_closed,
            "--max-users is for an open load (--rate); of users there are --users",
        ),
        (
            engine.late_after.is_some() && never_late,
            "--late-after: users without a --pause start when they can, so none is late",
        ),
        (precision, "--find-max-precision belongs to --find-max"),
        (probe, "--find-max-probe belongs to --find-max"),
        (fleet, "--fleet belongs to --cluster"),
    ];
    let said: Vec<&str> = unused.into_iter().filter_map(|(unused, text)| unused.then_some(text)).collect();
    if said.is_empty() { Ok(()) } else { Err(Refusal::new(said.join("\n"))) }
}

/// `--param NAME=VALUE`, as often as it was given.
pub(crate) fn params(args: &RunArgs) -> Result<Vec<(String, String)>, Refusal> {
    let param = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(Refusal::new(format!("--param: `{text}` has no `=`: write NAME=VALUE"))),
    };
    args.script.params.iter().map(param).collect()
}

/// The request of `squall run URL`.
pub(crate) fn request(url: &str, args: &RequestArgs) -> UrlRequest {
    let list = |flag: &str, values: &[String]| values.iter().map(|value| Given::flag(flag, value.as_str())).collect();
    UrlRequest {
        url: url.to_owned(),
        method: text("--method", &args.method),
        query: list("--query", &args.query),
        body: text("--body", &args.body),
        body_file: text("--body-file", &args.body_file),
        json: text("--body-json", &args.body_json),
        form: list("--form", &args.form),
        expect_status: text("--expect-status", &args.expect_status),
        expect_body: text("--expect-body", &args.expect_body),
    }
}

/// The scenario of `squall run FILE.py`.
pub(crate) fn script(
    file: &Path,
    args: &RunArgs,
    overrides: Overrides,
    requirements: Option<String>,
) -> Result<Script, Refusal> {
    let flag = |wrong: &Given<String>| match &wrong.place {
        Place::Flag(flag) => format!("{flag}: {}", wrong.value),
        Place::File(_) | Place::Nowhere => wrong.value.clone(),
    };
    if !overrides.wrong.is_empty() {
        let wrong: Vec<String> = overrides.wrong.iter().map(flag).collect();
        return Err(Refusal::new(wrong.join("\n")));
    }
    let params = params(args)?;
    Ok(Script {
        file: file.to_owned(),
        overrides,
        scenario: args.script.scenario.clone(),
        params,
        mode: run_mode(args).map(str::to_owned),
        part: part(args)?.map_or(Part { number: 0, of: 1 }, |(part, _)| part),
        requirements,
    })
}

/// The first flag that only makes sense with a script, if one was given.
pub(crate) fn script_only_flag(args: &RunArgs) -> Option<&'static str> {
    let given = [
        ("--scenario", args.script.scenario.is_some()),
        ("--mode", run_mode(args).is_some()),
        ("--processes", args.script.processes.is_some()),
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

fn text(flag: &str, value: &Option<String>) -> Option<Given<String>> {
    value.as_ref().map(|value| Given::flag(flag, value.as_str()))
}

/// `--mode`, where it says how a script's tasks run.
fn run_mode(args: &RunArgs) -> Option<&str> {
    args.script.mode.as_deref().filter(|mode| matches!(*mode, "auto" | "stepped" | "static" | "asyncio"))
}

/// `--part NUMBER/OF/SEED`, which a run's processes are started with.
pub(crate) fn part(args: &RunArgs) -> Result<Option<(Part, u64)>, Refusal> {
    let Some(text) = &args.script.part else { return Ok(None) };
    let wrong = || Refusal::new(format!("--part {text}: it is given by squall itself, as NUMBER/OF/SEED"));
    let mut numbers = text.split('/').map(str::parse::<u64>);
    let mut next = || numbers.next().and_then(Result::ok).ok_or_else(wrong);
    let (number, of, seed) = (next()? as usize, next()? as usize, next()?);
    if number >= of { Err(wrong()) } else { Ok(Some((Part { number, of }, seed))) }
}

/// The shape of the load: `--profile`, or `--mode` where it names one.
fn profile(args: &RunArgs) -> Result<Option<Given<String>>, Refusal> {
    let named = text("--mode", &args.script.mode).filter(|_| run_mode(args).is_none());
    match (text("--profile", &args.load.profile), named) {
        (Some(_), Some(_)) => Err(Refusal::new("--profile and --mode both name a shape: give one")),
        (profile, named) => Ok(profile.or(named)),
    }
}

fn load(args: &LoadArgs) -> RawLoad {
    let poisson = args.poisson.then(|| Given::flag("--poisson", "poisson"));
    RawLoad {
        rate: text("--rate", &args.rate),
        users: text("--users", &args.users),
        pause: text("--pause", &args.pause),
        duration: text("--for", &args.duration),
        requests: text("--requests", &args.requests),
        ramp_up: text("--ramp-up", &args.ramp_up),
        stages: text("--stages", &args.stages),
        steps: text("--steps", &args.steps),
        arrivals: text("--arrivals", &args.arrivals).or(poisson),
        warm_up: text("--warm-up", &args.warm_up),
        profile: None,
    }
}

fn http(args: &HttpArgs, wrong: &mut Vec<Given<String>>) -> RawHttp {
    let switch = |flag: &str, given: bool, value: bool| given.then(|| Given::<bool>::flag(flag, value));
    let choice = |flag: &str, given: bool, value: &str| given.then(|| Given::<String>::flag(flag, value));
    let no_redirects = args.no_redirects.then(|| Given::flag("--no-redirects", 0u32));
    RawHttp {
        headers: pairs("--header", &args.headers, ':', "NAME: VALUE", wrong),
        timeout: text("--timeout", &args.timeout),
        connect_timeout: text("--connect-timeout", &args.connect_timeout),
        version: choice("--http1", args.http1, "1.1").or(choice("--http2", args.http2, "2")),
        keep_alive: switch("--no-keep-alive", args.no_keep_alive, false),
        insecure: switch("--insecure", args.insecure, true),
        ca: text("--ca", &args.ca),
        cert: text("--cert", &args.cert),
        key: text("--key", &args.key),
        server_name: text("--server-name", &args.server_name),
        proxy: text("--proxy", &args.proxy),
        redirects: args.max_redirects.map(|most| Given::flag("--max-redirects", most)).or(no_redirects),
        compression: switch("--compressed", args.compressed, true).or(switch(
            "--no-compression",
            args.no_compression,
            false,
        )),
        cookies: switch("--cookies", args.cookies, true).or(switch("--no-cookies", args.no_cookies, false)),
        basic: text("--basic", &args.basic),
        bearer: text("--bearer", &args.bearer),
        unix_socket: text("--unix-socket", &args.unix_socket),
        phases: switch("--phases", args.phases, true),
        ip: choice("--ipv4", args.ipv4, "4").or(choice("--ipv6", args.ipv6, "6")),
        resolve: pairs("--resolve", &args.resolve, '=', "HOST=ADDRESS:PORT", wrong),
    }
}

type Pair = (Given<String>, Given<String>);

fn pairs(flag: &str, values: &[String], separator: char, form: &str, wrong: &mut Vec<Given<String>>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for text in values {
        let lacks = match text.split_once(separator) {
            Some((name, value)) if !name.trim().is_empty() => {
                pairs.push((Given::flag(flag, name.trim()), Given::flag(flag, value.trim())));
                continue;
            }
            Some(_) => format!("nothing before its `{separator}`"),
            None => format!("no `{separator}`"),
        };
        wrong.push(Given::flag(flag, format!("`{text}` has {lacks}: write '{form}'")));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn run(line: &str) -> RunArgs {
        let words = ["squall", "run", "http://x/"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).expect(line).command {
            Command::Run(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_arrive_under_their_own_names() {
        let given = overrides(&run("--rate 5 --poisson --for 1s -H a:b --no-redirects -4 --http2 --seed 7")).unwrap();
        assert_eq!(given.load.rate, Some(Given::flag("--rate", "5")));
        assert_eq!(given.load.arrivals, Some(Given::flag("--poisson", "poisson")));
        assert_eq!(given.http.headers, [(Given::flag("--header", "a"), Given::flag("--header", "b"))]);
        assert_eq!(given.http.redirects, Some(Given::flag("--no-redirects", 0u32)));
        assert_eq!(given.http.ip, Some(Given::flag("--ipv4", "4")));
        assert_eq!(given.http.version, Some(Given::flag("--http2", "2")));
        assert_eq!(given.seed, Some(Given::flag("--seed", 7u64)));
        assert_eq!(given.http.keep_alive, None);
    }

    #[test]
    fn a_negative_rate_reaches_the_judge() {
        assert_eq!(overrides(&run("--rate -5")).unwrap().load.rate, Some(Given::flag("--rate", "-5")));
    }

    #[test]
    fn a_header_without_a_colon_is_refused() {
        let wrong = overrides(&run("-H nonsense -H :x -H a:b --resolve y")).unwrap().wrong;
        let said: Vec<&str> = wrong.iter().map(|given| given.value.as_str()).collect();
        assert_eq!(
            said,
            [
                "`nonsense` has no `:`: write 'NAME: VALUE'",
                "`:x` has nothing before its `:`: write 'NAME: VALUE'",
                "`y` has no `=`: write 'HOST=ADDRESS:PORT'",
            ]
        );
    }

    #[test]
    fn request_flags_are_known_to_need_a_url() {
        assert_eq!(url_only_flag(&run("").request), None);
        assert_eq!(url_only_flag(&run("-d x").request), Some("--body"));
    }
}
