//! GGUF: contents, faults, and that no bytes make it panic or allocate what they claim.

use crate::allocation::peak_bytes;
use crate::bytes::{Random, Writer, mutate};
use fuseline_core::dtype::DType;
use fuseline_core::format::{CodeMap, CodeOrder, GgufBlock, Group, WeightFormat};
use fuseline_runtime::source::{Encoding, Gguf, SourceError, TensorSource};
use std::borrow::Cow;

const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// A value of every type, and tensors of a dense, a block and two undeclared types.
fn sample(version: u32, alignment: Option<u32>) -> Vec<u8> {
    let n_pairs = 17 + u64::from(alignment.is_some());
    let mut file = Writer::gguf(version, 5, n_pairs);
    if let Some(alignment) = alignment {
        file = file.key("general.alignment", 4).u32(alignment);
    }
    let file = file
        .key("a.u8", 0)
        .raw(&[200])
        .key("a.i8", 1)
        .raw(&[200])
        .key("a.u16", 2)
        .raw(&[1, 2])
        .key("a.i16", 3)
        .raw(&[1, 2])
        .key("a.u32", 4)
        .u32(4_000_000_000)
        .key("a.i32", 5)
        .u32(u32::MAX)
        .key("a.f32", 6)
        .raw(&1e-5f32.to_le_bytes())
        .key("a.true", BOOL)
        .raw(&[1])
        .key("a.two", BOOL)
        .raw(&[2])
        .key("a.string", STRING)
        .string("Grüße")
        .key("a.u64", 10)
        .u64(u64::MAX)
        .key("a.i64", 11)
        .u64(u64::MAX)
        .key("a.f64", 12)
        .raw(&0.1f64.to_le_bytes())
        .key("a.strings", ARRAY)
        .u32(STRING)
        .u64(3)
        .string("Ġt")
        .string("")
        .string("é")
        .key("a.i32s", ARRAY)
        .u32(5)
        .u64(3)
        .u32(1)
        .u32(u32::MAX)
        .u32(7)
        .key("a.f32s", ARRAY)
        .u32(6)
        .u64(2)
        .raw(&0.5f32.to_le_bytes())
        .raw(&(-2.0f32).to_le_bytes())
        .key("a.nested", ARRAY)
        .u32(ARRAY)
        .u64(2)
        .u32(0)
        .u64(1)
        .raw(&[9])
        .u32(STRING)
        .u64(1)
        .string("x");
    let alignment = u64::from(alignment.unwrap_or(32));
    let second = 24u64.next_multiple_of(alignment);
    let third = (second + 120).next_multiple_of(alignment);
    file.tensor("norm", &[3, 2], 0, 0)
        .tensor("w", &[64, 3], 3, second)
        .tensor("k", &[256], 12, third)
        .tensor("odd", &[5], 77, third)
        .tensor("ids", &[2], 26, third)
        .pad_to(alignment as usize)
        .raw(&[0.5f32, 1.5, 2.5, -3.5, 4.5, 5.5].map(f32::to_le_bytes).concat())
        .pad_to(alignment as usize)
        .raw(&(0..120).collect::<Vec<u8>>())
        .pad_to(alignment as usize)
        .raw(&[7i32, -8].map(i32::to_le_bytes).concat())
        .0
}

fn open(bytes: &[u8]) -> Result<Gguf, SourceError> {
    Gguf::from_bytes(bytes.to_vec())
}

fn message<T>(result: Result<T, SourceError>) -> String {
    result.err().map_or("no error".to_owned(), |error| error.to_string())
}

/// Asks for everything that a file has.
fn read_everything(file: &Gguf) {
    for name in file.names() {
        let _ = file.tensor(name);
    }
    for key in file.metadata_keys() {
        let _ = (file.u32(key), file.u64(key), file.f32(key), file.bool(key), file.str(key));
        let _ = (file.strings(key), file.i32s(key), file.f32s(key));
    }
}

