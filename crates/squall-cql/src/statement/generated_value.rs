//! A value that a generator of cassandra-stress makes for the type of its column: the words of
//! `columnspec` in a user profile.

use super::BindError;
use crate::{
    ColumnSpec, CqlType, CqlValue, DataSet, Distribution, DistributionError, UnsupportedColumn,
    profile::ColumnGenerator,
};
use scylla::frame::response::result::{CollectionType, ColumnType, NativeType};

/// Which values a generator draws.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratedValue {
    /// The different values: numbers themselves, and one text or blob for each number.
    pub population: Distribution,
    /// Bytes of a text or blob, elements of a list or set; 4 to 8 if it is not given.
    pub size: Option<Distribution>,
}

/// Why a generator is not possible.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GeneratedValueError {
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    #[error("`seq` counts in each thread by itself: write {{{{ iteration() }}}} for numbers that do not repeat")]
    Sequence,
}

impl GeneratedValue {
    /// `uniform(1..1000)`, and for the size `fixed(32)`.
    pub fn parse(population: &str, size: Option<&str>) -> Result<GeneratedValue, GeneratedValueError> {
        let population: Distribution = population.parse()?;
        if matches!(population, Distribution::Sequence { .. }) {
            return Err(GeneratedValueError::Sequence);
        }
        Ok(GeneratedValue { population, size: size.map(str::parse).transpose()? })
    }

    pub(super) fn generator(&self, name: &str, column: &ColumnType<'_>) -> Result<ColumnGenerator, BindError> {
        let spec = ColumnSpec {
            name: name.to_owned(),
            size: self.size.clone(),
            population: Some(self.population.clone()),
            cluster: None,
        };
        let generator = ColumnGenerator::new(&spec, &cql_type(column), DataSet::Apache4);
        generator.map_err(|error| match error {
            UnsupportedColumn::Type { column, cql_type } => BindError::Ungenerated { column, cql_type },
            UnsupportedColumn::Size { .. } => BindError::TooLarge(error),
        })
    }
}

/// The next value for a seed.
pub(super) fn draw(generator: &mut ColumnGenerator, seed: u64) -> CqlValue {
    generator.seed(seed as i64);
    generator.generate()
}

/// The type as the generators of profiles know it.
pub(super) fn cql_type(column: &ColumnType<'_>) -> CqlType {
    match column {
        ColumnType::Native(native) => native_type(native),
        ColumnType::Collection { frozen, typ: CollectionType::List(element) } => {
            CqlType::List { element: Box::new(cql_type(element)), frozen: *frozen }
        }
        ColumnType::Collection { frozen, typ: CollectionType::Set(element) } => {
            CqlType::Set { element: Box::new(cql_type(element)), frozen: *frozen }
        }
        ColumnType::Collection { typ: CollectionType::Map(key, value), .. } => {
            CqlType::Other(format!("map<{}, {}>", cql_type(key), cql_type(value)))
        }
        ColumnType::Vector { typ, dimensions } => CqlType::Other(format!("vector<{}, {dimensions}>", cql_type(typ))),
        ColumnType::Tuple(types) => {
            let types: Vec<String> = types.iter().map(|element| cql_type(element).to_string()).collect();
            CqlType::Other(format!("tuple<{}>", types.join(", ")))
        }
        ColumnType::UserDefinedType { definition, .. } => CqlType::Other(definition.name.to_string()),
        _ => CqlType::Other("unknown".to_owned()),
    }
}

fn native_type(native: &NativeType) -> CqlType {
    match native {
        NativeType::Ascii => CqlType::Ascii,
        NativeType::Boolean => CqlType::Boolean,
        NativeType::Blob => CqlType::Blob,
        NativeType::Counter => CqlType::Counter,
        NativeType::Date => CqlType::Date,
        NativeType::Decimal => CqlType::Decimal,
        NativeType::Double => CqlType::Double,
        NativeType::Float => CqlType::Float,
        NativeType::Int => CqlType::Int,
        NativeType::BigInt => CqlType::BigInt,
        NativeType::Text => CqlType::Text,
        NativeType::Timestamp => CqlType::Timestamp,
        NativeType::Inet => CqlType::Inet,
        NativeType::SmallInt => CqlType::SmallInt,
        NativeType::TinyInt => CqlType::TinyInt,
        NativeType::Time => CqlType::Time,
        NativeType::Timeuuid => CqlType::TimeUuid,
        NativeType::Uuid => CqlType::Uuid,
        NativeType::Varint => CqlType::VarInt,
        NativeType::Duration => CqlType::Other("duration".to_owned()),
        _ => CqlType::Other("unknown".to_owned()),
    }
}
