//! What `squall cql` has in common with `squall run`: thresholds, output files, the dashboard and the
//! exit code. It runs nothing and prints no table.

use squall_cql::{Pacing, StressSettings, ThreadPlan, Workload};
use squall_metrics::RunView;
use squall_model::{Plan, Threshold};
use squall_orchestrator::{LiveStatus, RunObserver, RunResult};
use squall_report::{
    InterruptionRule, ReportInput, RunVerdict, ScheduleRule, exit_code, threshold_lines, verdict, warning_lines,
};

use super::{interval_table::IntervalTable, run_plan::RunPlace};
use crate::{
    args::CqlArgs,
    command_line::{ShownValues, reported_command_line},
    commands::run::{ProgressDisplay, outputs::RunOutputs, print_failure, write_report},
    exit::CliError,
    stop_button::StopButton,
    terminal,
};

/// The flags of a command, and the outputs that they open.
pub(super) struct RunReport {
    args: CqlArgs,
    command: String,
    pacing: Pacing,
    /// `None` for a command of several runs, and after the only run.
    outputs: Option<RunOutputs>,
}

impl RunReport {
    /// Opens the outputs, so that a path that cannot be written is refused before anything is sent.
    pub(super) fn open(
        mut args: CqlArgs,
        settings: &StressSettings,
        workload: &Workload,
    ) -> Result<RunReport, CliError> {
        let command = reported_command_line(&mask_passwords(&args.raw_args), ShownValues::of(args.output.show_values));
        check_metrics(&args.thresholds, workload)?;
        if let Some(graph) = &settings.graph {
            if args.search().find_max.is_some() {
                return Err(CliError::new("-graph is about one run, and --find-max makes many: remove -graph"));
            }
            if args.output.html.is_some() {
                return Err(CliError::new("-graph file= and --html write the same report: give one of them"));
            }
            args.output.html = Some(graph.file.clone());
        }
        let outputs = match settings.rate.threads {
            // The search writes its own result.
            _ if args.search().find_max.is_some() => None,
            ThreadPlan::Fixed(_) => Some(RunOutputs::open(&args.output)?),
            ThreadPlan::Steps { .. } => {
                refuse_several_runs(&args, settings)?;
                None
            }
        };
        Ok(RunReport { args, command, pacing: settings.rate.pacing, outputs })
    }

    pub(super) fn quiet(&self) -> bool {
        self.args.output.quiet
    }

    pub(super) fn uses_stdout(&self) -> bool {
        self.args.output.uses_stdout()
    }

    /// The name of the run: `--name`, the title of `-graph`, or the command.
    pub(super) fn run_name(&self, settings: &StressSettings) -> String {
        let graph = settings.graph.as_ref();
        let title = self.args.name.clone().or_else(|| graph.and_then(|graph| graph.title.clone()));
        let title = title.unwrap_or_else(|| format!("cql {}", settings.command.operation.name()));
        match graph.map(|graph| graph.revision.as_str()).filter(|revision| *revision != "unknown") {
            Some(revision) => format!("{title} ({revision})"),
            None => title,
        }
    }

    /// The thresholds of a measured run. A failed operation breaches one, unless `-errors ignore`. Its
    /// driver ends a run in this process, the leader that of a fleet.
    pub(super) fn thresholds(&self, settings: &StressSettings, place: RunPlace) -> Vec<Threshold> {
        let text = match place {
            RunPlace::ThisProcess => "errors<1",
            RunPlace::Fleet => "errors<1 !abort",
        };
        let no_errors: Option<Threshold> = (!settings.errors.ignore).then(|| text.parse().expect("a valid threshold"));
        let no_errors = no_errors.filter(|threshold| !self.args.thresholds.contains(threshold));
        self.args.thresholds.iter().cloned().chain(no_errors).collect()
    }

    /// The thresholds of the command line.
    pub(super) fn typed_thresholds(&self) -> Vec<Threshold> {
        self.args.thresholds.clone()
    }

    /// The dashboard, if a terminal can show it. The table takes the place of progress lines.
    pub(super) fn display(&self) -> ProgressDisplay {
        let output = &self.args.output;
        let lines_on_stdout = self.outputs.as_ref().is_some_and(RunOutputs::writes_live_to_stdout);
        match output.quiet || output.no_tui || lines_on_stdout || !terminal::can_show_dashboard() {
            true => ProgressDisplay::Off,
            false => ProgressDisplay::Dashboard,
        }
    }

    /// How many seconds of full histograms the run must keep for the outputs.
    pub(super) fn histogram_window_s(&self) -> u32 {
        self.outputs.as_ref().map_or(1, RunOutputs::histogram_window_s)
    }

    pub(super) fn outputs(&mut self) -> Option<&mut RunOutputs> {
        self.outputs.as_mut()
    }

    /// Writes the outputs of a run, prints its end with `print_end` and returns the exit code.
    pub(super) fn finish(&mut self, result: &RunResult, button: &StopButton, print_end: impl FnOnce()) -> u8 {
        let outputs = self.outputs.take();
        let report = ReportInput {
            plan: &result.plan,
            view: &result.view,
            facts: &result.facts,
            schedule_rule: self.schedule_rule(),
            interruption_rule: InterruptionRule::Fails,
            command: Some(&self.command),
            version: env!("SQUALL_VERSION"),
        };
        let print_end = || {
            print_end();
            self.print_verdict(&report);
        };
        match outputs {
            Some(outputs) => write_report(&report, outputs, button, self.quiet(), print_end),
            None => {
                print_end();
                exit_code(&report)
            }
        }
    }

