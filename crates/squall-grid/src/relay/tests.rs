//! Tests of the relay: frames, pings, close codes and slow readers.

use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Bytes, Message, Utf8Bytes,
        protocol::{Role, frame::CloseFrame as PeerClose, frame::coding::CloseCode},
    },
};

use super::{
    direction::{BUFFER, BULK},
    *,
};

const PATIENT: RelayTimeouts =
    RelayTimeouts { ping_after: None, lost_after: None, close_grace: Duration::from_secs(20) };

async fn socket_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// A relay with raw connections to both of its sides.
struct Setup {
    client: TcpStream,
    worker: TcpStream,
    stop: oneshot::Sender<CloseFrame>,
    running: JoinHandle<RelayReport>,
}

async fn start(timeouts: RelayTimeouts) -> Setup {
    let ((client, from_client), (worker, to_worker)) = (socket_pair().await, socket_pair().await);
    let side = |stream| RelaySide { socket: Socket::Tcp(stream), received: Vec::new() };
    let (stop, stopped) = oneshot::channel();
    let lost = CloseFrame::new(1011, "squall: worker w7 was lost");
    let running =
        tokio::spawn(
            async move { relay(side(from_client), side(to_worker), timeouts, stopped).await.close(lost).await },
        );
    Setup { client, worker, stop, running }
}

type Peer = WebSocketStream<TcpStream>;

async fn as_peers(client: TcpStream, worker: TcpStream) -> (Peer, Peer) {
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    (client, WebSocketStream::from_raw_socket(worker, Role::Server, None).await)
}

fn close_of(message: Message) -> (u16, String) {
    match message {
        Message::Close(Some(frame)) => (frame.code.into(), frame.reason.to_string()),
        other => panic!("not a close frame: {other:?}"),
    }
}

#[tokio::test]
async fn messages_of_any_size_pass_unchanged_in_both_directions() {
    let setup = start(PATIENT).await;
    let (mut client, mut worker) = as_peers(setup.client, setup.worker).await;
    let echo = tokio::spawn(async move {
        while let Some(Ok(message)) = worker.next().await {
            if message.is_binary() && worker.send(message).await.is_err() {
                break;
            }
        }
    });
    for size in [0usize, 1, 125, 126, 65_535, 65_536, 70_000, 5 << 20, 1, 40_000, 40_000, 1 << 20, 0] {
        let bytes: Bytes = (0..size).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into();
        client.send(Message::Binary(bytes.clone())).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::Binary(bytes), "{size}");
    }
    client.close(None).await.unwrap();
    while client.next().await.is_some() {}
    let report = setup.running.await.unwrap();
    assert_eq!(report.end, RelayEnd::Client(Some(CloseFrame { code: None, reason: String::new() })));
    assert!(report.bytes_up > 5 << 20 && report.bytes_down > 5 << 20, "{report:?}");
    echo.await.unwrap();
}

/// The header of a frame behind a large one is there before the relay has moved the large one.
#[tokio::test]
async fn messages_behind_large_ones_pass_unchanged() {
    let setup = start(PATIENT).await;
    let (mut client, mut worker) = as_peers(setup.client, setup.worker).await;
    let sizes = [1usize << 20, 300_000, 300_000, 10, 600_000, 0, 3 << 20, 262_144, 5];
    let message = |size: usize| Message::Binary((0..size).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into());
    let sending = tokio::spawn(async move {
        for size in sizes {
            worker.feed(message(size)).await.unwrap();
        }
        worker.flush().await.unwrap();
        worker
    });
    for size in sizes {
        assert!(client.next().await.unwrap().unwrap() == message(size), "{size}");
    }
    drop((client, sending.await.unwrap()));
    setup.running.await.unwrap();
}

/// A frame with its first byte as given, from the worker.
fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    match payload.len() {
        0..65_536 => [&[first, 126][..], &(payload.len() as u16).to_be_bytes(), payload].concat(),
        _ => [&[first, 127][..], &(payload.len() as u64).to_be_bytes(), payload].concat(),
    }
}

