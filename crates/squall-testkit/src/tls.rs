//! Makes certificates for tests: an authority and the server and client certificates that it issues, valid or expired.
//! Keys live in a temporary directory that is removed on drop. [`TlsProxy`] puts TLS before a server that has none.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use crate::scripted_server::ScriptStream;

/// A certificate authority with a directory for the certificates it issues.
pub struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    directory: TempDir,
}

/// A certificate and its key.
pub struct TlsIdentity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    /// PEM file of the certificate.
    pub cert_file: PathBuf,
    /// PEM file of the key.
    pub key_file: PathBuf,
}

/// Whether a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateValidity {
    /// Valid for decades.
    Current,
    /// Expired years ago.
    Expired,
}

impl Default for CertificateAuthority {
    fn default() -> Self {
        CertificateAuthority::new()
    }
}

impl CertificateAuthority {
    /// Makes a new authority, which no client trusts yet.
    pub fn new() -> CertificateAuthority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names are valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL treats a certificate as self-signed if its issuer and subject have the same name,
        // so the authority has a name of its own.
        params.distinguished_name.push(DnType::CommonName, "squall test authority");
        let certificate = params.self_signed(&key).expect("a certificate");
        let directory = tempfile::tempdir().expect("a temporary directory");
        write(&directory.path().join("ca.pem"), &certificate.pem());
        CertificateAuthority { certificate: certificate.der().clone(), issuer: Issuer::new(params, key), directory }
    }

    /// PEM file of the authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Issues a certificate for these names (host names or IP addresses).
    pub fn issue(&self, names: &[&str], validity: CertificateValidity) -> TlsIdentity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params(names, validity).signed_by(&key, &self.issuer).expect("a certificate");
        let label = names.first().unwrap_or(&"unnamed").replace([':', '*'], "_");
        self.save_files(&format!("{label}-{validity:?}"), &certificate, &key)
    }

    /// Makes a self-signed certificate that claims to be an authority, as `openssl req -x509` does.
    /// This authority only keeps the files.
    pub fn self_signed(&self, names: &[&str], validity: CertificateValidity) -> TlsIdentity {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(names, validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate");
        self.save_files(&format!("self-signed-{validity:?}"), &certificate, &key)
    }

    fn save_files(&self, label: &str, certificate: &Certificate, key: &KeyPair) -> TlsIdentity {
        let file = |suffix: &str| self.directory.path().join(format!("{label}.{suffix}"));
        let identity = TlsIdentity {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            cert_file: file("pem"),
            key_file: file("key"),
        };
        write(&identity.cert_file, &certificate.pem());
        write(&identity.key_file, &key.serialize_pem());
        identity
    }

    /// The TLS settings of a client that trusts this authority alone.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a valid authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3");
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    }

    /// Makes the TLS settings of a server with this identity. With `clients`, the server requires a
    /// certificate that this authority issued.
    pub fn server_config(
        identity: &TlsIdentity,
        clients: Option<&CertificateAuthority>,
        alpn: &[&str],
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate.clone()).expect("a valid authority");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.expect("a verifier"))
            }
        };
        let chain = vec![identity.certificate.clone()];
        let mut config = builder.with_single_cert(chain, identity.key.clone_key()).expect("a key that fits");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// Accepts TLS on a port of 127.0.0.1 and forwards to a server without TLS. It ends with the process.
#[derive(Debug)]
pub struct TlsProxy {
    addr: SocketAddr,
}

impl TlsProxy {
    /// Forwards to `port` on 127.0.0.1.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(config: Arc<ServerConfig>, port: u16) -> TlsProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        listener.set_nonblocking(true).expect("a socket");
        let forwarding = async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(config.clone());
                tokio::spawn(async move {
                    // A client that does not trust the certificate leaves.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let Ok(mut server) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        std::thread::spawn(move || runtime.block_on(forwarding));
        TlsProxy { addr }
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }
}

/// Wraps the sockets of a [`crate::scripted_server::ScriptedServer`] in TLS.
pub fn wrap_tls(config: Arc<ServerConfig>) -> impl Fn(TcpStream) -> io::Result<Box<dyn ScriptStream>> + Send + Sync {
    move |socket| {
        let connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        Ok(Box::new(TlsServerStream(StreamOwned::new(connection, socket))))
    }
}

struct TlsServerStream(StreamOwned<ServerConnection, TcpStream>);

impl Read for TlsServerStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for TlsServerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl ScriptStream for TlsServerStream {
    fn reset(&mut self) {
        self.0.sock.reset();
    }

    fn close(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
    }
}

fn params(names: &[&str], validity: CertificateValidity) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("valid names");
    if validity == CertificateValidity::Expired {
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    }
    params
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a writable temporary directory");
}
