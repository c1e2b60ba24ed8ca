//! Generates the rows of a partition: key values from the seed, clustering values from the key, and
//! other values from the row's own clustering value. It sends nothing and chooses no seeds.

use super::{ColumnSpec, CqlType, CqlValue, UnsupportedColumn, column_generator::ColumnGenerator};
use crate::{DataSet, PartitionOrder};

/// A column of a table, as the database describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// As written in CQL without quotes.
    pub name: String,
    pub cql_type: CqlType,
}

/// The columns of a table, in the order of the primary key, the others in any order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableColumns {
    pub partition_key: Vec<TableColumn>,
    pub clustering: Vec<TableColumn>,
    pub values: Vec<TableColumn>,
}

/// Makes partitions of one table; one per thread.
#[derive(Debug, Clone)]
pub struct PartitionGenerator {
    partition_key: Vec<ColumnGenerator>,
    clustering: Vec<ColumnGenerator>,
    values: Vec<ColumnGenerator>,
    order: PartitionOrder,
}

/// One partition. Every row has one value of each clustering level, so the levels describe all
/// rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    pub key: Vec<CqlValue>,
    /// The values of each clustering column.
    levels: Vec<Vec<CqlValue>>,
    /// The seed of the row's values, before the row's last clustering value is added.
    row_seed: i64,
}

/// One row of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedRow {
    pub clustering: Vec<CqlValue>,
    pub values: Vec<CqlValue>,
}

/// The most values of one clustering level, so that a mistyped distribution does not fill the
/// memory.
const MAX_LEVEL: usize = 10_000_000;

impl PartitionGenerator {
    /// `specs` need not mention every column.
    pub fn new(
        table: &TableColumns,
        specs: &[ColumnSpec],
        data_set: DataSet,
        order: PartitionOrder,
    ) -> Result<PartitionGenerator, UnsupportedColumn> {
        let generators = |columns: &[TableColumn]| -> Result<Vec<ColumnGenerator>, UnsupportedColumn> {
            let generator = |column: &TableColumn| {
                let found = specs.iter().find(|spec| spec.name == column.name).cloned();
                let spec = found.unwrap_or_else(|| ColumnSpec::default_for(&column.name));
                ColumnGenerator::new(&spec, &column.cql_type, data_set)
            };
            columns.iter().map(generator).collect()
        };
        Ok(PartitionGenerator {
            partition_key: generators(&table.partition_key)?,
            clustering: generators(&table.clustering)?,
            values: generators(&table.values)?,
            order,
        })
    }

    /// The most rows that a partition can have.
    pub fn max_rows(&self) -> u64 {
        self.clustering.iter().map(ColumnGenerator::max_cluster).fold(1, u64::saturating_mul)
    }

    /// How many rows of a partition cassandra-stress writes with one visit: the first ones, in the order
    /// in which they are generated. It leaves a clustering level when the level above it passes a row
    /// that it computed from average sizes, so it omits rows of tables with three or more clustering
    /// columns.
    pub fn rows_of_cassandra_stress(&self, partition: &Partition) -> usize {
        let last = self.last_row_of_cassandra_stress();
        let sizes: Vec<usize> = partition.levels.iter().map(Vec::len).collect();
        let (mut row, mut written) = (vec![0; sizes.len()], 1);
        while next_row(&mut row, &sizes, &last) {
            written += 1;
        }
        written
    }

    /// The row after which cassandra-stress ends a visit, as a position in each clustering level.
    fn last_row_of_cassandra_stress(&self) -> Vec<u64> {
        let averages: Vec<u64> = self.clustering.iter().map(ColumnGenerator::average_cluster).collect();
        let mut descendants = vec![1; averages.len()];
        for level in (1..averages.len()).rev() {
            descendants[level - 1] = averages[level].saturating_mul(descendants[level]);
        }
        let mut rest = self.max_rows();
        let mut last: Vec<u64> = Vec::with_capacity(averages.len());
        for descendants in descendants {
            last.push(rest / descendants);
            rest %= descendants;
        }
        for level in (1..last.len()).rev() {
            last[level - 1] += last[level] / averages[level];
            last[level] %= averages[level];
        }
        last
    }