#[tokio::test]
async fn fragments_of_a_message_pass_with_a_ping_between_them() {
    let setup = start(PATIENT).await;
    let mut worker = setup.worker;
    let mut client = WebSocketStream::from_raw_socket(setup.client, Role::Client, None).await;
    let (first, second, last) = (vec![b'a'; 40_000], vec![b'b'; 300], vec![b'c'; 1]);
    let stream = [
        unmasked(0x01, &first),
        vec![0x89, 2, b'h', b'i'],
        unmasked(0x00, &second),
        unmasked(0x80, &last),
        unmasked(0x82, &second),
    ]
    .concat();
    // In pieces that end inside headers and payloads.
    for piece in stream.chunks(7919) {
        worker.write_all(piece).await.unwrap();
    }
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Ping("hi".into()));
    let whole = String::from_utf8([first, second.clone(), last].concat()).unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text(whole));
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Binary(second.into()));
    drop(client);
    drop(worker);
    setup.running.await.unwrap();
}

#[tokio::test]
async fn compressed_frames_pass_byte_for_byte() {
    let setup = start(PATIENT).await;
    let (mut worker, client) = (setup.worker, Socket::Tcp(setup.client));
    // The bit of permessage-deflate is set on the first fragment only.
    let stream = [unmasked(0x41, &[1; 70]), unmasked(0x80, &[2; 900]), unmasked(0xc1, &[3; 126])].concat();
    worker.write_all(&stream).await.unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 512]);
    while received.len() < stream.len() {
        let read = client.read_some(&mut buffer).await.unwrap();
        received.extend_from_slice(&buffer[..read]);
    }
    assert_eq!(received, stream);
    drop(worker);
    drop(client);
    setup.running.await.unwrap();
}

#[tokio::test]
async fn close_code_and_reason_of_the_worker_reach_the_client() {
    let setup = start(PATIENT).await;
    let (mut client, mut worker) = as_peers(setup.client, setup.worker).await;
    let frame = PeerClose { code: CloseCode::Away, reason: Utf8Bytes::from_static("Browser closed") };
    worker.close(Some(frame)).await.unwrap();
    assert_eq!(close_of(client.next().await.unwrap().unwrap()), (1001, "Browser closed".to_owned()));
    // The peers answer the close frame, and then the worker ends the connection.
    let client_end = async { while client.next().await.is_some() {} };
    let worker_end = async {
        while worker.next().await.is_some() {}
        drop(worker);
    };
    tokio::join!(client_end, worker_end);
    let end = setup.running.await.unwrap().end;
    assert!(matches!(end, RelayEnd::Worker(_) | RelayEnd::Client(Some(_))), "{end:?}");
}

#[tokio::test]
async fn client_of_a_lost_worker_gets_the_reason() {
    let setup = start(PATIENT).await;
    let client = setup.client;
    drop(setup.worker);
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    assert_eq!(close_of(client.next().await.unwrap().unwrap()), (1011, "squall: worker w7 was lost".to_owned()));
    drop(client);
    assert_eq!(setup.running.await.unwrap().end, RelayEnd::WorkerLost);
}

#[tokio::test]
async fn stopped_relay_closes_with_its_reason_after_the_frame_in_flight() {
    let setup = start(PATIENT).await;
    let (mut worker, client) = (setup.worker, setup.client);
    worker.write_all(&[0x82, 3, b'a']).await.unwrap();
    client.readable().await.unwrap();
    worker.write_all(b"bc").await.unwrap();
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Binary("abc".into()));
    setup.stop.send(CloseFrame::new(1001, "squall: worker is drained")).unwrap();
    assert_eq!(close_of(client.next().await.unwrap().unwrap()), (1001, "squall: worker is drained".to_owned()));
    drop(client);
    assert!(matches!(setup.running.await.unwrap().end, RelayEnd::Stopped(_)));
}

