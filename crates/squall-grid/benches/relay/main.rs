//! The CPU of the relay: bytes per second of one core, both directions counted, beside tokio's
//! `copy_bidirectional` in the same run; and the round trips of small messages, beside the same and a
//! connection without a relay. The peers are threads of this process, and their CPU is not counted.
//!
//! usage: cargo bench -p squall-grid --bench relay -- [ROUNDS]
//! (default: 5 rounds of 1 s for each size and kind, and 5 of 2 s for each rate and kind)

mod round_trips;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use squall_grid::relay::{RelaySide, RelayTimeouts, Socket, frame::CloseFrame, relay};
use tokio::sync::oneshot;

const CONNECTIONS: usize = 2;
const ROUND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Relay,
    RawCopy,
}

/// Copies between two connections until one ends, or until `stopped` fires.
async fn copy(kind: Kind, from_client: TcpStream, to_worker: TcpStream, stopped: oneshot::Receiver<CloseFrame>) {
    let [mut from_client, mut to_worker] = [from_client, to_worker].map(|stream| {
        stream.set_nonblocking(true).expect("a socket");
        tokio::net::TcpStream::from_std(stream).expect("a runtime")
    });
    if kind == Kind::RawCopy {
        let _ = tokio::io::copy_bidirectional(&mut from_client, &mut to_worker).await;
        return;
    }
    let side = |stream| RelaySide { socket: Socket::Tcp(stream), received: Vec::new() };
    let timeouts = RelayTimeouts {
        ping_after: Some(Duration::from_secs(20)),
        lost_after: Some(Duration::from_secs(60)),
        close_grace: Duration::ZERO,
    };
    let ended = relay(side(from_client), side(to_worker), timeouts, stopped).await;
    ended.close(CloseFrame::new(1011, "lost")).await;
}

/// Whole frames of `size` bytes each, about 256 KiB together.
fn frames(size: usize, masked: bool) -> Vec<u8> {
    let mut frame = vec![0x82];
    let mask_bit = if masked { 0x80 } else { 0 };
    match size {
        0..126 => frame.push(mask_bit | size as u8),
        126..65_536 => {
            frame.push(mask_bit | 126);
            frame.extend((size as u16).to_be_bytes());
        }
        _ => {
            frame.push(mask_bit | 127);
            frame.extend((size as u64).to_be_bytes());
        }
    }
    frame.extend(masked.then_some([0; 4]).into_iter().flatten());
    frame.resize(frame.len() + size, 0);
    frame.repeat((256 << 10) / size + 1)
}

fn socket_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    (near, listener.accept().expect("a connection").0)
}

/// Writes frames and reads what comes, until the connection ends.
fn start_peer(stream: TcpStream, frames: Vec<u8>, received: &Arc<AtomicU64>, ended: &Arc<AtomicBool>) {
    let (mut writer, mut reader) = (stream.try_clone().expect("a clone"), stream);
    let (received, ended) = (received.clone(), ended.clone());
    thread::spawn(move || while !ended.load(Relaxed) && writer.write_all(&frames).is_ok() {});
    thread::spawn(move || {
        let mut buffer = vec![0; 256 << 10];
        while let Ok(read) = reader.read(&mut buffer)
            && read > 0
        {
            received.fetch_add(read as u64, Relaxed);
        }
    });
}

/// CPU of this thread in nanoseconds.
fn thread_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|time| time.parse().ok()).expect("a number")
}

/// Gigabytes per CPU second.
fn measure(size: usize, kind: Kind) -> f64 {
    let (received, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (mut running, mut stops) = (tokio::task::JoinSet::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let ((client, from_client), (worker, to_worker)) = (socket_pair(), socket_pair());
            start_peer(client, frames(size, true), &received, &ended);
            start_peer(worker, frames(size, false), &received, &ended);
            let (stop, stopped) = oneshot::channel();
            stops.push(stop);
            running.spawn(copy(kind, from_client, to_worker, stopped));
        }
        tokio::time::sleep(ROUND / 4).await;
        let before = (received.load(Relaxed), thread_cpu());
        tokio::time::sleep(ROUND).await;
        let after = (received.load(Relaxed), thread_cpu());
        ended.store(true, Relaxed);
        running.shutdown().await;
        (after.0 - before.0) as f64 / (after.1 - before.1) as f64
    })
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let rounds: usize = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(5);
    println!(
        "{:>9} {:>12} {:>20}   GB per CPU second, median of {rounds} rounds",
        "frame", "relay", "copy_bidirectional"
    );
    for (name, size) in [("1 KiB", 1 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("16 MiB", 16 << 20)] {
        let (mut relays, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            relays.push(measure(size, Kind::Relay));
            copies.push(measure(size, Kind::RawCopy));
        }
        println!("{name:>9} {:>12.2} {:>20.2}", median(relays), median(copies));
    }
    round_trips::compare(rounds);
}
