//! Follows the frames of a WebSocket stream by their headers, and encodes control frames.
//! It does not touch, copy or inspect payloads, except those of control frames, which are at most
//! 125 bytes. The relay feeds every byte that it forwards to a [`FrameTracker`].

use std::fmt;

/// The longest header: 2 bytes, 8 of length, 4 of mask.
pub(super) const MAX_HEADER: usize = 14;
/// The longest payload of a control frame.
const MAX_CONTROL: usize = 125;

const OPCODE_CONTINUATION: u8 = 0x0;
const OPCODE_CLOSE: u8 = 0x8;
const OPCODE_PING: u8 = 0x9;

/// Which side sends the stream. Clients mask their frames, servers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSender {
    /// The side that opened the connection.
    Client,
    /// The side that accepted it.
    Server,
}

/// A break of the WebSocket protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A client sent a frame without a mask, or a server sent one with a mask.
    #[error("a frame has the wrong masking")]
    Masking,
    /// The opcode has no meaning.
    #[error("a frame has the reserved opcode {0}")]
    ReservedOpcode(u8),
    /// A control frame is fragmented or longer than 125 bytes.
    #[error("a control frame is fragmented or longer than 125 bytes")]
    Control,
    /// A continuation without a message, or a message inside another.
    #[error("the fragments of a message are out of order")]
    Fragments,
    /// The highest bit of the length is set.
    #[error("a frame is longer than 2^63 bytes")]
    Length,
}

/// A close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    /// Its code; `None` if the frame is empty.
    pub code: Option<u16>,
    /// Its reason, shortened to what fits.
    pub reason: String,
}

impl CloseFrame {
    /// A close frame with a code and a reason.
    pub fn new(code: u16, reason: impl Into<String>) -> Self {
        Self { code: Some(code), reason: reason.into() }
    }

    fn from_payload(payload: &[u8]) -> Self {
        match payload {
            [high, low, reason @ ..] => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                Self { code: Some(u16::from_be_bytes([*high, *low])), reason }
            }
            _ => Self { code: None, reason: String::new() },
        }
    }

    /// The frame as a server sends it.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(MAX_CONTROL);
        if let Some(code) = self.code {
            payload.extend(code.to_be_bytes());
            let fits = |end: &usize| *end <= MAX_CONTROL - 2 && self.reason.is_char_boundary(*end);
            let end = (0..=self.reason.len()).rev().find(fits).unwrap_or(0);
            payload.extend(&self.reason.as_bytes()[..end]);
        }
        let mut frame = vec![0x80 | OPCODE_CLOSE, payload.len() as u8];
        frame.extend(payload);
        frame
    }
}

impl fmt::Display for CloseFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) if self.reason.is_empty() => write!(f, "{code}"),
            Some(code) => write!(f, "{code} {}", self.reason),
            None => f.write_str("no code"),
        }
    }
}

/// An empty ping as `sender` sends it. The mask of zeros masks nothing, because there is no payload.
pub fn encode_ping(sender: FrameSender) -> &'static [u8] {
    match sender {
        FrameSender::Client => &[0x80 | OPCODE_PING, 0x80, 0, 0, 0, 0],
        FrameSender::Server => &[0x80 | OPCODE_PING, 0],
    }
}

/// The position of a stream between and within frames.
#[derive(Clone, Debug)]
pub struct FrameTracker {
    sender: FrameSender,
    position: Position,
    /// Whether a fragmented message has begun and not ended.
    in_message: bool,
    close: Option<CloseFrame>,
    frames: u64,
    /// Length of the last payload that began.
    last_payload: u64,
}

#[derive(Clone, Debug)]
enum Position {
    /// `filled` bytes of a header; 0 is the boundary between frames.
    Header { bytes: [u8; MAX_HEADER], filled: usize },
    /// So many bytes of payload are left.
    Payload(u64),
    /// Inside a close frame.
    Close { bytes: [u8; MAX_CONTROL], filled: usize, length: usize, mask: [u8; 4] },
}

const BOUNDARY: Position = Position::Header { bytes: [0; MAX_HEADER], filled: 0 };

impl FrameTracker {
    /// A stream at its beginning.
    pub fn new(sender: FrameSender) -> Self {
        Self { sender, position: BOUNDARY, in_message: false, close: None, frames: 0, last_payload: 0 }
    }

    /// Whether the stream is between two frames, so that another frame can be put in.
    pub fn at_boundary(&self) -> bool {
        matches!(self.position, Position::Header { filled: 0, .. })
    }

