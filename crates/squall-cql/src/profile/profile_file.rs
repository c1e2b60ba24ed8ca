//! Reads the YAML file of the `user` command. It reports every mistake with its line, and checks
//! neither the CQL nor the columns: only the database knows them.

use super::ColumnSpec;
use crate::{
    BatchKind, Consistency, Distribution, Ratio, SerialConsistency,
    settings::{parse_batch_kind, parse_consistency, parse_serial_consistency},
};
use serde::Deserialize;
use serde_saphyr::Spanned;
use std::{collections::BTreeMap, fmt::Display};

/// A profile that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct UserProfile {
    /// The prefix of its operations if there are several profiles.
    pub spec_name: String,
    pub keyspace: String,
    pub keyspace_definition: Option<String>,
    pub table: String,
    pub table_definition: Option<String>,
    pub extra_definitions: Vec<String>,
    pub columns: Vec<ColumnSpec>,
    pub insert: ProfileInsert,
    pub queries: BTreeMap<String, ProfileQuery>,
    pub token_range_queries: BTreeMap<String, TokenRangeQuery>,
}

/// How the profile's rows are written; `-insert` wins over it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileInsert {
    /// Partitions of one operation.
    pub partitions: Distribution,
    /// The chance of each row to be written.
    pub select: Ratio,
    /// The part of the columns that get a value.
    pub row_population: Ratio,
    pub batch: BatchKind,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ProfileQuery {
    pub cql: String,
    pub arguments: ArgumentSource,
    pub consistency: Option<Consistency>,
    pub serial_consistency: Option<SerialConsistency>,
}

/// Which rows the arguments of a query come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentSource {
    /// Each argument from a random row of the partition.
    ManyRows,
    /// All arguments from one random row.
    OneRow,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRangeQuery {
    /// The columns to select; `*` for all.
    pub columns: String,
    pub page_size: u32,
}

/// All mistakes of a profile; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines.join("\n"))]
pub struct UserProfileError {
    /// `file:line: mistake`.
    pub lines: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    specname: Option<String>,
    keyspace: Spanned<String>,
    keyspace_definition: Option<String>,
    table: Spanned<String>,
    table_definition: Option<String>,
    extra_definitions: Option<Vec<String>>,
    columnspec: Option<Vec<RawColumn>>,
    insert: Option<RawInsert>,
    queries: Option<BTreeMap<String, RawQuery>>,
    token_range_queries: Option<BTreeMap<String, RawTokenRangeQuery>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawColumn {
    name: Spanned<String>,
    size: Option<Spanned<String>>,
    population: Option<Spanned<String>>,
    cluster: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInsert {
    partitions: Option<Spanned<String>>,
    select: Option<Spanned<String>>,
    #[serde(rename = "row-population")]
    row_population: Option<Spanned<String>>,
    batchtype: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawQuery {
    cql: Spanned<String>,
    fields: Option<Spanned<String>>,
    #[serde(rename = "consistencyLevel")]
    consistency: Option<Spanned<String>>,
    #[serde(rename = "serialConsistencyLevel")]
    serial_consistency: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTokenRangeQuery {
    columns: Spanned<String>,
    page_size: Option<u32>,
}

const DEFAULT_PAGE_SIZE: u32 = 5000;
/// Operations that every profile has.
const RESERVED: [&str; 2] = ["insert", "validate"];

impl UserProfile {
    /// Reads the text of a profile; `file` is its name in errors.
    ///
    /// ```
    /// use squall_cql::UserProfile;
    /// let profile = UserProfile::parse("cars.yaml", "keyspace: shop\ntable: cars\n")?;
    /// assert_eq!(profile.spec_name, "shop.cars");
    /// let yaml = "keyspace: shop\ntable: cars\ninsert:\n  select: half\n";
    /// let error = UserProfile::parse("cars.yaml", yaml).unwrap_err();
    /// assert!(error.to_string().starts_with("cars.yaml:4: insert.select: \"half\" is not a ratio"));
    /// # Ok::<(), squall_cql::UserProfileError>(())
    /// ```
    pub fn parse(file: &str, text: &str) -> Result<UserProfile, UserProfileError> {
        let options = serde_saphyr::options! { with_snippet: false };
        let raw: RawProfile = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line().max(1));
            let message = error.to_string().lines().next().unwrap_or_default().to_owned();
            UserProfileError { lines: vec![format!("{file}:{line}: {message}")] }
        })?;
        let mut reader = ProfileReader { file, lines: Vec::new() };
        let profile = reader.profile(raw);
        if reader.lines.is_empty() { Ok(profile) } else { Err(UserProfileError { lines: reader.lines }) }
    }
}

/// Turns raw values into types and collects mistakes.
struct ProfileReader<'f> {
    file: &'f str,
    lines: Vec<String>,
}

