//! Turns a leased resource into a data row: the table's own row if the resource came from it, else the
//! values stored with the resource. Acquires nothing itself. Called by a flow for each new lease.

use serde_json::{Map, Value as Json};

use super::{DataTable, UserRow, json_to_cell};
use crate::template::TemplateValue;

/// Fields that the pool adds to a resource itself.
const POOL_METADATA_FIELDS: [&str; 3] = ["resource_name", "resource_id", "created_at"];

/// Why a scenario cannot use a resource.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResourceRowError {
    #[error("`{id}` of the pool `{pool}` cannot be used: what is stored with it is not a JSON object")]
    NotAnObject { pool: String, id: String },
    #[error(
        "`{id}` of the pool `{pool}` cannot be used: it has no field `{field}`{}",
        if *is_metadata { ", only the pool's own mark of that name" } else { "" }
    )]
    NoField { pool: String, id: String, field: String, is_metadata: bool },
}

impl DataTable {
    /// The row of a leased resource. The stored values decide, because a resource whose id is the number of
    /// a row may have been added by another program.
    pub(crate) fn resource_row(&self, id: &str, stored: &str) -> Result<UserRow, ResourceRowError> {
        let fields: Map<String, Json> = serde_json::from_str(stored)
            .map_err(|_| ResourceRowError::NotAnObject { pool: self.name.clone(), id: id.to_owned() })?;
        match id.parse().ok().filter(|row| self.row_matches(*row, &fields)) {
            Some(row) => Ok(UserRow::TableIndex(row)),
            None => self.values_from_fields(id, &fields).map(UserRow::ResourceValues),
        }
    }

    /// Whether `fields` has the row's values in all used columns, so that the row can stand for them.
    fn row_matches(&self, row: usize, fields: &Map<String, Json>) -> bool {
        let same = |column: &usize| {
            let field = fields.get(&self.columns[*column]).map(json_to_cell);
            field.is_some_and(|(text, literal)| (text.as_ref(), literal) == self.cell(row, *column))
        };
        row < self.rows && self.used_columns.iter().all(same)
    }

    fn values_from_fields(
        &self,
        id: &str,
        fields: &Map<String, Json>,
    ) -> Result<Box<[TemplateValue]>, ResourceRowError> {
        let is = |name: &str, value: &str| fields.get(name).and_then(Json::as_str) == Some(value);
        let noted = is("resource_name", &self.name) && is("resource_id", id);
        let mut values = vec![TemplateValue::default(); self.columns.len()];
        for &column in &self.used_columns {
            let name = self.columns[column].as_str();
            let marked = noted && POOL_METADATA_FIELDS.contains(&name);
            let Some(field) = fields.get(name).filter(|_| !marked) else {
                let (pool, field) = (self.name.clone(), name.to_owned());
                return Err(ResourceRowError::NoField { pool, id: id.to_owned(), field, is_metadata: marked });
            };
            let (text, literal) = json_to_cell(field);
            values[column] = TemplateValue { text: text.into_owned(), literal };
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table whose columns are all used, except for `unused`.
    fn table(columns: &str, rows: &str) -> DataTable {
        let mut table = DataTable::csv("users", format!("{columns},unused\n{rows}").as_bytes()).unwrap();
        table.used_columns = (0..table.columns.len() - 1).collect();
        table
    }

    #[track_caller]
    fn check(table: &DataTable, id: &str, stored: &str, expected: Result<&[TemplateValue], &str>) {
        match (table.resource_row(id, stored), expected) {
            (Ok(UserRow::ResourceValues(values)), Ok(expected)) => {
                assert_eq!(&values[..table.used_columns.len()], expected)
            }
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn resource_with_row_number_and_equal_values_is_the_table_row() {
        let table = table("name,pin", "ann,1,x\nbob,2,x\n");
        let stored = r#"{"name":"bob","pin":"2","unused":"y","resource_name":"users","resource_id":"1"}"#;
        assert_eq!(table.resource_row("1", stored), Ok(UserRow::TableIndex(1)));
        // Another program added it first under a row's number, or under an id that is not a row number.
        let bob = [TemplateValue::text("bob"), TemplateValue::text("2")];
        check(&table, "0", stored, Ok(&bob));
        check(&table, "2", stored, Ok(&bob));
        check(&table, "b-1", stored, Ok(&bob));
    }

    #[test]
    fn stored_resource_values_keep_their_json_type() {
        let table = table("name,pin", "ann,1,x\n");
        check(
            &table,
            "7",
            r#"{"pin":7,"name":null}"#,
            Ok(&[TemplateValue::literal("null"), TemplateValue::literal("7")]),
        );
        check(&table, "0", r#"{"pin":1,"name":"ann"}"#, Ok(&[TemplateValue::text("ann"), TemplateValue::literal("1")]));
    }

    #[test]
    fn unusable_resource_error_names_pool_and_field() {
        let table = table("name,pin", "ann,1,x\n");
        check(&table, "7", r#"{"name":"x"}"#, Err("`7` of the pool `users` cannot be used: it has no field `pin`"));
        check(&table, "0", "{}", Err("`0` of the pool `users` cannot be used: it has no field `name`"));
        for stored in ["", "7", "[]", "\"x\"", "{"] {
            let expected = "`7` of the pool `users` cannot be used: what is stored with it is not a JSON object";
            check(&table, "7", stored, Err(expected));
        }
    }

    #[test]
    fn pool_metadata_field_is_not_a_column() {
        let table = table("resource_id,name", "0,ann,x\nacc-1,bob,x\n");
        let own =
            |id: &str| format!(r#"{{"resource_id":"{id}","name":"ann","resource_name":"users","created_at":1.5}}"#);
        assert_eq!(
            table.resource_row("0", &own("0")),
            Ok(UserRow::TableIndex(0)),
            "its own value, though it looks like a mark"
        );
        let expected = "`7` of the pool `users` cannot be used: it has no field `resource_id`, \
                       only the pool's own mark of that name";
        check(&table, "7", &own("7"), Err(expected));
        check(&table, "7", &own("acc-7"), Ok(&[TemplateValue::text("acc-7"), TemplateValue::text("ann")]));
    }
}
