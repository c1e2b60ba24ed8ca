//! Rows that the running cassandra-stress wrote.

use super::*;
use crate::{DataSet, SeedMultiplier};
use std::hint::black_box;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn default_columns() -> StandardColumns {
    StandardColumns::new(&StandardColumns::numbered_names(5), 10, Distribution::Fixed(34))
}

/// Seed, key, the first six bytes of C0 to C4.
const CLASSIC: [(i64, &str, [&str; 5]); 10] = [
    (1, "0P37709P21", ["85182fdfe7f8", "1f5c9f8c30a6", "225510932bd8", "d7e099a59da5", "fbdd9cec024f"]),
    (2, "O8LK79LO61", ["b8e05320cd10", "440b1bdefbc9", "3c679832c207", "96284cbd07ac", "051946dc6fe2"]),
    (3, "OP001L5930", ["5ff08459ccd8", "208ee47f5828", "3c4cb4956a93", "dbf122dca6ed", "609a5636d027"]),
    (4, "9N54NK4861", ["10f1dd6febff", "8aa88581e342", "cb5ba7b74ab8", "37fdf1c2ac34", "cf830798d1b7"]),
    (5, "77596MO230", ["dc9e1bf05eab", "cc4010fda2b4", "d82dda78d34b", "bf1723eb11b1", "7cd7e4548d69"]),
    (6, "7O2N651270", ["5c7310ecff5c", "fa28e70b2dac", "78c72240e3be", "6508112e2894", "f5b3bd9baa99"]),
    (7, "68K07O31L0", ["3ab9b990a5db", "dd9f9d6c207f", "9116a0bb80af", "bde6fe3df138", "63f1cac68e33"]),
    (8, "1676M6KL60", ["3f0debec2d81", "2835fb549281", "c902e1eb1129", "ed2eae78d83e", "554a0b119ded"]),
    (9, "1N4KMPMKK0", ["de7618ecf0e1", "85580d850d89", "5fea2011446e", "8447a04fdb26", "c61be8e74cb5"]),
    (10, "P6MNM8P9O0", ["008a83c79b8c", "8b48e2330bc5", "4886d54aa949", "164dc0ea51ba", "cb15c5d21a84"]),
];

/// Seed, key, the first six bytes of C0 and of C4.
const APACHE_4: [(i64, &str, &str, &str); 10] = [
    (1, "708PK46680", "041c6a27dc0d", "ebd5f4254c7f"),
    (2, "N3O6LLK750", "17d84aa86b91", "08044b0c44f3"),
    (3, "M50367M111", "29756635cd1f", "308e1502bc69"),
    (4, "OP5MLN4O50", "ff9324a58a80", "5663c6827d07"),
    (5, "MK799O3810", "8dc51d2c2899", "e1255acb3586"),
    (6, "2O5P0N0O51", "eb2e1c95f1b6", "572945e08ac2"),
    (7, "100N41K3K0", "676ac00d4766", "1c13a5be8d92"),
    (8, "P53N43LP10", "fc0e6b3119f0", "ebdd248816cd"),
    (9, "31NPKK2641", "97568bee275b", "243f8d4b6be7"),
    (10, "3P89K29M61", "4538d270d8f0", "2f2ff6cf039f"),
];

#[test]
fn classic_rows_equal_those_of_cassandra_stress() {
    let (mut columns, mut row) = (default_columns(), StandardRow::default());
    for (seed, key, cells) in CLASSIC {
        row.generate(&mut columns, seed);
        assert_eq!(std::str::from_utf8(row.key()).unwrap(), key);
        assert_eq!(row.cells().map(|cell| hex(&cell[..6])).collect::<Vec<_>>(), cells, "seed {seed}");
        assert!(row.cells().all(|cell| cell.len() == 34));
    }
    row.generate(&mut columns, 1);
    assert_eq!(hex(row.key()), "30503337373039503231");
    assert_eq!(hex(row.cell(0)), "85182fdfe7f86306cd58ce81aa53cca24c193841d6ae8a91646a4c304dd9f47892f9");
}

#[test]
fn apache_4_rows_equal_those_of_cassandra_stress() {
    let factor = SeedMultiplier::new(DataSet::Apache4, &Distribution::uniform(1, 1_000_000));
    let (mut columns, mut row) = (default_columns(), StandardRow::default());
    for (seed, key, first, last) in APACHE_4 {
        row.generate(&mut columns, factor.apply(seed));
        assert_eq!(std::str::from_utf8(row.key()).unwrap(), key);
        assert_eq!([hex(&row.cell(0)[..6]), hex(&row.cell(4)[..6])], [first, last], "seed {seed}");
    }
    row.generate(&mut columns, factor.apply(1));
    assert_eq!(hex(row.cell(0)), "041c6a27dc0dcdfd65fec10f8598138934413aa47badd9942cd9987024c746219625");
}

#[test]
fn columns_are_ordered_bytewise() {
    let names = StandardColumns::numbered_names(12);
    assert_eq!(names.join(" "), "C0 C1 C10 C11 C2 C3 C4 C5 C6 C7 C8 C9");
}

#[test]
fn a_key_of_more_than_16_bytes_takes_a_second_draw() {
    let columns = StandardColumns::new(&[], 20, Distribution::Fixed(1));
    let (mut long, mut short) = (StandardRow::default(), StandardRow::default());
    long.generate_key(&columns, 7);
    short.generate_key(&default_columns(), 7);
    assert_eq!(long.key().len(), 20);
    assert_eq!(long.key()[..10], *short.key());
    // A draw below 100 billion has ten digits, so the last six of each sixteen are zeros.
    assert_eq!(long.key()[10..16], *b"000000");
    assert_ne!(long.key()[16..], *b"0000");
}

#[test]
fn sizes_of_cells_depend_on_the_seed_alone() {
    let names = StandardColumns::numbered_names(3);
    let mut columns = StandardColumns::new(&names, 10, "uniform(1..2000)".parse().unwrap());
    let (mut row, mut again) = (StandardRow::default(), StandardRow::default());
    row.generate(&mut columns, 12);
    again.generate(&mut columns, 13);
    again.generate(&mut columns, 12);
    assert_eq!(row.cells().collect::<Vec<_>>(), again.cells().collect::<Vec<_>>());
    assert!(row.cells().all(|cell| (1..=2000).contains(&cell.len())));
}

#[test]
fn a_ratio_populates_the_first_columns() {
    assert_eq!([0.0, 0.2, 0.5, 0.59, 0.6, 1.0].map(|ratio| populated_columns(5, ratio)), [0, 1, 2, 2, 3, 5]);
}

#[test]
fn a_row_generates_without_further_allocations() {
    let (mut columns, mut row) = (default_columns(), StandardRow::default());
    row.generate(&mut columns, 1);
    let capacities = (row.key.capacity(), row.cells.capacity(), row.ends.capacity());
    (2..1000).for_each(|seed| black_box(&mut row).generate(&mut columns, seed));
    assert_eq!((row.key.capacity(), row.cells.capacity(), row.ends.capacity()), capacities);
}
