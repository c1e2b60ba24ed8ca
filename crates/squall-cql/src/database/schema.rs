//! Creates the keyspaces and tables of a command, and empties its tables. After each change it waits until all
//! nodes agree on the schema, however long working nodes take.

use super::{Database, LostDatabase, TableError, innermost_message};
use crate::{BasicOperation, StressOperation, StressSettings, UserProfile, Workload, cql_text::quoted_table};
use scylla::errors::{DbError, ExecutionError, RequestAttemptError, SchemaAgreementError};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// How often the nodes are asked for the version of their schema.
const AGREEMENT_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How long nodes that answer may disagree about the schema.
const LONGEST_DISAGREEMENT: Duration = Duration::from_secs(120);

/// Why the schema cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("{action}: {reason}")]
    Refused { action: String, reason: String },
    #[error("{action}: {lost}")]
    Lost { action: String, lost: LostDatabase },
    #[error("cannot truncate: {0}")]
    Table(TableError),
}

/// What a change of the schema did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaChange {
    /// Every table exists now.
    Created,
    /// The command creates no tables.
    NotNeeded,
}

impl BasicOperation {
    /// The table that the operation works on.
    pub fn table(self) -> &'static str {
        match self {
            BasicOperation::Read | BasicOperation::Write => "standard1",
            BasicOperation::CounterRead | BasicOperation::CounterWrite => "counter1",
        }
    }
}

impl Database {
    /// Creates the keyspaces and tables of a command, unless they exist: those of the basic commands
    /// that write, and those that profiles define.
    pub async fn create_schema(
        &self,
        settings: &StressSettings,
        workload: &Workload,
    ) -> Result<SchemaChange, SchemaError> {
        match (&settings.command.operation, workload) {
            (StressOperation::Basic(operation), _) if operation.writes() => {
                self.create_standard_table(settings, *operation).await?;
            }
            (_, Workload::Profiles(workload)) => {
                for profile in workload.profiles.iter() {
                    self.create_profile_schema(profile).await?;
                }
            }
            _ => return Ok(SchemaChange::NotNeeded),
        }
        Ok(SchemaChange::Created)
    }

    /// Removes all rows of the tables of a command.
    pub async fn truncate(&self, settings: &StressSettings, workload: &Workload) -> Result<(), SchemaError> {
        let mut tables = BTreeSet::new();
        match workload {
            Workload::Standard(operations) => {
                let names = operations.iter().map(|(operation, _)| operation.table().to_owned());
                tables.extend(names.map(|table| (settings.schema.keyspace.clone(), table)));
            }
            Workload::Profiles(workload) => {
                for operation in &workload.operations {
                    let described = self.describe_table(&workload.profiles[operation.profile]).await;
                    let described = described.map_err(SchemaError::Table)?;
                    tables.insert((described.keyspace, described.table));
                }
            }
        }
        for (keyspace, table) in tables {
            let cql = format!("TRUNCATE {}", quoted_table(&keyspace, &table));
            let truncated = self.session.query_unpaged(cql, &[]).await;
            truncated.map_err(|error| self.schema_error(format!("cannot truncate {keyspace}.{table}"), &error))?;
        }
        Ok(())
    }

    async fn create_standard_table(
        &self,
        settings: &StressSettings,
        operation: BasicOperation,
    ) -> Result<(), SchemaError> {
        let (schema, columns) = (&settings.schema, &settings.columns.names);
        self.change_schema(format!("cannot create the keyspace {}", schema.keyspace), schema.create_keyspace()).await?;
        let (table, cql) = match operation.table() {
            "counter1" => ("counter1", schema.create_counter1(columns)),
            _ => ("standard1", schema.create_standard1(columns)),
        };
        self.change_schema(format!("cannot create the table {}.{table}", schema.keyspace), cql).await
    }

    /// Runs the definitions of a profile. What exists already stays as it is.
    async fn create_profile_schema(&self, profile: &UserProfile) -> Result<(), SchemaError> {
        let spec_name = &profile.spec_name;
        if let Some(cql) = &profile.keyspace_definition {
            self.change_schema(format!("keyspace_definition of {spec_name}"), cql.clone()).await?;
        }
        let tables = profile.table_definition.iter().map(|cql| ("table_definition", cql));
        let extras = profile.extra_definitions.iter().map(|cql| ("extra_definitions", cql));
        let definitions: Vec<(&str, &String)> = tables.chain(extras).collect();
        if !definitions.is_empty() {
            // The definitions name tables without their keyspace.
            let used = self.session.use_keyspace(&profile.keyspace, false).await;
            used.map_err(|error| {
                self.schema_error(format!("cannot use the keyspace {}", profile.keyspace), &error.into())
            })?;
        }
        for (key, cql) in definitions {
            self.change_schema(format!("{key} of {spec_name}"), cql.clone()).await?;
        }
        Ok(())
    }

    async fn change_schema(&self, action: String, cql: String) -> Result<(), SchemaError> {
        match self.session.query_unpaged(cql, &[]).await {
            Ok(_) => {}
            Err(error) if already_exists(&error) => {}
            Err(error) => return Err(self.schema_error(action, &error)),
        }
        self.agree_on_schema().await.map_err(|error| self.schema_error(action, &error.into()))
    }

    /// Waits until all nodes that are connected have the same schema. A lost node ends it: the driver's own
    /// waiting tries again for a minute.
    async fn agree_on_schema(&self) -> Result<(), SchemaAgreementError> {
        let began = Instant::now();
        while self.session.check_schema_agreement().await?.is_none() {
            if began.elapsed() >= LONGEST_DISAGREEMENT {
                return Err(SchemaAgreementError::Timeout(LONGEST_DISAGREEMENT));
            }
            tokio::time::sleep(AGREEMENT_CHECK_INTERVAL).await;
        }
        Ok(())
    }

    fn schema_error(&self, action: String, error: &ExecutionError) -> SchemaError {
        match self.lost(error) {
            Some(lost) => SchemaError::Lost { action, lost },
            None => SchemaError::Refused { action, reason: innermost_message(error) },
        }
    }
}

impl SchemaError {
    /// Whether the database did not answer.
    pub fn is_lost(&self) -> bool {
        matches!(self, SchemaError::Lost { .. } | SchemaError::Table(TableError::Lost { .. }))
    }
}

fn already_exists(error: &ExecutionError) -> bool {
    let ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, message)) = error else { return false };
    match error {
        DbError::AlreadyExists { .. } => true,
        // An index or a type that exists has no code of its own.
        DbError::Invalid => message.contains("already exists"),
        _ => false,
    }
}