    /// The close frame, if the stream has had one.
    pub fn close(&self) -> Option<&CloseFrame> {
        self.close.as_ref()
    }

    /// Number of complete headers.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// How many bytes of a payload are left; 0 in headers and in close frames.
    pub fn payload_left(&self) -> u64 {
        if let Position::Payload(left) = self.position { left } else { 0 }
    }

    /// Length of the payload that the stream is in, or that was the last one.
    pub fn last_payload(&self) -> u64 {
        self.last_payload
    }

    /// Follows bytes that are all payload, at most [`FrameTracker::payload_left`].
    pub fn skip_payload(&mut self, bytes: u64) {
        self.position = match self.payload_left().saturating_sub(bytes) {
            0 => BOUNDARY,
            left => Position::Payload(left),
        };
    }

    /// Follows the next bytes of the stream. After an error the position is undefined.
    pub fn observe(&mut self, mut bytes: &[u8]) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            let used = match &mut self.position {
                Position::Payload(left) => {
                    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= used as u64;
                    if *left == 0 {
                        self.position = BOUNDARY;
                    }
                    used
                }
                Position::Close { bytes: payload, filled, length, mask } => {
                    let used = (*length - *filled).min(bytes.len());
                    for byte in &bytes[..used] {
                        payload[*filled] = byte ^ mask[*filled % 4];
                        *filled += 1;
                    }
                    if filled == length {
                        self.close = Some(CloseFrame::from_payload(&payload[..*length]));
                        self.position = BOUNDARY;
                    }
                    used
                }
                Position::Header { bytes: header, filled } => {
                    let wanted = header_length(&header[..*filled]);
                    let used = (wanted - *filled).min(bytes.len());
                    header[*filled..*filled + used].copy_from_slice(&bytes[..used]);
                    *filled += used;
                    let (header, filled) = (*header, *filled);
                    self.check_start(&header[..filled])?;
                    if filled == header_length(&header[..filled]) {
                        self.enter_payload(&header[..filled])?;
                    }
                    used
                }
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Checks the first two bytes of a header, as soon as they are there.
    fn check_start(&self, header: &[u8]) -> Result<(), FrameError> {
        let [first, second, ..] = header else { return Ok(()) };
        let (last, opcode, length) = (first & 0x80 != 0, first & 0x0f, second & 0x7f);
        if (second & 0x80 != 0) != (self.sender == FrameSender::Client) {
            return Err(FrameError::Masking);
        }
        match opcode {
            0x3..=0x7 | 0xb..=0xf => Err(FrameError::ReservedOpcode(opcode)),
            OPCODE_CLOSE..=0xa if !last || usize::from(length) > MAX_CONTROL => Err(FrameError::Control),
            OPCODE_CONTINUATION if !self.in_message => Err(FrameError::Fragments),
            0x1 | 0x2 if self.in_message => Err(FrameError::Fragments),
            _ => Ok(()),
        }
    }

    /// Moves from a complete header to its payload.
    fn enter_payload(&mut self, header: &[u8]) -> Result<(), FrameError> {
        self.frames += 1;
        let (last, opcode) = (header[0] & 0x80 != 0, header[0] & 0x0f);
        if opcode < OPCODE_CLOSE {
            self.in_message = !last;
        }
        let length = payload_length(header);
        if length >> 63 == 1 {
            return Err(FrameError::Length);
        }
        self.last_payload = length;
        self.position = match (opcode, length) {
            (OPCODE_CLOSE, 0) => {
                self.close = Some(CloseFrame { code: None, reason: String::new() });
                BOUNDARY
            }
            (_, 0) => BOUNDARY,
            (OPCODE_CLOSE, length) => {
                let mask = match (self.sender, header.last_chunk::<4>()) {
                    (FrameSender::Client, Some(mask)) => *mask,
                    _ => [0; 4],
                };
                Position::Close { bytes: [0; MAX_CONTROL], filled: 0, length: length as usize, mask }
            }
            (_, length) => Position::Payload(length),
        };
        Ok(())
    }
}

/// How long the header is, as far as its first bytes tell.
fn header_length(start: &[u8]) -> usize {
    let Some(second) = start.get(1) else { return 2 };
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    2 + extended + if second & 0x80 != 0 { 4 } else { 0 }
}

/// The payload length of a complete header.
fn payload_length(header: &[u8]) -> u64 {
    match header[1] & 0x7f {
        126 => u64::from(u16::from_be_bytes([header[2], header[3]])),
        127 => header[2..10].iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        short => u64::from(short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> FrameTracker {
        FrameTracker::new(FrameSender::Server)
    }

    /// Observes `bytes` whole and one by one; both must agree.
    #[track_caller]
    fn check(sender: FrameSender, bytes: &[u8], expected: Result<bool, FrameError>) -> FrameTracker {
        let mut whole = FrameTracker::new(sender);
        let outcome = whole.observe(bytes).map(|()| whole.at_boundary());
        let mut single = FrameTracker::new(sender);
        let singly = bytes.chunks(1).try_for_each(|byte| single.observe(byte)).map(|()| single.at_boundary());
        assert_eq!((outcome, singly), (expected, expected));
        if outcome.is_ok() {
            assert_eq!((whole.close(), whole.frames()), (single.close(), single.frames()));
        }
        whole
    }

    #[test]
    fn frames_of_all_lengths_end_at_a_boundary() {
        for length in [0usize, 1, 125, 126, 127, 65535, 65536, 200_000] {
            let mut frame = match length {
                0..=125 => vec![0x81, length as u8],
                126..=65535 => [&[0x81, 126][..], &(length as u16).to_be_bytes()].concat(),
                _ => [&[0x81, 127][..], &(length as u64).to_be_bytes()].concat(),
            };
            frame.extend(vec![b'x'; length]);
            check(FrameSender::Server, &frame, Ok(true));
            check(FrameSender::Server, &frame[..frame.len() - 1], Ok(false));
        }
    }

    #[test]
    fn promise_of_a_huge_frame_needs_no_memory() {
        let huge = [&[0x82, 127][..], &(1u64 << 62).to_be_bytes()].concat();
        let tracker = check(FrameSender::Server, &huge, Ok(false));
        assert!(size_of_val(&tracker) < 256);
        check(FrameSender::Server, &[&[0x82, 127][..], &u64::MAX.to_be_bytes()].concat(), Err(FrameError::Length));
    }

    #[test]
    fn close_frames_of_both_sides_are_read() {
        let close = CloseFrame::new(1001, "squall: bye");
        let tracker = check(FrameSender::Server, &close.encode(), Ok(true));
        assert_eq!(tracker.close(), Some(&close));
        let mut masked = close.encode();
        masked[1] |= 0x80;
        let (key, payload) = ([1, 2, 3, 4], masked.split_off(2));
        masked.extend(key);
        masked.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]));
        assert_eq!(check(FrameSender::Client, &masked, Ok(true)).close(), Some(&close));
        let empty = check(FrameSender::Server, &[0x88, 0], Ok(true));
        assert_eq!(empty.close(), Some(&CloseFrame { code: None, reason: String::new() }));
    }

