//! The users and metrics of a run in Redis under the key names of vikhry, for tools that read them
//! there. Derived from the shares and the aggregated view; Squall itself never reads them. The
//! leader updates them.

mod redis_metric_view;
mod redis_user_view;

pub(super) use redis_metric_view::RedisMetricView;
pub(super) use redis_user_view::{RedisUserView, UserViewInput};
