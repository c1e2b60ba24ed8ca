//! The thread on which the streams engine lives. It never touches Python, so it may outlive the interpreter.

use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Handle};

static ENGINE: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

/// The engine's thread, started when it is first needed and again in a process that was forked.
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
