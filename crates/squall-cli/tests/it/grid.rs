//! `squall grid` as processes, with a real browser and a stock client. squall-grid tests its parts.

use squall_testkit::redis::RedisServer;
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Command, Stdio},
};

use crate::support::{RunningProcess, TestFolder, get};

const KEY: &str = "a-secret-of-the-ci-system";

/// The folder of `scripts/install-playwright`.
pub(crate) fn playwright_folder() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-playwright");
    let output = Command::new(script).stderr(Stdio::inherit()).output().expect("the script runs");
    assert!(output.status.success(), "scripts/install-playwright failed");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
}

/// A stock client.
pub(crate) fn client_script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../squall-grid/tests/it/clients/client.js")
}

/// Opens a page with a stock client, and returns what it printed.
pub(crate) fn page_title(url: &str) -> String {
    let mut command = Command::new("node");
    command.arg(client_script()).arg("job").arg(url).env("NODE_PATH", playwright_folder().join("node_modules"));
    String::from_utf8(command.output().expect("node runs").stdout).expect("text").trim().to_owned()
}

pub(crate) fn address_in(line: &str) -> &str {
    line.split("ws://").nth(1).and_then(|rest| rest.split('/').next()).expect(line)
}

#[test]
fn grid_up_serves_a_stock_client_until_a_stop_signal() {
    let folder = TestFolder::new();
    let playwright = playwright_folder().join("node_modules/playwright-core");
    let arguments = ["grid", "up", "--listen", "127.0.0.1:0", "--workers", "2", "--slots", "1", "--playwright"];
    let mut running = folder.start(&[&arguments[..], &[playwright.to_str().expect("text")]].concat());
    let mut lines = BufReader::new(running.stdout()).lines().map(|line| line.expect("text"));
    let address = address_in(&lines.next().expect("it says where it listens")).to_owned();
    // The client that it prints is a program.
    let client: Vec<String> = lines.skip_while(|line| !line.starts_with("import")).take(3).collect();
    let clients = TestFolder::new();
    std::os::unix::fs::symlink(playwright_folder().join("node_modules"), clients.path("node_modules")).expect("a link");
    clients.write("client.mjs", &client.join("\n"));
    let output = Command::new("node").arg(clients.path("client.mjs")).output().expect("node runs");
    let version = String::from_utf8_lossy(&output.stdout);
    assert!(version.split('.').count() == 4, "{client:?}: {output:?}");
    assert_eq!(page_title(&format!("ws://{address}/?browser=chromium")), "squall");
    let capacity = get(address.parse().expect("an address"), "/v1/capacity", "*/*");
    assert!(capacity.contains("\"max_slots\":2"), "{capacity}");
    let status = folder.squall(&["grid", "status", "--server", &format!("http://{address}")]);
    assert!(status.stdout.contains("chromium:worker-2") && status.stdout.contains("1 server, "), "{status:?}");
    // The address of Redis is often that of the environment.
    let mut status = folder.command(&["grid", "status", "--server", &format!("http://{address}")]);
    let status = status.env("SQUALL_REDIS", "redis://127.0.0.1:1").output().expect("it runs");
    assert!(String::from_utf8_lossy(&status.stdout).contains("chromium:worker-2"), "{status:?}");
    running.terminate();
    let ended = running.end();
    assert_eq!(ended.code, 0);
    assert!(ended.stderr.contains("draining: open sessions may last for 20s"), "{}", ended.stderr);
    let left: Vec<_> = std::fs::read_dir(folder.path("")).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "temporary folders are removed: {left:?}");
}

#[test]
fn server_and_worker_share_a_grid_on_redis() {
    let (folder, redis) = (TestFolder::new(), RedisServer::start());
    let (url, playwright) = (redis.url(), playwright_folder().join("node_modules/playwright-core"));
    folder.write("ci.key", KEY);
    let mut server =
        folder.start(&["grid", "serve", "--redis", &url, "--listen", "127.0.0.1:0", "--key", "ci=@ci.key"]);
    let mut first = String::new();
    BufReader::new(server.stdout()).read_line(&mut first).expect("it says where it listens");
    let worker = folder.start(&[
        "grid",
        "worker",
        "--redis",
        &url,
        "--id",
        "w1",
        "--playwright",
        playwright.to_str().expect("text"),
    ]);
    // The client waits in the queue until the worker is there.
    let client_url = format!("ws://{}/?browser=chromium&token={KEY}", address_in(&first));
    assert_eq!(page_title(&client_url), "squall");
    // What the client's call log names is in the server's log.
    let refused = page_title(&format!("ws://{}/?browser=opera&token={KEY}", address_in(&first)));
    let request = refused.split("squall request ").nth(1).expect(&refused)[..32].to_owned();
    let status = folder.squall(&["grid", "status", "--redis", &url]);
    assert!(status.stdout.contains("chromium:w1") && status.stdout.contains("1 server, "), "{status:?}");
    let mut watching = folder.start(&["grid", "status", "--redis", &url, "--watch"]);
    let mut shown = BufReader::new(watching.stdout()).lines().map(|line| line.expect("text"));
    for _ in 0..2 {
        assert!(shown.any(|line| line.starts_with("1 server, ")), "it shows the grid again");
    }
    watching.interrupt();
    assert_eq!(watching.end().code, 0);
    worker.terminate();
    assert_eq!(worker.end().code, 0);
    server.terminate();
    let ended = server.end();
    assert_eq!(ended.code, 0);
    assert!(!ended.stderr.contains(KEY), "keys are not logged: {}", ended.stderr);
    assert!(ended.stderr.contains(&format!("refused request {request}: unknown browser")), "{}", ended.stderr);
}

