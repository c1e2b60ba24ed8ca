//! The key and the cells of a seed, byte for byte those of cassandra-stress. A row reuses its
//! buffers, so that generating allocates nothing after the first rows. It draws no seeds.

use crate::{
    Distribution, Sampler,
    distribution::draw_uniform,
    random::{FastRandom, JavaRandom, fold_bytes, salt},
};

/// Every column draws from this population.
const POPULATION: (i64, i64) = (1, 100_000_000_000);
/// The key's generator has this many digits in one draw.
const DIGITS_PER_DRAW: usize = 16;

/// The columns of `standard1` with what their generators need; made once per thread.
#[derive(Debug, Clone)]
pub struct StandardColumns {
    names: Vec<String>,
    salts: Vec<i64>,
    key_salt: i64,
    key_size: usize,
    cell_size: Sampler,
}

impl StandardColumns {
    /// The columns C0, C1, … in bytewise order, as cassandra-stress orders them.
    pub fn numbered_names(count: usize) -> Vec<String> {
        let mut names: Vec<String> = (0..count).map(|number| format!("C{number}")).collect();
        names.sort();
        names
    }

    pub fn new(names: &[String], key_size: usize, cell_size: Distribution) -> StandardColumns {
        StandardColumns {
            names: names.to_vec(),
            salts: names.iter().map(|name| salt(&format!("randomstr{name}"))).collect(),
            key_salt: salt("randomstrkey"),
            key_size,
            cell_size: Sampler::new(cell_size),
        }
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn append_key(&self, seed: i64, key: &mut Vec<u8>) {
        let mut random = JavaRandom::new(seed ^ self.key_salt);
        // The original draws the size of the key first, and then does not use it.
        draw_uniform(&mut random, POPULATION.0, POPULATION.1);
        let end = key.len() + self.key_size;
        while key.len() < end {
            let mut digits = draw_uniform(&mut random, POPULATION.0, POPULATION.1);
            for _ in 0..DIGITS_PER_DRAW.min(end - key.len()) {
                key.push(key_digit((digits & 15) as u8));
                digits >>= 4;
            }
        }
    }

    fn append_cell(&mut self, column: usize, id: i64, cells: &mut Vec<u8>) {
        let value = draw_uniform(&mut JavaRandom::new(id ^ self.salts[column]), POPULATION.0, POPULATION.1);
        let size = match self.cell_size.distribution() {
            Distribution::Fixed(size) => *size,
            _ => {
                self.cell_size.seed(value);
                self.cell_size.draw()
            }
        };
        FastRandom::new(!value).append_bytes(usize::try_from(size).unwrap_or_default(), cells);
    }
}

/// `0`…`9` and then `K`…`P`: the original adds ten to the letter A.
fn key_digit(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'A' + digit }
}

/// How many of the first columns get a value when a row is populated to this ratio.
pub fn populated_columns(count: usize, ratio: f64) -> usize {
    (1..=count).take_while(|column| *column as f64 / count as f64 <= ratio).count()
}

/// The key and the cells of one seed.
#[derive(Debug, Default)]
pub struct StandardRow {
    key: Vec<u8>,
    cells: Vec<u8>,
    /// Where each cell ends in `cells`.
    ends: Vec<usize>,
}

impl StandardRow {
    /// Makes this the row of `seed`.
    pub fn generate(&mut self, columns: &mut StandardColumns, seed: i64) {
        self.generate_key(columns, seed);
        let id = fold_bytes(0, &self.key);
        self.cells.clear();
        self.ends.clear();
        for column in 0..columns.salts.len() {
            columns.append_cell(column, id, &mut self.cells);
            self.ends.push(self.cells.len());
        }
    }

    /// Makes this the row of `seed` without its cells, for reads that check nothing and for counters.
    pub fn generate_key(&mut self, columns: &StandardColumns, seed: i64) {
        self.key.clear();
        self.cells.clear();
        self.ends.clear();
        columns.append_key(seed, &mut self.key);
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The cell of the column with this position.
    ///
    /// # Panics
    ///
    /// If only the key was generated, or if there are fewer columns.
    pub fn cell(&self, column: usize) -> &[u8] {
        let start = column.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.cells[start..self.ends[column]]
    }

    /// All cells in the order of the columns.
    pub fn cells(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|column| self.cell(column))
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
