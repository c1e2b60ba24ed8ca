//! What the driver costs by itself: concurrent tasks on one thread write or read `standard1` with the bytes
//! that `squall cql` generates, and nothing is measured or recorded. `bench/cql/run` calls it and measures
//! its CPU time.
//!
//!     squall-bench-cql write|read ADDRESS KEYSPACE OPERATIONS CONCURRENT
//!     squall-bench-cql generate ROWS
//!     squall-bench-cql service-time CONCURRENT WORDS…

mod service_time;

use scylla::{
    client::{PoolSize, execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    statement::{Consistency, prepared::PreparedStatement},
};
use squall_cql::{Distribution, StandardColumns, StandardRow};
use std::{cell::Cell, hint::black_box, num::NonZeroUsize, rc::Rc};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate", rows] => generate(rows.parse()?),
        ["service-time", concurrent, ref words @ ..] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(service_time::compare(words, concurrent.parse()?))?;
        }
        [operation @ ("write" | "read"), address, keyspace, operations, concurrent] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let load = Load {
                write: operation == "write",
                keyspace: keyspace.to_owned(),
                operations: operations.parse()?,
                concurrent: concurrent.parse()?,
            };
            tokio::task::LocalSet::new().block_on(&runtime, load.run(address))?;
        }
        _ => return Err("see the head of bench/cql/src/main.rs".into()),
    }
    Ok(())
}

struct Load {
    write: bool,
    keyspace: String,
    operations: i64,
    concurrent: usize,
}

impl Load {
    async fn run(self, address: &str) -> Result<(), Failure> {
        let profile = ExecutionProfile::builder().consistency(Consistency::LocalOne).build();
        let session = SessionBuilder::new()
            .known_node(address)
            .user("cassandra", "cassandra")
            .pool_size(PoolSize::PerHost(NonZeroUsize::MIN))
            .default_execution_profile_handle(profile.into_handle())
            .build()
            .await?;
        let table = format!("\"{}\".standard1", self.keyspace);
        let statement = match self.write {
            true => format!("UPDATE {table} SET \"C0\"=?,\"C1\"=?,\"C2\"=?,\"C3\"=?,\"C4\"=? WHERE key=?"),
            false => format!("SELECT \"C0\",\"C1\",\"C2\",\"C3\",\"C4\" FROM {table} WHERE key=?"),
        };
        let work =
            Rc::new(Work { statement: session.prepare(statement).await?, session, next: Cell::new(1), load: self });
        let tasks: Vec<_> = (0..work.load.concurrent).map(|_| tokio::task::spawn_local(work.clone().task())).collect();
        for task in tasks {
            task.await?;
        }
        Ok(())
    }
}

struct Work {
    session: Session,
    statement: PreparedStatement,
    next: Cell<i64>,
    load: Load,
}

impl Work {
    async fn task(self: Rc<Work>) {
        let (mut columns, mut row) = (columns(), StandardRow::default());
        loop {
            let seed = self.next.replace(self.next.get() + 1);
            if seed > self.load.operations {
                return;
            }
            row.generate(&mut columns, seed);
            if self.load.write { self.write(&row).await } else { self.read(&row).await }
        }
    }

    async fn write(&self, row: &StandardRow) {
        let values = (row.cell(0), row.cell(1), row.cell(2), row.cell(3), row.cell(4), row.key());
        self.session.execute_unpaged(&self.statement, values).await.expect("the write succeeds");
    }

    async fn read(&self, row: &StandardRow) {
        let result = self.session.execute_unpaged(&self.statement, (row.key(),)).await.expect("the read succeeds");
        let rows = result.into_rows_result().expect("rows");
        let cells: (&[u8], &[u8], &[u8], &[u8], &[u8]) = rows.single_row().expect("one row");
        let expected = (row.cell(0), row.cell(1), row.cell(2), row.cell(3), row.cell(4));
        assert!(cells == expected, "the row has other cells");
    }
}

fn columns() -> StandardColumns {
    StandardColumns::new(&StandardColumns::numbered_names(5), 10, Distribution::Fixed(34))
}

/// Generates keys with their five cells.
fn generate(rows: i64) {
    let (mut columns, mut row) = (columns(), StandardRow::default());
    for seed in 0..rows {
        row.generate(&mut columns, seed);
        black_box(&row);
    }
}
