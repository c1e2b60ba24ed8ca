//! The live feed of the web UI, `/api/v1/live`: what its messages contain and when they are sent. It
//! selects numbers of a run and computes no statistics. [`RunWatcher`](crate::run_watcher::RunWatcher)
//! publishes to it, `routes/live.rs` sends its messages to the subscribers.
//!
//! Every message is a JSON object with a `type`. Times are microseconds unless the name says
//! otherwise.
//!
//! | type | when | content |
//! |---|---|---|
//! | `hello` | first | schema, version of Squall, names of columns, limits of the heatmap's buckets |
//! | `state` | first, and when it changes | phase, plan and load of the run; verdict when it is over; whether the store answers |
//! | `snapshot` | after `state`, at the start and end of a run, and to a slow reader | the run so far |
//! | `history` | after `snapshot`, several | parts of its heatmap and of the trends of metrics |
//! | `second` | a second has closed | its row, failures, heatmap column, metrics, key figures, generator limits |
//! | `table` | with a second | figures and failures of every metric; of many metrics, of a fifth of them |
//! | `event` | something happened to the fleet, or a person noted it | time, text, kind, subject |
//! | `fleet` | each second | every worker |
//! | `alive` | a second without any other message | how old the run is |

mod columns;
mod cql_counts;
mod figures;
mod live_feed;
mod run_messages;
mod status_messages;
#[cfg(test)]
mod tests;

pub(crate) use columns::{MAX_POINTS, mean_per_second, micros};
pub(crate) use live_feed::{LiveFeed, Published, PublishedSecond, StoreContact};
pub(crate) use run_messages::snapshot_messages;
pub(crate) use status_messages::{alive_message, hello_message, plan_json};
