//! Carries the driver's connections through TLS: for each node it listens on a loopback port, and copies
//! what the driver sends there into a TLS connection to the node, and back. The driver's own TLS would
//! bring a second, slow-to-build cryptography library. It knows nothing of CQL.

use async_trait::async_trait;
use rustls::{CertificateError, ClientConfig, Error};
use rustls_pki_types::ServerName;
use scylla::{
    errors::TranslationError,
    policies::address_translator::{AddressTranslator, UntranslatedPeer},
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

/// One TLS record.
const COPY_BUFFER: usize = 16 * 1024;

/// The nodes that the user listed, with their addresses, and the port of all others.
#[derive(Debug, Clone)]
pub(crate) struct NodeAddresses {
    /// The name or address as typed, by address.
    pub(crate) listed: BTreeMap<IpAddr, (String, u16)>,
    pub(crate) port: u16,
}

/// The tunnels of one session. They end when it is dropped.
pub(crate) struct TlsTunnel {
    nodes: NodeAddresses,
    dialler: Arc<NodeDialler>,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    /// The loopback address that stands for each node.
    by_node: BTreeMap<IpAddr, SocketAddr>,
    tasks: JoinSet<()>,
}

/// Opens TLS connections.
struct NodeDialler {
    connector: TlsConnector,
    timeout: Duration,
    /// Why the last connection failed: the driver only sees that its own one ended.
    failure: Mutex<Option<String>>,
}

/// Where a tunnel leads.
#[derive(Clone)]
struct TunnelEnd {
    address: SocketAddr,
    name: ServerName<'static>,
}

impl TlsTunnel {
    /// `timeout` limits each TCP connection with its handshake.
    pub(crate) fn new(nodes: NodeAddresses, config: Arc<ClientConfig>, timeout: Duration) -> TlsTunnel {
        let dialler = NodeDialler { connector: TlsConnector::from(config), timeout, failure: Mutex::default() };
        TlsTunnel { nodes, dialler: Arc::new(dialler), listeners: Mutex::default() }
    }

    /// The loopback addresses of the listed nodes.
    pub(crate) fn listed(&self) -> io::Result<Vec<SocketAddr>> {
        self.nodes.listed.keys().map(|node| self.loopback(*node)).collect()
    }

    /// Why the last connection failed.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.dialler.failure).clone()
    }

    /// The loopback address that stands for a node.
    fn loopback(&self, node: IpAddr) -> io::Result<SocketAddr> {
        let mut listeners = lock(&self.listeners);
        let Listeners { by_node, tasks } = &mut *listeners;
        match by_node.entry(node) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(unknown) => {
                let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                tasks.spawn(accept(TcpListener::from_std(listener)?, self.nodes.end(node), self.dialler.clone()));
                Ok(*unknown.insert(address))
            }
        }
    }
}

#[async_trait]
impl AddressTranslator for TlsTunnel {
    async fn translate_address(&self, peer: &UntranslatedPeer) -> Result<SocketAddr, TranslationError> {
        // Its port is the one of the loopback address through which the driver read the list of nodes.
        let address = peer.untranslated_address();
        self.loopback(address.ip()).map_err(|_| TranslationError::NoRuleForAddress(address))
    }
}

impl NodeAddresses {
    fn end(&self, node: IpAddr) -> TunnelEnd {
        let listed = self.listed.get(&node);
        let name = listed.and_then(|(name, _)| ServerName::try_from(name.clone()).ok());
        TunnelEnd {
            address: SocketAddr::new(node, listed.map_or(self.port, |(_, port)| *port)),
            name: name.unwrap_or_else(|| ServerName::from(node)),
        }
    }
}

async fn accept(listener: TcpListener, end: TunnelEnd, dialler: Arc<NodeDialler>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((driver, _)) => _ = connections.spawn(dialler.clone().carry(driver, end.clone())),
                // Too many open files: later ones may work.
                Err(error) => {
                    *lock(&dialler.failure) = Some(error.to_string());
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

impl NodeDialler {
    /// Copies between the driver and the node until one of them ends.
    async fn carry(self: Arc<NodeDialler>, mut driver: TcpStream, end: TunnelEnd) {
        let carried = async {
            let dialling = tokio::time::timeout(self.timeout, self.dial(end));
            let mut node = dialling.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            driver.set_nodelay(true)?;
            copy_bidirectional_with_sizes(&mut driver, &mut node, COPY_BUFFER, COPY_BUFFER).await
        };
        if let Err(error) = carried.await {
            *lock(&self.failure) = Some(reason(&error));
        }
    }

    async fn dial(&self, end: TunnelEnd) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(end.address).await?;
        stream.set_nodelay(true)?;
        self.connector.connect(end.name, stream).await
    }
}

/// What the user can do about a failed connection.
fn reason(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|source| source.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "no certificate of the truststore has signed the certificate of the node".to_owned()
        }
        Some(Error::InvalidCertificate(
            error @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        )) => {
            format!("{error}: list the node by a name of its certificate, or do without hostname verification")
        }
        Some(Error::InvalidMessage(_)) => "the node does not speak TLS on this port: remove the truststore".to_owned(),
        Some(Error::AlertReceived(alert)) => refused_by_node(&format!("{alert:?}")),
        // The reset may overtake the alert.
        None if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
            refused_by_node(&error.to_string())
        }
        _ => error.to_string(),
    }
}

fn refused_by_node(how: &str) -> String {
    format!("the node refused the TLS connection ({how}): it may want a client certificate: add a keystore")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
