//! The `squall stream` commands, from arguments to printed text.

use clap::Parser;
use squall_streams::cli::{StreamCommand, StreamCommandError, run_to};
use squall_testkit::redis::RedisServer;

use crate::{
    order_checker::EventLog,
    support::{RunningWorker, app, fast_settings, recording_processor, stream, wait_processed},
};

#[derive(Parser)]
struct TestProgram {
    #[command(subcommand)]
    command: StreamCommand,
}

/// Runs a command line against the server, with the key names of runnel.
pub(crate) async fn squall(server: &RedisServer, line: &[&str]) -> Result<String, StreamCommandError> {
    let url = server.url();
    let server = ["--namespace", "", "--redis", &url];
    let arguments = ["stream"].iter().chain(line).chain(&server).copied();
    let program = TestProgram::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    run_to(program.command, &mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn send_uses_the_partition_that_runnel_computes() {
    let server = RedisServer::start();
    let line = ["send", "myapp.orders", r#"{"order_id":1}"#, "--partition-by", "order_id", "--hasher", "md5"];
    let out = squall(&server, &line).await.unwrap();
    // python: int(hashlib.md5(b"1").hexdigest(), 16) % 16 == 11
    assert!(out.starts_with("__strm:myapp.orders.11 "), "{out}");
    let app = app(&server).await;
    let entries: Vec<(String, Vec<String>)> = redis::cmd("XRANGE")
        .arg("__strm:myapp.orders.11")
        .arg("-")
        .arg("+")
        .query_async(&mut app.client().connection())
        .await
        .unwrap();
    assert_eq!(entries[0].1, ["data", r#"{"order_id":1}"#]);
}

#[tokio::test]
async fn sendmany_sends_a_file_and_names_the_bad_line() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.jsonl");
    let lines: String = (0..2500).map(|n| format!("{{\"order_id\":{n}}}\n")).collect();
    std::fs::write(&file, format!("{lines}\n")).unwrap();
    let path = file.to_str().unwrap();
    let line = ["sendmany", "myapp.orders", path, "--partition-by", "order_id", "--partitions", "4"];
    assert_eq!(squall(&server, &line).await.unwrap(), "sent 2500 records to myapp.orders in 4 partitions\n");
    // Without --partitions, the command uses the stored partition count.
    let line = ["sendmany", "myapp.orders", path, "--partition-by", "order_id"];
    assert!(squall(&server, &line).await.unwrap().ends_with("in 4 partitions\n"));

    std::fs::write(&file, "{\"order_id\":1}\n{\"other\":1}\n").unwrap();
    let error = squall(&server, &line).await.unwrap_err();
    assert_eq!(error.to_string(), "1 record was sent before the error");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "line 2 has no field `order_id`, which --partition-by names");
    std::fs::write(&file, "nonsense\n").unwrap();
    let error = squall(&server, &line).await.unwrap_err().to_string();
    assert!(error.starts_with("line 1 is not a JSON object"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_members_tail_and_reset_print_the_state_of_a_stream() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 2).await, EventLog::default());
    for number in 0..10 {
        let record = format!("{{\"order_id\":{number},\"number\":{number}}}");
        squall(&server, &["send", "shop.orders", &record, "--partition-by", "order_id"]).await.unwrap();
    }
    let out = squall(&server, &["lag", "shop.orders.recorder"]).await.unwrap();
    let expected =
        "shop.orders.recorder is 10 events behind\nno worker has run this processor yet; is the name right?\n";
    assert!(out.ends_with(expected), "{out}");
    let out = squall(&server, &["tail", "shop.orders", "--from-start", "--count", "10"]).await.unwrap();
    assert_eq!(out.lines().count(), 10);
    assert!(out.contains(r#""record":{"order_id":3,"number":3}"#), "{out}");

    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    wait_processed(&log, 10).await;
    let out = squall(&server, &["members", "shop.orders.recorder"]).await.unwrap();
    assert!(out.starts_with("1 worker runs shop.orders.recorder\n") && out.contains("holds [0, 1]"), "{out}");
    let error = squall(&server, &["reset", "shop.orders.recorder"]).await.unwrap_err();
    assert!(error.to_string().contains("has 1 running workers; stop them first"), "{error}");
    worker.stop().await.unwrap();
    let out = squall(&server, &["lag", "shop.orders.recorder"]).await.unwrap();
    assert!(out.ends_with("shop.orders.recorder is 0 events behind\n"), "{out}");
    let out = squall(&server, &["lag", "shop.orders.recorder", "--json"]).await.unwrap();
    assert!(out.contains(r#""pending":0,"waiting":0"#), "{out}");

    let out = squall(&server, &["reset", "shop.orders.recorder"]).await.unwrap();
    assert_eq!(out, "shop.orders.recorder restarts at 0 in 2 partitions\n");
    let again = EventLog::default();
    let worker = RunningWorker::start(&app, recording_processor(&stream, &again).settings(fast_settings()));
    wait_processed(&again, 10).await;
    worker.stop().await.unwrap();
    squall(&server, &["reset", "shop.orders.recorder", "--remove"]).await.unwrap();
    let groups: Vec<redis::Value> = redis::cmd("XINFO")
        .arg("GROUPS")
        .arg("__strm:shop.orders.0")
        .query_async(&mut app.client().connection())
        .await
        .unwrap();
    assert!(groups.is_empty());
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_a_remedy() {
    let server = RedisServer::start();
    let error = squall(&server, &["lag", "shop.orders.recorder"]).await.unwrap_err().to_string();
    assert_eq!(error, "there is no stream `shop.orders` (key `__meta:shop.orders`); is the namespace right?");
    let error = squall(&server, &["lag", "orders"]).await.unwrap_err().to_string();
    assert_eq!(error, "`orders` cannot be a processor: write it as APP.STREAM.PROCESSOR");
    let error = squall(&server, &["send", "shop.orders", "{}"]).await.unwrap_err().to_string();
    assert!(error.contains("partition_by"), "{error}");
    let error = squall(&server, &["send", "shop.orders", "[1]"]).await.unwrap_err().to_string();
    assert!(error.contains("not a JSON object"), "{error}");
}

async fn error_of(server: &RedisServer, line: &[&str]) -> String {
    let error = squall(server, line).await.expect_err(&line.join(" "));
    std::iter::successors(Some(&error as &dyn std::error::Error), |error| (*error).source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Runs `sendmany` with a file of this content and returns the error.
async fn sendmany(server: &RedisServer, content: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.jsonl");
    std::fs::write(&file, content).unwrap();
    error_of(server, &["sendmany", "shop.orders", file.to_str().unwrap(), "--partition-by", "a"]).await
}

#[tokio::test]
async fn sendmany_error_names_line_number_and_reason() {
    let server = RedisServer::start();
    let before = "before the error";
    assert_eq!(sendmany(&server, b"[1]\n").await, "line 1 is not a JSON object: it is a list");
    assert_eq!(
        sendmany(&server, b"{\"a\":1}\n\n{\"a\":2}\nbad\n{\"a\":3}\n").await,
        format!("2 records were sent {before}: line 4 is not a JSON object: expected value at column 1")
    );
    assert_eq!(
        sendmany(&server, b"{\"a\":1}\n\xff\xfe\n").await,
        format!("1 record was sent {before}: line 2 is not a JSON object: expected value at column 1")
    );
    assert_eq!(
        sendmany(&server, b"{\"a\":\"\xff\"}\n").await,
        "line 1 is not a JSON object: invalid unicode code point at column 7"
    );
    let missing = error_of(&server, &["sendmany", "shop.orders", "/nowhere/x.jsonl", "--partition-by", "a"]).await;
    assert!(missing.starts_with("cannot read `/nowhere/x.jsonl`: No such file"), "{missing}");
}

#[tokio::test]
async fn rejected_partition_count_is_not_stored() {
    let server = RedisServer::start();
    let line = ["send", "shop.orders", "{\"a\":1}", "--partition-by", "a", "--partitions", "99999999"];
    let error = error_of(&server, &line).await;
    assert!(error.contains("the limit is 4096"), "{error}");
    squall(&server, &line[..5]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_reset_changes_nothing() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 4).await, EventLog::default());
    crate::support::send(&stream, &crate::support::orders(20)).await;
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    wait_processed(&log, 20).await;
    worker.stop().await.unwrap();
    let name = "shop.orders.recorder";
    let before = squall(&server, &["lag", name, "--json"]).await.unwrap();
    assert!(before.contains("\"waiting\":0"), "{before}");

    for invalid in ["junk", "", "5-", "-5", "+1", "1-1-1", "99999999999999999999"] {
        let error = error_of(&server, &["reset", name, &format!("--start={invalid}")]).await;
        assert!(error.contains("is not a start position: write 0 for the first event"), "{error}");
    }
    let error = error_of(&server, &["reset", "shop.orders.other", "--remove"]).await;
    assert_eq!(error, "stream `shop.orders` has no processor `other`");
    assert_eq!(squall(&server, &["lag", name, "--json"]).await.unwrap(), before);

    let mut commands = app.client().connection();
    let () = redis::cmd("RENAME").arg("__strm:shop.orders.3").arg("kept").query_async(&mut commands).await.unwrap();
    let () = redis::cmd("SET").arg("__strm:shop.orders.3").arg("x").query_async(&mut commands).await.unwrap();
    for line in [vec!["reset", name], vec!["reset", name, "--remove"], vec!["tail", "shop.orders"], vec!["lag", name]] {
        let error = error_of(&server, &line).await;
        assert!(error.starts_with("key `__strm:shop.orders.3` holds a string"), "{line:?}: {error}");
    }
    let () = redis::cmd("RENAME").arg("kept").arg("__strm:shop.orders.3").query_async(&mut commands).await.unwrap();
    assert_eq!(squall(&server, &["lag", name, "--json"]).await.unwrap(), before, "no partition was reset");
}

#[tokio::test]
async fn commands_on_missing_partitions_and_streams_are_rejected() {
    let server = RedisServer::start();
    let app = app(&server).await;
    stream(&app, 4).await;
    let name = "shop.orders.recorder";
    assert_eq!(
        error_of(&server, &["quarantine", name, "--clear", "77"]).await,
        "stream `shop.orders` has no partition 77; it has 0 to 3"
    );
    assert_eq!(
        squall(&server, &["quarantine", name, "--clear", "3"]).await.unwrap(),
        "partition 3 of shop.orders.recorder is not in quarantine\n"
    );
    for command in ["members", "quarantine", "lag", "reset"] {
        let error = error_of(&server, &[command, "shop.nope.p"]).await;
        assert!(error.starts_with("there is no stream `shop.nope`"), "{command}: {error}");
    }
    let mut commands = app.client().connection();
    let () = redis::cmd("LPUSH")
        .arg("__quar:shop.orders.recorder.1")
        .arg("x")
        .query_async::<i64>(&mut commands)
        .await
        .map(drop)
        .unwrap();
    for line in [vec!["quarantine", name], vec!["quarantine", name, "--clear", "1"]] {
        let error = error_of(&server, &line).await;
        assert!(error.starts_with("key `__quar:shop.orders.recorder.1` holds a list"), "{error}");
    }
    let parsed = TestProgram::try_parse_from(["stream", "quarantine", name, "--skip"]).map(drop).unwrap_err();
    assert!(parsed.to_string().contains("--clear <PARTITION>|--clear-all"), "{parsed}");
}

#[tokio::test]
async fn unreachable_server_is_distinguished_from_an_invalid_url() {
    let line = ["stream", "lag", "shop.orders.p", "--redis", "redis://me:secret@127.0.0.1:1"];
    let error = run_to(TestProgram::try_parse_from(line).unwrap().command, &mut Vec::new()).await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    assert!(error.to_string().contains("redis://127.0.0.1:1") && !error.to_string().contains("secret"), "{error}");
    let line = ["stream", "lag", "shop.orders.p", "--redis", "junk"];
    let error = run_to(TestProgram::try_parse_from(line).unwrap().command, &mut Vec::new()).await.unwrap_err();
    assert!(!error.is_unreachable() && error.to_string().contains("write it as redis://"), "{error}");
}

/// An output pipe that its reader has closed, as in `squall stream tail … | head -1`.
struct ClosedPipe;

impl std::io::Write for ClosedPipe {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn closed_output_pipe_ends_tail_without_an_error() {
    let server = RedisServer::start();
    squall(&server, &["send", "shop.orders", "{\"a\":1}", "--partition-by", "a"]).await.unwrap();
    let url = server.url();
    let line = ["stream", "tail", "shop.orders", "--from-start", "--namespace", "", "--redis", &url];
    run_to(TestProgram::try_parse_from(line).unwrap().command, &mut ClosedPipe).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_command_lists_and_clears_partitions() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, EventLog::default());
    let _: String = redis::cmd("XADD")
        .arg("__strm:shop.orders.0")
        .arg("*")
        .arg("data")
        .arg("nonsense")
        .query_async(&mut app.client().connection())
        .await
        .unwrap();
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    worker.wait_end().await.unwrap_err();
    let out = squall(&server, &["quarantine", "shop.orders.recorder"]).await.unwrap();
    assert!(
        out.contains("not a record of this stream")
            && out.ends_with("1 partition of shop.orders.recorder in quarantine\n"),
        "{out}"
    );
    let out = squall(&server, &["quarantine", "shop.orders.recorder", "--clear", "0", "--skip"]).await.unwrap();
    assert_eq!(out, "1 partition of shop.orders.recorder cleared\n");
    crate::support::send(&stream, &crate::support::orders(1)).await;
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    wait_processed(&log, 1).await;
    worker.stop().await.unwrap();
}