#[tokio::test]
async fn silent_side_is_pinged_and_given_up() {
    let timeouts = RelayTimeouts {
        ping_after: Some(Duration::from_millis(5)),
        lost_after: Some(Duration::from_millis(50)),
        ..PATIENT
    };
    let setup = start(timeouts).await;
    let mut client = WebSocketStream::from_raw_socket(setup.client, Role::Client, None).await;
    assert!(client.next().await.unwrap().unwrap().is_ping());
    // The peer answers pings while it is read; the worker never answers.
    let close = loop {
        match client.next().await.unwrap().unwrap() {
            Message::Ping(_) => {}
            other => break close_of(other),
        }
    };
    assert_eq!(close, (1011, "squall: worker w7 was lost".to_owned()));
    drop(client);
    assert_eq!(setup.running.await.unwrap().end, RelayEnd::WorkerLost);
}

#[tokio::test]
async fn silent_client_gets_the_reason() {
    let setup = start(RelayTimeouts { lost_after: Some(Duration::from_millis(50)), ..PATIENT }).await;
    let mut worker = setup.worker;
    let sending = tokio::spawn(async move { while worker.write_all(&unmasked(0x82, &[0; 100])).await.is_ok() {} });
    // It sends neither messages nor pongs.
    let mut client = WebSocketStream::from_raw_socket(setup.client, Role::Client, None).await;
    let close = loop {
        match client.next().await.unwrap().unwrap() {
            Message::Binary(_) => {}
            other => break close_of(other),
        }
    };
    assert_eq!(close, (1001, "squall: the client was silent for 50ms; connect again".to_owned()));
    drop(client);
    assert_eq!(setup.running.await.unwrap().end, RelayEnd::ClientLost);
    sending.await.unwrap();
}

/// The relay does not read from the worker meanwhile, so the worker's silence means nothing.
#[tokio::test]
async fn client_that_does_not_read_is_not_a_lost_worker() {
    let lost_after = Duration::from_millis(500);
    let timeouts =
        RelayTimeouts { ping_after: None, lost_after: Some(lost_after), close_grace: Duration::from_millis(1) };
    let setup = start(timeouts).await;
    let (mut client, mut worker) = (setup.client, setup.worker);
    let flood = tokio::spawn(async move { while worker.write_all(&unmasked(0x82, &[0; 60_000])).await.is_ok() {} });
    // The client sends pongs for longer than a side may be silent.
    for _ in 0..60 {
        client.write_all(&[0x8a, 0x80, 0, 0, 0, 0]).await.unwrap();
        tokio::time::sleep(lost_after / 20).await;
    }
    assert_eq!(setup.running.await.unwrap().end, RelayEnd::ClientLost, "it is silent now");
    drop(client);
    flood.await.unwrap();
}

#[tokio::test]
async fn junk_of_a_client_is_not_forwarded() {
    let setup = start(PATIENT).await;
    let (mut client, worker) = (setup.client, setup.worker);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let (code, reason) = close_of(client.next().await.unwrap().unwrap());
    assert_eq!(code, 1002);
    assert!(reason.starts_with("squall: the client broke the WebSocket protocol"), "{reason}");
    drop(client);
    let report = setup.running.await.unwrap();
    assert!(matches!(report.end, RelayEnd::Violation(FrameSender::Client, _)));
    assert_eq!(report.bytes_up, 0);
    let mut buffer = [0; 16];
    assert_eq!(Socket::Tcp(worker).read_some(&mut buffer).await.unwrap(), 0);
}

