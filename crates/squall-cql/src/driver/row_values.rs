//! Generated values as the arguments of a statement. It knows no columns: the values are in the
//! order of the statement's markers.

use crate::CqlValue;
use scylla::serialize::{
    SerializationError,
    row::{RowSerializationContext, SerializeRow},
    writers::RowWriter,
};

/// The arguments of one statement; `None` is null.
#[derive(Debug, Clone, Default)]
pub(super) struct RowValues(pub(super) Vec<Option<CqlValue>>);

/// A generated value is too long for the protocol.
#[derive(Debug, thiserror::Error)]
#[error("a value has more than 2 GiB")]
struct ValueTooLong;

impl RowValues {
    /// The bytes of all values.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().flatten().map(|value| value.length() as u64).sum()
    }
}

impl SerializeRow for RowValues {
    fn serialize(&self, _: &RowSerializationContext<'_>, writer: &mut RowWriter) -> Result<(), SerializationError> {
        let mut bytes = Vec::new();
        for value in &self.0 {
            let cell = writer.make_cell_writer();
            match value {
                None => drop(cell.set_null()),
                Some(value) => {
                    bytes.clear();
                    value.write(&mut bytes);
                    cell.set_value(&bytes).map_err(|_| SerializationError::new(ValueTooLong))?;
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