    fn print_verdict(&self, report: &ReportInput<'_>) {
        if !self.args.thresholds.is_empty() && !self.quiet() {
            terminal::print_stderr(threshold_lines(report, terminal::stderr_style()));
        }
        if !self.quiet() {
            terminal::print_stderr(warning_lines(report, terminal::stderr_style()));
        }
        if !matches!(verdict(report), RunVerdict::Passed | RunVerdict::Interrupted) {
            print_failure(report);
        }
    }

    /// `throttle=` is a limit that a slow database need not reach. `fixed=` is a schedule.
    pub(super) fn schedule_rule(&self) -> ScheduleRule {
        match (self.args.strict, self.args.allow_missing, self.pacing) {
            (true, _, _) => ScheduleRule::Strict,
            (false, true, _) | (false, false, Pacing::Throttle(_)) => ScheduleRule::AllowMissing,
            (false, false, Pacing::Unlimited | Pacing::Fixed(_)) => ScheduleRule::MostStarts,
        }
    }
}

/// The observers of one run.
pub(super) struct TableAndOutputs<'t, 'o> {
    pub(super) table: &'t mut IntervalTable<'o>,
    /// `None` for a warm-up.
    pub(super) outputs: Option<&'t mut RunOutputs>,
}

impl RunObserver for TableAndOutputs<'_, '_> {
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        self.table.on_update(plan, view, live);
        if let Some(outputs) = &mut self.outputs {
            outputs.on_update(plan, view, live);
        }
    }
}

/// Names the words of the command where the engine's advice names flags of `squall run`.
pub(super) fn name_words(result: &mut RunResult) {
    for reason in &mut result.facts.generator.saturated_because {
        *reason = reason.replace("--max-users", "-rate threads=");
    }
}

/// Refuses a threshold on an operation that the command does not have.
fn check_metrics(thresholds: &[Threshold], workload: &Workload) -> Result<(), CliError> {
    let unknown = |metric: &&String| !workload.may_have_metric(metric);
    match thresholds.iter().filter_map(|threshold| threshold.metric.as_ref()).find(unknown) {
        Some(metric) => Err(CliError::new(format!(
            "--threshold: the command has no operation `{metric}`: it has {}",
            workload.names().join(", ")
        ))),
        None => Ok(()),
    }
}

/// Names the first flag that describes one run.
fn refuse_several_runs(args: &CqlArgs, settings: &StressSettings) -> Result<(), CliError> {
    let output = &args.output;
    // It has become --html.
    let graph = settings.graph.as_ref().map(|_| "-graph");
    let stdout = output.uses_stdout().then_some("an output on standard output");
    let prometheus = output.prometheus.map(|_| "--prometheus");
    let threshold = (!args.thresholds.is_empty()).then_some("--threshold");
    let history = output.history.history.as_ref().map(|_| "--history");
    let file = output.files().first().map(|(flag, _)| *flag);
    match graph.or(file).or(stdout).or(history).or(prometheus).or(threshold) {
        Some(flag) => Err(CliError::new(format!(
            "{flag} is about one run, and this command searches the number of threads: give -rate threads=N"
        ))),
        None => Ok(()),
    }
}

/// What stands before the value of a password, in lower case.
const PASSWORD_OPTION: &str = "password=";

/// The arguments without the values of passwords. One argument can have several words, and a word can be
/// spread over several arguments, because blanks around `, = ( )` do not count.
fn mask_passwords(arguments: &[String]) -> Vec<String> {
    let mut word = String::new();
    let mut mask = |piece: &str| {
        let part = piece.trim_end();
        if part.is_empty() {
            return piece.to_owned();
        }
        if !word.ends_with([',', '=', '(']) && !part.starts_with([',', '=', '(', ')']) {
            word.clear();
        }
        let part_at = word.len();
        word.push_str(&part.to_ascii_lowercase());
        let Some(option_at) = word.find(PASSWORD_OPTION) else { return piece.to_owned() };
        let shown = (option_at + PASSWORD_OPTION.len()).saturating_sub(part_at);
        match shown < part.len() {
            true => format!("{}…{}", &part[..shown], &piece[part.len()..]),
            false => piece.to_owned(),
        }
    };
    arguments.iter().map(|argument| argument.split_inclusive(char::is_whitespace).map(&mut mask).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::mask_passwords;

    #[track_caller]
    fn check(arguments: &[&str], expected: &[&str]) {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        assert_eq!(mask_passwords(&arguments), expected);
    }

    #[test]
    fn passwords_are_hidden_in_every_form() {
        check(&["-mode", "user=ann", "password=pw", "cql3"], &["-mode", "user=ann", "password=…", "cql3"]);
        check(&["password", "=", "pw", "cql3"], &["password", "=", "…", "cql3"]);
        check(&["Password", "=pw", "cql3"], &["Password", "=…", "cql3"]);
        check(&["password=", "pw", "truststore-password=x,y"], &["password=", "…", "truststore-password=…"]);
        check(&["password=x,", "y", "cql3"], &["password=…", "…", "cql3"]);
        check(&["password=password=x"], &["password=…"]);
    }

    #[test]
    fn every_password_of_one_argument_is_hidden() {
        check(
            &["write n=1 -transport truststore=t truststore-password=A keystore=k  keystore-password = B -node h"],
            &["write n=1 -transport truststore=t truststore-password=… keystore=k  keystore-password = … -node h"],
        );
    }

    #[test]
    fn a_file_with_passwords_hides_no_other_word() {
        let words =
            ["-credentials-file", "passwords.properties", "-node", "10.0.0.1", "-jmx", "password-file=p", "cl=ONE"];
        check(&words, &words);
        check(&["-credentials-file password -node h"], &["-credentials-file password -node h"]);
    }
}