/// Sends a line to a client, and returns its answer.
fn ask(client: &mut (ChildStdin, BufReader<ChildStdout>), line: &str) -> String {
    writeln!(client.0, "{line}").expect("the client reads");
    let mut answer = String::new();
    client.1.read_line(&mut answer).expect("text");
    answer.trim().to_owned()
}

#[test]
fn page_reads_files_of_its_own_browser_only() {
    let folder = TestFolder::new();
    let playwright = playwright_folder().join("node_modules/playwright-core");
    let keys = ["blue", "red"].map(|name| format!("{name}={name}-has-a-secret"));
    let arguments = ["grid", "up", "--listen", "127.0.0.1:0", "--key", &keys[0], "--key", &keys[1], "--playwright"];
    let mut running = folder.start(&[&arguments[..], &[playwright.to_str().expect("text")]].concat());
    let mut first = String::new();
    BufReader::new(running.stdout()).read_line(&mut first).expect("it says where it listens");
    let address = address_in(&first).to_owned();
    let mut clients = ["blue", "red"].map(|name| {
        let url = format!("ws://{address}/?token={name}-has-a-secret");
        let mut command = Command::new("node");
        command.arg(client_script()).args(["read", &url]).env("NODE_PATH", playwright_folder().join("node_modules"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node runs");
        let mut pipes = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")));
        let mut line = String::new();
        pipes.1.read_line(&mut line).expect("text");
        assert_eq!(line, "connected\n");
        (child, pipes)
    });
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).expect("a folder").flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir()).collect()
    };
    let worker = folders(&folder.path("")).remove(0);
    let browsers = folders(&worker.join("p0"));
    assert!(browsers.len() >= 2, "{browsers:?}");
    for browser in &browsers {
        std::fs::write(browser.join("download.txt"), "secret").expect("a file");
    }
    for (_, pipes) in &mut clients {
        let mut read = |path: &Path| ask(pipes, &format!("file://{}", path.display()));
        let answers: Vec<String> = browsers.iter().map(|browser| read(&browser.join("download.txt"))).collect();
        let denied = answers.iter().filter(|answer| answer.contains("ERR_ACCESS_DENIED")).count();
        assert_eq!(answers.iter().filter(|answer| *answer == "secret").count(), 1, "its own: {answers:?}");
        assert_eq!(denied, browsers.len() - 1, "{answers:?}");
        assert!(read(Path::new("/etc/passwd")).starts_with("root:"));
        assert!(read(Path::new("/etc/shadow")).contains("ERR_ACCESS_DENIED"));
        let script = env!("CARGO_MANIFEST_DIR");
        assert!(read(&Path::new(script).join("Cargo.toml")).contains("ERR_ACCESS_DENIED"));
    }
    for (mut child, pipes) in clients {
        drop(pipes);
        child.wait().expect("the client ends");
    }
    running.terminate();
    let ended = running.end();
    assert!(ended.code == 0 && !ended.stderr.contains("file://"), "{ended:?}");
}