/// As in a worker, whose browsers listen on Unix sockets.
#[tokio::test]
async fn large_messages_pass_through_a_unix_socket() {
    let ((client, from_client), (worker, to_worker)) = (socket_pair().await, UnixStream::pair().unwrap());
    let to_worker = UnixSocket::new(to_worker.into_std().unwrap().into()).unwrap();
    let side = |socket| RelaySide { socket, received: Vec::new() };
    let (_stop, stopped) = oneshot::channel();
    let running = tokio::spawn(async move {
        let (client, worker) = (side(Socket::Tcp(from_client)), side(Socket::Unix(to_worker)));
        relay(client, worker, PATIENT, stopped).await.close(CloseFrame::new(1011, "lost")).await
    });
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    let mut worker = WebSocketStream::from_raw_socket(worker, Role::Server, None).await;
    let echo = tokio::spawn(async move {
        while let Some(Ok(message)) = worker.next().await {
            if message.is_binary() && worker.send(message).await.is_err() {
                break;
            }
        }
    });
    for size in [100usize, 70_000, 5 << 20, 3 << 20, 1] {
        let bytes: Bytes = (0..size).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into();
        client.send(Message::Binary(bytes.clone())).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::Binary(bytes), "{size}");
    }
    client.close(None).await.unwrap();
    while client.next().await.is_some() {}
    assert!(matches!(running.await.unwrap().end, RelayEnd::Client(_)));
    echo.await.unwrap();
}

/// Sends `bytes` again and again, until the receiver of the relay takes no more.
async fn check_slow_reader(first: &[u8], bytes: &[u8], most: usize) {
    let ((sender, from), (receiver, to)) = (socket_pair().await, socket_pair().await);
    let (sender, from, to) = (Socket::Tcp(sender), Socket::Tcp(from), Socket::Tcp(to));
    let mut direction = Direction::new(FrameSender::Server);
    sender.write_all(first).await.unwrap();
    let mut sent = 0;
    let mut send = || {
        if let Ok(written) = sender.try_write(&bytes[sent..]) {
            sent = (sent + written) % bytes.len();
        }
    };
    while !direction.holds_back() {
        send();
        assert!(matches!(direction.step(&from, &to).await, Step::Moved));
    }
    let held = |direction: &Direction| {
        direction.pending.capacity() + direction.moving.as_ref().map_or(0, |pipe| pipe.filled())
    };
    assert!(held(&direction) <= most, "{}", held(&direction));
    let forwarded = direction.bytes;
    send();
    for _ in 0..3 {
        let _ = direction.step(&from, &to).now_or_never();
    }
    assert!(direction.bytes == forwarded && held(&direction) <= most);
    drop(receiver);
}

#[tokio::test]
async fn slow_reader_makes_the_relay_hold_one_buffer_and_stop_reading() {
    check_slow_reader(&[], &unmasked(0x82, &[0; 100]).repeat(600), 2 * BUFFER).await;
    let promise_of_much = [&[0x82, 127][..], &(1u64 << 62).to_be_bytes()].concat();
    check_slow_reader(&promise_of_much, &[0; BUFFER], BUFFER).await;
}

