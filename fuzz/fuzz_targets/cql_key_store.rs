//! Feeds any bytes to the reader of Java key stores. It must not panic, must not make more bytes of
//! certificates than the file has, and must refuse a key that the password does not decrypt.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run cql_key_store -- -max_total_time=30`
#![no_main]

#[path = "../../crates/squall-cql/src/tls/der.rs"]
#[allow(dead_code, reason = "the reader of key stores writes no DER")]
mod der;
#[path = "../../crates/squall-cql/src/tls/jks.rs"]
#[allow(dead_code, reason = "the first bytes of a store choose its reader elsewhere")]
mod jks;

/// What the reader needs of squall-cql's module of this name.
mod store {
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};

    pub(super) struct Identity {
        pub(super) chain: Vec<CertificateDer<'static>>,
        pub(super) key: PrivateKeyDer<'static>,
    }
}

use jks::JavaKeyStore;
use libfuzzer_sys::fuzz_target;

const PASSWORD: &str = "squall-test";

fuzz_target!(|data: &[u8]| {
    // Without a password the digest does not protect the reader from changed bytes.
    let Ok(store) = JavaKeyStore::read(data, None) else { return };
    let trusted: usize = store.trusted.iter().map(|certificate| certificate.len()).sum();
    assert!(trusted <= data.len());
    for key in &store.keys {
        if let Ok(identity) = key.unlock(PASSWORD) {
            let chain: usize = identity.chain.iter().map(|certificate| certificate.len()).sum();
            assert!(chain + identity.key.secret_der().len() <= data.len());
            assert!(key.unlock("another").is_err());
        }
    }
    if JavaKeyStore::read(data, Some(PASSWORD)).is_ok() {
        assert!(JavaKeyStore::read(data, Some("another")).is_err());
    }
});