impl ProfileReader<'_> {
    fn profile(&mut self, raw: RawProfile) -> UserProfile {
        let keyspace = self.name("keyspace", &raw.keyspace);
        let table = self.name("table", &raw.table);
        let insert = raw.insert.unwrap_or_default();
        let (queries, scans) = (raw.queries.unwrap_or_default(), raw.token_range_queries.unwrap_or_default());
        for (name, scan) in scans.iter().filter(|(name, _)| queries.contains_key(*name)) {
            let reason = "a query has this name, too: choose another name".to_owned();
            self.problem(&scan.columns, &format!("token_range_queries.{name}"), reason);
        }
        UserProfile {
            spec_name: raw.specname.unwrap_or_else(|| format!("{keyspace}.{table}")),
            keyspace,
            keyspace_definition: raw.keyspace_definition,
            table,
            table_definition: raw.table_definition,
            extra_definitions: raw.extra_definitions.unwrap_or_default(),
            columns: self.columns(raw.columnspec.unwrap_or_default()),
            insert: self.insert(&insert),
            queries: queries.iter().map(|(name, raw)| self.query(name, raw)).collect(),
            token_range_queries: scans.iter().map(|(name, raw)| self.token_range_query(name, raw)).collect(),
        }
    }

    fn columns(&mut self, raw: Vec<RawColumn>) -> Vec<ColumnSpec> {
        let mut columns: Vec<ColumnSpec> = Vec::new();
        for column in &raw {
            let name = self.name("columnspec.name", &column.name);
            if columns.iter().any(|other| other.name == name) {
                self.problem(&column.name, "columnspec", format!("{name} is there twice: remove one of them"));
            }
            columns.push(ColumnSpec {
                size: self.optional("columnspec.size", column.size.as_ref(), str::parse),
                population: self.optional("columnspec.population", column.population.as_ref(), str::parse),
                cluster: self.optional("columnspec.cluster", column.cluster.as_ref(), str::parse),
                name,
            });
        }
        columns
    }

    fn insert(&mut self, raw: &RawInsert) -> ProfileInsert {
        let one = Distribution::Fixed(1);
        ProfileInsert {
            partitions: self.optional("insert.partitions", raw.partitions.as_ref(), str::parse).unwrap_or(one),
            select: self.optional("insert.select", raw.select.as_ref(), str::parse).unwrap_or_else(Ratio::one),
            row_population: self
                .optional("insert.row-population", raw.row_population.as_ref(), str::parse)
                .unwrap_or_else(Ratio::one),
            batch: self
                .optional("insert.batchtype", raw.batchtype.as_ref(), parse_batch_kind)
                .unwrap_or(BatchKind::Logged),
        }
    }

    fn query(&mut self, name: &str, raw: &RawQuery) -> (String, ProfileQuery) {
        self.check_operation(name, &raw.cql);
        let sources = [("multirow", ArgumentSource::ManyRows), ("samerow", ArgumentSource::OneRow)];
        let fields = |text: &str| crate::command_line::one_of(text, &sources);
        let key = |field: &str| format!("queries.{name}.{field}");
        let query = ProfileQuery {
            cql: raw.cql.value.clone(),
            arguments: self.optional(&key("fields"), raw.fields.as_ref(), fields).unwrap_or(ArgumentSource::ManyRows),
            consistency: self.optional(&key("consistencyLevel"), raw.consistency.as_ref(), parse_consistency),
            serial_consistency: self.optional(
                &key("serialConsistencyLevel"),
                raw.serial_consistency.as_ref(),
                parse_serial_consistency,
            ),
        };
        (name.to_owned(), query)
    }

    fn token_range_query(&mut self, name: &str, raw: &RawTokenRangeQuery) -> (String, TokenRangeQuery) {
        self.check_operation(name, &raw.columns);
        let page_size = raw.page_size.unwrap_or(DEFAULT_PAGE_SIZE);
        if page_size == 0 {
            self.problem(
                &raw.columns,
                &format!("token_range_queries.{name}.page_size"),
                "use a number from 1 on".to_owned(),
            );
        }
        (name.to_owned(), TokenRangeQuery { columns: raw.columns.value.clone(), page_size })
    }

    fn check_operation(&mut self, name: &str, near: &Spanned<String>) {
        if RESERVED.contains(&name) {
            let reason = format!("every profile has an operation {name}: choose another name");
            self.problem(near, &format!("queries.{name}"), reason);
        }
    }

    fn name(&mut self, key: &str, raw: &Spanned<String>) -> String {
        if raw.value.trim().is_empty() {
            self.problem(raw, key, "it is empty: write a name".to_owned());
        }
        raw.value.trim().to_owned()
    }

    fn optional<T, E: Display>(
        &mut self,
        key: &str,
        raw: Option<&Spanned<String>>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let raw = raw?;
        parse(raw.value.trim()).map_err(|error| self.problem(raw, key, error.to_string())).ok()
    }

    fn problem(&mut self, raw: &Spanned<String>, key: &str, reason: String) {
        let line = raw.referenced.line().max(1);
        self.lines.push(format!("{}:{line}: {key}: {reason}", self.file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARS: &str = "\
specname: cars
keyspace: shop
keyspace_definition: |
  CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
table: cars
table_definition: |
  CREATE TABLE cars (id uuid PRIMARY KEY, name text)
extra_definitions:
  - CREATE INDEX ON cars (name)
columnspec:
  - name: name
    size: gaussian(5..20)
    population: uniform(1..10M)
insert:
  partitions: uniform(1..3)
  batchtype: UNLOGGED
queries:
  by_id:
    cql: select * from cars where id = ?
    fields: samerow
    consistencyLevel: QUORUM
token_range_queries:
  scan:
    columns: '*'
    page_size: 100
";

    #[test]
    fn a_profile_is_read_with_its_defaults() {
        let profile = UserProfile::parse("cars.yaml", CARS).unwrap();
        assert_eq!((profile.spec_name.as_str(), profile.extra_definitions.len()), ("cars", 1));
        assert_eq!(profile.columns[0].population, Some(Distribution::uniform(1, 10_000_000)));
        assert_eq!(profile.columns[0].cluster, None);
        assert_eq!(profile.insert.partitions, Distribution::uniform(1, 3));
        assert_eq!((&profile.insert.select, profile.insert.batch), (&Ratio::one(), BatchKind::Unlogged));
        let query = &profile.queries["by_id"];
        assert_eq!((query.arguments, query.consistency), (ArgumentSource::OneRow, Some(Consistency::Quorum)));
        assert_eq!(profile.token_range_queries["scan"].page_size, 100);
        let short = UserProfile::parse("p.yaml", "keyspace: a\ntable: b\nqueries: {q: {cql: select 1}}").unwrap();
        assert_eq!(short.spec_name, "a.b");
        assert_eq!(short.insert.batch, BatchKind::Logged);
        assert_eq!(short.queries["q"].arguments, ArgumentSource::ManyRows);
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        assert_eq!(UserProfile::parse("p.yaml", text).unwrap_err().to_string(), expected);
    }

    #[test]
    fn every_mistake_is_reported_with_its_line() {
        check_error(
            "keyspace: a\ntable: b\ncolumnspec:\n  - name: c\n    size: unifrom(1..2)\n  - name: c\n    cluster: fixed\ninsert:\n  batchtype: big\n",
            "p.yaml:5: columnspec.size: \"unifrom\" is not a distribution: use uniform\n\
             p.yaml:6: columnspec: c is there twice: remove one of them\n\
             p.yaml:7: columnspec.cluster: \"fixed\" is not a distribution: write NAME(arguments), as in uniform(1..100); \
             the names are fixed, uniform, gaussian, exp, extreme, qextreme and seq\n\
             p.yaml:9: insert.batchtype: use logged, unlogged, counter",
        );
        check_error(
            "keyspace: a\ntable: b\nqueries:\n  insert:\n    cql: select 1\n",
            "p.yaml:5: queries.insert: every profile has an operation insert: choose another name",
        );
    }

    #[test]
    fn one_name_for_a_query_and_a_token_range_query_is_an_error() {
        check_error(
            "keyspace: a\ntable: b\nqueries: {all: {cql: select 1}}\ntoken_range_queries:\n  all:\n    columns: '*'\n",
            "p.yaml:6: token_range_queries.all: a query has this name, too: choose another name",
        );
    }

    #[test]
    fn unknown_keys_are_errors() {
        for (text, key, line) in [
            ("keyspace: a\ntable: b\nqueris: {}\n", "queris", 3),
            ("keyspace: a\ntable: b\ncolumnspec:\n  - name: c\n    sise: fixed(1)\n", "sise", 5),
            ("keyspace: a\ntable: b\ninsert:\n  visits: fixed(1)\n", "visits", 4),
        ] {
            let error = UserProfile::parse("p.yaml", text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("p.yaml:{line}: ")) && error.contains(key), "{error}");
        }
        assert!(UserProfile::parse("p.yaml", "table: b\n").unwrap_err().to_string().contains("keyspace"));
        assert!(UserProfile::parse("p.yaml", "").is_err());
        assert!(UserProfile::parse("p.yaml", "keyspace: [a\n").is_err());
    }
}
