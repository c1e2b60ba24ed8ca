//! The parser alone: a table of cases, and properties against a simple model of a response.

use proptest::prelude::*;

use super::*;

const LIMITS: ParseLimits = ParseLimits { head: 4096, body: 4096 };
const KEEP: ResponseExpectation = ResponseExpectation { head_only: false, keep_body: true };

/// What a parser made of a response that came in pieces and then ended.
#[derive(Debug, PartialEq)]
struct Outcome {
    status: u16,
    body: Vec<u8>,
    received: u64,
    keep_alive: bool,
}

fn read(pieces: &[&[u8]], expect: ResponseExpectation) -> Result<Outcome, ParseError> {
    let mut parser = ResponseParser::new(LIMITS);
    parser.begin(expect);
    let mut done = false;
    for piece in pieces {
        if matches!(parser.feed(piece)?, ParseProgress::Complete(_)) {
            done = true;
            break;
        }
    }
    if !done {
        parser.finish()?;
    }
    let facts = parser.parsed_head();
    Ok(Outcome {
        status: facts.status,
        body: parser.body().to_vec(),
        received: parser.received(),
        keep_alive: facts.keep_alive,
    })
}

#[track_caller]
fn check(response: &str, status: u16, body: &str, keep_alive: bool) {
    let outcome = read(&[response.as_bytes()], KEEP).expect("a valid response");
    let found = (outcome.status, String::from_utf8_lossy(&outcome.body).into_owned(), outcome.keep_alive);
    assert_eq!(found, (status, body.to_owned(), keep_alive), "{response:?}");
}

#[track_caller]
fn check_refused(response: &str, expected: ParseError) {
    assert_eq!(read(&[response.as_bytes()], KEEP), Err(expected), "{response:?}");
}

#[track_caller]
fn check_malformed(response: &str) {
    let outcome = read(&[response.as_bytes()], KEEP);
    assert!(matches!(outcome, Err(ParseError::Malformed(_))), "{response:?}: {outcome:?}");
}

#[test]
fn bodies_end_where_their_framing_says() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", 200, "ab", true);
    check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, "", true);
    check("HTTP/1.1 200 OK\r\n\r\nuntil close", 200, "until close", false);
    check("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true);
    check("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, "", true);
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 200, "ab", true);
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n0A;x=\"y\"\r\n0123456789\r\n1 \r\n!\r\n00\r\nT: v\r\n\r\n",
        200,
        "0123456789!",
        true,
    );
}

#[test]
fn keep_alive_follows_version_and_connection() {
    check("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 200, "", false);
    check("HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 0\r\n\r\n", 200, "", false);
    check("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", false);
    check("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", 200, "", true);
    check("HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, "", false);
}

#[test]
fn interim_responses_are_skipped() {
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    check(&format!("{early}HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx"), 201, "x", true);
}

#[test]
fn a_response_to_head_has_no_body() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    let outcome = read(&[head], ResponseExpectation { head_only: true, keep_body: true }).expect("a valid response");
    assert_eq!((outcome.received, outcome.keep_alive), (head.len() as u64, true));
}

#[test]
fn length_and_chunked_together_read_chunks_and_end_keep_alive() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(&format!("{head}1\r\nx\r\n0\r\n\r\n"), 200, "x", false);
}

#[test]
fn repeated_lengths_must_agree() {
    check("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 200, "x", true);
    check("HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx", 200, "x", true);
    check_malformed("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx");
    check_malformed("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nxx");
}

#[test]
fn bytes_that_are_not_http_are_malformed() {
    for response in [
        "HTTP/9.9 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\x15\x03\x01",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
    ] {
        check_malformed(response);
    }
}

#[test]
fn head_and_body_limits_are_enforced() {
    let long = "x".repeat(LIMITS.head);
    check_refused(&format!("HTTP/1.1 200 OK\r\nA: {long}\r\n\r\n"), ParseError::HeadTooLarge);
    check_refused(&format!("HTTP/1.1 200 OK\r\nA: {long}"), ParseError::HeadTooLarge);
    check_refused(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200)), ParseError::HeadTooLarge);
    check_refused("HTTP/1.1 200 OK\r\nContent-Length: 4097\r\n\r\n", ParseError::BodyTooLarge);
    check_refused(&format!("HTTP/1.1 200 OK\r\n\r\n{long}x"), ParseError::BodyTooLarge);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    check_refused(&format!("{chunked}FFFF\r\n"), ParseError::BodyTooLarge);
    check_refused(&format!("{chunked}1;{long}x\r\n"), ParseError::HeadTooLarge);
    check_refused(&format!("{chunked}0\r\n{long}x"), ParseError::HeadTooLarge);
}

