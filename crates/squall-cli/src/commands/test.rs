//! `squall test`: starts, shows and controls the test of a fleet through its API. Keeps no state of
//! its own.

mod start;
mod watch;

use serde::Deserialize;
use serde_json::{Value, json};
use squall_report::ResultSummary;
use std::time::Duration;
use watch::WatchEnd;

use crate::{
    api_client::ApiClient,
    args::{StatusArgs, TestCommand},
    exit::{CliError, PASSED},
    script_host::ScriptHost,
    terminal::{self, pluralize, print},
};

pub(crate) fn test<H: ScriptHost>(command: TestCommand, host: &H) -> Result<u8, CliError> {
    match command {
        TestCommand::Start(args) => return start::start(*args, host),
        TestCommand::Status(args) => status(&args)?,
        TestCommand::Scale(args) => {
            let mut api = ApiClient::new(&args.api)?;
            let response = api.post("/api/v1/tests/current/scale", &json!({"users": args.users}))?;
            print_line(format!(
                "test {}: {} instead of {}",
                response["epoch"],
                pluralize(args.users, "user"),
                format_number(&response["before"])
            ))?;
        }
        TestCommand::Rate(args) => {
            let mut api = ApiClient::new(&args.api)?;
            let response = api.post("/api/v1/tests/current/rate", &json!({"rate": args.rate}))?;
            print_line(format!(
                "test {}: {}/s instead of {}/s",
                response["epoch"],
                args.rate,
                format_number(&response["before"])
            ))?;
        }
        TestCommand::Pause(args) => {
            let response = ApiClient::new(&args.api)?.post("/api/v1/tests/current/pause", &json!({}))?;
            print_line(format!("test {} is paused; `squall test resume` continues it", response["epoch"]))?;
        }
        TestCommand::Resume(args) => {
            let response = ApiClient::new(&args.api)?.post("/api/v1/tests/current/resume", &json!({}))?;
            print_line(format!("test {} continues", response["epoch"]))?;
        }
        TestCommand::Stop(args) => {
            let response =
                ApiClient::new(&args.api)?.post("/api/v1/tests/current/stop", &json!({"abort": args.abort}))?;
            let how = if args.abort { "is aborted" } else { "finishes its iterations and stops" };
            print_line(format!("test {} {how}; `squall test status` shows its result", response["epoch"]))?;
        }
    }
    Ok(PASSED)
}

