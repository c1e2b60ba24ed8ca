//! `squall test start`: starts a test through the API and, if asked to, waits for its end and writes
//! the outputs of `squall run` from the result that the API serves. Makes no load itself.

use serde_json::{Value, json};
use squall_model::Bundle;
use squall_orchestrator::RunControl;
use squall_report::{RecordedRun, ReportInput, ResultFile};
use std::time::{Duration, Instant};

use super::{format_number, print_line};
use crate::{
    api_client::ApiClient,
    args::{RunArgs, StartArgs},
    bundle,
    command_line::{self, ShownValues},
    commands::run::{self, outputs::RunOutputs, resolve_input},
    exit::{CliError, PASSED, error_chain},
    script_host::ScriptHost,
    signals,
    stop_button::StopButton,
    terminal::{self, print},
};

/// How often the wait reads the status of the test.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How long the API may not respond during the wait, for example because its orchestrator restarts.
const MAX_API_SILENCE: Duration = Duration::from_secs(30);

pub(super) fn start<H: ScriptHost>(mut args: StartArgs, host: &H) -> Result<u8, CliError> {
    reject_unsupported_flags(&args.run)?;
    let input = resolve_input(&mut args.run)?;
    let waits = args.waits_for_end();
    if args.run.output.uses_stdout() {
        host.redirect_stdout_to_stderr();
    }
    let (bundle, description) = bundle::build(&input, &args.run, host)?;
    if args.run.check {
        print::stdout(description.as_bytes())?;
        return Ok(PASSED);
    }
    run::print_notes(&args.run, &description);
    let mut api = ApiClient::new(&args.api)?;
    if waits {
        return start_and_wait(&mut api, &bundle, &args.run);
    }
    let epoch = post_test(&mut api, &bundle, &args.run)?;
    print_line(format!("test {epoch} starts: {}", bundle.plan.name))?;
    eprintln!("`squall test status --watch` follows it, `squall test stop` ends it");
    Ok(PASSED)
}

fn reject_unsupported_flags(run: &RunArgs) -> Result<(), CliError> {
    let unsupported = [
        (run.fleet.cluster.is_some(), "--cluster belongs to `squall run`: `squall test start` uses --api"),
        (run.search.find_max.is_some(), "--find-max makes many runs: use `squall run … --find-max`"),
        (
            run.output.hdr.is_some() || run.output.json_lines.is_some(),
            "--hdr and --json-lines need every second of the test, which the API does not serve: \
             use `squall run … --cluster`",
        ),
        (
            run.output.prometheus.is_some(),
            "--prometheus belongs to `squall run`: the orchestrator of a test serves GET /metrics at --api",
        ),
        (
            run.script.processes.is_some_and(|count| count > 1),
            "--processes splits the load on one machine: on a fleet, start more workers instead",
        ),
        (run.web.is_some(), "--web belongs to `squall run`: the orchestrator of a test serves the web UI at --api"),
        (run.plan.is_some(), "--plan belongs to `squall run`: give a URL or a scenario file instead"),
    ];
    let errors: Vec<&str> = unsupported.into_iter().filter_map(|(given, text)| given.then_some(text)).collect();
    if errors.is_empty() { Ok(()) } else { Err(CliError::new(errors.join("\n"))) }
}

/// Starts the test and returns its number.
fn post_test(api: &mut ApiClient, bundle: &Bundle, run: &RunArgs) -> Result<u64, CliError> {
    let on_wait = |reason: &str| notify(run, reason);
    let response = api.post_when_workers_ready("/api/v1/tests", &json!({"bundle": bundle}), on_wait)?;
    response["epoch"].as_u64().ok_or_else(|| CliError::new("the API did not name the started test: check --api"))
}

fn start_and_wait(api: &mut ApiClient, bundle: &Bundle, run: &RunArgs) -> Result<u8, CliError> {
    let button = StopButton::new(RunControl::new());
    let _signals = signals::listen_for_signals(&button)?;
    let outputs = RunOutputs::open(&run.output)?;
    let epoch = post_test(api, bundle, run)?;
    notify(run, &format!("test {epoch} starts: {}; Ctrl-C stops it", bundle.plan.name));
    wait_for_end(api, epoch, run, &button)?;
    let result = ResultFile::parse(&api.get(&format!("/api/v1/tests/{epoch}"))?.to_string());
    let result = result.map_err(|error| CliError::new(format!("test {epoch}: {}", error_chain(&error))))?;
    let recorded = RecordedRun::restore(&result).map_err(|error| {
        CliError::new(format!("the orchestrator's result of test {epoch}: {}", error_chain(&error)))
    })?;
    let command = command_line::reported_command_line(&run.raw_args, ShownValues::of(run.output.show_values));
    let report =
        ReportInput { schedule_rule: run::schedule_rule(run), command: Some(&command), ..recorded.report_input() };
    Ok(run::report_run(run, &report, outputs, &button))
}

/// Waits until test `epoch` has ended. Each press of the button stops the test more strongly.
fn wait_for_end(api: &mut ApiClient, epoch: u64, run: &RunArgs, button: &StopButton) -> Result<(), CliError> {
    let (mut last_response, mut sent_presses, mut shown_second) = (Instant::now(), 0, 0);
    loop {
        match api.get("/api/v1/tests/current") {
            Ok(status) if has_ended(&status, epoch) => return Ok(()),
            Ok(status) => {
                last_response = Instant::now();
                let second = status["elapsed_s"].as_f64().unwrap_or(0.0) as u64;
                if let Some(line) = progress_line(&status).filter(|_| second > shown_second) {
                    shown_second = second;
                    notify(run, &line);
                }
                if button.presses() > sent_presses {
                    sent_presses = button.presses();
                    stop_test(api, run, sent_presses > 1);
                }
            }
            Err(error) if last_response.elapsed() > MAX_API_SILENCE => return Err(error),
            Err(_) => {}
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn has_ended(status: &Value, epoch: u64) -> bool {
    let current = status["epoch"].as_u64().unwrap_or(0);
    current > epoch || current == epoch && status["state"] == "IDLE"
}

/// Asks for the end of the test. A test that is already stopping refuses; the wait continues.
fn stop_test(api: &mut ApiClient, run: &RunArgs, abort: bool) {
    notify(run, if abort { "aborting" } else { "the test finishes its iterations; press Ctrl-C again to abort" });
    let _ = api.post("/api/v1/tests/current/stop", &json!({"abort": abort}));
}

/// The test so far; `None` before its first second.
fn progress_line(status: &Value) -> Option<String> {
    let live = status["live"].as_object()?;
    let (second, rate) = (status["elapsed_s"].as_f64()?, format_number(&live["current_rps"]));
    let p99 = live["latency"]["p99_ms"].as_f64()?;
    let (requests, errors) = (&live["requests_total"], &live["errors_total"]);
    Some(format!("{second:>5.0}s  {rate}/s  {requests} requests, {errors} errors, p99 {p99:.2} ms"))
}

fn notify(run: &RunArgs, line: &str) {
    if !run.output.quiet {
        terminal::print_stderr(format!("{line}\n"));
    }
}
