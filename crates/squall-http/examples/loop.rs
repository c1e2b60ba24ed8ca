//! A closed loop on one thread, to compare the client's own cost with other tools: `loop URL [USERS] [SECONDS]`.
//! Every latency goes into an HDR histogram, as in a real run. It paces nothing and checks nothing.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use squall_http::{BodyMode, Connector, HttpConfig, HttpRequest, PreparedRequest, Session};

thread_local! {
    static LATENCY: RefCell<Histogram<u64>> =
        RefCell::new(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds"));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("usage: loop URL [USERS] [SECONDS]")?;
    let users: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let connector = Connector::new(HttpConfig {
        decompress: false,
        tls: squall_http::TlsOptions { insecure: true, ..Default::default() },
        ..HttpConfig::default()
    })?;
    let request = PreparedRequest::new(&HttpRequest::get(&url)?, &connector)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let local = tokio::task::LocalSet::new();
    let errors = local.block_on(&runtime, async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..users {
            tasks.spawn_local(user(Session::new(&connector), request.clone(), end));
        }
        tasks.join_all().await.into_iter().sum::<u64>()
    });
    let cpu = cpu_seconds()?;
    LATENCY.with_borrow(|latency| {
        let requests = latency.len();
        println!(
            "{requests} requests, {errors} errors, {:.0}/s, {:.3} CPU us/request, p50 {} us, p99 {} us",
            requests as f64 / seconds as f64,
            cpu * 1e6 / requests as f64,
            latency.value_at_quantile(0.5) / 1000,
            latency.value_at_quantile(0.99) / 1000,
        );
    });
    Ok(())
}

async fn user(mut session: Session, request: PreparedRequest, end: Instant) -> u64 {
    let mut errors = 0;
    loop {
        let exchange = session.send(&request, BodyMode::Discard).await;
        if let Err(error) = &exchange.result {
            errors += 1;
            if errors == 1 {
                eprintln!("{}: {error}", error.code());
            }
        }
        let nanos = (exchange.ended - exchange.started).as_nanos() as u64;
        LATENCY.with_borrow_mut(|latency| latency.saturating_record(nanos));
        if exchange.ended >= end {
            return errors;
        }
    }
}

/// User and system time of this process, from the kernel's clock ticks.
fn cpu_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / 100.0)
}
