//! Generates the values of one column from a seed. It does not know which seed that is: the
//! partition generator derives it from the values that this one depends on.

use super::{CqlType, CqlValue};
use crate::{
    DataSet, Distribution, Sampler,
    random::{FastRandom, salt},
};

/// What a profile says about a column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSpec {
    pub name: String,
    /// Bytes of a blob or text, and elements of a list or set. `None`: 4 to 8.
    pub size: Option<Distribution>,
    /// How many different values there are. `None`: 100 billion, or 50 years for times.
    pub population: Option<Distribution>,
    /// Values of a clustering column within its parent. `None`: 1.
    pub cluster: Option<Distribution>,
}

/// Why the values of a column cannot be generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedColumn {
    #[error(
        "the column {column} has the type {cql_type}, which cannot be generated: leave it out of the table, or use -errors skip-unsupported-columns"
    )]
    Type { column: String, cql_type: String },
    #[error("values of the column {column} are larger than {} MiB: use a smaller size", MAX_VALUE_BYTES >> 20)]
    Size { column: String },
}

/// The most bytes of one value, with those of the elements of a list or set. A larger one is a typing mistake.
const MAX_VALUE_BYTES: u64 = 256 << 20;

/// Milliseconds from 1582-10-15, where UUIDs count from, to 1970.
const UUID_EPOCH_MILLIS: i64 = 12_219_292_800_000;
/// The default population of times, in milliseconds.
const FIFTY_YEARS: i64 = 1_576_800_000_000;
const DEFAULT_POPULATION: i64 = 100_000_000_000;

/// A column with the state of its distributions.
#[derive(Debug, Clone)]
pub(crate) struct ColumnGenerator {
    cql_type: CqlType,
    salt: i64,
    population: Sampler,
    size: Sampler,
    cluster: Sampler,
    data_set: DataSet,
    /// The generator of the elements of a list or set.
    element: Option<Box<ColumnGenerator>>,
    buffer: Vec<u8>,
}

impl ColumnSpec {
    /// The spec of a column that the profile does not mention.
    pub fn default_for(name: &str) -> ColumnSpec {
        ColumnSpec { name: name.to_owned(), size: None, population: None, cluster: None }
    }

    /// The most bytes of a generated value in memory.
    fn largest_value(&self, cql_type: &CqlType) -> u64 {
        let size = self.size.as_ref().map_or(8, |size| u64::try_from(size.max().max(size.min())).unwrap_or_default());
        match cql_type {
            CqlType::Blob | CqlType::Text | CqlType::Ascii => size,
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                size.saturating_mul(self.largest_value(element).saturating_add(size_of::<CqlValue>() as u64))
            }
            _ => 0,
        }
    }
}

