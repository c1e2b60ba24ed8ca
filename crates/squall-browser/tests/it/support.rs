//! A server of fixed pages, and a browser.

use squall_browser::{Browser, BrowserAction, BrowserConfig, BrowserStep, Expectation, Page, StepError};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Far longer than anything takes here.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `test` as an engine thread would.
pub(crate) fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(tokio::task::LocalSet::new().run_until(test))
}

pub(crate) async fn launch() -> Browser {
    Browser::launch(&BrowserConfig::default()).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Serves the same pages on every connection, and keeps the paths that it was asked for.
pub(crate) struct PageServer {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl PageServer {
    /// `pages` are paths and bodies. A body that begins with `!` is the status and its body; `!hang` never
    /// answers, and `!attach` is a download.
    pub(crate) fn start(pages: &'static [(&'static str, &'static str)]) -> PageServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (addr, asked) = (listener.local_addr().expect("bound"), Arc::new(Mutex::new(Vec::new())));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = log.clone();
                std::thread::spawn(move || drop(serve(stream, pages, &log)));
            }
        });
        PageServer { addr, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

fn serve(stream: TcpStream, pages: &[(&str, &str)], log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
        let bare = path.split('?').next().unwrap_or("/");
        let body = pages.iter().find(|(known, _)| *known == bare).map_or("!404 nothing here", |(_, body)| body);
        log.lock().expect("no panic").push(path.clone());
        let (status, body) = match body.strip_prefix('!').and_then(|body| body.split_once(' ')) {
            Some((status, body)) => (status, body),
            None => ("200", body),
        };
        if status == "hang" {
            // Keeps the connection open for as long as the browser does.
            return std::io::copy(&mut reader, &mut std::io::sink()).map(drop);
        }
        let (status, attached) = match status {
            "attach" => ("200", "Content-Disposition: attachment; filename=file.txt\r\n"),
            status => (status, ""),
        };
        let kind = if bare.ends_with(".js") { "text/javascript" } else { "text/html; charset=utf-8" };
        let location = if status == "302" { format!("Location: {body}\r\n") } else { String::new() };
        write!(
            reader.get_mut(),
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{location}{attached}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

pub(crate) fn goto(url: String) -> BrowserStep {
    BrowserStep { action: Some(BrowserAction::Goto { url }), ..BrowserStep::default() }
}

pub(crate) fn click(selector: &str) -> BrowserStep {
    let action = Some(BrowserAction::Click { selector: selector.to_owned() });
    BrowserStep { action, ..BrowserStep::default() }
}

pub(crate) fn fill(selector: &str, value: &str) -> BrowserStep {
    let action = Some(BrowserAction::Fill { selector: selector.to_owned(), value: value.to_owned() });
    BrowserStep { action, ..BrowserStep::default() }
}

pub(crate) fn expect_text(text: &str) -> BrowserStep {
    let expect = Expectation { text: Some(text.to_owned()), ..Expectation::default() };
    BrowserStep { action: None, expect }
}

/// Runs the steps in order, up to the first that fails.
pub(crate) async fn run_steps(page: &Page, steps: &[BrowserStep]) -> Result<(), StepError> {
    for (index, step) in steps.iter().enumerate() {
        page.run_step(index, step, Instant::now() + DEADLINE).await.result?;
    }
    Ok(())
}

/// Runs one step that fails after a short while.
pub(crate) async fn failure(page: &Page, step: &BrowserStep) -> StepError {
    let deadline = Instant::now() + Duration::from_secs(2);
    page.run_step(9, step, deadline).await.result.expect_err("the step fails")
}
