//! A WebSocket client that reads frames as they are.

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::{TEST_TIMEOUT, World};

pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
}

impl Socket {
    pub(crate) async fn open(world: &World, path: &str) -> Socket {
        Socket::open_with(world, path, "").await
    }

    /// Sends further `headers`, each with its line end.
    pub(crate) async fn open_with(world: &World, path: &str, headers: &str) -> Socket {
        let mut stream = TcpStream::connect(world.addr).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Socket { stream }
    }

    /// The opcode and payload of the next frame.
    pub(crate) async fn next(&mut self) -> (u8, Vec<u8>) {
        let reading = async {
            let first = self.stream.read_u8().await.unwrap();
            let length = match self.stream.read_u8().await.unwrap() {
                126 => u64::from(self.stream.read_u16().await.unwrap()),
                127 => self.stream.read_u64().await.unwrap(),
                short => u64::from(short),
            };
            let mut bytes = vec![0; length as usize];
            self.stream.read_exact(&mut bytes).await.unwrap();
            (first & 0x0f, bytes)
        };
        timeout(TEST_TIMEOUT, reading).await.expect("a frame in time")
    }

    pub(crate) async fn message(&mut self) -> Value {
        let (kind, bytes) = self.next().await;
        assert_eq!(kind, 1, "text");
        serde_json::from_slice(&bytes).unwrap()
    }

    /// The next message of a type; skips others.
    pub(crate) async fn message_of(&mut self, kind: &str) -> Value {
        loop {
            let message = self.message().await;
            if message["type"] == kind {
                return message;
            }
        }
    }
}
