//! A profile's table with the generator of its rows. All operations of a thread on the table share
//! it.

use super::super::StatementError;
use crate::{
    CqlType, CqlValue, Database, Partition, PartitionGenerator, StressSettings, TableColumn, TableColumns, UserProfile,
    database::TableDescription, hint::nearest,
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
        check_specs(profile, &description)?;
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

/// Finds the first column of the profile that the table does not have.
fn check_specs(profile: &UserProfile, table: &TableDescription) -> Result<(), StatementError> {
    let TableColumns { partition_key, clustering, values } = &table.columns;
    let names = || partition_key.iter().chain(clustering).chain(values).map(|column| column.name.as_str());
    let Some(unknown) = profile.columns.iter().find(|spec| names().all(|name| name != spec.name)) else {
        return Ok(());
    };
    let hint = match nearest(&unknown.name.to_lowercase(), names()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
    };
    Err(StatementError::UnknownColumn { column: unknown.name.clone(), table: table.table.clone(), hint })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_columnspec_of_a_column_that_does_not_exist_is_named() {
        let check = |columnspec: &str| {
            let text = format!("keyspace: shop\ntable: cars\ncolumnspec: [{columnspec}]");
            let profile = UserProfile::parse("p.yaml", &text).expect("a profile");
            let column = |name: &str| TableColumn { name: name.to_owned(), cql_type: CqlType::Int };
            let (partition_key, values) = (vec![column("id")], vec![column("total")]);
            let columns = TableColumns { partition_key, clustering: Vec::new(), values };
            let (keyspace, table) = ("shop".to_owned(), "cars".to_owned());
            let (statics, descending) = Default::default();
            let description = TableDescription { keyspace, table, columns, statics, descending };
            check_specs(&profile, &description).map_err(|error| error.to_string())
        };
        assert_eq!(check("{name: total}, {name: id}"), Ok(()));
        let message = "columnspec: cars has no column totl: did you mean total?";
        assert_eq!(check("{name: total}, {name: totl}"), Err(message.to_owned()));
        let message = "columnspec: cars has no column Total: did you mean total?";
        assert_eq!(check("{name: Total}"), Err(message.to_owned()));
    }
}