#[test]
fn an_early_end_and_no_response_give_different_errors() {
    check_refused("", ParseError::Closed);
    check_refused("HTTP/1.1 200 OK\r\nContent-Le", ParseError::Truncated);
    check_refused("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", ParseError::Truncated);
    check_refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", ParseError::Truncated);
}

#[test]
fn bytes_after_a_response_are_left_over() {
    let mut parser = ResponseParser::new(LIMITS);
    parser.begin(KEEP);
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 500 Evil\r\n";
    assert_eq!(parser.feed(response), Ok(ParseProgress::Complete(response.len() - 19)));
}

/// One parser for all responses of a connection, as the session uses it.
fn read_in_turn(
    parser: &mut ResponseParser,
    response: &[u8],
    expect: ResponseExpectation,
) -> (u16, Vec<u8>, Vec<u8>, ParseProgress) {
    parser.begin(expect);
    let fed = parser.feed(response).expect("a valid response");
    (parser.parsed_head().status, parser.raw_head().to_vec(), parser.body().to_vec(), fed)
}

#[test]
fn only_an_identical_head_is_reused() {
    let mut parser = ResponseParser::new(LIMITS);
    let first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    let longer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: y\r\n\r\ncd";
    let other = b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nef";
    for response in [&first[..], first, longer, longer, first, other, first] {
        let (status, head, body, fed) = read_in_turn(&mut parser, response, KEEP);
        assert_eq!(status == 404, response == other);
        assert_eq!([head, body].concat(), response);
        assert_eq!(fed, ParseProgress::Complete(response.len()));
    }
    // The same head after a HEAD request has no body.
    let head_only = ResponseExpectation { head_only: true, keep_body: true };
    assert_eq!(read_in_turn(&mut parser, first, head_only).3, ParseProgress::Complete(first.len() - 2));
    assert_eq!(read_in_turn(&mut parser, first, KEEP).3, ParseProgress::Complete(first.len()));
}

#[test]
fn an_error_or_a_trim_clears_the_cached_head() {
    let mut parser = ResponseParser::new(LIMITS);
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    for _ in 0..2 {
        read_in_turn(&mut parser, response, KEEP);
        parser.begin(KEEP);
        assert!(parser.feed(b"rubbish\r\n").is_err());
        read_in_turn(&mut parser, response, KEEP);
        parser.trim(0);
        assert_eq!(read_in_turn(&mut parser, response, KEEP).2, b"ab");
        parser.begin(KEEP);
        assert_eq!(parser.feed(&response[..20]), Ok(ParseProgress::NeedsMore));
        assert_eq!(parser.finish(), Err(ParseError::Truncated));
    }
}

/// A response by its parts, and what reading it must give.
#[derive(Debug, Clone)]
struct Model {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    framing: Wire,
    interim: bool,
}

#[derive(Debug, Clone)]
enum Wire {
    Length,
    Close,
    Chunked { sizes: Vec<usize>, extension: String, trailers: Vec<(String, String)> },
}

impl Model {
    fn render(&self) -> Vec<u8> {
        let mut out = String::new();
        if self.interim {
            out.push_str("HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n");
        }
        out.push_str(&format!("HTTP/1.1 {} Reason\r\n", self.status));
        for (name, value) in &self.headers {
            out.push_str(&format!("{name}: {value}\r\n"));
        }
        match &self.framing {
            Wire::Length => out.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len())),
            Wire::Close => out.push_str("Connection: close\r\n\r\n"),
            Wire::Chunked { .. } => out.push_str("Transfer-Encoding: chunked\r\n\r\n"),
        }
        let mut out = out.into_bytes();
        match &self.framing {
            Wire::Length | Wire::Close => out.extend_from_slice(&self.body),
            Wire::Chunked { sizes, extension, trailers } => {
                let mut rest = &self.body[..];
                for size in sizes.iter().copied().chain(std::iter::repeat(self.body.len())) {
                    if rest.is_empty() {
                        break;
                    }
                    let (chunk, tail) = rest.split_at(size.clamp(1, rest.len()));
                    out.extend_from_slice(format!("{:X}{extension}\r\n", chunk.len()).as_bytes());
                    out.extend_from_slice(chunk);
                    out.extend_from_slice(b"\r\n");
                    rest = tail;
                }
                out.extend_from_slice(b"0\r\n");
                for (name, value) in trailers {
                    out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                }
                out.extend_from_slice(b"\r\n");
            }
        }
        out
    }
}

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("x-[a-z]{1,12}", "[ -~]{0,40}"), 0..6)
}

