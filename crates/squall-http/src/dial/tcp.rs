//! TCP connections: the addresses of a host in turn, until one accepts.

use std::net::SocketAddr;
use std::time::Instant;

use tokio::net::TcpStream;
use url::Host;

use crate::connector::Connector;
use crate::error::HttpError;
use crate::response::ExchangePhases;

/// Connects to the first address that accepts. An address that does not answer gets only its share of the time.
pub(super) async fn open(
    connector: &Connector,
    host: &Host<String>,
    port: u16,
    deadline: Instant,
    phases: &mut ExchangePhases,
) -> Result<TcpStream, HttpError> {
    let begin = Instant::now();
    let addresses = connector.dns_cache().resolve(connector.config(), host, port, deadline).await?;
    let resolved = Instant::now();
    phases.dns = resolved - begin;
    let mut last = None;
    for (index, address) in addresses.iter().enumerate() {
        let left = (addresses.len() - index) as u32;
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        let attempt = connect(*address);
        let made = match left {
            // The caller's own limit ends the last attempt and gives the error its name.
            1 => attempt.await,
            _ => {
                tokio::time::timeout(share, attempt).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            }
        };
        match made {
            Ok(stream) => {
                phases.connect = resolved.elapsed();
                return Ok(stream);
            }
            Err(error) => last = Some(HttpError::from_connect(address.to_string(), error)),
        }
    }
    phases.connect = resolved.elapsed();
    Err(last.expect("a resolved host has at least one address"))
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
