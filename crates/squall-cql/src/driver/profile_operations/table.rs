//! A profile's table with the generator of its rows. All operations of a thread on the table share
//! it.

use super::super::StatementError;
use crate::{
    CqlType, CqlValue, Database, Partition, PartitionGenerator, StressSettings, TableColumn, UserProfile,
    database::TableDescription,
};
use std::cell::RefCell;

pub(super) struct ProfileTable {
    pub(super) profile: UserProfile,
    pub(super) description: TableDescription,
    pub(super) generator: RefCell<PartitionGenerator>,
}

impl ProfileTable {
    pub(super) async fn read(
        database: &Database,
        settings: &StressSettings,
        profile: &UserProfile,
    ) -> Result<ProfileTable, StatementError> {
        let mut description = database.describe_table(profile).await?;
        if settings.errors.skip_unsupported_columns {
            description.columns.values.retain(|column| column.cql_type.can_be_generated());
        }
        let population = &settings.population;
        let generator =
            PartitionGenerator::new(&description.columns, &profile.columns, population.data_set, population.order);
        let generator = RefCell::new(generator?);
        Ok(ProfileTable { profile: profile.clone(), description, generator })
    }

    /// All columns, in the order of `PartitionGenerator`: partition key, clustering, values.
    pub(super) fn columns(&self) -> impl Iterator<Item = &TableColumn> {
        let columns = &self.description.columns;
        columns.partition_key.iter().chain(&columns.clustering).chain(&columns.values)
    }

    pub(super) fn has_counters(&self) -> bool {
        self.description.columns.values.iter().any(|column| column.cql_type == CqlType::Counter)
    }

    pub(super) fn partition(&self, seed: i64) -> Partition {
        self.generator.borrow_mut().partition(seed)
    }
}

impl CqlType {
    fn can_be_generated(&self) -> bool {
        match self {
            CqlType::Other(_) => false,
            CqlType::List { element, .. } | CqlType::Set { element, .. } => element.can_be_generated(),
            _ => true,
        }
    }
}

/// The values of a partition key as cassandra-stress prints them.
pub(super) fn key_text(key: &[CqlValue]) -> String {
    let values: Vec<String> = key.iter().map(CqlValue::to_string).collect();
    values.join("|")
}
