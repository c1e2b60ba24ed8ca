//! Compares generated rows with rows that Java cassandra-stress 3.11.5 wrote with the profiles in
//! tests/data. Each line of a `.rows` file is one row: the bytes of every column, as the database
//! returned them.

use squall_cql::{
    CqlValue, DataSet, GeneratedRow, Partition, PartitionGenerator, PartitionOrder, TableColumn, TableColumns,
    UserProfile,
};
use std::collections::{BTreeMap, BTreeSet};

/// The columns of a table as `name type` pairs, as the tables of the profiles define them.
fn columns(text: &str) -> Vec<TableColumn> {
    let pair = |pair: &str| {
        let (name, cql_type) = pair.trim().split_once(' ').unwrap();
        TableColumn { name: name.to_owned(), cql_type: cql_type.parse().unwrap() }
    };
    text.split(',').filter(|pair| !pair.trim().is_empty()).map(pair).collect()
}

fn types_table() -> TableColumns {
    TableColumns {
        partition_key: columns("p1 text, p2 bigint"),
        clustering: columns("c1 int, c2 timeuuid, c3 ascii"),
        values: columns(
            "v_ascii ascii, v_bigint bigint, v_blob blob, v_boolean boolean, v_date date, v_decimal decimal, \
             v_double double, v_float float, v_inet inet, v_int int, v_smallint smallint, v_text text, v_time time, \
             v_timestamp timestamp, v_timeuuid timeuuid, v_tinyint tinyint, v_uuid uuid, v_varchar varchar, \
             v_varint varint, v_list list<int>, v_set set<text>, v_flist frozen<list<bigint>>, V_Mixed int",
        ),
    }
}

fn keys_table() -> TableColumns {
    TableColumns {
        partition_key: columns(
            "k_ascii ascii, k_bigint bigint, k_blob blob, k_boolean boolean, k_date date, k_decimal decimal, \
             k_double double",
        ),
        clustering: columns(
            "k_float float, k_inet inet, k_int int, k_smallint smallint, k_time time, k_timestamp timestamp, \
             k_timeuuid timeuuid, k_tinyint tinyint, k_uuid uuid, k_varint varint, k_list frozen<list<int>>",
        ),
        values: columns("v_ascii int, v_bigint int, v_all bigint"),
    }
}

fn generator(profile: &str, table: &TableColumns, data_set: DataSet, order: PartitionOrder) -> PartitionGenerator {
    let profile = UserProfile::parse("test.yaml", profile).unwrap();
    PartitionGenerator::new(table, &profile.columns, data_set, order).unwrap()
}

