//! Safetensors: contents, faults, and that no bytes make it panic or allocate what they claim.

use crate::allocation::peak_bytes;
use crate::bytes::{Random, Writer, mutate};
use fuseline_core::dtype::DType;
use fuseline_runtime::source::{Encoding, Safetensors, SourceError, TensorSource};

const HEADER: &str = r#"{"__metadata__":{"format":"pt"},
    "b":{"dtype":"F32","shape":[2,1],"data_offsets":[6,14]},
    "a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},
    "d":{"dtype":"F64","shape":[],"data_offsets":[14,22]}}"#;

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    Writer::default().string(header).raw(data).0
}

fn message(bytes: &[u8]) -> String {
    let (result, peak) = peak_bytes(|| Safetensors::from_bytes(bytes.to_vec()));
    assert!(peak < 1 << 16, "{peak} bytes for {bytes:?}");
    result.err().map_or("no error".to_owned(), |error| error.to_string())
}

#[test]
fn tensors_are_read() {
    let data: Vec<u8> = (0..22).collect();
    let file = Safetensors::from_bytes(file(HEADER, &data)).unwrap();
    assert_eq!(file.names(), ["a", "b", "d"]);
    let a = file.tensor("a").unwrap();
    assert_eq!((a.shape, a.encoding), (vec![3], Encoding::Dense(DType::BF16)));
    assert_eq!(a.bytes, [0, 1, 2, 3, 4, 5]);
    let b = file.tensor("b").unwrap();
    assert_eq!((b.shape, b.encoding), (vec![2, 1], Encoding::Dense(DType::F32)));
    assert_eq!(b.bytes, [6, 7, 8, 9, 10, 11, 12, 13]);
    let error = file.tensor("d").unwrap_err().to_string();
    assert_eq!(error, "tensor `d`: expected one of F32, F16, BF16, I32, found F64");
    let error = file.tensor("c").unwrap_err().to_string();
    assert_eq!(error, "no tensor is named `c`, among 3");
}

#[test]
fn header_lengths_are_not_believed() {
    let length = |length: u64| message(&Writer::default().u64(length).raw(b"{}").0);
    let limit = "but the limit is 100000000";
    assert_eq!(
        length(u64::MAX - 4),
        format!("the header is stated to be 18446744073709551611 bytes long, {limit}")
    );
    assert_eq!(
        length(132_095_296),
        format!("the header is stated to be 132095296 bytes long, {limit}")
    );
    assert_eq!(length(3), "expected 3 bytes of the header at offset 8, found 2");
    assert_eq!(length(2), "no error");
    assert_eq!(message(&[1, 2]), "expected 8 bytes of the header's length at offset 0, found 2");
}

#[test]
fn spans_that_are_wrong_are_named() {
    let tensor = |shape: &str, offsets: &str, data: &[u8]| {
        let entry =
            format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
        message(&file(&entry, data))
    };
    assert_eq!(tensor("[2]", "[0,8]", &[0; 8]), "no error");
    assert_eq!(
        tensor("[2]", "[8,4]", &[0; 8]),
        "the data_offsets of tensor `t`: expected begin ≤ end, found [8, 4]"
    );
    assert_eq!(
        tensor("[4]", "[0,8]", &[0; 8]),
        "tensor `t` of shape [4]: expected 16 bytes, found 8"
    );
    assert_eq!(
        tensor("[4294967296,4294967296]", "[0,8]", &[0; 8]),
        "tensor `t` of shape [4294967296, 4294967296]: expected a size below 2^64 bits, found a larger one"
    );
    let header = r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#.len() + 8;
    assert_eq!(
        tensor("[2]", "[0,8]", &[0; 7]),
        format!("expected 8 bytes of tensor `t` at offset {header}, found 7")
    );
    assert!(tensor("[1]", "[4,8]", &[0; 8]).starts_with("the safetensors header: expected spans"));
    assert!(tensor("[2]", "[0,8]", &[0; 9]).starts_with("the safetensors header: expected spans"));
    let negative = tensor("[2]", "[-8,0]", &[0; 8]);
    assert!(negative.contains("invalid value: integer `-8`"), "{negative}");
}

#[test]
fn json_of_another_kind_is_an_error() {
    for header in
        ["[]", "3", "null", "", "{", r#"{"t":3}"#, r#"{"t":{"dtype":"F32"}}"#, "{\"\u{0}\":"]
    {
        let error = message(&file(header, &[]));
        let expected = "the safetensors header: expected a JSON object of name → dtype";
        assert!(error.starts_with(expected), "`{header}`: {error}");
    }
    assert!(
        message(&file("[]", &[])).contains("invalid type: sequence, expected a map of tensors")
    );
    assert!(matches!(
        Safetensors::from_bytes(file(r#"{"__metadata__":3}"#, &[])),
        Err(SourceError::Invalid { .. })
    ));
    let deep = "[".repeat(100_000);
    assert!(Safetensors::from_bytes(file(&format!("{{\"__metadata__\":{deep}"), &[])).is_err());
}

#[test]
fn a_name_that_appears_twice_is_an_error() {
    let entry = r#""t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    let second = r#""t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}"#;
    for (entries, data) in
        [(format!("{{{entry},{entry}}}"), 4), (format!("{{{entry},{second}}}"), 8)]
    {
        assert_eq!(message(&file(&entries, &vec![0; data])), "tensor `t` appears twice");
    }
}

#[test]
fn a_file_cut_at_any_byte_is_an_error() {
    let bytes = file(HEADER, &[0; 22]);
    for len in 0..bytes.len() {
        let result = Safetensors::from_bytes(bytes[..len].to_vec());
        assert!(matches!(result, Err(SourceError::Truncated { .. })), "cut to {len}: {result:?}");
    }
}

#[test]
fn random_changes_never_panic_or_allocate_much() {
    let seed = 0x5EED_0002;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let valid = file(HEADER, &[0; 22]);
    let mut opened = 0;
    for _ in 0..10_000 {
        let bytes = mutate(&valid, &mut random);
        let (_, peak) = peak_bytes(|| {
            if let Ok(file) = Safetensors::from_bytes(bytes.clone()) {
                opened += 1;
                for name in file.names() {
                    let _ = file.tensor(name);
                }
            }
        });
        assert!(peak < 1 << 16, "{peak} bytes for {bytes:?}");
    }
    assert!((100..9_900).contains(&opened), "{opened} of 10000 files were still valid");
}