    /// The partition of a seed.
    pub fn partition(&mut self, seed: i64) -> Partition {
        let mut id = 0;
        let mut key = Vec::with_capacity(self.partition_key.len());
        for column in &mut self.partition_key {
            column.seed(seed);
            let value = column.generate();
            id = value.fold(id);
            key.push(value);
        }
        let mut levels = Vec::with_capacity(self.clustering.len());
        for column in &mut self.clustering {
            column.seed(id);
            let level = clustering_level(column, self.order);
            // All values of a level have the same children, because the children's seed contains
            // the level's first value instead of their own parent.
            id = level[0].fold(id);
            levels.push(level);
        }
        Partition { key, levels, row_seed: id }
    }

    /// The row of a partition with the given number, counted from 0.
    ///
    /// # Panics
    ///
    /// If the partition has fewer rows.
    pub fn row(&mut self, partition: &Partition, number: usize) -> GeneratedRow {
        let clustering = partition.clustering(number);
        let seed = clustering.last().map_or(partition.row_seed, |last| last.fold(partition.row_seed));
        let generate = |column: &mut ColumnGenerator| {
            column.seed(seed);
            column.generate()
        };
        GeneratedRow { clustering, values: self.values.iter_mut().map(generate).collect() }
    }
}

impl Partition {
    /// How many rows the partition has.
    pub fn row_count(&self) -> usize {
        self.levels.iter().map(Vec::len).fold(1, usize::saturating_mul)
    }

    /// The clustering values of a row.
    ///
    /// # Panics
    ///
    /// If the partition has fewer rows.
    pub fn clustering(&self, number: usize) -> Vec<CqlValue> {
        assert!(number < self.row_count(), "row {number} of {}", self.row_count());
        let (mut rest, mut clustering) = (number, Vec::with_capacity(self.levels.len()));
        for level in self.levels.iter().rev() {
            clustering.push(level[rest % level.len()].clone());
            rest /= level.len();
        }
        clustering.reverse();
        clustering
    }
}

/// Moves to the next row that cassandra-stress visits, given the number of values of each level.
fn next_row(row: &mut [usize], sizes: &[usize], last: &[u64]) -> bool {
    let Some(mut level) = row.len().checked_sub(1) else { return false };
    row[level] += 1;
    while row[level] == sizes[level] {
        if level == 0 {
            return false;
        }
        level -= 1;
        row[level] += 1;
        if row[level] as u64 > last[level] {
            return false;
        }
    }
    row[level + 1..].fill(0);
    // It compares every level on its way down to the row.
    (level..row.len()).all(|depth| !is_after_last(&row[..=depth], last))
}

/// Whether the first levels of a row are after those of the last row.
fn is_after_last(row: &[usize], last: &[u64]) -> bool {
    row.iter().map(|position| *position as u64).cmp(last.iter().copied().take(row.len())).is_gt()
}

/// The different values of a clustering column, in the order of the rows; at least one.
fn clustering_level(column: &mut ColumnGenerator, order: PartitionOrder) -> Vec<CqlValue> {
    let count = column.draw_cluster().min(MAX_LEVEL);
    let generated: Vec<CqlValue> = (0..count).map(|_| column.generate()).collect();
    let mut positions: Vec<usize> = (0..count).collect();
    positions.sort_by(|a, b| generated[*a].order(&generated[*b]));
    // Of equal values the first one stays; the sort keeps their order.
    positions.dedup_by(|later, first| generated[*later].order(&generated[*first]).is_eq());
    match order {
        PartitionOrder::Generated => positions.sort_unstable(),
        PartitionOrder::Sorted => {}
        PartitionOrder::Shuffled => fastrand::shuffle(&mut positions),
    }
    let mut generated: Vec<Option<CqlValue>> = generated.into_iter().map(Some).collect();
    positions.into_iter().filter_map(|position| generated[position].take()).collect()
}
