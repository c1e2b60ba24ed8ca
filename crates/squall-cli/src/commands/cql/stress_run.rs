//! One command of `squall cql` against a database: connect, schema, warm-up, truncate, and one run for
//! each number of threads. The engine makes the load; squall-cql knows the operations.

use squall_cql::{
    BasicOperation, CqlDriver, Database, DatabaseConnectError, DatabaseTarget, LogLevel, Pacing, RunEndReason,
    StopRule, StressOperation, StressSettings, ThreadPlan, ThreadSearch, Truncate, WarmUp, host_line, improvement_line,
    labelled_line, next_thread_count, running_line, settings_dump, table_header, warm_up_line, warm_up_operations,
    warm_up_threads,
};
use squall_orchestrator::{RunControl, RunObserver, RunResult, run_local};
use std::num::NonZeroUsize;

use super::{
    connection_files::{read_credentials, read_nodes},
    interval_table::{IntervalTable, LABEL_WIDTH, TableSettings},
    output_log::{HdrLog, OutputLog},
    run_plan::{RunShape, engine_threads, plan, run_options},
    stop_watcher::StopWatcher,
    summary_text::{error_lines, summary_text},
};
use crate::{
    exit::{BREACHED, CliError, INTERRUPTED, PASSED, error_chain},
    signals::StopSignals,
    terminal,
};

/// Runs the command and returns the exit code.
pub(super) fn run(mut settings: StressSettings) -> Result<u8, CliError> {
    refuse_unsupported(&settings)?;
    read_credentials(&mut settings.mode)?;
    let nodes = read_nodes(&settings.nodes.nodes)?;
    let target = DatabaseTarget::new(&settings, &nodes);
    let log = OutputLog::open(settings.log.file.as_deref())?;
    let hdr = settings.log.hdr_file.as_deref().map(HdrLog::create).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?.block_on(async {
        let signals = StopSignals::listen();
        let signals = signals.map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
        let operations = settings.command.operation.basic_operations();
        StressRun { settings, target, operations, log, hdr, stop: StopWatcher::new(signals) }.execute().await
    })
}

/// Names the first option that `squall cql` reads and cannot carry out.
fn refuse_unsupported(settings: &StressSettings) -> Result<(), CliError> {
    let unsupported = [
        (matches!(settings.command.operation, StressOperation::User { .. }), "user"),
        (settings.tls.is_some(), "-transport (TLS)"),
        (settings.graph.is_some(), "-graph"),
        (settings.mode.unprepared, "-mode unprepared"),
    ];
    match unsupported.into_iter().find(|(used, _)| *used) {
        Some((_, option)) => Err(CliError::new(format!("{option} is not supported yet: remove it"))),
        None => Ok(()),
    }
}

struct StressRun {
    settings: StressSettings,
    target: DatabaseTarget,
    operations: Vec<(BasicOperation, f64)>,
    log: OutputLog,
    hdr: Option<HdrLog>,
    stop: StopWatcher,
}

/// What a run left behind.
struct EndedRun {
    result: RunResult,
    /// The message of the operation that ended the run.
    failure: Option<String>,
    /// Its table, for the end of a search.
    lines: Vec<String>,
}

impl StressRun {
    async fn execute(mut self) -> Result<u8, CliError> {
        let code = self.run_command().await;
        self.log.finish()?;
        code
    }

    async fn run_command(&mut self) -> Result<u8, CliError> {
        if self.settings.log.print_settings {
            let dump = settings_dump(&self.settings);
            self.log.text(&dump)?;
        }
        let Some(database) = self.connect().await? else { return Ok(INTERRUPTED) };
        self.create_schema(&database).await?;
        if self.settings.command.stop == StopRule::Partitions(0) {
            self.log.line("N=0: SCHEMA CREATED, NOTHING ELSE DONE.")?;
            return Ok(PASSED);
        }
        let operations = self.operations.iter().map(|(operation, _)| *operation);
        let checked = database.check_statements(&self.settings, operations).await;
        checked.map_err(|error| CliError::new(error.to_string()))?;
        if let Some(failure) = self.warm_up().await? {
            return self.fail(&failure);
        }
        if self.stop.interrupted() {
            return Ok(INTERRUPTED);
        }
        match self.settings.rate.threads {
            ThreadPlan::Fixed(threads) => self.run_fixed(&database, threads).await,
            ThreadPlan::Steps { min, max, until_saturated } => {
                self.run_steps(&database, min..=max, until_saturated).await
            }
        }
    }

