//! TLS settings: whom to trust, who we are, which protocols to offer. Reads the files once, at start-up.

use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::config::{HttpVersion, TlsOptions};
use crate::error::ConnectorError;

/// Builds the settings of every handshake.
pub(crate) fn client_config(options: &TlsOptions, version: HttpVersion) -> Result<Arc<ClientConfig>, ConnectorError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3");
    let builder = if options.insecure {
        let verifier = Arc::new(AcceptAny(provider));
        builder.dangerous().with_custom_certificate_verifier(verifier)
    } else {
        builder.with_root_certificates(roots(options.ca.as_deref())?)
    };
    let mut config = match (&options.client_cert, &options.client_key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(_), None) => return Err(ConnectorError::HalfClientIdentity { missing: "the key" }),
        (None, Some(_)) => return Err(ConnectorError::HalfClientIdentity { missing: "the certificate" }),
        (Some(cert), Some(key)) => {
            let chain = certificates("client certificate", cert)?;
            builder.with_client_auth_cert(chain, private_key(key)?).map_err(|error| ConnectorError::BadPem {
                what: "client certificate and key",
                path: cert.clone(),
                reason: error.to_string(),
            })?
        }
    };
    config.alpn_protocols = match version {
        HttpVersion::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
        HttpVersion::Http2 => vec![b"h2".to_vec()],
    };
    // Every virtual user is a client of its own: tickets shared between them would make handshakes look cheap.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The name that a handshake asks for.
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>, ConnectorError> {
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).map_err(|_| ConnectorError::BadServerName { name: name.into() })
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore, ConnectorError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates("CA certificate", path)? {
            roots.add(certificate).map_err(|error| ConnectorError::BadPem {
                what: "CA certificate",
                path: path.into(),
                reason: error.to_string(),
            })?;
        }
        return Ok(roots);
    }
    // A machine may hold some certificates that rustls cannot read; the rest still counts.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(roots)
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
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
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

/// `--insecure`: any certificate will do; the signatures of the handshake itself are still checked.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