#[test]
fn values_and_tensors_are_read_from_both_versions_and_any_alignment() {
    for (version, alignment) in [(2, None), (3, None), (3, Some(8)), (3, Some(64)), (2, Some(24))] {
        let file = open(&sample(version, alignment)).unwrap();
        assert_eq!(file.u32("a.u32").unwrap(), 4_000_000_000);
        assert_eq!(file.u64("a.u64").unwrap(), u64::MAX);
        assert_eq!(file.f32("a.f32").unwrap(), 1e-5);
        assert!(file.bool("a.true").unwrap());
        assert_eq!(file.str("a.string").unwrap(), "Grüße");
        assert_eq!(file.strings("a.strings").unwrap(), ["Ġt", "", "é"]);
        assert_eq!(file.i32s("a.i32s").unwrap(), [1, -1, 7]);
        assert_eq!(file.f32s("a.f32s").unwrap(), [0.5, -2.0]);
        assert_eq!(file.metadata_keys().last(), Some(&"a.nested"));
        assert_eq!(file.names(), ["norm", "w", "k", "odd", "ids"]);

        let norm = file.tensor("norm").unwrap();
        assert_eq!((norm.name, &norm.shape[..]), ("norm", &[2, 3][..]));
        assert_eq!(norm.encoding, Encoding::Dense(DType::F32));
        assert_eq!(&norm.bytes[12..16], (-3.5f32).to_le_bytes());
        let w = file.tensor("w").unwrap();
        assert_eq!(w.shape, [3, 64]);
        assert_eq!(w.encoding, Encoding::Gguf { type_id: 3, name: Cow::Borrowed("Q4_1") });
        assert_eq!(w.bytes, (0..120).collect::<Vec<u8>>());
        let ids = file.tensor("ids").unwrap();
        assert_eq!(ids.encoding, Encoding::Dense(DType::I32));
        assert_eq!(ids.bytes, [7i32, -8].map(i32::to_le_bytes).concat());
    }
}

/// Every byte written by hand, so that the writer and the reader cannot be wrong together.
#[test]
fn a_file_written_byte_by_byte_is_read() {
    #[rustfmt::skip]
    let bytes = [
        b'G', b'G', b'U', b'F', 3, 0, 0, 0, // magic, version
        1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, // tensors, pairs
        1, 0, 0, 0, 0, 0, 0, 0, b'k', 4, 0, 0, 0, 0x39, 0x30, 0, 0, // k = 12345u32
        1, 0, 0, 0, 0, 0, 0, 0, b't', 2, 0, 0, 0, // t, 2 dims
        1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, // 1, 2
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // f16, offset 0
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // 82 bytes so far, the data begins at 96
        0, 0x3C, 0, 0xC0, // 1, -2
    ];
    let file = open(&bytes).unwrap();
    assert_eq!(file.u32("k").unwrap(), 12345);
    let tensor = file.tensor("t").unwrap();
    assert_eq!((tensor.shape, tensor.encoding), (vec![2, 1], Encoding::Dense(DType::F16)));
    assert_eq!(tensor.bytes, [0, 0x3C, 0, 0xC0]);
}

#[test]
fn getters_name_key_expected_and_found_type() {
    let file = open(&sample(3, None)).unwrap();
    assert_eq!(message(file.u32("a.u64")), "metadata key `a.u64`: expected u32, found u64");
    assert_eq!(
        message(file.f32("a.f32s")),
        "metadata key `a.f32s`: expected f32, found array of f32"
    );
    assert_eq!(
        message(file.strings("a.nested")),
        "metadata key `a.nested`: expected array of string, found array of array"
    );
    assert_eq!(message(file.str("a.u8")), "metadata key `a.u8`: expected string, found u8");
    assert_eq!(message(file.bool("a.two")), "metadata key `a.two`: expected 0 or 1, found 2");
    assert_eq!(message(file.u32("b")), "the file has no metadata key `b`");
    assert_eq!(message(file.tensor("b")), "no tensor is named `b`, among 5");
}

/// The right count of a narrower type: 12 bytes must not be read as 12 numbers of 4.
#[test]
fn an_array_of_narrower_elements_is_refused() {
    let elements = (0..12).collect::<Vec<u8>>();
    let bytes = Writer::gguf(3, 0, 1).key("scores", ARRAY).u32(0).u64(12).raw(&elements).0;
    let file = open(&bytes).unwrap();
    let error = file.f32s("scores").unwrap_err();
    assert!(matches!(error, SourceError::KeyType { .. }));
    assert_eq!(
        error.to_string(),
        "metadata key `scores`: expected array of f32, found array of u8"
    );
    assert!(matches!(file.i32s("scores"), Err(SourceError::KeyType { .. })));
}

