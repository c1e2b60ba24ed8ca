//! Partitioned, ordered stream processing on Redis or Valkey.
//!
//! Records go to partitions by key; every partition is processed strictly in order, at least once, by one worker at a time, and a
//! worker that has lost a partition cannot acknowledge its events any more. Knows nothing of load tests.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use squall_streams::{App, Processor, Policy};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { order_id: u64, amount: u64 }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let app = App::connect("myapp", "redis://127.0.0.1").await?;
//! let orders = app.stream::<Order>("orders").partition_by("order_id").open().await?;
//! orders.send(&Order { order_id: 1, amount: 99 }).await?;
//!
//! let printer = Processor::new("printer", &orders, |mut events| async move {
//!     let mut records = events.records();
//!     while let Some(order) = records.next().await {
//!         println!("{}", order.amount);
//!     }
//!     Ok::<(), std::io::Error>(())
//! });
//! app.worker().processor(printer.policy(Policy::quarantine())).run(Default::default()).await?;
//! # Ok(())
//! # }
//! ```

pub mod admin;
mod app;
#[cfg(feature = "cli")]
pub mod cli;
mod codec;
mod entry;
mod events;
mod executor;
mod hash;
mod hub;
mod lane;
mod leader;
mod metrics;
mod middleware;
mod names;
mod partition;
mod policy;
mod processor;
mod raw;
mod repr;
mod send;
mod stream;
mod tasks;
mod worker;

pub use app::{App, ConnectError};
pub use codec::{Compression, DecodeError, EncodeError, Layout, decompress};
pub use entry::{Body, Entry, EntryId};
pub use events::{Event, Events, Fence, Records};
pub use executor::ExecutorError;
pub use hash::Hasher;
pub use metrics::StreamMetrics;
pub use middleware::{BoxError, Dead, DeadLetters, Failure, Middleware};
pub use names::{NameError, Namespace, ProcessorName, StreamName};
pub use partition::PartitionError;
pub use policy::{OnFailure, Policy};
pub use processor::{Processor, Settings, ZeroSetting};
pub use raw::{RawEvent, RawEvents, RawRecord, Taken};
pub use repr::python_repr;
pub use send::{SendError, WhenFull};
pub use stream::{OpenError, Stream, StreamBuilder};
pub use tasks::{Task, TaskError};
pub use worker::Worker;

/// The README's example must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
