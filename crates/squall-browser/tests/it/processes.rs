//! No process and no folder of a browser outlives it.

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use squall_browser::{Browser, BrowserConfig};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::support::{DEADLINE, PageServer, goto, launch, run};

/// The temporary folder of a browser, from the environment of its shell.
fn folder_of(group: i32) -> PathBuf {
    let arguments = std::fs::read(format!("/proc/{group}/cmdline")).expect("the shell runs");
    let arguments = String::from_utf8(arguments).expect("text");
    let folder = arguments.split('\0').find(|argument| argument.contains("squall-browser-")).expect("a folder");
    PathBuf::from(folder)
}

fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_dropped_browser_leaves_no_process_and_no_folder() {
    run(async {
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        let group = browser.process_group().expect("this process started it");
        let (pid, folder) = (Pid::from_raw(group).expect("a pid"), folder_of(group));
        assert!(folder.is_dir() && test_kill_process_group(pid).is_ok());
        drop((page, browser));
        assert!(test_kill_process_group(pid).is_err(), "the group has ended");
        assert!(!folder.exists(), "{folder:?}");
    });
}

#[test]
fn a_killed_browser_fails_the_step_and_says_so() {
    run(async {
        let server = PageServer::start(&[("/", "<h1>x</h1>")]);
        let browser = launch().await;
        let page = browser.new_page().await.expect("a page");
        kill_process_group(Pid::from_raw(browser.process_group().expect("started")).expect("a pid"), Signal::KILL)
            .expect("it runs");
        let step = page.run_step(0, &goto(server.url("/")), Instant::now() + DEADLINE).await;
        assert_eq!(step.result.expect_err("the browser is gone").to_string(), "the browser ended");
        assert!(browser.has_ended());
        assert!(browser.new_page().await.is_err());
    });
}

/// As when Squall is killed: nothing but the end of the pipe tells the browser.
#[test]
fn a_browser_whose_pipe_closes_ends_and_removes_its_folder() {
    let (group, folder) = run(async {
        let browser = launch().await;
        let group = browser.process_group().expect("this process started it");
        let folder = folder_of(group);
        // The runtime ends with the tasks that hold the pipe; the browser itself is not dropped.
        std::mem::forget(browser);
        (group, folder)
    });
    wait_until("the folder is removed", || !folder.exists());
    // The shell is a zombie of this process until the test ends.
    wait_until("the processes end", || !is_running_in_group(group));
}

fn is_running_in_group(group: i32) -> bool {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let stats = processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats.into_iter().any(|stat| {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(2) == Some(&group.to_string().as_str()) && fields.first() != Some(&"Z")
    })
}

#[test]
fn a_missing_browser_is_named_with_the_remedy() {
    run(async {
        let launch = |executable: &str| {
            let config = BrowserConfig { executable: Some(executable.into()), ..BrowserConfig::default() };
            async move { Browser::launch(&config).await.err().expect("no browser").to_string() }
        };
        assert_eq!(launch("/no/chrome").await, "there is no file /no/chrome, which `executable` in [browser] names");
        let wrong = launch("/bin/false").await;
        assert!(wrong.contains("/bin/false did not become ready (the browser ended)"), "{wrong}");
    });
}