fn hex(value: &CqlValue) -> String {
    value.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn named_row(table: &TableColumns, partition: &Partition, row: &GeneratedRow) -> BTreeMap<String, String> {
    let names = table.partition_key.iter().chain(&table.clustering).chain(&table.values);
    let values = partition.key.iter().chain(&row.clustering).chain(&row.values);
    names.zip(values).map(|(column, value)| (column.name.clone(), hex(value))).collect()
}

fn written_rows(text: &str) -> Vec<BTreeMap<String, String>> {
    let pair = |pair: &str| pair.split_once('=').map(|(name, hex)| (name.to_owned(), hex.to_owned())).unwrap();
    text.lines().map(|line| line.split(' ').map(pair).collect()).collect()
}

/// Every written row must be among the generated ones, and every seed must have rows.
#[track_caller]
fn check(profile: &str, table: &TableColumns, rows: &str, seeds: impl IntoIterator<Item = i64>) {
    let mut generator = generator(profile, table, DataSet::Classic, PartitionOrder::Generated);
    let mut written = written_rows(rows);
    let count = written.len();
    for seed in seeds {
        let partition = generator.partition(seed);
        let before = written.len();
        for number in 0..partition.row_count() {
            let row = generator.row(&partition, number);
            let row = named_row(table, &partition, &row);
            written.retain(|other| *other != row);
        }
        assert!(
            written.len() < before,
            "no row of seed {seed} equals a written one: {}",
            difference(&mut generator, table, seed, &written)
        );
    }
    assert!(written.is_empty(), "{} of {count} written rows are not generated", written.len());
}

/// The columns in which the first row of a seed differs from the nearest written row.
fn difference(
    generator: &mut PartitionGenerator,
    table: &TableColumns,
    seed: i64,
    written: &[BTreeMap<String, String>],
) -> String {
    let partition = generator.partition(seed);
    let row = generator.row(&partition, 0);
    let row = named_row(table, &partition, &row);
    let differing = |other: &BTreeMap<String, String>| -> Vec<String> {
        row.iter()
            .filter(|(name, value)| other.get(*name) != Some(value))
            .map(|(name, value)| format!("{name}={value} not {:?}", other.get(name)))
            .collect()
    };
    written.iter().map(differing).min_by_key(Vec::len).unwrap_or_default().join(", ")
}

#[test]
fn rows_of_every_type_equal_those_of_cassandra_stress() {
    check(
        include_str!("../data/types.yaml"),
        &types_table(),
        include_str!("../data/types.rows"),
        [1, 2, 3, 10_000_000_000, 10_000_000_001],
    );
}

#[test]
fn keys_of_every_type_seed_their_rows_like_cassandra_stress() {
    check(include_str!("../data/keys.yaml"), &keys_table(), include_str!("../data/keys.rows"), 1..=4);
}

#[test]
fn a_partition_has_exactly_the_rows_of_cassandra_stress() {
    let table =
        TableColumns { partition_key: columns("p int"), clustering: columns("c int, d int"), values: columns("v int") };
    let mut generator =
        generator(include_str!("../data/two.yaml"), &table, DataSet::Classic, PartitionOrder::Generated);
    let partition = generator.partition(1);
    let rows = (0..partition.row_count()).map(|number| generator.row(&partition, number));
    let rows: BTreeSet<_> = rows.map(|row| named_row(&table, &partition, &row)).collect();
    assert_eq!(rows, written_rows(include_str!("../data/two.rows")).into_iter().collect());
}

#[test]
fn small_seeds_of_a_small_population_give_one_key() {
    let profile = "keyspace: a\ntable: b\ncolumnspec:\n  - {name: p, population: uniform(1..1000)}\n";
    let table = TableColumns { partition_key: columns("p int"), ..TableColumns::default() };
    let mut generator = generator(profile, &table, DataSet::Classic, PartitionOrder::Generated);
    let keys: BTreeSet<String> = (1..=3).map(|seed| hex(&generator.partition(seed).key[0])).collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
}

#[test]
fn the_rows_that_cassandra_stress_leaves_out_are_known() {
    let table = TableColumns {
        partition_key: columns("p bigint"),
        clustering: columns("c int, d text, e int"),
        values: columns("v int, w text"),
    };
    let mut generator =
        generator(include_str!("../data/three.yaml"), &table, DataSet::Classic, PartitionOrder::Generated);
    let mut written: BTreeSet<_> = written_rows(include_str!("../data/three.rows")).into_iter().collect();
    let mut left_out = 0;
    for seed in 1..=40 {
        let partition = generator.partition(seed);
        let rows = generator.rows_of_cassandra_stress(&partition);
        for number in 0..rows {
            let row = generator.row(&partition, number);
            let row = named_row(&table, &partition, &row);
            assert!(written.remove(&row), "row {number} of seed {seed} was not written: {row:?}");
        }
        left_out += partition.row_count() - rows;
    }
    assert!(written.is_empty(), "{} written rows are not expected: {:?}", written.len(), written.first());
    assert!(left_out > 0);
}

fn two_levels(order: PartitionOrder) -> (PartitionGenerator, Partition) {
    let profile = "keyspace: a\ntable: b\ncolumnspec:\n  - {name: c, cluster: fixed(5), population: uniform(1..8)}\n  \
                   - {name: d, cluster: fixed(3)}\n";
    let table =
        TableColumns { partition_key: columns("p int"), clustering: columns("c int, d int"), values: columns("v int") };
    let mut generator = generator(profile, &table, DataSet::Classic, order);
    let partition = generator.partition(7);
    (generator, partition)
}

#[test]
fn siblings_have_the_same_children_and_no_value_repeats() {
    let (_, partition) = two_levels(PartitionOrder::Generated);
    let rows: Vec<Vec<String>> =
        (0..partition.row_count()).map(|row| partition.clustering(row).iter().map(hex).collect()).collect();
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), rows.len(), "{rows:?}");
    let children =
        |parent: &str| -> Vec<&String> { rows.iter().filter(|row| row[0] == parent).map(|row| &row[1]).collect() };
    assert_eq!(children(&rows[0][0]).len(), 3);
    assert!(rows.iter().all(|row| children(&row[0]) == children(&rows[0][0])));
    // Five draws of eight values repeat some.
    assert!(rows.len() <= 15 && rows.len().is_multiple_of(3), "{}", rows.len());
}

#[test]
fn sorted_contents_are_in_the_order_of_the_database() {
    let (_, generated) = two_levels(PartitionOrder::Generated);
    let (_, sorted) = two_levels(PartitionOrder::Sorted);
    let firsts = |partition: &Partition| -> Vec<i32> {
        let first = |row| match partition.clustering(row)[0] {
            CqlValue::Int(value) => value,
            ref other => panic!("{other:?}"),
        };
        let mut firsts: Vec<i32> = (0..partition.row_count()).map(first).collect();
        firsts.dedup();
        firsts
    };
    let mut expected = firsts(&generated);
    expected.sort_unstable();
    assert_eq!(firsts(&sorted), expected);
}

#[test]
fn apache_4_has_false_booleans() {
    let table = TableColumns { partition_key: columns("p boolean"), ..TableColumns::default() };
    let mut values = BTreeSet::new();
    let mut generator = generator("keyspace: a\ntable: b", &table, DataSet::Apache4, PartitionOrder::Generated);
    (0..64).for_each(|seed: i64| _ = values.insert(hex(&generator.partition(seed << 40).key[0])));
    assert_eq!(values.len(), 2);
}

#[test]
fn types_without_a_generator_are_named() {
    let table = TableColumns { partition_key: columns("p map<int;int>"), ..TableColumns::default() };
    let error = PartitionGenerator::new(&table, &[], DataSet::Classic, PartitionOrder::Generated).unwrap_err();
    assert!(error.to_string().starts_with("the column p has the type map<int;int>, which cannot be generated"));
}
