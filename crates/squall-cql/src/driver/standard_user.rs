//! The data of one user's operations on `standard1` and `counter1`: takes a seed and generates its row.
//! It retries and records nothing.

use super::{
    DriverRun, OperationAnswer, OperationCounts, UserSeeds,
    seed_source::TakenSeed,
    standard_operations::{OperationData, StandardOperations},
};
use crate::{
    BasicOperation, Database, RatioSampler, Sampler, StandardRow, database::OperationError, populated_columns,
};
use std::{fmt::Write, rc::Rc};

pub(super) struct StandardUser {
    operations: Rc<StandardOperations>,
    seeds: UserSeeds,
    taken: Option<TakenSeed>,
    row: StandardRow,
    /// How many cells of the row have a value.
    populated: usize,
    add: Sampler,
    increments: Vec<i64>,
    /// `None`: every column has a value.
    row_population: Option<RatioSampler>,
}

impl StandardUser {
    pub(super) fn new(run: &DriverRun, operations: Rc<StandardOperations>) -> StandardUser {
        let settings = &run.settings;
        StandardUser {
            operations,
            seeds: run.user_seeds(),
            taken: None,
            row: StandardRow::default(),
            populated: 0,
            add: Sampler::new(settings.command.add.clone()),
            increments: vec![0; settings.columns.names.len()],
            row_population: settings.insert.row_population.as_ref().map(crate::Ratio::sampler),
        }
    }

    /// Waits for the next seed, if the workers of a fleet share them.
    pub(super) async fn reserve_seed(&mut self) {
        self.seeds.reserve(1).await;
    }

    /// Takes the next seed and generates its row; `None` when all seeds are used.
    pub(super) fn begin(&mut self, index: usize) -> Option<()> {
        let operation = self.operations.kind(index);
        let seed = self.seeds.take(operation.writes())?;
        self.taken = Some(seed);
        self.generate(operation, seed.seed);
        Some(())
    }

    fn generate(&mut self, operation: BasicOperation, seed: i64) {
        let mut columns = self.operations.columns.borrow_mut();
        match operation {
            BasicOperation::Read | BasicOperation::Write => self.row.generate(&mut columns, seed),
            BasicOperation::CounterRead | BasicOperation::CounterWrite => self.row.generate_key(&columns, seed),
        }
        if operation == BasicOperation::CounterWrite {
            self.increments.fill_with(|| self.add.draw());
        }
        let count = self.increments.len();
        self.populated = self.row_population.as_mut().map_or(count, |ratio| populated_columns(count, ratio.draw()));
    }

    /// Sends the operation once.
    pub(super) async fn send(&self, database: &Database, index: usize) -> Result<OperationAnswer, OperationError> {
        let bytes = self.operations.execute(database, index, &self.data()).await?;
        Ok(OperationAnswer { counts: OperationCounts { partitions: 1, rows: 1 }, bytes })
    }

    /// The bytes of the values that one try sends.
    pub(super) fn sent_bytes(&self, index: usize) -> u64 {
        self.operations.value_bytes(index, &self.data())
    }

    fn data(&self) -> OperationData<'_> {
        OperationData { row: &self.row, populated: self.populated, increments: &self.increments }
    }

    /// The statement with its values.
    pub(super) fn statement(&self, index: usize) -> String {
        self.operations.text(index, &self.data())
    }

    pub(super) fn finish(&mut self) {
        if let Some(seed) = self.taken.take() {
            self.seeds.finish(seed);
        }
    }

    /// The key in hexadecimal digits.
    pub(super) fn keys(&self) -> String {
        let mut digits = String::with_capacity(2 * self.row.key().len());
        for byte in self.row.key() {
            let _ = write!(digits, "{byte:02x}");
        }
        digits
    }
}
