//! The HTTP flags, as the server receives their effect.

use crate::support::{TestFolder, number, target};
use squall_target::TargetEndpoint;
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};
use std::{io::Write, process::Stdio};

/// Sends one request with these flags and returns it as the server received it.
fn request(flags: &[&str]) -> String {
    let (server, folder) = (
        ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("ok"), ServerStep::Restart]),
        TestFolder::new(),
    );
    folder.write("body.txt", "from a file").write("token.txt", "t{{k\n").write("login.txt", "ann:secret\n");
    let (code, _) = folder.result(&[&[&server.url("/path?a=1"), "--users", "1", "--requests", "1"], flags].concat());
    assert_eq!(code, 0, "{flags:?}");
    server.last_request()
}

#[track_caller]
fn check(flags: &[&str], parts: &[&str]) {
    let request = request(flags);
    for part in parts {
        assert!(request.to_lowercase().contains(&part.to_lowercase()), "{flags:?}: `{part}` is missing in\n{request}");
    }
}

#[test]
fn http_flags_change_the_request() {
    check(&[], &["GET /path?a=1 HTTP/1.1\r\n", "host: 127.0.0.1:"]);
    check(&["-X", "PUT", "-d", "hello"], &["PUT /path", "content-length: 5\r\n", "\r\n\r\nhello"]);
    check(&["-d", "hello"], &["POST /path"]);
    check(&["--body-file", "body.txt"], &["POST /path", "from a file"]);
    check(&["--body-json", "{\"a\":1}"], &["application/json", "{\"a\":1}"]);
    check(&["--form", "a=b c"], &["application/x-www-form-urlencoded", "a=b"]);
    check(&["-H", "X-Name: ann", "-H", "X-More: b"], &["x-name: ann\r\n", "x-more: b\r\n"]);
    check(&["--query", "b=2"], &["/path?a=1&b=2"]);
    check(&["--basic", "ann:secret"], &["authorization: Basic YW5uOnNlY3JldA=="]);
    check(&["--bearer", "token"], &["authorization: Bearer token"]);
    check(&["--bearer", "@token.txt"], &["authorization: Bearer t{{k\r\n"]);
    check(&["--basic", "@login.txt"], &["authorization: Basic YW5uOnNlY3JldA=="]);
    check(&["-H", "X-Color: $NO_COLOR", "-H", "X-At: @@a"], &["x-color: 1\r\n", "x-at: @a\r\n"]);
    check(&["--no-keep-alive"], &["connection: close"]);
    check(&["--compressed"], &["accept-encoding: "]);
    assert!(!request(&["--no-compression"]).to_lowercase().contains("accept-encoding: gzip"));
}

#[test]
fn body_file_reads_standard_input() {
    for path in ["-", "/dev/stdin"] {
        let steps = vec![ServerStep::Read, ServerStep::respond("ok"), ServerStep::Restart];
        let (server, folder) = (ScriptedServer::start(steps), TestFolder::new());
        let url = server.url("/");
        let mut run = folder.command(&["run", &url, "--users", "1", "-n", "1", "--body-file", path]);
        let mut child = run.stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().unwrap().write_all(b"from standard input").unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        assert!(server.last_request().contains("POST / HTTP/1.1\r\n"), "{}", server.last_request());
        assert!(server.last_request().ends_with("\r\n\r\nfrom standard input"), "{}", server.last_request());
    }
}

#[test]
fn duration_after_the_short_body_flag_is_refused_unless_it_is_clearly_a_body() {
    let folder = TestFolder::new();
    for arguments in [&["-d", "30s"][..], &["-d30s", "--users", "5"], &["-d", "1m30s", "-H", "X-Id: 1"]] {
        let ended = folder.squall(&[&["run", "http://127.0.0.1:1/"], arguments].concat());
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.starts_with("squall: -d: `") && ended.stderr.contains("write --for "), "{}", ended.stderr);
    }
    let file = folder.write("a.toml", "").squall(&["run", "a.toml", "-d", "30s"]);
    assert!(file.stderr.contains("write --for 30s"), "{}", file.stderr);
    check(&["--body", "30s"], &["POST /path", "\r\n\r\n30s"]);
    check(&["-d", "30s", "-X", "PUT"], &["PUT /path", "\r\n\r\n30s"]);
    check(&["-d", "30s", "--for", "1m"], &["POST /path"]);
    check(&["-d", "30s", "-H", "Content-Type: text/plain"], &["POST /path"]);
    check(&["-d", "30 s"], &["POST /path"]);
}

#[test]
fn http2_redirects_and_phases_work() {
    let (target, folder) = (target(), TestFolder::new());
    let few = ["--users", "1", "--requests", "2"];
    let (code, _) = folder.result(&[&[&target.url("/health"), "--http2"], &few[..]].concat());
    assert_eq!(code, 0);
    let (_, followed) = folder.result(&[&[target.url("/redirect/3").as_str()], &few[..]].concat());
    assert_eq!(number(&followed, "/totals/errors"), 0.0);
    assert!(target.requests_of(TargetEndpoint::Redirect) >= 6);
    let before = target.requests();
    let (_, stopped) = folder.result(&[&[&target.url("/redirect/3"), "--no-redirects"], &few[..]].concat());
    assert_eq!(target.requests() - before, 2, "{}", stopped["outcomes"]);
    let (_, phases) = folder.result(&[&[&target.url("/health"), "--phases"], &few[..]].concat());
    assert!(phases.to_string().contains("first_byte"), "{phases:#}");
}

#[test]
fn values_of_flags_are_in_no_report_unless_asked_for() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let few = ["--users", "1", "--requests", "1", "--html", "report.html", "--csv", "report.csv"];
    let values = ["--bearer", "s3cret-a", "-H", "Accept: s3cret-b", "--query", "q=s3cret-c", "-F", "f=s3cret-d"];
    folder.result(&[&[url.as_str()], &few[..], &values].concat());
    for report in ["result.json", "report.html", "report.csv"] {
        assert!(!folder.read(report).contains("s3cret"), "{report}");
    }
    let command = folder.json("result.json")["run"]["command"].to_string();
    assert!(command.contains("--bearer … -H 'Accept: …' --query q=… -F f=…"), "{command}");
    folder.result(&[&[url.as_str()], &few[..], &values, &["--show-values"]].concat());
    let command = folder.json("result.json")["run"]["command"].to_string();
    assert!(command.contains("--query q=s3cret-c -F f=s3cret-d"), "{command}");
}

#[test]
fn params_can_be_read_from_files_and_are_not_in_the_result() {
    let (target, folder) = (target(), TestFolder::new());
    folder.write("pin.txt", "s3cret\n").write(
        "shop.toml",
        "[variables]\npin = ''\nother = ''\n[[task]]\nname = 'x'\nget = '/health?{{ pin }}{{ other }}'\n",
    );
    let url = target.url("");
    let few = ["shop.toml", "--target", &url, "--users", "1", "--requests", "1", "--param", "other=s3cret2"];
    folder.result(&[&few[..], &["--param", "pin=@pin.txt"]].concat());
    let result = folder.read("result.json");
    assert!(!result.contains("s3cret") && result.contains("--param other=… --param pin=@pin.txt"), "{result}");
    let ended = folder.squall(&[&["run"], &few[..], &["--param", "pin=$SQUALL_NOT_SET"]].concat());
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("--param pin: the environment variable SQUALL_NOT_SET is not set"), "{ended:?}");
}
