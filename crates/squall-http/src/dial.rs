//! Makes connections: name, socket, proxy, handshake. Rare compared with requests, so it may allocate and use timers.

mod names;
mod proxy;
mod tcp;

use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;
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

/// Where a connection leads and what may be spoken on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'a> {
    connector: &'a Connector,
    origin: &'a Origin,
    version: HttpVersion,
}

impl<'a> Way<'a> {
    pub(crate) fn new(connector: &'a Connector, origin: &'a Origin) -> Way<'a> {
        Way { connector, origin, version: connector.config().version }
    }

    /// For what HTTP/2 cannot carry, whatever the settings say of requests.
    pub(crate) fn http1(self) -> Way<'a> {
        Way { version: HttpVersion::Http1, ..self }
    }

    fn tls(&self) -> Arc<ClientConfig> {
        let usual = self.connector.tls();
        if self.version == self.connector.config().version {
            return usual.clone();
        }
        let mut own = ClientConfig::clone(usual);
        own.alpn_protocols = tls::protocols(self.version);
        Arc::new(own)
    }
}

/// Opens a connection within the connect limit and the request's own.
pub(crate) async fn dial(way: Way<'_>, watch: Watch, phases: &mut Phases) -> Result<Dialled, HttpError> {
    let limit = way.connector.config().connect_timeout;
    let deadline = watch.deadline.min(Instant::now() + limit);
    match tokio::time::timeout_at(deadline.into(), connect(way, deadline, phases)).await {
        Ok(made) => made,
        Err(_) if deadline == watch.deadline => Err(HttpError::Timeout { after: watch.timeout }),
        Err(_) => Err(HttpError::ConnectTimeout { after: limit }),
    }
}

async fn connect(way: Way<'_>, deadline: Instant, phases: &mut Phases) -> Result<Dialled, HttpError> {
    let Way { connector, origin, version } = way;
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
        Scheme::Http => Ok(Dialled { io: Io::Plain(socket), http2: version == HttpVersion::Http2 }),
        Scheme::Https => handshake(way, socket, phases).await,
    }
}

async fn handshake(way: Way<'_>, socket: Socket, phases: &mut Phases) -> Result<Dialled, HttpError> {
    let begin = Instant::now();
    let name: ServerName<'static> = match way.connector.server_name() {
        Some(name) => name.clone(),
        None => tls::server_name(&way.origin.host.to_string())
            .map_err(|error| HttpError::Tls { reason: std::io::Error::other(error) })?,
    };
    let stream = TlsConnector::from(way.tls()).connect(name, socket).await;
    let stream = stream.map_err(|reason| HttpError::Tls { reason })?;
    phases.tls = begin.elapsed();
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if !http2 && way.version == HttpVersion::Http2 {
        return Err(HttpError::H2 { reason: "the server did not agree to h2".into() });
    }
    Ok(Dialled { io: Io::Tls(Box::new(stream)), http2 })
}