    /// Connects to every node; `None` if the user stopped it.
    async fn connect(&mut self) -> Result<Option<Database>, CliError> {
        let connections = self.settings.mode.connections_per_host;
        let connected = tokio::select! {
            connected = Database::connect(&self.target, NonZeroUsize::MIN) => connected,
            () = self.stop.wait() => return Ok(None),
        };
        let database = connected.map_err(|error: DatabaseConnectError| CliError::unreachable(error.to_string()))?;
        let pending = self.settings.mode.max_pending.map_or_else(|| "32768".to_owned(), |pending| pending.to_string());
        self.log.line(&format!(
            "Connected to cluster: {}, max pending requests per connection {pending}, max connections per host {connections}",
            database.cluster_name(),
        ))?;
        for host in database.hosts() {
            self.log.line(&host_line(&host.datacenter, &host.address, &host.rack))?;
        }
        Ok(Some(database))
    }

    async fn create_schema(&mut self, database: &Database) -> Result<(), CliError> {
        let StressOperation::Basic(operation) = self.settings.command.operation else { return Ok(()) };
        if operation.writes() {
            let (schema, columns) = (&self.settings.schema, &self.settings.columns.names);
            let created = database.create_schema(schema, columns, operation).await;
            created.map_err(|error| CliError::new(error.to_string()))?;
            self.log.line("Created keyspaces.")?;
        }
        Ok(())
    }

    async fn truncate(&self, database: &Database) -> Result<(), CliError> {
        let mut emptied: Vec<&str> = Vec::new();
        for (operation, _) in &self.operations {
            if !emptied.contains(&operation.table()) {
                let done = database.truncate(&self.settings.schema.keyspace, *operation).await;
                done.map_err(|error| CliError::new(error.to_string()))?;
                emptied.push(operation.table());
            }
        }
        Ok(())
    }

    /// Runs every kind of operation without a rate and without output, unless `no-warmup` is typed.
    /// Returns the message of an operation that failed.
    async fn warm_up(&mut self) -> Result<Option<String>, CliError> {
        let count = warm_up_operations(&self.settings.command.stop, self.target.node_count());
        let skipped = count == 0 || self.settings.command.warm_up == WarmUp::Skip;
        let threads = match self.settings.rate.threads {
            ThreadPlan::Fixed(threads) => threads,
            ThreadPlan::Steps { max, .. } => max,
        };
        for (operation, _) in self.operations.clone() {
            if skipped || self.stop.interrupted() {
                break;
            }
            self.log.line(&warm_up_line(operation.name(), count))?;
            let stop = StopRule::Partitions(count);
            let shape = RunShape { threads: warm_up_threads(threads), pacing: Pacing::Unlimited, stop };
            let ended = self.run_once(shape, vec![(operation, 1.0)], Shown::Nothing).await?;
            if ended.failure.is_some() {
                return Ok(ended.failure);
            }
        }
        Ok(None)
    }

    async fn run_fixed(&mut self, database: &Database, threads: u32) -> Result<u8, CliError> {
        if self.settings.command.truncate != Truncate::Never {
            self.truncate(database).await?;
        }
        let ended = self.run_measured(threads).await?;
        self.finish(&ended)
    }

