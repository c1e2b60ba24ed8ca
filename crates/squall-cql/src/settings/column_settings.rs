//! `-col`: the columns of `standard1` and `counter1`.

use crate::{
    Distribution, StandardColumns,
    command_line::{CommandLineProblem, GroupValues, OptionReader, one_of},
};

#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSettings {
    /// Names in bytewise order.
    pub names: Vec<String>,
    pub size: Distribution,
    /// Reads every column with `SELECT *`.
    pub slice: bool,
    /// Microseconds since 1970 for every cell.
    pub timestamp: Option<i64>,
    /// Only shown; the data does not depend on it.
    pub comparator: &'static str,
}

const MAX_COLUMNS: i64 = 10_000;
/// The native protocol's limit of a value is 2 GiB; a cell beyond this is a typing mistake.
const MAX_CELL_SIZE: i64 = 256 << 20;

impl ColumnSettings {
    pub(super) fn read(values: &GroupValues, problems: &mut Vec<CommandLineProblem>) -> ColumnSettings {
        let mut reader = OptionReader::new(values, problems);
        let names = match reader.optional("names=", parse_names) {
            Some(names) => names,
            None => StandardColumns::numbered_names(reader.value("n=", 5, parse_count)),
        };
        let comparators = ["AsciiType", "UTF8Type", "TimeUUIDType"].map(|name| (name, name));
        reader.value("super=", (), |text| {
            if text == "0" { Ok(()) } else { Err("super columns do not exist in CQL: remove it") }
        });
        ColumnSettings {
            names,
            size: reader.value("size=", Distribution::Fixed(34), parse_size),
            slice: reader.flag("slice"),
            timestamp: reader
                .optional("timestamp=", |text| text.parse().map_err(|_| "use a number of microseconds since 1970")),
            comparator: reader.value("comparator=", "AsciiType", |text| one_of(text, &comparators)),
        }
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse::<Distribution>() {
        Ok(Distribution::Fixed(count)) if (1..=MAX_COLUMNS).contains(&count) => Ok(count as usize),
        Ok(Distribution::Fixed(_)) => Err(format!("use fixed(1) to fixed({MAX_COLUMNS})")),
        Ok(_) => Err("Variable column counts are not implemented for CQL: use fixed(N)".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_names(text: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = text.split(',').map(str::to_owned).collect();
    names.sort();
    if names.iter().any(String::is_empty) {
        return Err("a name is empty: write names=a,b".to_owned());
    }
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("{} is there twice", pair[0])),
        None => Ok(names),
    }
}

fn parse_size(text: &str) -> Result<Distribution, String> {
    let size: Distribution = text.parse().map_err(|error: crate::DistributionError| error.to_string())?;
    let (a, b) = (size.min(), size.max());
    if a.min(b) >= 0 && a.max(b) <= MAX_CELL_SIZE {
        Ok(size)
    } else {
        Err(format!("a cell has 0 to {MAX_CELL_SIZE} bytes"))
    }
}
