//! Reads Java key stores (JKS): their certificates, and the key that Java's own cipher protects. It reads
//! no JCEKS stores, which `keytool -importkeystore` converts.

use super::{der::value, store::Identity};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

pub(super) const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
pub(super) const JCEKS_MAGIC: [u8; 4] = [0xce, 0xce, 0xce, 0xce];

const DIGEST_LENGTH: usize = 20;
/// What Java adds to the password before it computes the digest of a store.
const WHITENER: &[u8] = b"Mighty Aphrodite";
const DAMAGED: &str = "the file is damaged";

/// A store whose digest was checked.
#[derive(Debug, Default)]
pub(super) struct JavaKeyStore {
    pub(super) trusted: Vec<CertificateDer<'static>>,
    pub(super) keys: Vec<ProtectedKey>,
}

/// A private key that is still encrypted, with its certificate chain.
#[derive(Debug)]
pub(super) struct ProtectedKey {
    bytes: Vec<u8>,
    chain: Vec<CertificateDer<'static>>,
}

impl JavaKeyStore {
    /// Reads a store. Without a password its digest is not checked, as in Java.
    pub(super) fn read(data: &[u8], password: Option<&str>) -> Result<JavaKeyStore, String> {
        let (content, digest) = data.split_last_chunk::<DIGEST_LENGTH>().ok_or(DAMAGED)?;
        if let Some(password) = password {
            let computed = sha1(&[&utf16(password), WHITENER, content]);
            if computed != *digest {
                return Err("the password is wrong, or the file is damaged".to_owned());
            }
        }
        JavaKeyStore::read_entries(&mut Reader(content)).ok_or_else(|| DAMAGED.to_owned())
    }

    fn read_entries(reader: &mut Reader<'_>) -> Option<JavaKeyStore> {
        let (_magic, version, count) = (reader.number()?, reader.number()?, reader.number()?);
        let mut store = JavaKeyStore::default();
        // Stores of version 1 are older than Java 1.2.
        if version != 2 {
            return None;
        }
        for _ in 0..count {
            let kind = reader.number()?;
            reader.text()?;
            reader.take(8)?;
            match kind {
                1 => {
                    let bytes = reader.bytes()?.to_vec();
                    let length = reader.number()?;
                    let chain = (0..length).map(|_| reader.certificate()).collect::<Option<_>>()?;
                    store.keys.push(ProtectedKey { bytes, chain });
                }
                2 => store.trusted.push(reader.certificate()?),
                _ => return None,
            }
        }
        Some(store)
    }
}

impl ProtectedKey {
    /// Decrypts the key: each block is combined with the SHA-1 of the password and the mask of the block in
    /// front of it; the salt is the first mask.
    pub(super) fn unlock(&self, password: &str) -> Result<Identity, String> {
        let protected = encrypted_octets(&self.bytes).ok_or(DAMAGED)?;
        let (salt, rest) = protected.split_first_chunk::<DIGEST_LENGTH>().ok_or(DAMAGED)?;
        let (encrypted, check) = rest.split_last_chunk::<DIGEST_LENGTH>().ok_or(DAMAGED)?;
        let password = utf16(password);
        let (mut key, mut mask) = (Vec::with_capacity(encrypted.len()), *salt);
        for part in encrypted.chunks(DIGEST_LENGTH) {
            mask = sha1(&[&password, &mask]);
            key.extend(part.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
        }
        if sha1(&[&password, &key]) != *check {
            return Err("the password of the key is wrong".to_owned());
        }
        Ok(Identity { chain: self.chain.clone(), key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)) })
    }
}

/// The password as Java hashes it.
fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn sha1(parts: &[&[u8]]) -> [u8; DIGEST_LENGTH] {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("SHA-1 has 20 bytes")
}

/// The encrypted bytes of an `EncryptedPrivateKeyInfo`: a sequence of an algorithm and an octet string.
fn encrypted_octets(der: &[u8]) -> Option<&[u8]> {
    let (content, _) = value(der, 0x30)?;
    let (_, rest) = value(content, 0x30)?;
    value(rest, 0x04).map(|(octets, _)| octets)
}

/// Takes values from the front of a store.
struct Reader<'d>(&'d [u8]);

impl<'d> Reader<'d> {
    fn take(&mut self, length: usize) -> Option<&'d [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn text(&mut self) -> Option<&'d [u8]> {
        let length = u16::from_be_bytes(self.take(2)?.try_into().ok()?);
        self.take(usize::from(length))
    }

    fn bytes(&mut self) -> Option<&'d [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    fn certificate(&mut self) -> Option<CertificateDer<'static>> {
        self.text()?;
        self.bytes().map(|bytes| CertificateDer::from(bytes.to_vec()))
    }
}
