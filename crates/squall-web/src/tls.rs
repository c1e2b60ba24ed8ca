//! Certificate and key for the listener. The server reads them once; a changed file needs a
//! restart.

use rustls::{ServerConfig, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{path::PathBuf, sync::Arc};
use tokio_rustls::TlsAcceptor;

/// Paths of the certificate and the key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// PEM; the server's own certificate comes first.
    pub cert: PathBuf,
    /// PEM.
    pub key: PathBuf,
}

/// Why HTTPS cannot be served with these files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read a {what} from {}", path.display())]
    Pem {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    #[error("the certificate and the key do not match")]
    Mismatch(#[from] rustls::Error),
}

/// Performs the TLS handshake of accepted connections.
#[derive(Clone)]
pub(crate) struct TlsServer(pub(crate) TlsAcceptor);

impl TlsServer {
    pub(crate) fn read(files: &TlsFiles) -> Result<TlsServer, TlsError> {
        let bad_cert = |source| TlsError::Pem { what: "certificate", path: files.cert.clone(), source };
        let certs = CertificateDer::pem_file_iter(&files.cert).map_err(bad_cert)?;
        let certs = certs.collect::<Result<Vec<_>, _>>().map_err(bad_cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::Pem {
            what: "private key",
            path: files.key.clone(),
            source,
        })?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certs, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsServer(TlsAcceptor::from(Arc::new(config))))
    }
}