/// A key as long as 2^48 bytes, and one of none, in files of a few bytes.
#[test]
fn key_lengths_are_not_believed() {
    let huge = Writer::gguf(3, 0, 1).u64(0xFFFF_FFFF_FFFF).0;
    assert_eq!(huge.len(), 32);
    let (result, peak) = peak_bytes(|| Gguf::from_bytes(huge));
    assert!(matches!(result, Err(SourceError::Truncated { .. })));
    assert_eq!(
        message(result),
        "expected 281474976710655 bytes of metadata key 0 of 1 at offset 32, found 0"
    );
    assert!(peak < 1 << 16, "{peak}");
    let empty = Writer::gguf(3, 0, 1).key("", 0).raw(&[1]).0;
    assert_eq!(
        message(open(&empty)),
        "metadata key 0 of 1: expected at least one byte, found an empty key"
    );
}

#[test]
fn claimed_counts_are_not_allocated() {
    let array = |element: u32, count: u64| {
        Writer::gguf(3, 0, 1).key("k", ARRAY).u32(element).u64(count).raw(&[0; 64]).0
    };
    let mut files = vec![
        Writer::gguf(3, u64::MAX, 0).raw(&[0; 64]).0,
        Writer::gguf(3, 0, u64::MAX).raw(&[0; 64]).0,
        Writer::gguf(3, 0, 1).key("k", STRING).u64(u64::MAX).0,
        Writer::gguf(3, 1, 0).string("t").u32(u32::MAX).raw(&[0; 64]).0,
    ];
    for element in 0..=12 {
        files.extend([u64::MAX, 1 << 61, 1 << 40].map(|count| array(element, count)));
    }
    for bytes in files {
        let (result, peak) = peak_bytes(|| open(&bytes));
        assert!(result.is_err(), "{bytes:?}");
        assert!(peak < 1 << 16, "{peak} bytes for {bytes:?}");
    }
}

#[test]
fn arrays_nested_without_end_are_refused() {
    let mut bytes = Writer::gguf(3, 0, 1).key("k", ARRAY);
    for _ in 0..100_000 {
        bytes = bytes.u32(ARRAY).u64(1);
    }
    assert_eq!(
        message(open(&bytes.0)),
        "metadata key `k`: expected arrays nested at most 8 deep, found deeper ones"
    );
}

#[test]
fn fields_out_of_range_are_named() {
    let tensor = |dims: &[u64], type_id, offset| {
        message(open(
            &Writer::gguf(3, 1, 0).tensor("t", dims, type_id, offset).pad_to(32).raw(&[0; 64]).0,
        ))
    };
    assert_eq!(tensor(&[16], 0, 0), "no error");
    assert_eq!(tensor(&[], 0, 0), "no error");
    assert_eq!(tensor(&[0, 5], 0, 0), "no error");
    assert_eq!(tensor(&[17], 0, 0), "expected 68 bytes of tensor `t` at offset 64, found 64");
    assert_eq!(tensor(&[1], 0, 64), "expected 4 bytes of tensor `t` at offset 128, found 0");
    assert!(tensor(&[1], 0, u64::MAX - 31).ends_with("found 0"));
    assert_eq!(tensor(&[1], 0, 8), "the offset of tensor `t`: expected a multiple of 32, found 8");
    assert_eq!(
        tensor(&[1, 1, 1, 1, 1], 0, 0),
        "the number of dims of tensor `t`: expected at most 4, found 5"
    );
    assert_eq!(
        tensor(&[48], 3, 0),
        "tensor `t` of shape [48]: expected rows of whole blocks of 32 elements, found rows of 48"
    );
    assert_eq!(
        tensor(&[1 << 31, 1 << 33], 0, 0),
        "tensor `t` of shape [8589934592, 2147483648]: expected a size below 2^64 bytes, found a larger one"
    );

    let head = |bytes: Writer| message(open(&bytes.0));
    assert_eq!(message(open(b"")), "expected a GGUF file, which begins with `GGUF`, found ``");
    assert!(message(open(b"PK\x03\x04")).ends_with("found `PK\\x03\\x04`"));
    assert_eq!(head(Writer::gguf(1, 0, 0)), "expected GGUF version 2 or 3, found 1");
    assert_eq!(
        head(Writer::gguf(0x0300_0000, 0, 0)),
        "expected GGUF version 2 or 3, found 50331648 (a big-endian file)"
    );
    let alignment = |value| Writer::gguf(3, 0, 1).key("general.alignment", 4).u32(value);
    assert_eq!(
        head(alignment(0)),
        "metadata key `general.alignment`: expected a positive number, found 0"
    );
    assert_eq!(head(alignment(u32::MAX)), "no error");
    assert_eq!(
        head(Writer::gguf(3, 0, 1).key("general.alignment", 10).u64(32)),
        "metadata key `general.alignment`: expected u32, found u64"
    );
    assert_eq!(
        head(Writer::gguf(3, 0, 1).key("k", 13)),
        "the type of metadata key `k`: expected a number from 0 to 12, found 13"
    );
    let twice = Writer::gguf(3, 0, 2).key("k", 0).raw(&[1]).key("k", 0).raw(&[1]);
    assert_eq!(head(twice), "metadata key `k` appears twice");
    let twice = Writer::gguf(3, 2, 0).tensor("t", &[0], 0, 0).tensor("t", &[0], 0, 0).pad_to(32);
    assert_eq!(head(twice), "tensor `t` appears twice");
    let latin = Writer::gguf(3, 0, 1).u64(1).raw(&[0xE9]).u32(0).raw(&[0]);
    assert!(head(latin).starts_with("metadata key 0 of 1: expected UTF-8, found incomplete utf-8"));
}

