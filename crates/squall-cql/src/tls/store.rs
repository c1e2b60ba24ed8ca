//! Reads the files of `-transport`: JKS, PKCS12 or PEM, by their first bytes. It judges no certificate.

use super::jks::{self, JavaKeyStore};
use p12_keystore::{KeyStore, Pkcs12Archive, Pkcs12ImportPolicy};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use std::path::{Path, PathBuf};

/// A client certificate with its chain, and its key.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// A file of `-transport`, or another of its words, that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsStoreError {
    #[error("-transport {option}{}: {reason}", path.display())]
    Unusable { option: &'static str, path: PathBuf, reason: String },
    #[error("-transport ssl-ciphers={given}: none of them is possible; choose from {possible}")]
    NoCipher { given: String, possible: String },
}

/// A file and its password.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreFile<'s> {
    /// The word that names the file.
    pub(super) option: &'static str,
    pub(super) path: &'s Path,
    pub(super) password: Option<&'s str>,
}

enum StoreFormat {
    Jks,
    Pkcs12,
    Pem,
}

impl TlsStoreError {
    /// Why the file cannot be used, without the word of `-transport` that names it.
    pub fn reason(&self) -> String {
        match self {
            TlsStoreError::Unusable { path, reason, .. } => format!("{}: {reason}", path.display()),
            TlsStoreError::NoCipher { .. } => self.to_string(),
        }
    }

    /// Whether it is the key store, not the trust store.
    pub fn is_keystore(&self) -> bool {
        matches!(self, TlsStoreError::Unusable { option: "keystore=", .. })
    }
}

impl StoreFile<'_> {
    /// Every certificate of the file; at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsStoreError> {
        let (format, data) = self.open()?;
        let found = match format {
            StoreFormat::Jks => JavaKeyStore::read(&data, self.password).map(|store| store.trusted),
            StoreFormat::Pkcs12 => self.pkcs12_certificates(&data),
            StoreFormat::Pem => pem_certificates(&data),
        };
        match found.map_err(|reason| self.unusable(reason))? {
            found if found.is_empty() => Err(self.unusable("the file has no certificate to trust".to_owned())),
            found => Ok(found),
        }
    }

    /// The first key of the file, with its certificates.
    pub(super) fn identity(&self) -> Result<Identity, TlsStoreError> {
        let (format, data) = self.open()?;
        let identity = match format {
            StoreFormat::Jks => self.jks_identity(&data),
            StoreFormat::Pkcs12 => self.pkcs12_identity(&data),
            StoreFormat::Pem => pem_identity(&data),
        };
        identity.map_err(|reason| self.unusable(reason))
    }

    fn open(&self) -> Result<(StoreFormat, Vec<u8>), TlsStoreError> {
        let data = std::fs::read(self.path).map_err(|error| self.unusable(error.to_string()))?;
        let format = if data.starts_with(&jks::MAGIC) {
            StoreFormat::Jks
        } else if data.starts_with(&jks::JCEKS_MAGIC) {
            let reason = "it is a JCEKS store: convert it with keytool -importkeystore -deststoretype PKCS12";
            return Err(self.unusable(reason.to_owned()));
        } else if data.first() == Some(&0x30) {
            StoreFormat::Pkcs12
        } else if data.windows(10).any(|word| word == b"-----BEGIN") {
            StoreFormat::Pem
        } else {
            return Err(self.unusable("it is none of JKS, PKCS12 and PEM".to_owned()));
        };
        Ok((format, data))
    }

    fn pkcs12_certificates(&self, data: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
        let archive = Pkcs12Archive::from_pkcs12(data, self.password.unwrap_or_default()).map_err(pkcs12_reason)?;
        Ok(archive.certs.iter().map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect())
    }

    fn pkcs12_identity(&self, data: &[u8]) -> Result<Identity, String> {
        let password = self.password.unwrap_or_default();
        let store = KeyStore::from_pkcs12(data, password, Pkcs12ImportPolicy::Strict).map_err(pkcs12_reason)?;
        let (_, found) = store.private_key_chain().ok_or(NO_KEY)?;
        Ok(Identity {
            chain: found.certs().iter().map(|cert| CertificateDer::from(cert.as_der().to_vec())).collect(),
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(found.key().as_der().to_vec())),
        })
    }

    fn jks_identity(&self, data: &[u8]) -> Result<Identity, String> {
        let store = JavaKeyStore::read(data, self.password)?;
        store.keys.first().ok_or(NO_KEY)?.unlock(self.password.unwrap_or_default())
    }

    fn unusable(&self, reason: String) -> TlsStoreError {
        TlsStoreError::Unusable { option: self.option, path: self.path.to_owned(), reason }
    }
}

const NO_KEY: &str = "the file has no private key with a certificate";

fn pkcs12_reason(error: p12_keystore::error::Error) -> String {
    match error {
        p12_keystore::error::Error::MacError(_) => "the password is wrong, or the file is damaged".to_owned(),
        error => format!("the PKCS12 file cannot be read: {error}"),
    }
}

fn pem_certificates(data: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(data).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn pem_identity(data: &[u8]) -> Result<Identity, String> {
    let encrypted = data.windows(9).any(|word| word == b"ENCRYPTED");
    let key = PrivateKeyDer::from_pem_slice(data).map_err(|_| match encrypted {
        true => "the key is encrypted: decrypt it with `openssl pkey`, or use a PKCS12 file",
        false => NO_KEY,
    })?;
    match pem_certificates(data)? {
        chain if chain.is_empty() => Err(NO_KEY.to_owned()),
        chain => Ok(Identity { chain, key }),
    }
}