#[test]
fn keys_are_created_listed_and_revoked_and_only_their_hash_is_stored() {
    let (folder, redis) = (TestFolder::new(), RedisServer::start());
    let url = redis.url();
    let key = |arguments: &[&str]| folder.squall(&[&["grid", "key"], arguments, &["--redis", &url]].concat());
    assert!(key(&["list"]).stdout.contains("there is no key: `squall grid key create NAME` makes one"));
    let created = key(&["create", "ci", "--sessions", "2"]);
    let secret = created.stdout.trim().to_owned();
    assert!(created.code == 0 && secret.starts_with("sqg_") && secret.len() == 68, "{created:?}");
    let again = key(&["create", "ci"]);
    assert!(again.code == 2 && again.stderr.contains("there is a key ci already"), "{again:?}");
    let listed = key(&["list"]);
    assert!(listed.stdout.contains("client") && !listed.stdout.contains(&secret), "{listed:?}");
    // A stored key is as good as --key for an address that other machines reach.
    let mut server = folder.start(&["grid", "serve", "--redis", &url, "--listen", "0.0.0.0:0"]);
    let mut first = String::new();
    BufReader::new(server.stdout()).read_line(&mut first).expect("it says where it listens");
    let address = format!("127.0.0.1:{}", address_in(&first).rsplit(':').next().expect("a port"));
    let status = |token: &str| get(address.parse().expect("an address"), &format!("/v1/capacity?token={token}"), "*/*");
    assert!(status(&secret).contains("\"queued\":0"), "{}", status(&secret));
    assert!(status("wrong").contains("unknown or revoked"), "{}", status("wrong"));
    let table =
        |key: &[&str]| folder.squall(&[&["grid", "status", "--server", &format!("http://{address}")], key].concat());
    assert!(table(&["--server-key", &secret]).stdout.contains("1 server, "), "{:?}", table(&["--server-key", &secret]));
    for key in [&[][..], &["--server-key", "wrong"]] {
        assert!(table(key).stderr.contains("give --server-key @FILE"), "{:?}", table(key));
    }
    assert_eq!(key(&["revoke", "ci"]).code, 0);
    assert_eq!(key(&["revoke", "ci"]).code, 2);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !status(&secret).contains("unknown or revoked") {
        assert!(std::time::Instant::now() < deadline, "a revoked key is refused");
    }
    server.terminate();
    let ended = server.end();
    assert!(!ended.stderr.contains(&secret), "keys are not logged: {}", ended.stderr);
}

#[test]
fn server_without_redis_takes_workers_over_http() {
    let folder = TestFolder::new();
    let playwright = playwright_folder().join("node_modules/playwright-core");
    folder.write("host.key", "a-secret-of-the-host");
    folder.write("ci.key", KEY);
    let keys = ["--key", "ci=@ci.key", "--worker-key", "host=@host.key"];
    let mut server = folder.start(&[&["grid", "serve", "--listen", "127.0.0.1:0"], &keys[..]].concat());
    let mut first = String::new();
    BufReader::new(server.stdout()).read_line(&mut first).expect("it says where it listens");
    let url = format!("http://{}", address_in(&first));
    let join = ["--server", &url, "--server-key", "@host.key", "--playwright", playwright.to_str().expect("text")];
    let worker = folder.start(&[&["grid", "worker"], &join[..]].concat());
    assert_eq!(page_title(&format!("ws://{}/?token={KEY}", address_in(&first))), "squall");
    for process in [worker, server] {
        process.terminate();
        assert_eq!(process.end().code, 0);
    }
}

#[test]
fn worker_says_why_its_offer_failed_and_outlives_the_reader_of_its_log() {
    let (folder, playwright) = (TestFolder::new(), playwright_folder().join("node_modules/playwright-core"));
    let join = ["--server", "http://127.0.0.1:1", "--playwright", playwright.to_str().expect("text")];
    let mut command = folder.command(&[&["grid", "worker"], &join[..]].concat());
    let mut worker = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut log = BufReader::new(worker.stderr.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    assert!(log.any(|line| line.contains("the server cannot be reached: Connection refused")));
    drop(log);
    // It writes to the closed log that it could not leave.
    let worker = RunningProcess::from_child(worker);
    worker.terminate();
    assert_eq!(worker.code(), 0);
}

#[test]
fn missing_parts_and_open_servers_are_refused_with_a_remedy() {
    let folder = TestFolder::new();
    let check = |arguments: &[&str], remedy: &str| {
        let ended = folder.squall(&[&["grid"], arguments].concat());
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains(remedy), "{ended:?}");
    };
    check(&["up", "--listen", "127.0.0.1:0"], "npm install playwright-core");
    std::fs::create_dir(folder.path("empty")).expect("a folder");
    check(&["up", "--listen", "127.0.0.1:0", "--playwright", "empty"], "cannot load Playwright from empty");
    let playwright = playwright_folder().join("node_modules/playwright-core");
    let up = ["up", "--listen", "127.0.0.1:0", "--playwright", playwright.to_str().expect("text")];
    check(&[&up[..], &["--executable", "/nowhere"]].concat(), "--executable names the browser's program");
    check(&[&up[..], &["--node", "/nowhere"]].concat(), "install Node.js");
    check(&[&up[..], &["--key", "short=x"]].concat(), "less than 16 characters");
    let same = ["--key", "ci=0123456789abcdef", "--admin-key", "ops=0123456789abcdef"];
    check(&[&up[..], &same].concat(), "--admin-key ops: another key has the same secret");
    check(&[&up[..], &["--max-age", "0s"]].concat(), "give at least 1s");
    check(&[&up[..], &["--browser", "firefox", "--executable", "/nowhere"]].concat(), "npx playwright install firefox");
    for address in ["nonsense", "a b:1", "host:0", "host:99999", ":1", "user@host:1"] {
        check(&["worker", "--redis", "redis://127.0.0.1:1", "--advertise", address], "write HOST:PORT");
    }
    for listen in ["0.0.0.0:3131", "[::]:3131"] {
        check(&["worker", "--redis", "redis://127.0.0.1:1", "--listen", listen], "add --advertise HOST:3131");
    }
    check(&["status", "--server", "nonsense"], "--server: `nonsense` is not a URL: write http://HOST:PORT");
    check(&["serve", "--listen", "0.0.0.0:0"], "give --key NAME=@FILE");
    check(&[&["worker"], &up[3..]].concat(), "give --redis URL of the grid, or --server");
}

