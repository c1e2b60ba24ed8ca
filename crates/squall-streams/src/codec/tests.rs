//! Tests of layouts and compressions: encoding, decoding, limits and damaged data.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    order_id: i64,
    amount: f64,
    paid: bool,
    note: String,
}

fn order() -> Order {
    Order { order_id: 1, amount: 1.5, paid: true, note: "it's".into() }
}

fn body(fields: Vec<(Vec<u8>, Vec<u8>)>) -> EntryBody {
    EntryBody::Fields(fields)
}

fn round_trip(codec: Codec, order: &Order) -> Order {
    codec.decode(&body(codec.encode(&to_json(order).unwrap()).unwrap())).unwrap()
}

#[test]
fn json_record_is_compact_json_in_one_field() {
    let fields = Codec::default().encode(&to_json(&order()).unwrap()).unwrap();
    let expected = br#"{"order_id":1,"amount":1.5,"paid":true,"note":"it's"}"#;
    assert_eq!(fields, [(b"data".to_vec(), expected.to_vec())]);
}

#[test]
fn flat_record_writes_values_as_python_str() {
    let codec = Codec { layout: RecordLayout::Flat, ..Codec::default() };
    let fields = codec.encode(&to_json(&order()).unwrap()).unwrap();
    let text: Vec<(String, String)> = fields
        .into_iter()
        .map(|(name, value)| (String::from_utf8(name).unwrap(), String::from_utf8(value).unwrap()))
        .collect();
    let expected = [("order_id", "1"), ("amount", "1.5"), ("paid", "True"), ("note", "it's")];
    assert_eq!(text, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn flat_record_with_nesting_is_rejected() {
    let codec = Codec { layout: RecordLayout::Flat, ..Codec::default() };
    assert!(matches!(codec.encode(&serde_json::json!({"a": [1]})), Err(EncodeError::NotFlat(field)) if field == "a"));
    assert!(matches!(codec.encode(&serde_json::json!(1)), Err(EncodeError::NoFields)));
}

#[test]
fn event_of_any_compression_is_decoded_by_the_default_codec() {
    for written in [Compression::None, Compression::Gzip, Compression::Lz4, Compression::Zstd] {
        let codec = Codec { compression: written, ..Codec::default() };
        let fields = codec.encode(&to_json(&order()).unwrap()).unwrap();
        assert_eq!(Codec::default().decode::<Order>(&body(fields)).unwrap(), order(), "{written:?}");
    }
}

#[test]
fn compression_bomb_is_rejected() {
    let bomb = Compression::Zstd.compress(vec![b' '; 70 * 1024 * 1024]).unwrap();
    assert!(bomb.len() < 100_000);
    let outcome = Codec::default().decode::<Order>(&EntryBody::Data(bomb));
    assert!(matches!(outcome, Err(DecodeError::Decompress(_))));
}

/// Python: `gzip.compress(b'{"order_id":1,"amount":1.5,"paid":true,"note":"x"}', mtime=0)`.
const GZIP_FROM_PYTHON: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV\xca/JI-\x8a\xcfLQ\xb22\xd4QJ\xcc\xcd/\
    \xcd+\x012\xf5Lu\x94\n\x12A\xa2%E\xa5\xa9:Jy\xf9%\xa9JVJ\x15J\xb5\x00\x05\xbeK\xbd2\x00\x00\x00";

#[test]
fn gzip_data_from_python_is_decoded() {
    let data = EntryBody::Data(GZIP_FROM_PYTHON.to_vec());
    assert_eq!(Codec::default().decode::<Order>(&data).unwrap().note, "x");
}

proptest! {
    #[test]
    fn encoded_record_decodes_to_the_same_record(
        order_id in any::<i64>(), amount in -1e300f64..1e300, paid in any::<bool>(), note in ".{0,200}",
        flat in any::<bool>(), compression_index in 0usize..4,
    ) {
        let order = Order { order_id, amount, paid, note };
        let compression = [Compression::None, Compression::Gzip, Compression::Lz4, Compression::Zstd][compression_index];
        let layout = if flat { RecordLayout::Flat } else { RecordLayout::Json };
        prop_assert_eq!(round_trip(Codec { layout, compression }, &order), order);
    }

    #[test]
    fn decoding_arbitrary_bytes_never_panics(data in proptest::collection::vec(any::<u8>(), 0..300), magic in 0usize..4) {
        let magic: &[u8] = [&[][..], &[0x1f, 0x8b], &[4, 0x22, 0x4d, 0x18], &[0x28, 0xb5, 0x2f, 0xfd]][magic];
        let data = [magic, &data].concat();
        let _ = Codec::default().decode::<Order>(&EntryBody::Data(data.clone()));
        let flat = Codec { layout: RecordLayout::Flat, ..Codec::default() };
        let _ = flat.decode::<Order>(&EntryBody::Fields(vec![(b"order_id".to_vec(), data)]));
    }
}
