//! Tensors in memory.

use fuseline_core::dtype::DType;
use fuseline_core::format::{PackError, Q4_1, WeightFormat};
use fuseline_runtime::source::{Encoding, Slices, SourceError, TensorSource};
use half::{bf16, f16};

#[test]
fn every_type_is_handed_out_little_endian() {
    let slices = Slices::new()
        .f32("f32", &[2, 1], vec![1.0, -2.0])
        .f16("f16", &[1], vec![f16::from_f32(-2.0)])
        .bf16("bf16", &[1], vec![bf16::from_f32(1.0)])
        .i32("i32", &[], vec![-2])
        .blocks("q", &[2, 32], &Q4_1, (0..40).collect())
        .unwrap();
    assert_eq!(slices.names(), ["f32", "f16", "bf16", "i32", "q"]);
    let dense = |name: &str, dtype: DType, shape: &[usize], bytes: &[u8]| {
        let tensor = slices.tensor(name).unwrap();
        assert_eq!(tensor.encoding, Encoding::Dense(dtype));
        assert_eq!((&tensor.shape[..], tensor.bytes), (shape, bytes));
    };
    dense("f32", DType::F32, &[2, 1], &[0, 0, 0x80, 0x3F, 0, 0, 0, 0xC0]);
    dense("f16", DType::F16, &[1], &[0, 0xC0]);
    dense("bf16", DType::BF16, &[1], &[0x80, 0x3F]);
    dense("i32", DType::I32, &[], &[0xFE, 0xFF, 0xFF, 0xFF]);
    let q = slices.tensor("q").unwrap();
    assert_eq!((q.encoding.to_string(), q.bytes.len()), ("Q4_1".to_owned(), 40));
}

#[test]
fn shapes_that_disagree_with_the_elements_are_errors_when_asked_for() {
    let slices = Slices::new()
        .f32("short", &[3], vec![0.0; 2])
        .f32("huge", &[usize::MAX, usize::MAX], vec![])
        .f32("none", &[0, usize::MAX], vec![])
        .blocks("ragged", &[1, 48], &Q4_1, vec![0; 30])
        .unwrap();
    let message = |name| slices.tensor(name).err().map(|error| error.to_string());
    assert_eq!(
        message("short").unwrap(),
        "tensor `short` of shape [3]: expected 12 bytes, found 8"
    );
    assert!(
        message("huge").unwrap().ends_with("expected a size below 2^64 bytes, found a larger one")
    );
    assert!(message("ragged").unwrap().ends_with("blocks of 32 elements, found rows of 48"));
    assert!(matches!(slices.tensor("x"), Err(SourceError::MissingTensor { count: 4, .. })));
    assert!(message("none").unwrap().contains("a size below 2^64 bytes"));
}

#[test]
fn a_tensor_added_again_replaces_the_earlier_one() {
    let slices =
        Slices::new().f32("a", &[1], vec![1.0]).i32("b", &[1], vec![2]).i32("a", &[1], vec![3]);
    assert_eq!(slices.names(), ["a", "b"]);
    assert_eq!(slices.tensor("a").unwrap().encoding, Encoding::Dense(DType::I32));
}

#[test]
fn blocks_of_a_format_that_has_none_are_refused() {
    let format = WeightFormat { gguf: None, ..Q4_1.clone() };
    let error = Slices::new().blocks("q", &[1, 32], &format, vec![0; 20]).unwrap_err();
    assert!(matches!(error, PackError::NotInGguf { .. }));
}
