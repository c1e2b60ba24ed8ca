//! Invalid settings are rejected with a message that says what to do.

use std::path::Path;
use std::time::Duration;

use squall_http::{Connector, HttpConfig};

#[track_caller]
fn check(change: impl FnOnce(&mut HttpConfig), expected: &str) {
    let mut config = HttpConfig::default();
    change(&mut config);
    let message = Connector::new(config).expect_err("refused").to_string();
    assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
}

fn file(directory: &Path, text: &str) -> Option<std::path::PathBuf> {
    let path = directory.join("file.pem");
    std::fs::write(&path, text).expect("a writable directory");
    Some(path)
}

#[test]
fn every_invalid_setting_has_its_own_message() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    check(|config| config.timeout = Duration::ZERO, "the timeout must be greater than 0");
    check(|config| config.connect_timeout = Duration::ZERO, "the connect timeout must be greater than 0");
    check(|config| config.tls.ca = Some("/nowhere/ca.pem".into()), "cannot read CA certificate \"/nowhere/ca.pem\"");
    check(|config| config.tls.ca = file(at, "nothing here"), "holds no CA certificate in PEM form");
    check(
        |config| config.tls.ca = file(at, "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"),
        "cannot use CA certificate",
    );
    check(|config| config.tls.client_cert = Some("/nowhere/c.pem".into()), "the key is missing");
    check(|config| config.tls.client_key = Some("/nowhere/c.key".into()), "the certificate is missing");
    check(|config| config.tls.server_name = Some("not a name".into()), "not a valid TLS server name");
    let proxy = |url: &str| Some(url.parse().expect("a URL"));
    check(|config| config.proxy = proxy("https://user:secret@p.test/"), "only http:// and socks5:// proxies");
    let secret = HttpConfig { proxy: proxy("https://user:secret@p.test/"), ..HttpConfig::default() };
    assert!(!Connector::new(secret).expect_err("refused").to_string().contains("secret"));
}

#[test]
fn a_key_must_fit_its_certificate() {
    use squall_testkit::tls::{CertificateAuthority, CertificateValidity};
    let authority = CertificateAuthority::new();
    let (one, two) = (
        authority.issue(&["one"], CertificateValidity::Current),
        authority.issue(&["two"], CertificateValidity::Current),
    );
    check(
        |config| {
            config.tls.client_cert = Some(one.cert_file);
            config.tls.client_key = Some(two.key_file);
        },
        "cannot use client certificate and key",
    );
}

#[test]
fn a_connector_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    let connector = Connector::new(HttpConfig::default()).expect("valid settings");
    shared(&connector);
}

#[test]
fn an_encrypted_key_is_named_in_the_error() {
    use squall_testkit::tls::{CertificateAuthority, CertificateValidity};
    let authority = CertificateAuthority::new();
    let identity = authority.issue(&["one"], CertificateValidity::Current);
    let directory = tempfile::tempdir().expect("a directory");
    let key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let key = file(directory.path(), key);
    check(
        |config| {
            config.tls.client_cert = Some(identity.cert_file);
            config.tls.client_key = key;
        },
        "it is encrypted: decrypt it with",
    );
}
