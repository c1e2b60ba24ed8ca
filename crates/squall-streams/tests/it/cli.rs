//! The subcommands, from arguments to printed text.

use clap::Parser;
use squall_streams::cli::{CliError, StreamCommand, run_to};
use squall_testkit::redis::RedisServer;

use crate::{
    checker::Log,
    support::{Running, app, processed, quick, recorder, stream},
};

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: StreamCommand,
}

/// Runs a command line against the server, with the plain key names.
async fn squall(server: &RedisServer, line: &[&str]) -> Result<String, CliError> {
    let url = server.url();
    let server = ["--namespace", "", "--redis", &url];
    let arguments = ["stream"].iter().chain(line).chain(&server).copied();
    let program = Program::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    run_to(program.command, &mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn send_puts_the_record_where_the_original_would() {
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
        .query_async(&mut app.link().commands())
        .await
        .unwrap();
    assert_eq!(entries[0].1, ["data", r#"{"order_id":1}"#]);
}

#[tokio::test]
async fn sendmany_reads_lines_and_names_the_bad_one() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.jsonl");
    let lines: String = (0..2500).map(|n| format!("{{\"order_id\":{n}}}\n")).collect();
    std::fs::write(&file, format!("{lines}\n")).unwrap();
    let path = file.to_str().unwrap();
    let line = ["sendmany", "myapp.orders", path, "--partition-by", "order_id", "--partitions", "4"];
    assert_eq!(squall(&server, &line).await.unwrap(), "sent 2500 records to myapp.orders in 4 partitions\n");
    // The stored partition count is used when none is given.
    let line = ["sendmany", "myapp.orders", path, "--partition-by", "order_id"];
    assert!(squall(&server, &line).await.unwrap().ends_with("in 4 partitions\n"));

    std::fs::write(&file, "{\"order_id\":1}\n{\"other\":1}\n").unwrap();
    let error = squall(&server, &line).await.unwrap_err();
    assert_eq!(error.to_string(), "1 records were sent before this went wrong");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "line 2 has no field `order_id`, which --partition-by names");
    std::fs::write(&file, "nonsense\n").unwrap();
    let error = squall(&server, &line).await.unwrap_err().to_string();
    assert!(error.starts_with("line 1 is not a JSON object"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_members_tail_and_reset_tell_what_is_there() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 2).await, Log::default());
    for number in 0..10 {
        let record = format!("{{\"order_id\":{number},\"number\":{number}}}");
        squall(&server, &["send", "shop.orders", &record, "--partition-by", "order_id"]).await.unwrap();
    }
    let out = squall(&server, &["lag", "shop.orders.recorder"]).await.unwrap();
    assert!(out.ends_with("shop.orders.recorder is 10 events behind\n"), "{out}");
    let out = squall(&server, &["tail", "shop.orders", "--from-start", "--count", "10"]).await.unwrap();
    assert_eq!(out.lines().count(), 10);
    assert!(out.contains(r#""record":{"order_id":3,"number":3}"#), "{out}");

    let worker = Running::start(&app, recorder(&stream, &log).settings(quick()));
    processed(&log, 10).await;
    let out = squall(&server, &["members", "shop.orders.recorder"]).await.unwrap();
    assert!(out.starts_with("1 workers run shop.orders.recorder\n") && out.contains("holds [0, 1]"), "{out}");
    let error = squall(&server, &["reset", "shop.orders.recorder"]).await.unwrap_err();
    assert!(error.to_string().contains("has 1 running workers; stop them first"), "{error}");
    worker.stop().await.unwrap();
    let out = squall(&server, &["lag", "shop.orders.recorder", "--json"]).await.unwrap();
    assert!(out.contains(r#""pending":0,"waiting":0"#), "{out}");

    let out = squall(&server, &["reset", "shop.orders.recorder"]).await.unwrap();
    assert_eq!(out, "shop.orders.recorder begins again at 0 in 2 partitions\n");
    let again = Log::default();
    let worker = Running::start(&app, recorder(&stream, &again).settings(quick()));
    processed(&again, 10).await;
    worker.stop().await.unwrap();
    squall(&server, &["reset", "shop.orders.recorder", "--remove"]).await.unwrap();
    let groups: Vec<redis::Value> = redis::cmd("XINFO")
        .arg("GROUPS")
        .arg("__strm:shop.orders.0")
        .query_async(&mut app.link().commands())
        .await
        .unwrap();
    assert!(groups.is_empty());
}

#[tokio::test]
async fn mistakes_are_answered_with_what_to_do() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_lists_and_clears() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, Log::default());
    let _: String = redis::cmd("XADD")
        .arg("__strm:shop.orders.0")
        .arg("*")
        .arg("data")
        .arg("nonsense")
        .query_async(&mut app.link().commands())
        .await
        .unwrap();
    let worker = Running::start(&app, recorder(&stream, &log).settings(quick()));
    worker.ended().await.unwrap_err();
    let out = squall(&server, &["quarantine", "shop.orders.recorder"]).await.unwrap();
    assert!(
        out.contains("not a record of this stream")
            && out.ends_with("1 partitions of shop.orders.recorder stand still\n"),
        "{out}"
    );
    let out = squall(&server, &["quarantine", "shop.orders.recorder", "--clear", "0", "--skip"]).await.unwrap();
    assert_eq!(out, "1 partitions of shop.orders.recorder go on\n");
    crate::support::send(&stream, &crate::support::orders(1)).await;
    let worker = Running::start(&app, recorder(&stream, &log).settings(quick()));
    processed(&log, 1).await;
    worker.stop().await.unwrap();
}
