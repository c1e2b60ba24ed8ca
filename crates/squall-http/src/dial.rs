//! Makes connections: name, socket, proxy, handshake. Rare compared with requests, so it may allocate and use timers.

mod names;
mod proxy;
mod tcp;

use std::time::Instant;

use rustls_pki_types::ServerName;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::config::HttpVersion;
use crate::connector::Connector;
use crate::error::HttpError;
use crate::io::{Io, Socket};
use crate::lane::Watch;
use crate::origin::{Origin, Scheme};
use crate::response::Phases;
use crate::tls;
pub(crate) use names::Names;
pub(crate) use proxy::forwards;

/// An open connection and what is spoken on it.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) io: Io,
    pub(crate) http2: bool,
}

/// Opens a connection to `origin` within the connect limit and the request's own.
pub(crate) async fn dial(
    connector: &Connector,
    origin: &Origin,
    watch: Watch,
    phases: &mut Phases,
) -> Result<Dialled, HttpError> {
    let limit = connector.config().connect_timeout;
    let deadline = watch.deadline.min(Instant::now() + limit);
    match tokio::time::timeout_at(deadline.into(), connect(connector, origin, deadline, phases)).await {
        Ok(made) => made,
        Err(_) if deadline == watch.deadline => Err(HttpError::Timeout { after: watch.timeout }),
        Err(_) => Err(HttpError::ConnectTimeout { after: limit }),
    }
}

async fn connect(
    connector: &Connector,
    origin: &Origin,
    deadline: Instant,
    phases: &mut Phases,
) -> Result<Dialled, HttpError> {
    let config = connector.config();
    let socket = if let Some(path) = &config.unix_socket {
        let begin = Instant::now();
        let stream = UnixStream::connect(path).await;
        let stream = stream.map_err(|error| HttpError::from_connect(path.display().to_string(), error))?;
        phases.connect = begin.elapsed();
        Socket::Unix(stream)
    } else if let Some(proxy) = connector.proxy() {
        proxy::open(connector, proxy, origin, deadline, phases).await?
    } else {
        Socket::Tcp(tcp::open(connector, &origin.host, origin.port, deadline, phases).await?)
    };
    match origin.scheme {
        Scheme::Http => Ok(Dialled { io: Io::Plain(socket), http2: config.version == HttpVersion::Http2 }),
        Scheme::Https => handshake(connector, origin, socket, phases).await,
    }
}

async fn handshake(
    connector: &Connector,
    origin: &Origin,
    socket: Socket,
    phases: &mut Phases,
) -> Result<Dialled, HttpError> {
    let begin = Instant::now();
    let name: ServerName<'static> = match connector.server_name() {
        Some(name) => name.clone(),
        None => tls::server_name(&origin.host.to_string())
            .map_err(|error| HttpError::Tls { reason: std::io::Error::other(error) })?,
    };
    let stream = TlsConnector::from(connector.tls().clone()).connect(name, socket).await;
    let stream = stream.map_err(|reason| HttpError::Tls { reason })?;
    phases.tls = begin.elapsed();
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if !http2 && connector.config().version == HttpVersion::Http2 {
        return Err(HttpError::H2 { reason: "the server did not agree to h2".into() });
    }
    Ok(Dialled { io: Io::Tls(Box::new(stream)), http2 })
}