#[test]
fn browser_user_of_a_run_needs_one_slot_whatever_the_number_of_threads() {
    let (folder, grid) = (TestFolder::new(), TestFolder::new());
    let playwright = playwright_folder().join("node_modules/playwright-core");
    let arguments = ["grid", "up", "--listen", "127.0.0.1:0", "--slots", "1", "--playwright"];
    let mut running = grid.start(&[&arguments[..], &[playwright.to_str().expect("text")]].concat());
    let mut first = String::new();
    BufReader::new(running.stdout()).read_line(&mut first).expect("it says where it listens");
    let address = address_in(&first).to_owned();
    folder.write(
        "page.toml",
        &format!(
            "target = \"http://{address}\"\n[browser]\ngrid = \"ws://{address}\"\n[[task]]\nname = \"page\"\n\
             kind = \"browser\"\ngoto = \"/healthz\"\n"
        ),
    );
    let ended = folder.squall(&["run", "page.toml", "--users", "1", "--requests", "2", "--threads", "4"]);
    assert!(ended.code == 0 && ended.stdout.contains("sent = recorded = reported 2"), "{ended:?}");
    running.terminate();
    assert_eq!(running.end().code, 0);
}

/// Runs a client to its end, and returns what it printed.
fn client(script: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("node");
    command.arg(client_script().with_file_name(script)).args(arguments);
    command.env("NODE_PATH", playwright_folder().join("node_modules"));
    String::from_utf8(command.output().expect("node runs").stdout).expect("text").trim().to_owned()
}

#[test]
fn confined_browsers_move_the_files_of_their_clients_and_read_no_others() {
    for program in ["chromium-headless-shell", "chromium"] {
        let folder = TestFolder::new();
        let executable = format!("/usr/lib/chromium/{program}");
        let playwright = playwright_folder().join("node_modules/playwright-core");
        let up = ["grid", "up", "--listen", "127.0.0.1:0", "--executable", &executable, "--playwright"];
        let mut running = folder.start(&[&up[..], &[playwright.to_str().expect("text")]].concat());
        let mut first = String::new();
        BufReader::new(running.stdout()).read_line(&mut first).expect("it says where it listens");
        let address = address_in(&first).to_owned();
        assert_eq!(
            client("client.js", &["files", &format!("ws://{address}/")]),
            "uploaded downloaded %PDF",
            "{program}"
        );
        folder.write("secret", "of the machine");
        let written = folder.path("written");
        let saved = client("client.js", &["save", &format!("ws://{address}/"), written.to_str().expect("text")]);
        assert!(saved.contains("EACCES") && !written.exists(), "{program}: {saved}");
        let read = |library: &str, path: &Path| {
            let (url, file) = (format!("ws://{address}/devtools/browser"), format!("file://{}", path.display()));
            client("cdp.js", &[library, "read", &url, &file])
        };
        for library in ["puppeteer", "playwright"] {
            let passwd = read(library, Path::new("/etc/passwd"));
            assert!(passwd.starts_with("root:"), "{program} {library}: {passwd}");
            let denied = read(library, &folder.path("secret"));
            assert!(denied.contains("ERR_ACCESS_DENIED"), "{program} {library}: {denied}");
        }
        running.terminate();
        let ended = running.end();
        assert!(ended.code == 0 && !ended.stderr.contains("file://"), "{ended:?}");
    }
}
