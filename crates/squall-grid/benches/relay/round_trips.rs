//! Round trips of 400 bytes over 50 connections at a fixed rate: straight to an echo server, through
//! tokio's `copy_bidirectional`, and through the relay. It counts no CPU except that of the copying
//! thread.

use std::{
    io::Write,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
};

use super::{
    copying::{Kind, copy},
    median, socket_pair, thread_cpu,
};

const CONNECTIONS: usize = 50;
const PAYLOAD: usize = 400;
/// A header with a length of 16 bits, without and with a mask.
const HEADER: usize = 4;
const MASKED_HEADER: usize = 8;
const ROUND: Duration = Duration::from_secs(2);
/// Answers that take longer are lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
enum Way {
    Straight,
    Through(Kind),
}

/// One round.
struct Trips {
    /// Milliseconds.
    p50: f64,
    p99: f64,
    /// Microseconds of the copying thread per trip.
    cpu: f64,
}

/// A frame whose payload begins with the time of sending, in nanoseconds.
fn frame(masked: bool, sent: u64) -> Vec<u8> {
    let mut frame = vec![0x82, if masked { 0x80 | 126 } else { 126 }];
    frame.extend((PAYLOAD as u16).to_be_bytes());
    frame.extend(masked.then_some([0; 4]).into_iter().flatten());
    frame.extend(sent.to_be_bytes());
    frame.resize(if masked { MASKED_HEADER } else { HEADER } + PAYLOAD, 0);
    frame
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn to_tokio(stream: TcpStream) -> tokio::net::TcpStream {
    stream.set_nonblocking(true).expect("a socket");
    tokio::net::TcpStream::from_std(stream).expect("a runtime")
}

/// Answers each frame of a client with one of a server, until all connections end.
fn echo(streams: Vec<TcpStream>) {
    runtime().block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for stream in streams {
            running.spawn(async move {
                let (mut stream, mut received) = (to_tokio(stream), [0; MASKED_HEADER + PAYLOAD]);
                while stream.read_exact(&mut received).await.is_ok() {
                    let sent: [u8; 8] = received[MASKED_HEADER..][..8].try_into().expect("8 bytes");
                    if stream.write_all(&frame(false, u64::from_be_bytes(sent))).await.is_err() {
                        break;
                    }
                }
            });
        }
        while running.join_next().await.is_some() {}
    });
}

/// Reads the answers, until all connections end, and returns how long the trips took in milliseconds.
fn receive(streams: Vec<TcpStream>, begun: Instant, answered: &Arc<AtomicU64>) -> Vec<f64> {
    runtime().block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for stream in streams {
            let answered = answered.clone();
            running.spawn(async move {
                let (mut stream, mut received, mut trips) = (to_tokio(stream), [0; HEADER + PAYLOAD], Vec::new());
                while stream.read_exact(&mut received).await.is_ok() {
                    let sent: [u8; 8] = received[HEADER..][..8].try_into().expect("8 bytes");
                    trips.push((begun.elapsed().as_nanos() as u64 - u64::from_be_bytes(sent)) as f64 / 1e6);
                    answered.fetch_add(1, Relaxed);
                }
                trips
            });
        }
        let mut trips = Vec::new();
        while let Some(Ok(of_one)) = running.join_next().await {
            trips.extend(of_one);
        }
        trips
    })
}

