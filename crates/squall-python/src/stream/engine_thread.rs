//! The thread that runs the streams engine. The thread never calls Python, so it may outlive the
//! interpreter. All methods of this module that talk to Redis spawn their work here.

use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Handle};

static ENGINE: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// The runtime of the engine thread. The first call starts the thread; the first call in a forked
/// process starts it again.
pub(super) fn engine_handle() -> std::io::Result<Handle> {
    let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((started_in, handle)) = &*engine
        && *started_in == process
    {
        return Ok(handle.clone());
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("squall-streams".into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    *engine = Some((process, handle.clone()));
    Ok(handle)
}
