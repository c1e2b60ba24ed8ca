//! Completes private keys of elliptic curves: Java stores them without the public key, which rustls
//! needs. It changes no other key.

use super::der::{encode, value};
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The identifier of keys of elliptic curves, as DER.
const ELLIPTIC_CURVE: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const INTEGER: u8 = 0x02;
const BITS: u8 = 0x03;
const OCTETS: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
const PUBLIC_KEY: u8 = 0xa1;

/// The key, with the public key of its certificate if it is one of an elliptic curve.
pub(super) fn with_public_key(key: PrivateKeyDer<'static>, certificate: &CertificateDer<'_>) -> PrivateKeyDer<'static> {
    let PrivateKeyDer::Pkcs8(pkcs8) = &key else { return key };
    match completed(pkcs8.secret_pkcs8_der(), certificate) {
        Some(completed) => PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(completed)),
        None => key,
    }
}

fn completed(pkcs8: &[u8], certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (info, _) = value(pkcs8, SEQUENCE)?;
    let (version, rest) = value(info, INTEGER)?;
    let (algorithm, rest) = value(rest, SEQUENCE)?;
    if !algorithm.starts_with(&ELLIPTIC_CURVE) {
        return None;
    }
    let (key, _) = value(value(rest, OCTETS)?.0, SEQUENCE)?;
    let (key_version, rest) = value(key, INTEGER)?;
    let (secret, _) = value(rest, OCTETS)?;
    let spki = ParsedCertificate::try_from(certificate).ok()?.subject_public_key_info();
    let (_, rest) = value(value(spki.as_ref(), SEQUENCE)?.0, SEQUENCE)?;
    let (public, _) = value(rest, BITS)?;
    // The number of unused bits, the form of the point, and two coordinates as long as the secret.
    let length = public.len().checked_sub(2)? / 2;
    let secret = &secret[secret.len().saturating_sub(length)..];
    let padded = [&vec![0; length - secret.len()][..], secret].concat();
    let key = encode(
        SEQUENCE,
        &[
            &encode(INTEGER, &[key_version]),
            &encode(OCTETS, &[&padded]),
            &encode(PUBLIC_KEY, &[&encode(BITS, &[public])]),
        ],
    );
    Some(encode(SEQUENCE, &[&encode(INTEGER, &[version]), &encode(SEQUENCE, &[algorithm]), &encode(OCTETS, &[&key])]))
}
