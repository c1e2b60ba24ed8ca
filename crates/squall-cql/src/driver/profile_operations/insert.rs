//! The operation `insert` of a profile: writes the rows of one or more partitions, in one statement
//! or in batches.

use super::{
    Preparation,
    table::{ProfileTable, key_text},
};
use crate::{
    BatchKind, RatioSampler, Sampler,
    database::OperationError,
    driver::{
        DriverRun, OperationAnswer, OperationCounts, StatementError,
        partition_visits::{PartitionVisit, VisitChooser},
        row_values::RowValues,
        seed_source::{TakenSeed, UserSeeds},
    },
    insert_statement, populated_columns,
};
use scylla::{
    client::session::Session,
    statement::{
        batch::{Batch, BatchStatement, BatchType},
        prepared::PreparedStatement,
    },
};
use std::{cell::RefCell, rc::Rc};

/// The most statements of one batch in the protocol.
const MAX_BATCH: usize = 65_535;

pub(in crate::driver) struct Insert {
    table: Rc<ProfileTable>,
    pub(super) statement: PreparedStatement,
    batch: BatchType,
    samplers: RefCell<InsertSamplers>,
}

/// Draws that no seed determines.
struct InsertSamplers {
    partitions: Sampler,
    select: RatioSampler,
    row_population: RatioSampler,
}

/// The rows of one operation.
#[derive(Default)]
pub(in crate::driver) struct InsertWork {
    rows: Vec<RowValues>,
    pub(super) keys: Vec<String>,
    seeds: Vec<TakenSeed>,
    /// With the number of rows of each partition.
    visits: Vec<(PartitionVisit, usize)>,
}

impl Insert {
    pub(super) async fn prepare(preparation: Preparation<'_>) -> Result<Insert, StatementError> {
        let (table, typed) = (preparation.table.clone(), &preparation.settings.insert);
        let description = &table.description;
        let cql = insert_statement(&description.keyspace, &description.table, &description.columns);
        let statement = preparation.statement(cql).await?;
        let profile = &table.profile.insert;
        let kind = match typed.batch.unwrap_or(profile.batch) {
            // The database refuses counters in every other batch.
            _ if table.has_counters() => BatchKind::Counter,
            kind => kind,
        };
        let partitions = typed.partitions.as_ref().unwrap_or(&profile.partitions);
        let most = table.generator.borrow().max_rows().saturating_mul(u64::try_from(partitions.max()).unwrap_or(1));
        if kind == BatchKind::Logged && most > MAX_BATCH as u64 {
            return Err(StatementError::LoggedBatch { operation: preparation.operation.name.clone(), rows: most });
        }
        let samplers = InsertSamplers {
            partitions: Sampler::new(partitions.clone()),
            select: typed.select.as_ref().unwrap_or(&profile.select).sampler(),
            row_population: typed.row_population.as_ref().unwrap_or(&profile.row_population).sampler(),
        };
        Ok(Insert { statement, batch: kind.of_driver(), samplers: RefCell::new(samplers), table })
    }

    /// How many partitions the next operation writes.
    pub(in crate::driver) fn draw_partitions(&self) -> u64 {
        u64::try_from(self.samplers.borrow_mut().partitions.draw()).unwrap_or(1).max(1)
    }

    /// Generates the rows of waiting partitions and of `new` others; `None` ends the run.
    pub(in crate::driver) fn begin(
        &self,
        seeds: &mut UserSeeds,
        visits: &mut VisitChooser,
        (waiting, new): (&mut Vec<PartitionVisit>, u64),
    ) -> Option<InsertWork> {
        let mut work = InsertWork::default();
        for visit in waiting.drain(..) {
            self.generate(visit, &mut work);
        }
        for _ in 0..new {
            let Some(seed) = seeds.take(true) else { break };
            work.seeds.push(seed);
            self.generate(visits.first_visit(seed.seed), &mut work);
        }
        (!work.rows.is_empty()).then_some(work)
    }

    fn generate(&self, visit: PartitionVisit, work: &mut InsertWork) {
        let partition = self.table.partition(visit.seed);
        let (mut samplers, mut generator) = (self.samplers.borrow_mut(), self.table.generator.borrow_mut());
        let chance = samplers.select.draw();
        let rows = visit.rows(partition.row_count());
        let chosen = |_: &usize| chance >= 1.0 || fastrand::f64() < chance;
        let mut numbers: Vec<usize> = rows.clone().filter(chosen).collect();
        if numbers.is_empty() {
            // Every operation writes, as in the original.
            numbers.push(fastrand::usize(rows));
        }
        let columns = self.table.description.columns.values.len();
        for number in numbers {
            let row = generator.row(&partition, number);
            let populated = populated_columns(columns, samplers.row_population.draw());
            let values = row.values.into_iter().enumerate().map(|(i, value)| (i < populated).then_some(value));
            let keys = partition.key.iter().cloned().chain(row.clustering).map(Some);
            work.rows.push(RowValues(values.chain(keys).collect()));
        }
        work.keys.push(key_text(&partition.key));
        work.visits.push((visit, partition.row_count()));
    }

    pub(super) async fn send(&self, session: &Session, work: &InsertWork) -> Result<OperationAnswer, OperationError> {
        if let [row] = work.rows.as_slice() {
            session.execute_unpaged(&self.statement, row).await?;
            return Ok(work.answer());
        }
        for rows in work.rows.chunks(MAX_BATCH) {
            let statements = vec![BatchStatement::PreparedStatement(self.statement.clone()); rows.len()];
            session.batch(&Batch::new_with_statements(self.batch, statements), rows).await?;
        }
        Ok(work.answer())
    }
}

impl InsertWork {
    /// That of the database has no rows.
    fn answer(&self) -> OperationAnswer {
        let counts = OperationCounts { partitions: self.visits.len() as u64, rows: self.rows.len() as u64 };
        OperationAnswer { counts, bytes: 0 }
    }

    /// The bytes of all values.
    pub(super) fn bytes(&self) -> u64 {
        self.rows.iter().map(RowValues::bytes).sum()
    }

    /// Notes that the rows are written, or that they never will be.
    pub(in crate::driver) fn finish(&self, run: &DriverRun, seeds: &UserSeeds) {
        self.seeds.iter().for_each(|seed| seeds.finish(*seed));
        self.visits.iter().for_each(|(visit, rows)| run.visits.finish(*visit, *rows));
    }
}

impl BatchKind {
    fn of_driver(self) -> BatchType {
        match self {
            BatchKind::Logged => BatchType::Logged,
            BatchKind::Unlogged => BatchType::Unlogged,
            BatchKind::Counter => BatchType::Counter,
        }
    }
}