    /// Runs with more and more threads, and prints all tables again at the end.
    async fn run_steps(
        &mut self,
        database: &Database,
        range: std::ops::RangeInclusive<u32>,
        until_saturated: bool,
    ) -> Result<u8, CliError> {
        if self.settings.command.truncate == Truncate::Once {
            self.truncate(database).await?;
        }
        let (mut search, mut threads, mut before) = (ThreadSearch::default(), *range.start(), None);
        let mut lines = vec![labelled_line("id", LABEL_WIDTH, &table_header())];
        loop {
            if self.settings.command.truncate == Truncate::Always {
                self.truncate(database).await?;
            }
            let mut ended = self.run_measured(threads).await?;
            lines.append(&mut ended.lines);
            let code = self.finish(&ended)?;
            let seconds = ended.result.facts.elapsed.as_secs_f64();
            let change = search.record(ended.result.view.all.requests as f64 / seconds.max(f64::MIN_POSITIVE));
            if let (Some(change), Some(before)) = (change, before) {
                self.log.line(&improvement_line(before, change))?;
            }
            before = Some(threads);
            threads = next_thread_count(threads);
            let saturated = until_saturated && !search.may_improve(&self.settings.command.stop);
            if code != PASSED || saturated || threads > *range.end() {
                self.log.text(&(lines.join("\n") + "\n"))?;
                return Ok(code);
            }
        }
    }

    async fn run_measured(&mut self, threads: u32) -> Result<EndedRun, CliError> {
        let (pacing, stop) = (self.settings.rate.pacing, self.settings.command.stop);
        self.log.line(&running_line(&self.settings.command.operation, threads, &stop))?;
        self.run_once(RunShape { threads, pacing, stop }, self.operations.clone(), Shown::Table).await
    }

    async fn run_once(
        &mut self,
        shape: RunShape,
        operations: Vec<(BasicOperation, f64)>,
        shown: Shown,
    ) -> Result<EndedRun, CliError> {
        let settings = &self.settings;
        let driver = CqlDriver::new(settings, &self.target, operations, engine_threads(settings, shape.threads));
        let (control, end) = (RunControl::new(), driver.run_end());
        let plan = plan(settings, shape, self.target.addresses())?;
        // The engine measures whole seconds.
        let interval_s = settings.log.interval.as_millis().div_ceil(1000) as u32;
        let options = run_options(settings, shape, IntervalTable::histogram_window_s(interval_s));
        let table = TableSettings {
            pacing: shape.pacing,
            stop: shape.stop,
            interval_s,
            header_every: settings.log.header_every,
            visible: shown == Shown::Table && settings.log.level != LogLevel::Minimal,
        };
        let hdr = self.hdr.as_mut().filter(|_| shown == Shown::Table);
        let mut table = IntervalTable::new(table, &mut self.log, hdr, control.clone());
        let mut observers: [&mut dyn RunObserver; 1] = [&mut table];
        let result = tokio::select! {
            result = run_local(&plan, driver, options, &control, &mut observers) => result,
            never = self.stop.watch(&control, &end) => match never {},
        };
        let result = result.map_err(|error| CliError::unreachable(error_chain(&error)))?;
        let lines = table.into_lines(shape.threads)?;
        let failure = match end.reason() {
            Some(RunEndReason::Failed(message)) => Some(message),
            Some(RunEndReason::SeedsUsed) | None => None,
        };
        Ok(EndedRun { result, failure, lines })
    }

    /// Prints the summary of a run, or why it failed, and returns the exit code.
    fn finish(&mut self, ended: &EndedRun) -> Result<u8, CliError> {
        terminal::print_stderr(error_lines(&ended.result.view));
        if let Some(failure) = &ended.failure {
            return self.fail(failure);
        }
        if self.settings.log.print_summary {
            let facts = &ended.result.facts;
            let text = summary_text(&ended.result.view, self.settings.rate.pacing, facts.elapsed);
            self.log.text(&text)?;
        }
        Ok(if self.stop.interrupted() { INTERRUPTED } else { PASSED })
    }

    fn fail(&mut self, message: &str) -> Result<u8, CliError> {
        terminal::print_stderr(format!("{message}\n"));
        self.log.line("FAILURE")?;
        Ok(BREACHED)
    }
}

/// What a run prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Table,
}