#[test]
fn an_undeclared_type_is_an_error_of_the_tensor_until_it_is_declared() {
    let mut file = open(&sample(3, None)).unwrap();
    assert_eq!(
        message(file.tensor("k")),
        "tensor `k`: expected one of f32, f16, bf16, Q8_0, Q4_1, i32, found Q4_K (GGUF type 12)"
    );
    assert!(message(file.tensor("odd")).ends_with("found the unknown GGUF type 77"));

    let mut tiny = WeightFormat {
        name: Cow::Borrowed("Tiny"),
        bits: 8,
        code: CodeMap::Signed,
        group: Some(Group { size: 64, scale: DType::F16, offset: None }),
        gguf: Some(GgufBlock {
            type_id: 12,
            bytes: 2,
            scale_at: Some(0),
            offset_at: None,
            codes_at: 0,
            order: CodeOrder::Sequential,
        }),
    };
    file.declare(&tiny);
    let k = file.tensor("k").unwrap();
    assert_eq!((k.encoding.to_string(), k.bytes.len()), ("Tiny".to_owned(), 8));

    // A declaration that asks for more than the file has is found when the tensor is asked for.
    tiny.gguf.as_mut().unwrap().bytes = 66;
    file.declare(&tiny);
    assert!(message(file.tensor("k")).starts_with("expected 264 bytes of tensor `k`"));
}

#[test]
fn a_file_cut_at_any_byte_is_an_error() {
    let bytes = sample(3, None);
    read_everything(&open(&bytes).unwrap());
    for len in 0..bytes.len() {
        match open(&bytes[..len]) {
            Err(SourceError::NotGguf { .. }) if len < 4 => {}
            Err(SourceError::Truncated { .. }) => {}
            other => panic!("cut to {len} of {} bytes: {other:?}", bytes.len()),
        }
    }
}

#[test]
fn random_changes_never_panic_or_allocate_much() {
    let seed = 0x5EED_0001;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let valid = sample(3, Some(8));
    let mut opened = 0;
    for _ in 0..20_000 {
        let bytes = mutate(&valid, &mut random);
        let (_, peak) = peak_bytes(|| {
            if let Ok(file) = open(&bytes) {
                opened += 1;
                read_everything(&file);
            }
        });
        assert!(peak < 1 << 16, "{peak} bytes for {bytes:?}");
    }
    assert!((1_000..19_000).contains(&opened), "{opened} of 20000 files were still valid");
}

#[test]
fn a_file_is_mapped_and_a_missing_one_is_named() {
    let path = std::env::temp_dir().join(format!("fuseline-source-{}.gguf", std::process::id()));
    std::fs::write(&path, sample(3, None)).unwrap();
    let file = Gguf::open(&path).unwrap();
    assert_eq!(file.str("a.string").unwrap(), "Grüße");
    drop(file);
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(Gguf::open(&path), Err(SourceError::NotGguf { .. })));
    std::fs::remove_file(&path).unwrap();
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(error, SourceError::Io { .. }));
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}
