//! Compressed bodies: decoded when kept, counted in encoded bytes, rejected when corrupt or too large.

use std::io::Write;

use squall_http::{BodyMode, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

use crate::{connector, fetch, get};

const TEXT: &str = "squall squall squall squall squall squall";

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

pub(crate) fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Brotli's stored form: window bits, one uncompressed meta-block, an empty last one.
pub(crate) fn brotli(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u32 - 1;
    // From the lowest bit: WBITS=16 (0), ISLAST=0, MNIBBLES=4 (00), MLEN-1 (16 bits), ISUNCOMPRESSED=1.
    let header: u32 = (length << 4) | (1 << 20);
    let mut out = header.to_le_bytes()[..3].to_vec();
    out.extend_from_slice(bytes);
    out.push(0b11);
    out
}

fn encoded(coding: &str, body: &[u8]) -> ScriptedServer {
    let mut response =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    response.extend_from_slice(body);
    ScriptedServer::start(vec![ServerStep::Read, ServerStep::Send(response), ServerStep::Restart])
}

#[tokio::test]
async fn every_accepted_coding_is_decoded() {
    let zstd = zstd::encode_all(TEXT.as_bytes(), 3).expect("memory");
    for (coding, body) in [
        ("gzip", gzip(TEXT.as_bytes())),
        ("x-gzip", gzip(TEXT.as_bytes())),
        ("deflate", zlib(TEXT.as_bytes())),
        ("deflate", raw_deflate(TEXT.as_bytes())),
        ("br", brotli(TEXT.as_bytes())),
        ("zstd", zstd),
        ("identity", TEXT.as_bytes().to_vec()),
    ] {
        let server = encoded(coding, &body);
        assert_eq!(fetch(&connector(|_| {}), &server.url("/")).await, Ok((200, TEXT.into())), "{coding}");
        assert!(server.last_request().contains("\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"));
    }
}

#[tokio::test]
async fn stacked_codings_are_decoded_from_last_to_first() {
    let text = TEXT.as_bytes();
    for (coding, body) in [
        ("br, gzip", gzip(&brotli(text))),
        ("gzip, identity, zstd", zstd::encode_all(&gzip(text)[..], 3).expect("memory")),
        ("gzip\r\nContent-Encoding: deflate", zlib(&gzip(text))),
        ("gzip,gzip,,gzip , gzip", gzip(&gzip(&gzip(&gzip(text))))),
    ] {
        let server = encoded(coding, &body);
        assert_eq!(fetch(&connector(|_| {}), &server.url("/")).await, Ok((200, TEXT.into())), "{coding}");
    }
    for wrong in ["gzip, br", "gzip, gzip, gzip, gzip, gzip"] {
        let server = encoded(wrong, &gzip(&brotli(text)));
        assert_eq!(fetch(&connector(|_| {}), &server.url("/")).await, Err("BAD_ENCODING".into()), "{wrong}");
    }
    let server = encoded("gzip, rot13", b"as it came");
    assert_eq!(fetch(&connector(|_| {}), &server.url("/")).await, Ok((200, "as it came".into())));
}

#[tokio::test]
async fn every_layer_of_stacked_codings_obeys_the_body_limit() {
    let bomb = gzip(&vec![0; 10_000_000]);
    let connector = connector(|config| config.max_body_bytes = 1_000_000);
    for (coding, body) in [("gzip, gzip", gzip(&bomb)), ("gzip, br, gzip", gzip(&brotli(&bomb)))] {
        let server = encoded(coding, &body);
        assert_eq!(fetch(&connector, &server.url("/")).await, Err("BODY_TOO_LARGE".into()), "{coding}");
    }
}

#[tokio::test]
async fn without_decompress_no_coding_is_accepted_or_decoded() {
    let server = encoded("gzip", b"not really gzip");
    let connector = connector(|config| config.decompress = false);
    assert_eq!(fetch(&connector, &server.url("/")).await, Ok((200, "not really gzip".into())));
    assert!(!server.last_request().contains("Accept-Encoding"));
}

#[tokio::test]
async fn a_corrupt_body_has_its_own_outcome_code() {
    let mut cut = gzip(TEXT.as_bytes());
    cut.truncate(cut.len() - 9);
    for (coding, body) in
        [("gzip", cut), ("gzip", b"plain".to_vec()), ("br", vec![0xff; 9]), ("zstd", b"plain".to_vec())]
    {
        let server = encoded(coding, &body);
        assert_eq!(fetch(&connector(|_| {}), &server.url("/")).await, Err("BAD_ENCODING".into()), "{coding}");
    }
}

#[tokio::test]
async fn a_small_body_that_decodes_to_a_huge_one_is_rejected() {
    let server = encoded("gzip", &gzip(&vec![0; 10_000_000]));
    let connector = connector(|config| config.max_body_bytes = 1_000_000);
    assert_eq!(fetch(&connector, &server.url("/")).await, Err("BODY_TOO_LARGE".into()));
}

#[tokio::test]
async fn received_bytes_count_the_encoded_body() {
    let body = gzip(&vec![b'x'; 100_000]);
    let server = encoded("gzip", &body);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    let exchange = session.send(&request, BodyMode::Keep).await;
    assert!(exchange.bytes_in < 1000);
    assert_eq!(exchange.result.expect("a response").body().len(), 100_000);
}