    #[test]
    fn long_reason_is_cut_at_a_character() {
        let frame = CloseFrame::new(1011, "ü".repeat(100)).encode();
        assert_eq!(frame.len(), 2 + 2 + 122);
        let mut tracker = server();
        tracker.observe(&frame).unwrap();
        assert_eq!(tracker.close().unwrap().reason, "ü".repeat(61));
    }

    #[test]
    fn breaks_of_the_protocol_are_errors() {
        check(FrameSender::Client, &[0x81, 0], Err(FrameError::Masking));
        check(FrameSender::Server, &[0x81, 0x80], Err(FrameError::Masking));
        check(FrameSender::Server, &[0x83, 0], Err(FrameError::ReservedOpcode(3)));
        check(FrameSender::Server, &[0x8b, 0], Err(FrameError::ReservedOpcode(11)));
        check(FrameSender::Server, &[0x09, 0], Err(FrameError::Control));
        check(FrameSender::Server, &[0x89, 126], Err(FrameError::Control));
        check(FrameSender::Server, &[0x80, 0], Err(FrameError::Fragments));
        check(FrameSender::Server, &[0x01, 0, 0x81, 0], Err(FrameError::Fragments));
    }

    #[test]
    fn pings_may_stand_between_fragments() {
        let ping = encode_ping(FrameSender::Server);
        let tracker = check(
            FrameSender::Server,
            &[&[0x01, 1, b'a'], ping, &[0x00, 1, b'b'], ping, &[0x80, 0]].concat(),
            Ok(true),
        );
        assert_eq!(tracker.frames(), 5);
        check(FrameSender::Client, encode_ping(FrameSender::Client), Ok(true));
    }
}