/// Sends at the rate for one round, over one connection after the other, and waits for the answers. Returns
/// the number of frames.
fn send(mut streams: Vec<TcpStream>, begun: Instant, per_second: u64, answered: &AtomicU64) -> u64 {
    let frames = per_second * ROUND.as_secs();
    for number in 0..frames {
        let due = Duration::from_nanos(number * 1_000_000_000 / per_second);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let sent = begun.elapsed().as_nanos() as u64;
        streams[number as usize % CONNECTIONS].write_all(&frame(true, sent)).expect("the peer reads");
    }
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    while answered.load(Relaxed) < frames && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    for stream in &streams {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    frames
}

/// Copies between pairs of connections on a thread of its own, which returns its CPU in nanoseconds.
fn start_copying(kind: Kind, pairs: Vec<(TcpStream, TcpStream)>) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        runtime().block_on(async {
            let (mut running, mut stops) = (tokio::task::JoinSet::new(), Vec::new());
            for (client, worker) in pairs {
                let (stop, stopped) = oneshot::channel();
                stops.push(stop);
                running.spawn(copy(kind, client, worker, stopped));
            }
            while running.join_next().await.is_some() {}
        });
        thread_cpu()
    })
}

fn measure(way: Way, per_second: u64) -> Trips {
    let (mut clients, mut servers, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let (client, accepted) = socket_pair();
        clients.push(client);
        match way {
            Way::Straight => servers.push(accepted),
            Way::Through(_) => {
                let (dialled, server) = socket_pair();
                pairs.push((accepted, dialled));
                servers.push(server);
            }
        }
    }
    for stream in clients.iter().chain(&servers).chain(pairs.iter().flat_map(|(client, worker)| [client, worker])) {
        stream.set_nodelay(true).expect("a socket");
    }
    let begun = Instant::now();
    let echoing = thread::spawn(move || echo(servers));
    let copying = match way {
        Way::Straight => None,
        Way::Through(kind) => Some(start_copying(kind, pairs)),
    };
    let readers = clients.iter().map(|stream| stream.try_clone().expect("a clone")).collect();
    let answered = Arc::new(AtomicU64::new(0));
    let counted = answered.clone();
    let receiving = thread::spawn(move || receive(readers, begun, &counted));
    let frames = send(clients, begun, per_second, &answered);
    let mut trips = receiving.join().expect("it ends");
    let cpu = copying.map_or(0, |copying| copying.join().expect("it ends"));
    echoing.join().expect("it ends");
    assert_eq!(trips.len() as u64, frames, "frames were lost");
    trips.sort_by(f64::total_cmp);
    Trips { p50: trips[trips.len() / 2], p99: trips[trips.len() * 99 / 100], cpu: cpu as f64 / 1e3 / frames as f64 }
}

/// Prints the medians of the rounds, and the ratios to the raw copy of the same round.
pub(super) fn compare(rounds: usize) {
    for per_second in [250, 2400] {
        let ways = [Way::Straight, Way::Through(Kind::CopyBidirectional), Way::Through(Kind::Relay)];
        let measured: Vec<[Trips; 3]> = (0..rounds).map(|_| ways.map(|way| measure(way, per_second))).collect();
        let of = |figure: fn(&[Trips; 3]) -> f64| median(measured.iter().map(figure).collect());
        println!();
        println!("{PAYLOAD} B at {per_second}/s over {CONNECTIONS} connections, medians of {rounds} rounds");
        println!("{:>20} {:>9} {:>9} {:>14}", "", "p50, ms", "p99, ms", "CPU, µs/trip");
        println!("{:>20} {:>9.3} {:>9.3}", "straight", of(|round| round[0].p50), of(|round| round[0].p99));
        let raw = (of(|round| round[1].p50), of(|round| round[1].p99), of(|round| round[1].cpu));
        println!("{:>20} {:>9.3} {:>9.3} {:>14.1}", "copy_bidirectional", raw.0, raw.1, raw.2);
        let relay = (of(|round| round[2].p50), of(|round| round[2].p99), of(|round| round[2].cpu));
        println!("{:>20} {:>9.3} {:>9.3} {:>14.1}", "relay", relay.0, relay.1, relay.2);
        println!(
            "relay: p50 {:+.3} ms to straight; p50 {:.2} × and p99 {:.2} × of copy_bidirectional in the same round",
            of(|round| round[2].p50 - round[0].p50),
            of(|round| round[2].p50 / round[1].p50),
            of(|round| round[2].p99 / round[1].p99)
        );
    }
}
