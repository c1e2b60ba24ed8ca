//! TLS settings: trusted authorities, client certificate, offered protocols. It reads the files once, at start-up.

mod certificate_verifier;
mod error_text;

use std::path::Path;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::config::{HttpVersion, TlsOptions};
use crate::error::ConnectorError;
use certificate_verifier::{CertificateVerifier, ServerTrust};
pub(crate) use error_text::describe_error;
/// The settings of TLS handshakes, with ring.
pub use rustls::ClientConfig as TlsClientConfig;

/// Builds the settings of every handshake.
pub(crate) fn client_config(options: &TlsOptions, version: HttpVersion) -> Result<Arc<ClientConfig>, ConnectorError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3");
    let trust = match &options.ca {
        _ if options.insecure => Some(ServerTrust::AcceptAny),
        Some(path) => Some(pinned_trust(path, provider.clone())?),
        None => None,
    };
    let builder = match trust {
        Some(trust) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(CertificateVerifier { trust, provider }))
        }
        None => builder.with_root_certificates(system_roots()),
    };
    let mut config = match (&options.client_cert, &options.client_key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) => return Err(ConnectorError::IncompleteClientIdentity { missing: "the key" }),
        (None, Some(_)) => return Err(ConnectorError::IncompleteClientIdentity { missing: "the certificate" }),
        (Some(cert), Some(key)) => {
            let chain = certificates("client certificate", cert)?;
            builder.with_client_auth_cert(chain, private_key(key)?).map_err(|error| ConnectorError::BadPem {
                what: "client certificate and key",
                path: cert.clone(),
                reason: error.to_string(),
            })?
        }
    };
    config.alpn_protocols = alpn_protocols(version);
    // Every virtual user is its own client. Session tickets shared between users would make handshakes look cheap.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The settings of handshakes for WebSockets that another client opens. Reads the files that the options
/// name, or the system's authorities.
pub fn websocket_tls(options: &TlsOptions) -> Result<Arc<TlsClientConfig>, ConnectorError> {
    client_config(options, HttpVersion::Http1)
}

/// The protocols that a handshake offers (ALPN).
pub(crate) fn alpn_protocols(version: HttpVersion) -> Vec<Vec<u8>> {
    match version {
        HttpVersion::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
        HttpVersion::Http2 => vec![b"h2".to_vec()],
    }
}

/// The server name of a handshake (SNI).
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>, ConnectorError> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| ConnectorError::BadServerName { name: name.into() })
}

/// `--ca`: trusts servers whose chain ends in one of the file's certificates, and servers that present one of them.
fn pinned_trust(path: &Path, provider: Arc<CryptoProvider>) -> Result<ServerTrust, ConnectorError> {
    let what = "CA certificate";
    let bad = |reason: String| ConnectorError::BadPem { what, path: path.into(), reason };
    let certificates = certificates(what, path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| bad(error.to_string()))?;
    }
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(ServerTrust::Pinned { chains: chains.map_err(|error| bad(error.to_string()))?, certificates })
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // The system's store may hold certificates that rustls cannot read. The others are used.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectorError> {
    let pem = read(what, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| bad_pem(what, path, &error))?;
    if found.is_empty() {
        return Err(ConnectorError::EmptyPem { what, path: path.into() });
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConnectorError> {
    let what = "private key";
    let pem = read(what, path)?;
    let encrypted = pem.windows(b"ENCRYPTED".len()).any(|word| word == b"ENCRYPTED");
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        _ if encrypted => {
            let reason = "it is encrypted: decrypt it with `openssl pkey -in FILE -out FILE`".to_owned();
            ConnectorError::BadPem { what, path: path.into(), reason }
        }
        rustls_pki_types::pem::Error::NoItemsFound => ConnectorError::EmptyPem { what, path: path.into() },
        error => bad_pem(what, path, &error),
    })
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, ConnectorError> {
    std::fs::read(path).map_err(|reason| ConnectorError::ReadFile { what, path: path.into(), reason })
}

fn bad_pem(what: &'static str, path: &Path, error: &rustls_pki_types::pem::Error) -> ConnectorError {
    ConnectorError::BadPem { what, path: path.into(), reason: error.to_string() }
}
