//! The CPU of the relay: bytes per second of one core, both directions counted, beside other ways to
//! copy in the same run, which show what this machine can do; and the round trips of small messages, beside
//! the same and a connection without a relay. The peers are threads of this process, and their CPU is
//! not counted.
//!
//! usage: cargo bench -p squall-grid --bench relay -- [ROUNDS] [bytes|trips]
//! (default: both, 5 rounds of 1 s for each size and kind, and 5 of 2 s for each rate and kind)

mod copying;
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

use copying::{Kind, copy};
use tokio::sync::oneshot;

const CONNECTIONS: usize = 2;
const ROUND: Duration = Duration::from_secs(1);
/// What the peers read and write at once.
const CHUNK: usize = 256 << 10;

/// An endless stream of frames, of which a peer writes as many bytes as it likes.
struct Frames {
    header: Vec<u8>,
    size: usize,
    /// Position in the present frame.
    at: usize,
    chunk: Vec<u8>,
}

impl Frames {
    fn new(size: usize, masked: bool) -> Self {
        let mask_bit = if masked { 0x80 } else { 0 };
        let mut header = vec![0x82];
        match size {
            0..126 => header.push(mask_bit | size as u8),
            126..65_536 => {
                header.push(mask_bit | 126);
                header.extend((size as u16).to_be_bytes());
            }
            _ => {
                header.push(mask_bit | 127);
                header.extend((size as u64).to_be_bytes());
            }
        }
        header.extend(masked.then_some([0; 4]).into_iter().flatten());
        Self { header, size, at: 0, chunk: Vec::with_capacity(CHUNK) }
    }

    /// The next `length` bytes.
    fn next(&mut self, length: usize) -> &[u8] {
        self.chunk.clear();
        while self.chunk.len() < length {
            let room = length - self.chunk.len();
            let used = if self.at < self.header.len() {
                let header = &self.header[self.at..];
                let used = header.len().min(room);
                self.chunk.extend_from_slice(&header[..used]);
                used
            } else {
                let used = (self.header.len() + self.size - self.at).min(room);
                self.chunk.resize(self.chunk.len() + used, 0);
                used
            };
            self.at = (self.at + used) % (self.header.len() + self.size);
        }
        &self.chunk
    }
}

fn socket_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    (near, listener.accept().expect("a connection").0)
}

/// Writes frames and reads what comes, until the connection ends.
fn start_client(stream: TcpStream, mut frames: Frames, received: &Arc<AtomicU64>, ended: &Arc<AtomicBool>) {
    let (mut writer, mut reader) = (stream.try_clone().expect("a clone"), stream);
    let (received, ended) = (received.clone(), ended.clone());
    thread::spawn(move || while !ended.load(Relaxed) && writer.write_all(frames.next(CHUNK)).is_ok() {});
    thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok(read) = reader.read(&mut buffer)
            && read > 0
        {
            received.fetch_add(read as u64, Relaxed);
        }
    });
}

/// Answers bytes with as many bytes of frames.
fn start_echo(mut stream: TcpStream, mut frames: Frames, received: &Arc<AtomicU64>) {
    let received = received.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok(read) = stream.read(&mut buffer)
            && read > 0
        {
            received.fetch_add(read as u64, Relaxed);
            if stream.write_all(frames.next(read)).is_err() {
                break;
            }
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
            start_client(client, Frames::new(size, true), &received, &ended);
            start_echo(worker, Frames::new(size, false), &received);
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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(5);
    let is_named = |part: &str| arguments.iter().any(|argument| argument == part);
    if !is_named("trips") {
        compare_bytes(rounds);
    }
    if !is_named("bytes") {
        round_trips::compare(rounds);
    }
}

/// Prints the medians of the rounds, and the ratio to splice in the same round.
fn compare_bytes(rounds: usize) {
    let kinds = [Kind::Relay, Kind::CopyBidirectional, Kind::SharedBuffer, Kind::Splice];
    let congestion = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    println!("TCP of this machine: {}", congestion.trim());
    println!("GB per CPU second, both directions counted, medians of {rounds} rounds");
    println!(
        "{:>9} {:>8} {:>20} {:>14} {:>8} {:>16}",
        "frame", "relay", "copy_bidirectional", "shared buffer", "splice", "relay to splice"
    );
    for (name, size) in [("1 KiB", 1 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("16 MiB", 16 << 20)] {
        let rates: Vec<[f64; 4]> = (0..rounds).map(|_| kinds.map(|kind| measure(size, kind))).collect();
        let of = |figure: fn(&[f64; 4]) -> f64| median(rates.iter().map(figure).collect());
        println!(
            "{name:>9} {:>8.2} {:>20.2} {:>14.2} {:>8.2} {:>14.2} ×",
            of(|round| round[0]),
            of(|round| round[1]),
            of(|round| round[2]),
            of(|round| round[3]),
            of(|round| round[0] / round[3])
        );
    }
}
