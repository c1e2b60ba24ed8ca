//! Reads and writes single DER values. It knows no structures.

/// The content of the first value, which must have this tag, and what follows it.
pub(super) fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, length], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// A value with this tag and the parts as its content, which has at most 65,535 bytes.
pub(super) fn encode(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [high, low] = (content.len() as u16).to_be_bytes();
    let length = match content.len() {
        0..=0x7f => vec![low],
        0x80..=0xff => vec![0x81, low],
        _ => vec![0x82, high, low],
    };
    [&[tag][..], &length, &content].concat()
}
