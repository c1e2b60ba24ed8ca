//! What an idle user costs: `idle URL [USERS]` opens that many keep-alive connections and prints the growth of RSS.
//! Sockets live in the kernel and are not part of it.

use squall_http::{BodyMode, Connector, HttpConfig, HttpRequest, PreparedRequest, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: idle URL [USERS]")?;
    let users: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let connector = Connector::new(HttpConfig::default())?;
    let request = PreparedRequest::new(&HttpRequest::get(&url)?, &connector)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let before = rss_bytes()?;
        let mut tasks = tokio::task::JoinSet::new();
        let (ready, mut seen) = tokio::sync::mpsc::channel(users);
        let hold = std::sync::Arc::new(tokio::sync::Notify::new());
        for _ in 0..users {
            let (ready, hold) = (ready.clone(), hold.clone());
            let (mut session, request) = (Session::new(&connector), request.clone());
            tasks.spawn_local(async move {
                let released = hold.notified();
                let failed = session.send(&request, BodyMode::Keep).await.result.err();
                let _ = ready.send(failed).await;
                released.await;
            });
        }
        let mut failures = 0;
        for _ in 0..users {
            failures += usize::from(seen.recv().await.flatten().is_some());
        }
        let grown = rss_bytes()?.saturating_sub(before);
        println!("{users} idle users, {failures} failures, {} bytes of RSS each", grown / users as u64);
        hold.notify_waiters();
        tasks.join_all().await;
        Ok(())
    })
}

fn rss_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split_whitespace().nth(1).ok_or("statm has two fields")?.parse()?;
    Ok(pages * 4096)
}
