//! Makes connections: name, socket, proxy, handshake. Rare compared with requests, so it may allocate and use timers.

use std::time::Instant;

use tokio::net::TcpStream;

use crate::connector::Connector;
use crate::error::HttpError;
use crate::io::{Io, Socket};
use crate::lane::Watch;
use crate::origin::Origin;
use crate::response::Phases;

/// Opens a connection to `origin` within the connect limit and the request's own.
pub(crate) async fn dial(
    connector: &Connector,
    origin: &Origin,
    watch: Watch,
    phases: &mut Phases,
) -> Result<Io, HttpError> {
    let limit = connector.config().connect_timeout;
    let now = Instant::now();
    let deadline = watch.deadline.min(now + limit);
    match tokio::time::timeout_at(deadline.into(), connect(origin, phases)).await {
        Ok(made) => made,
        Err(_) if deadline == watch.deadline => Err(HttpError::Timeout {
            after: watch.timeout,
        }),
        Err(_) => Err(HttpError::ConnectTimeout { after: limit }),
    }
}

async fn connect(origin: &Origin, phases: &mut Phases) -> Result<Io, HttpError> {
    let begin = Instant::now();
    let stream = TcpStream::connect(origin.authority())
        .await
        .map_err(|error| HttpError::from_connect(origin.authority(), error))?;
    stream.set_nodelay(true).map_err(HttpError::from_io)?;
    phases.connect = begin.elapsed();
    Ok(Io::Plain(Socket::Tcp(stream)))
}
