//! Where a fleet keeps what it shares: opened the same way by whoever takes part.

use squall_coord::{Link, RedisCell};

use crate::exit::Refusal;

/// The store of the fleet called `name` on the server at `url`.
pub(crate) async fn open(url: &str, name: &str) -> Result<RedisCell, Refusal> {
    let link = Box::pin(Link::open(url)).await.map_err(|error| Refusal::redis(&error))?;
    if name.is_empty() && link.is_cluster() {
        return Err(Refusal::new(
            "a cluster needs a fleet with a name: without one its keys lie on different nodes. Give --fleet NAME",
        ));
    }
    Ok(RedisCell::new(&link, name))
}
