//! Verifies server certificates with `--ca` and `--insecure`, where rustls' own rules do not
//! suffice. It reads no files and always checks the signatures of the handshake itself.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// webpki's error for a self-signed certificate that claims to be an authority, which
/// `openssl req -x509` makes. webpki checks the dates first, so a certificate with this error is
/// within its dates.
pub(super) const CA_USED_AS_END_ENTITY: &str = "CaUsedAsEndEntity";

/// Which servers to trust.
#[derive(Debug)]
pub(super) enum ServerTrust {
    /// `--ca`: servers whose chain ends in these authorities, and a server that presents one of
    /// these certificates. Name and dates must be valid in both cases.
    Pinned { chains: Arc<WebPkiServerVerifier>, certificates: Vec<CertificateDer<'static>> },
    /// `--insecure`: every certificate is accepted.
    AcceptAny,
}

#[derive(Debug)]
pub(super) struct CertificateVerifier {
    pub(super) trust: ServerTrust,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let ServerTrust::Pinned { chains, certificates } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let judged = chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let pinned = || certificates.iter().any(|known| known.as_ref() == end_entity.as_ref());
        match judged {
            Err(Error::InvalidCertificate(error)) if is_only_untrusted(&error) && pinned() => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether the only error is that no trusted authority issued the certificate.
fn is_only_untrusted(error: &CertificateError) -> bool {
    match error {
        // A trusted authority with the issuer's name did not sign it, so the issuer is another, untrusted one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => true,
        CertificateError::Other(other) => other.0.to_string() == CA_USED_AS_END_ENTITY,
        _ => false,
    }
}
