//! Opens connections: DNS, socket, proxy, TLS handshake. This is rare compared with requests, so it
//! may allocate and use timers.

mod dns_cache;
mod proxy;
mod tcp;

use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::config::HttpVersion;
use crate::connection_stream::{ConnectionStream, PlainSocket};
use crate::connector::Connector;
use crate::error::HttpError;
use crate::http1_connection::ExchangeOptions;
use crate::origin::{Origin, UrlScheme};
use crate::response::ExchangePhases;
use crate::tls;
pub(crate) use dns_cache::DnsCache;
pub(crate) use proxy::uses_forward_proxy;

/// An open connection and its protocol.
#[derive(Debug)]
pub(crate) struct DialedConnection {
    pub(crate) io: ConnectionStream,
    pub(crate) http2: bool,
}

/// The target of a connection and the protocols it may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialTarget<'a> {
    connector: &'a Connector,
    origin: &'a Origin,
    version: HttpVersion,
}

impl<'a> DialTarget<'a> {
    pub(crate) fn new(connector: &'a Connector, origin: &'a Origin) -> DialTarget<'a> {
        DialTarget { connector, origin, version: connector.config().version }
    }

    /// HTTP/1.1 regardless of the settings, for WebSockets and streams, which HTTP/2 cannot carry here.
    pub(crate) fn force_http1(self) -> DialTarget<'a> {
        DialTarget { version: HttpVersion::Http1, ..self }
    }

    fn tls(&self) -> Arc<ClientConfig> {
        let usual = self.connector.tls();
        if self.version == self.connector.config().version {
            return usual.clone();
        }
        let mut own = ClientConfig::clone(usual);
        own.alpn_protocols = tls::alpn_protocols(self.version);
        Arc::new(own)
    }
}

/// Opens a connection within the connect limit and the request's own.
pub(crate) async fn dial(
    way: DialTarget<'_>,
    options: ExchangeOptions,
    phases: &mut ExchangePhases,
) -> Result<DialedConnection, HttpError> {
    let limit = way.connector.config().connect_timeout;
    let deadline = options.deadline.min(Instant::now() + limit);
    match tokio::time::timeout_at(deadline.into(), connect(way, deadline, phases)).await {
        Ok(made) => made,
        Err(_) if deadline == options.deadline => Err(HttpError::Timeout { after: options.timeout }),
        Err(_) => Err(HttpError::ConnectTimeout { after: limit }),
    }
}

async fn connect(
    way: DialTarget<'_>,
    deadline: Instant,
    phases: &mut ExchangePhases,
) -> Result<DialedConnection, HttpError> {
    let DialTarget { connector, origin, version } = way;
    let config = connector.config();
    let socket = if let Some(path) = &config.unix_socket {
        let begin = Instant::now();
        let stream = UnixStream::connect(path).await;
        let stream = stream.map_err(|error| HttpError::from_connect(path.display().to_string(), error))?;
        phases.connect = begin.elapsed();
        PlainSocket::Unix(stream)
    } else if let Some(proxy) = connector.proxy() {
        proxy::open(connector, proxy, origin, deadline, phases).await?
    } else {
        PlainSocket::Tcp(tcp::open(connector, &origin.host, origin.port, deadline, phases).await?)
    };
    match origin.scheme {
        UrlScheme::Http => {
            Ok(DialedConnection { io: ConnectionStream::Plain(socket), http2: version == HttpVersion::Http2 })
        }
        UrlScheme::Https => handshake(way, socket, phases).await,
    }
}

async fn handshake(
    way: DialTarget<'_>,
    socket: PlainSocket,
    phases: &mut ExchangePhases,
) -> Result<DialedConnection, HttpError> {
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
    Ok(DialedConnection { io: ConnectionStream::Tls(Box::new(stream)), http2 })
}
