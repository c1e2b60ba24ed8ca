//! Makes the settings of every handshake from the words of `-transport`. It connects nowhere.

use super::{
    node_verifier::NodeVerifier,
    private_key::with_public_key,
    store::{Identity, StoreFile, TlsStoreError},
};
use crate::TlsSettings;
use rustls::{
    ClientConfig, SupportedCipherSuite,
    crypto::{CryptoProvider, ring},
    version::{TLS12, TLS13},
};
use std::sync::Arc;

impl TlsSettings {
    /// Reads the files, so that one that cannot be used is known before a connection needs it.
    pub fn check_files(&self) -> Result<(), TlsStoreError> {
        client_config(self).map(drop)
    }
}

/// Reads the files and builds the settings.
pub(crate) fn client_config(settings: &TlsSettings) -> Result<Arc<ClientConfig>, TlsStoreError> {
    let truststore = StoreFile {
        option: "truststore=",
        path: &settings.truststore,
        password: settings.truststore_password.as_deref(),
    };
    let trusted = truststore.certificates()?;
    let provider = Arc::new(CryptoProvider { cipher_suites: cipher_suites(settings)?, ..ring::default_provider() });
    let versions = match settings.protocol {
        "TLSv1.2" => &[&TLS12][..],
        "TLSv1.3" => &[&TLS13],
        _ => &[&TLS13, &TLS12],
    };
    let unusable = |file: &StoreFile<'_>, reason: String| TlsStoreError::Unusable {
        option: file.option,
        path: file.path.to_owned(),
        reason,
    };
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.map_err(|_| TlsStoreError::NoCipher {
        given: settings.ciphers.join(","),
        possible: format!("the cipher suites of {}, or remove ssl-protocol=", settings.protocol),
    })?;
    let verifier = NodeVerifier::new(trusted, provider, settings.verify_hostname);
    let verifier = verifier.map_err(|error| unusable(&truststore, error.to_string()))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let Some(path) = &settings.keystore else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let keystore = StoreFile { option: "keystore=", path, password: settings.keystore_password.as_deref() };
    let Identity { chain, key } = keystore.identity()?;
    let key = match chain.first() {
        Some(certificate) => with_public_key(key, certificate),
        None => key,
    };
    let config = builder.with_client_auth_cert(chain, key);
    config.map(Arc::new).map_err(|error| unusable(&keystore, error.to_string()))
}

/// The suites that `ssl-ciphers=` names, or all of them. Java may name some that are not possible here.
fn cipher_suites(settings: &TlsSettings) -> Result<Vec<SupportedCipherSuite>, TlsStoreError> {
    let all = ring::default_provider().cipher_suites;
    if settings.ciphers.is_empty() {
        return Ok(all);
    }
    let wanted = |suite: &&SupportedCipherSuite| settings.ciphers.iter().any(|name| *name == java_name(suite));
    let chosen: Vec<SupportedCipherSuite> = all.iter().filter(wanted).copied().collect();
    match chosen.is_empty() {
        true => Err(TlsStoreError::NoCipher {
            given: settings.ciphers.join(","),
            possible: all.iter().map(java_name).collect::<Vec<_>>().join(", "),
        }),
        false => Ok(chosen),
    }
}

fn java_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}
