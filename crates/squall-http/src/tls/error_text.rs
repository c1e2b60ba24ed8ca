//! Describes TLS failures in words, with the remedy.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use super::certificate_verifier::CA_USED_AS_END_ENTITY;

const UNTRUSTED_ISSUER_TEXT: &str = "the server's certificate is not signed by an authority that is trusted here; trust it with --ca FILE, or --insecure";

/// Errors of a connection that the server closed, depending on what was in progress.
const CONNECTION_ENDED_KINDS: [io::ErrorKind; 3] =
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];

/// Why a handshake or a record failed.
pub(crate) fn describe_error(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(error)) => describe_certificate_error(error),
        Some(Error::AlertReceived(alert)) => describe_alert(*alert),
        Some(Error::InvalidMessage(_)) => "the server's answer is not TLS; is this an http:// port?".to_owned(),
        Some(Error::PeerIncompatible(reason)) => {
            format!("the server and squall have no version or cipher of TLS in common ({})", split_camel_case(reason))
        }
        Some(Error::NoApplicationProtocol) => "the server speaks none of the HTTP versions offered".to_owned(),
        Some(error) => split_camel_case(error),
        None if CONNECTION_ENDED_KINDS.contains(&error.kind()) => {
            "the server closed the connection during the handshake; is this an https:// port?".to_owned()
        }
        None => error.to_string(),
    }
}

fn describe_certificate_error(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => UNTRUSTED_ISSUER_TEXT.to_owned(),
        CertificateError::BadSignature => {
            "a signature of the server is wrong: its certificate is not from the authority that is trusted here under that \
             name; trust it with --ca FILE, or --insecure"
                .to_owned()
        }
        CertificateError::Other(other) if other.0.to_string() == CA_USED_AS_END_ENTITY => UNTRUSTED_ISSUER_TEXT.to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired; renew it, or --insecure".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; check the clocks, or --insecure".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "the server's certificate has no subjectAltName, so it is for no host; make one that has, or --insecure"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
            let (names, expected) = (names.join(", "), expected.to_str());
            format!(
                "the server's certificate is not for {expected} but for {names}; use --server-name NAME, or --insecure"
            )
        }
        other => format!("the server's certificate cannot be used ({}); --insecure accepts it", split_camel_case(other)),
    }
}

/// The alert that the server sent.
fn describe_alert(alert: AlertDescription) -> String {
    let hint = match alert {
        AlertDescription::CertificateRequired
        | AlertDescription::BadCertificate
        | AlertDescription::UnknownCA
        | AlertDescription::CertificateUnknown => "; it may want another client certificate: --cert FILE --key FILE",
        AlertDescription::UnrecognisedName => "; tell it another name with --server-name NAME",
        _ => "",
    };
    format!("the server refused ({}){hint}", split_camel_case(&alert))
}

/// rustls prints the names of a certificate as `DnsName("shop.test")`.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner.trim_end_matches(')'));
    inner.trim_matches('"')
}

/// `BadSignature` as `bad signature`.
fn split_camel_case(name: &impl std::fmt::Debug) -> String {
    let name = format!("{name:?}");
    let mut text = String::new();
    let mut lower = false;
    for c in name.chars() {
        match c {
            '(' | '{' | '"' if !text.is_empty() => text.push_str(": "),
            '(' | ')' | '{' | '}' | '"' => {}
            c => {
                if c.is_uppercase() && lower {
                    text.push(' ');
                }
                text.extend(c.to_lowercase());
            }
        }
        lower = c.is_lowercase();
    }
    text.trim_end_matches([':', ' ']).to_owned()
}