fn status(args: &StatusArgs) -> Result<(), CliError> {
    let mut api = ApiClient::new(&args.api)?;
    let mut status = api.get("/api/v1/tests/current")?;
    let dashboard = args.watch && !args.json && !args.no_tui && terminal::can_show_dashboard();
    if dashboard && status["state"] != "IDLE" {
        match watch::watch(&mut api)? {
            WatchEnd::Left => return print_line("the test continues; `squall test stop` stops it".to_owned()),
            WatchEnd::TestEnded => status = api.get("/api/v1/tests/current")?,
        }
    }
    loop {
        print_line(if args.json { status.to_string() } else { render_status(&status) })?;
        if !args.watch || status["state"] == "IDLE" {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
        status = api.get("/api/v1/tests/current")?;
    }
}

/// The status of a test in two or three lines, and its result if it has ended.
fn render_status(status: &Value) -> String {
    let workers = format!("{} alive", pluralize(status["workers"]["alive"].as_u64().unwrap_or(0), "worker"));
    if status["epoch"] == 0 {
        return format!("no test has run yet; {workers}");
    }
    let state = status["state"].as_str().unwrap_or("?").to_lowercase();
    // Missing if the API cannot read the plan.
    let name = status["name"].as_str().map(|name| format!(": {name}")).unwrap_or_default();
    // The name of a test of one URL contains the target.
    let is_in_name = |target: &str| status["name"].as_str().is_some_and(|name| name.starts_with(target));
    let target = status["target"].as_str().filter(|target| !is_in_name(target));
    let target = target.map(|target| format!(" on {target}")).unwrap_or_default();
    let ended = state == "idle";
    let state = match (status["paused"].as_bool(), ended) {
        (_, true) => "is over".to_owned(),
        (Some(true), _) => "is paused".to_owned(),
        _ => format!("is {state}"),
    };
    let mut text = format!("test {} {state}{name}{target}", status["epoch"]);
    let elapsed = status["elapsed_s"].as_f64().unwrap_or(0.0);
    let level = |level: &Value| match status["driven_by"].as_str() {
        Some("rate") => format!("{}/s", format_number(level)),
        _ => pluralize(level.as_f64().unwrap_or(0.0).round() as u64, "user"),
    };
    let planned = match &status["resumes_at"] {
        _ if ended => String::new(),
        Value::Null => format!(", {} planned", level(&status["level"])),
        left => format!(", no load until `squall test resume`, then {}", level(left)),
    };
    text += &format!("\n  {elapsed:.1}s{planned}, {workers}");
    let live = &status["live"];
    if live.is_object() {
        let latency = &live["latency"];
        // The rate of an ended test is that of its measured time, as in the report. The last second
        // says little, and the drain starts nothing.
        let measured = status["measured_s"].as_f64().unwrap_or(elapsed);
        let overall_rate =
            live["requests_total"].as_f64().filter(|_| ended && measured > 0.0).map(|all| Value::from(all / measured));
        let rate = format_number(overall_rate.as_ref().unwrap_or(&live["current_rps"]));
        text += &format!(
            "\n  {} requests, {} errors, {rate}/s, p50 {:.2} ms, p99 {:.2} ms",
            live["requests_total"],
            live["errors_total"],
            latency["p50_ms"].as_f64().unwrap_or(0.0),
            latency["p99_ms"].as_f64().unwrap_or(0.0)
        );
    }
    // Fails until the test has ended, because the fields are null.
    if let Ok(summary) = ResultSummary::deserialize(status) {
        summary.lines().iter().for_each(|line| text += &format!("\n  {line}"));
    }
    if let Some(message) = status["stop"]["message"].as_str() {
        text += &format!("\n  {message}");
    }
    text
}

/// A number with at most one decimal.
fn format_number(number: &Value) -> String {
    let text = format!("{:.1}", number.as_f64().unwrap_or(0.0));
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

fn print_line(text: String) -> Result<(), CliError> {
    print::stdout(format!("{text}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_an_ended_test_leaves_out_the_drain() {
        let status = json!({
            "state": "IDLE", "epoch": 3, "elapsed_s": 20.0, "measured_s": 10.0, "name": "shop", "workers": {"alive": 1},
            "live": {"requests_total": 1000, "errors_total": 0, "current_rps": 0.0, "latency": {"p50_ms": 1.0, "p99_ms": 2.0}},
        });
        let text = render_status(&status);
        assert!(text.contains("20.0s, 1 worker alive") && text.contains(" 100/s"), "{text}");
    }

    #[test]
    fn status_names_the_target_unless_the_name_contains_it() {
        let mut status = json!({"state": "IDLE", "epoch": 3, "name": "http://shop/api", "workers": {"alive": 1}});
        for (target, line) in [("http://shop", "http://shop/api"), ("http://other", "http://shop/api on http://other")]
        {
            status["target"] = target.into();
            assert!(render_status(&status).starts_with(&format!("test 3 is over: {line}\n")), "{status}");
        }
    }

    #[test]
    fn status_of_a_paused_test_shows_the_level_that_resume_restores() {
        let mut status = json!({
            "state": "RUNNING", "epoch": 3, "elapsed_s": 20.0, "name": "shop", "workers": {"alive": 1}, "paused": true,
            "driven_by": "users", "level": 0.0, "resumes_at": 50.0,
        });
        let text = render_status(&status);
        assert!(text.starts_with("test 3 is paused: shop\n"), "{text}");
        assert!(text.contains("no load until `squall test resume`, then 50 users, 1 worker alive"), "{text}");
        status["driven_by"] = "rate".into();
        assert!(render_status(&status).contains("then 50/s"));
    }
}
