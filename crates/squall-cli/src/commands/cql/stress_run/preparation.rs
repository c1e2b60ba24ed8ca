//! What a command does before its measured run: it connects, creates the schema, prepares the statements once, and
//! runs the warm-up. It measures nothing.

use squall_cql::{
    Database, DatabaseConnectError, Pacing, SchemaChange, StopRule, ThreadPlan, WarmUp, host_line, settings_dump,
    warm_up_line, warm_up_operations, warm_up_threads,
};

use super::{Shown, StressRun};
use crate::{
    commands::cql::{
        fleet_scan::FleetScan,
        run_plan::{RunPlace, RunShape, longest_operation},
        summary_text::error_lines,
    },
    exit::{BREACHED, CliError, PASSED},
    stop_button::StopButton,
    terminal,
};

/// What the preparation of a command led to.
pub(super) enum Prepared {
    Ready(Box<Database>),
    /// There is nothing to run; the exit code.
    Ended(u8),
}

impl StressRun {
    /// Connects, creates the schema and runs the warm-up.
    pub(super) async fn prepare(&mut self) -> Result<Prepared, CliError> {
        if self.settings.log.print_settings {
            let dump = settings_dump(&self.settings);
            self.log.text(&dump)?;
        }
        let button = self.button.clone();
        if let Some(fleet) = &self.fleet {
            unless_stopped(&button, fleet.check()).await?;
        }
        let database = self.connect().await?;
        unless_stopped(&button, self.create_schema(&database)).await?;
        if self.settings.command.stop == StopRule::Partitions(0) {
            self.log.line("N=0: SCHEMA CREATED, NOTHING ELSE DONE.")?;
            return Ok(Prepared::Ended(PASSED));
        }
        unless_stopped(&button, self.check_statements(&database)).await?;
        self.scan = self.fleet_scan(&database);
        if let Some(failure) = self.warm_up().await? {
            return self.fail(&failure).map(Prepared::Ended);
        }
        match self.interrupted() {
            true => Err(CliError::stopped_before_start()),
            false => Ok(Prepared::Ready(Box::new(database))),
        }
    }

    /// Connects to every node.
    async fn connect(&mut self) -> Result<Database, CliError> {
        let connections = self.settings.mode.connections_per_host;
        let connecting = async {
            Database::connect_to_prepare(&self.target).await.map_err(|error| match error {
                DatabaseConnectError::Tls(error) => CliError::new(error.to_string()),
                error => CliError::unreachable(error.to_string()),
            })
        };
        let database = unless_stopped(&self.button, connecting).await?;
        let pending = self.settings.mode.max_pending.map_or_else(|| "32768".to_owned(), |pending| pending.to_string());
        self.log.line(&format!(
            "Connected to cluster: {}, max pending requests per connection {pending}, max connections per host {connections}",
            database.cluster_name(),
        ))?;
        for host in database.hosts() {
            self.log.line(&host_line(&host.datacenter, &host.address, &host.rack))?;
        }
        Ok(database)
    }

    /// The token ranges that the workers of a fleet read once.
    fn fleet_scan(&self, database: &Database) -> Option<FleetScan> {
        self.fleet.as_ref()?;
        self.workload.token_range_queries().next()?;
        let ranges = database.token_ranges(&self.settings)?;
        Some(FleetScan::new(&self.workload, ranges, longest_operation(&self.settings)))
    }

    async fn create_schema(&mut self, database: &Database) -> Result<(), CliError> {
        let created = database.create_schema(&self.settings, &self.workload).await;
        match created.map_err(|error| before_run(&error, error.is_lost()))? {
            SchemaChange::Created => self.log.line("Created keyspaces."),
            SchemaChange::NotNeeded => Ok(()),
        }
    }

    async fn check_statements(&self, database: &Database) -> Result<(), CliError> {
        let checked = database.check_statements(&self.settings, &self.workload).await;
        checked.map_err(|error| before_run(&error, error.is_lost()))
    }

    pub(super) async fn truncate(&self, database: &Database) -> Result<(), CliError> {
        let truncating = async {
            let done = database.truncate(&self.settings, &self.workload).await;
            done.map_err(|error| before_run(&error, error.is_lost()))
        };
        unless_stopped(&self.button, truncating).await
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
        let names: Vec<String> = self.workload.names().into_iter().map(str::to_owned).collect();
        for (position, name) in names.iter().enumerate() {
            if skipped || self.interrupted() {
                break;
            }
            self.log.line(&warm_up_line(name, count))?;
            let stop = StopRule::Partitions(count);
            let (threads, place) = (warm_up_threads(threads), RunPlace::ThisProcess);
            let shape = RunShape { threads, pacing: Pacing::Unlimited, stop, place };
            let ended = self.run_once(shape, self.workload.only(position), Shown::Nothing).await?;
            // With `-errors ignore` nothing else tells of them.
            terminal::print_stderr(error_lines(&ended.result.view));
            if ended.failure.is_some() {
                return Ok(ended.failure);
            }
        }
        Ok(None)
    }

    fn fail(&mut self, message: &str) -> Result<u8, CliError> {
        terminal::print_stderr(format!("{message}\n"));
        self.log.line("FAILURE")?;
        Ok(BREACHED)
    }
}

/// Waits for a step before the load, unless the user stops the command.
async fn unless_stopped<T>(
    button: &StopButton,
    step: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    tokio::select! {
        done = step => done,
        () = button.control().stop_requested() => Err(CliError::stopped_before_start()),
    }
}

/// The error of a step before the load; `lost` if the database did not answer.
fn before_run(error: &dyn std::error::Error, lost: bool) -> CliError {
    match lost {
        true => CliError::unreachable(error.to_string()),
        false => CliError::new(error.to_string()),
    }
}
