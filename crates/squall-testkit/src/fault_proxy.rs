//! A TCP proxy that misbehaves on request: it delays bytes, cuts every connection, or keeps connections
//! open and forwards nothing. It knows no protocol. Tests put it between a process and its server.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// How often a pump checks whether its delay has changed.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The delay that stands for "forward nothing".
const PASS_NOTHING: u64 = u64::MAX;

/// Forwards connections to one address. A pump ends with its connection, the listener with the process.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    state: Arc<ProxyState>,
}

#[derive(Debug, Default)]
struct ProxyState {
    /// Delay of every chunk, in milliseconds.
    delay_ms: AtomicU64,
    /// Chunks that wait for the end of their delay.
    waiting: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl FaultProxy {
    /// Forwards to `port` on 127.0.0.1.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(port: u16) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let state = Arc::<ProxyState>::default();
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // If the server is down, the client sees its connection close at once, as without a proxy.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                    shared.connect_pair(client, server);
                }
            }
        });
        FaultProxy { addr, state }
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Delays every chunk by this much, in each direction.
    pub fn delay(&self, by: Duration) {
        self.state.delay_ms.store(u64::try_from(by.as_millis()).unwrap_or(PASS_NOTHING), SeqCst);
    }

    /// Keeps connections open and accepts new ones, but forwards nothing.
    pub fn half_open(&self) {
        self.state.delay_ms.store(PASS_NOTHING, SeqCst);
    }

    /// Waits until the proxy has received bytes that it does not forward.
    pub fn wait_until_it_holds_bytes(&self) {
        while self.state.waiting.load(SeqCst) == 0 {
            thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Forwards everything without delay again.
    pub fn heal(&self) {
        self.delay(Duration::ZERO);
    }

    /// Closes all connections at once. New ones are accepted.
    pub fn cut(&self) {
        for stream in self.state.open.lock().expect("no pump panics").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl ProxyState {
    fn connect_pair(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let copies = (client.try_clone(), server.try_clone());
        let (Ok(client_too), Ok(server_too)) = copies else { return };
        let mut open = self.open.lock().expect("no pump panics");
        open.extend([&client, &server].iter().filter_map(|stream| stream.try_clone().ok()));
        drop(open);
        let (there, back) = (self.clone(), self.clone());
        thread::spawn(move || there.pump(client, server_too));
        thread::spawn(move || back.pump(server, client_too));
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut piece = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let mut waited = Duration::ZERO;
            self.waiting.fetch_add(1, SeqCst);
            // Polls, so that `heal` and `cut` take effect at once.
            while waited.as_millis() < u128::from(self.delay_ms.load(SeqCst)) && to.peer_addr().is_ok() {
                thread::park_timeout(POLL_INTERVAL);
                waited += POLL_INTERVAL;
            }
            self.waiting.fetch_sub(1, SeqCst);
            if to.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    /// A server that echoes every line.
    fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut writer = stream.try_clone().unwrap();
                    let lines = BufReader::new(stream).lines().map_while(Result::ok);
                    lines.for_each(|line| drop(writeln!(writer, "{line}")));
                });
            }
        });
        port
    }

    fn ask(stream: &TcpStream) -> std::io::Result<String> {
        let (mut writer, mut line) = (stream, String::new());
        writeln!(writer, "hello")?;
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    }

    #[test]
    fn half_open_holds_bytes_back_and_cut_closes_connections() {
        let proxy = FaultProxy::start(echo());
        let stream = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        assert_eq!(ask(&stream).unwrap(), "hello\n");
        proxy.half_open();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(ask(&stream).is_err(), "the proxy forwards nothing");
        proxy.wait_until_it_holds_bytes();
        stream.set_read_timeout(None).unwrap();
        proxy.heal();
        assert_eq!(ask(&stream).unwrap(), "hello\n", "held-back bytes arrive after heal");
        proxy.cut();
        // Ends, even if bytes were still on their way.
        let _ = (&stream).read_to_end(&mut Vec::new());
        assert!(ask(&stream).map_or(true, |line| line.is_empty()));
        let again = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        assert_eq!(ask(&again).unwrap(), "hello\n");
    }
}