/// Forwards `stream` from a worker to a client that reads it, and returns the direction, how many of its
/// steps used a pipe, and why it ended, if it did.
async fn forward_bulk(from: (Socket, Socket), to: (Socket, Socket), stream: Vec<u8>) -> (Direction, usize, Step) {
    let ((sender, from), (receiver, to)) = (from, to);
    let (length, expected) = (stream.len(), stream.clone());
    let sending = tokio::spawn(async move { sender.write_all(&stream).await.map(|()| sender) });
    let receiving = tokio::spawn(async move {
        let (mut received, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
        while let Ok(read @ 1..) = receiver.read_some(&mut buffer).await {
            received.extend_from_slice(&buffer[..read]);
        }
        received
    });
    let (mut direction, mut piped) = (Direction::new(FrameSender::Server), 0);
    let mut step = Step::Moved;
    while matches!(step, Step::Moved) && (direction.bytes < length as u64 || direction.holds_back()) {
        let may_pipe = direction.last_read >= BULK && !direction.holds_back();
        step = direction.step(&from, &to).await;
        piped += usize::from(may_pipe);
    }
    to.shut_down_write();
    let received = receiving.await.unwrap();
    assert!(received == expected[..direction.bytes as usize], "{} of {length} bytes", direction.bytes);
    drop((from, sending.await));
    (direction, piped, step)
}

async fn tcp_pair() -> (Socket, Socket) {
    let (near, far) = socket_pair().await;
    // Wherever the test runs, more than a bulk arrives at once.
    socket2::SockRef::from(&far).set_recv_buffer_size(1 << 20).unwrap();
    (Socket::Tcp(near), Socket::Tcp(far))
}

fn unix_pair() -> (Socket, Socket) {
    let (near, far) = UnixStream::pair().unwrap();
    let [near, far] = [near, far].map(|stream| UnixSocket::new(stream.into_std().unwrap().into()).unwrap());
    (Socket::Unix(near), Socket::Unix(far))
}

/// Frames of all sizes, whose payloads differ, with pings between them and a close frame behind them.
fn bulk() -> (Vec<u8>, u64) {
    let (mut stream, mut frames) = (Vec::new(), 1);
    let sizes = [0usize, 1, 90, 1000, 8191, 8192, 9000, 65_535, 65_536, 70_000, 262_144, 262_145, 900_000];
    for at in 0..400 {
        let size = sizes[at * at % 101 % sizes.len()];
        let payload: Vec<u8> = (0..size).map(|byte| ((byte + at) % 251) as u8).collect();
        stream.extend(unmasked(0x82, &payload));
        stream.extend(encode_ping(FrameSender::Server));
        frames += 2;
    }
    stream.extend(CloseFrame::new(1001, "squall: bye").encode());
    (stream, frames)
}

async fn check_bulk(from: (Socket, Socket), to: (Socket, Socket)) {
    let (stream, frames) = bulk();
    let (direction, piped, step) = forward_bulk(from, to, stream).await;
    assert!(matches!(step, Step::Moved) && piped > 10, "{piped}");
    assert_eq!((direction.tracker.frames(), direction.tracker.at_boundary()), (frames, true));
    assert_eq!(direction.tracker.close(), Some(&CloseFrame::new(1001, "squall: bye")));
}

#[tokio::test]
async fn frames_in_bulk_pass_byte_for_byte_and_are_followed() {
    check_bulk(tcp_pair().await, tcp_pair().await).await;
}

#[tokio::test]
async fn frames_in_bulk_pass_between_tcp_and_unix_sockets() {
    check_bulk(unix_pair(), tcp_pair().await).await;
    check_bulk(tcp_pair().await, unix_pair()).await;
}

#[tokio::test]
async fn frames_in_bulk_pass_if_a_pipe_cannot_be_duplicated() {
    splice_pipe::keep_small_pipe();
    check_bulk(tcp_pair().await, tcp_pair().await).await;
}

#[tokio::test]
async fn break_of_the_protocol_in_bulk_is_not_forwarded() {
    for size in [1000, 9000, 100_000] {
        let valid = unmasked(0x82, &vec![7; size]).repeat((4 << 20) / size);
        let length = valid.len();
        let junk = vec![0x83; 100];
        let (direction, piped, step) = forward_bulk(tcp_pair().await, tcp_pair().await, [valid, junk].concat()).await;
        assert!(matches!(step, Step::Violation(FrameError::Masking | FrameError::ReservedOpcode(3))), "{size}");
        assert!(direction.bytes <= length as u64 && piped > 10, "{size}: {piped}");
    }
}

#[test]
fn end_of_a_relay_is_told_in_words() {
    let close = CloseFrame::new(1001, "squall: a\nb");
    assert_eq!(RelayEnd::Worker(close).to_string(), "the worker closed with 1001 \"squall: a\\nb\"");
    let empty = CloseFrame { code: None, reason: String::new() };
    assert_eq!(RelayEnd::Client(Some(empty)).to_string(), "the client closed");
}