fn framing() -> impl Strategy<Value = Wire> {
    let chunked = (prop::collection::vec(1..40usize, 0..8), "(;[a-z]{1,5}(=[a-z0-9]{1,5})?)?", headers());
    prop_oneof![
        Just(Wire::Length),
        Just(Wire::Close),
        chunked.prop_map(|(sizes, extension, trailers)| Wire::Chunked { sizes, extension, trailers }),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    let status = (200..600u16).prop_filter("has a body", |status| ![204, 304].contains(status));
    let body = prop::collection::vec(any::<u8>(), 0..300);
    (status, headers(), body, framing(), any::<bool>()).prop_map(|(status, headers, body, framing, interim)| Model {
        status,
        headers,
        body,
        framing,
        interim,
    })
}

fn cut<'b>(bytes: &'b [u8], cuts: &[prop::sample::Index]) -> Vec<&'b [u8]> {
    let mut points: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    points.extend([0, bytes.len()]);
    points.sort_unstable();
    points.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).filter(|piece| !piece.is_empty()).collect()
}

proptest! {
    #[test]
    fn a_response_split_anywhere_matches_the_model(
        model in model(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let wire = model.render();
        let outcome = read(&cut(&wire, &cuts), KEEP).expect("a valid response");
        prop_assert_eq!(outcome.status, model.status);
        prop_assert_eq!(&outcome.body, &model.body);
        prop_assert_eq!(outcome.received, wire.len() as u64);
        prop_assert_eq!(outcome.keep_alive, !matches!(model.framing, Wire::Close));
    }

    #[test]
    fn a_response_split_at_every_byte_parses_the_same(model in model()) {
        let wire = model.render();
        let pieces: Vec<&[u8]> = wire.chunks(1).collect();
        prop_assert_eq!(read(&pieces, KEEP), read(&[&wire], KEEP));
    }

    #[test]
    fn headers_are_found_as_they_were_sent(model in model()) {
        let mut parser = ResponseParser::new(LIMITS);
        parser.begin(KEEP);
        parser.feed(&model.render()).expect("a valid response");
        let response = crate::HttpResponse::new(&parser);
        let found: Vec<(String, String)> = response
            .headers()
            .filter(|(name, _)| name.starts_with("x-"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let sent: Vec<(String, String)> =
            model.headers.iter().map(|(name, value)| (name.clone(), value.trim().to_owned())).collect();
        prop_assert_eq!(found, sent);
    }

    #[test]
    fn an_earlier_response_does_not_affect_the_next(
        models in prop::collection::vec(model(), 1..4),
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
    ) {
        let mut parser = ResponseParser::new(LIMITS);
        for (which, at) in order {
            let model = which.get(&models);
            let wire = model.render();
            parser.begin(KEEP);
            let mut fed = ParseProgress::NeedsMore;
            for piece in cut(&wire, &[at]) {
                fed = parser.feed(piece).expect("a valid response");
            }
            if fed == ParseProgress::NeedsMore {
                parser.finish().expect("ended by the close");
            }
            prop_assert_eq!((parser.parsed_head().status, parser.body()), (model.status, &model.body[..]));
            prop_assert_eq!(parser.received(), wire.len() as u64);
        }
    }

    #[test]
    fn a_truncated_response_is_never_complete(model in model(), at in any::<prop::sample::Index>()) {
        prop_assume!(!matches!(model.framing, Wire::Close));
        let wire = model.render();
        let part = &wire[..at.index(wire.len())];
        prop_assert!(read(&[part], KEEP).is_err());
    }

    #[test]
    fn junk_never_panics_and_stays_within_limits(
        start in prop::sample::select(vec![
            "", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n",
        ]),
        rubbish in prop::collection::vec(any::<u8>(), 0..600),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let wire = [start.as_bytes(), &rubbish].concat();
        if let Ok(outcome) = read(&cut(&wire, &cuts), KEEP) {
            prop_assert!(outcome.body.len() <= LIMITS.body);
            prop_assert!(outcome.received <= wire.len() as u64);
        }
    }
}