impl ColumnGenerator {
    pub(crate) fn new(
        spec: &ColumnSpec,
        cql_type: &CqlType,
        data_set: DataSet,
    ) -> Result<ColumnGenerator, UnsupportedColumn> {
        let element = match cql_type {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                Some(Box::new(ColumnGenerator::new(spec, element, data_set)?))
            }
            CqlType::Other(name) => {
                return Err(UnsupportedColumn::Type { column: spec.name.clone(), cql_type: name.clone() });
            }
            _ => None,
        };
        if spec.largest_value(cql_type) > MAX_VALUE_BYTES {
            return Err(UnsupportedColumn::Size { column: spec.name.clone() });
        }
        let values = match cql_type {
            CqlType::Timestamp | CqlType::TimeUuid => FIFTY_YEARS,
            _ => DEFAULT_POPULATION,
        };
        let sampler = |given: &Option<Distribution>, default| Sampler::new(given.clone().unwrap_or(default));
        Ok(ColumnGenerator {
            cql_type: cql_type.clone(),
            salt: salt(&format!("seed for stress{}", spec.name)),
            population: sampler(&spec.population, Distribution::uniform(1, values)),
            size: sampler(&spec.size, Distribution::uniform(4, 8)),
            cluster: sampler(&spec.cluster, Distribution::Fixed(1)),
            data_set,
            element,
            buffer: Vec::new(),
        })
    }

    /// Makes the following values depend on the seed alone.
    pub(crate) fn seed(&mut self, seed: i64) {
        self.population.seed(seed ^ self.salt);
        self.cluster.seed(seed ^ !self.salt);
        if let Some(element) = &mut self.element {
            element.seed(seed.wrapping_mul(31));
        }
    }

    /// The number of values of this clustering column within its parent.
    pub(super) fn draw_cluster(&mut self) -> usize {
        usize::try_from(self.cluster.draw()).unwrap_or_default().max(1)
    }

    /// The most rows that this clustering column gives its parent.
    pub(super) fn max_cluster(&self) -> u64 {
        let cluster = self.cluster.distribution();
        u64::try_from(cluster.max().max(cluster.min())).unwrap_or(1).max(1)
    }

    /// The average number of values that this clustering column has within its parent; at least 1.
    pub(super) fn average_cluster(&self) -> u64 {
        u64::try_from(self.cluster.distribution().average()).unwrap_or(1).max(1)
    }

    /// The next value.
    pub(crate) fn generate(&mut self) -> CqlValue {
        match self.cql_type {
            CqlType::Blob => {
                self.fill_buffer();
                CqlValue::Blob(self.buffer.clone())
            }
            CqlType::Ascii | CqlType::Text => {
                self.fill_buffer();
                CqlValue::Text(self.buffer.iter().map(|byte| text_character(*byte)).collect())
            }
            CqlType::Double => CqlValue::Double(self.population.draw_real()),
            CqlType::Float => CqlValue::Float(self.population.draw_real() as f32),
            CqlType::List { .. } => CqlValue::List(self.generate_elements()),
            CqlType::Set { .. } => {
                let mut elements = self.generate_elements();
                elements.sort_by(CqlValue::order);
                elements.dedup();
                CqlValue::Set(elements)
            }
            _ => self.generate_number(),
        }
    }

    fn generate_number(&mut self) -> CqlValue {
        let value = self.population.draw();
        match self.cql_type {
            CqlType::Boolean => CqlValue::Boolean(self.data_set == DataSet::Classic || value % 2 == 0),
            CqlType::TinyInt => CqlValue::TinyInt(value as i8),
            CqlType::SmallInt => CqlValue::SmallInt(value as i16),
            CqlType::Int => CqlValue::Int(value as i32),
            CqlType::Date => CqlValue::Date(value as i32),
            CqlType::VarInt => CqlValue::VarInt(value),
            CqlType::Decimal => CqlValue::Decimal(value),
            CqlType::Timestamp => CqlValue::Timestamp(value),
            CqlType::TimeUuid => CqlValue::TimeUuid(time_uuid(value, self.salt)),
            CqlType::Uuid => CqlValue::Uuid(u128::from(value as u64) << 64 | u128::from(value as u64)),
            CqlType::Inet => CqlValue::Inet((value as u32).to_be_bytes()),
            _ => CqlValue::BigInt(value),
        }
    }

    fn fill_buffer(&mut self) {
        let value = self.population.draw();
        self.size.seed(value);
        let size = usize::try_from(self.size.draw()).unwrap_or_default();
        self.buffer.clear();
        FastRandom::new(!value).append_bytes(size, &mut self.buffer);
    }

    /// The number of elements comes from a distribution that the original never seeds, so only
    /// fixed sizes are the same in every run.
    fn generate_elements(&mut self) -> Vec<CqlValue> {
        let count = usize::try_from(self.size.draw()).unwrap_or_default();
        let element = self.element.as_mut().expect("a collection has a generator of elements");
        (0..count).map(|_| element.generate()).collect()
    }
}

/// Texts have 7-bit characters, control characters among them.
fn text_character(byte: u8) -> char {
    char::from(((byte & 127) + 32) & 127)
}

/// A version 1 UUID of a time whose lower half is the salt, as it is.
fn time_uuid(unix_millis: i64, salt: i64) -> u128 {
    let time = unix_millis.wrapping_add(UUID_EPOCH_MILLIS).wrapping_mul(10_000) as u64;
    let high = time << 32 | (time >> 16 & 0xffff_0000) | 0x1000 | (time >> 48 & 0x0fff);
    u128::from(high) << 64 | u128::from(salt as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(size: &str, cql_type: &str, possible: bool) {
        let spec = ColumnSpec { size: Some(size.parse().expect("a distribution")), ..ColumnSpec::default_for("c") };
        let cql_type: CqlType = cql_type.parse().expect("a type");
        let made = ColumnGenerator::new(&spec, &cql_type, DataSet::Classic).map(drop);
        let too_large = UnsupportedColumn::Size { column: "c".to_owned() };
        assert_eq!(made, if possible { Ok(()) } else { Err(too_large) }, "{size} {cql_type}");
    }

    #[test]
    fn values_that_do_not_fit_into_memory_are_refused() {
        check("fixed(268435456)", "blob", true);
        check("fixed(268435457)", "blob", false);
        check("uniform(1..9223372036854775807)", "text", false);
        check("~exp(1..1000000000000)", "text", false);
        check("fixed(1000000)", "list<int>", true);
        check("fixed(1000000)", "list<text>", false);
        check("fixed(100000000)", "set<int>", false);
        check("fixed(1000000000000)", "int", true);
    }
}
