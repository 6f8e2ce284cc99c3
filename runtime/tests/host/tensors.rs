//! Tensors, tokens and indices: what they hold and refuse.

use fuseline_core::dtype::DType;
use fuseline_runtime::cache::{Index, KvCache};
use fuseline_runtime::device::Device;
use fuseline_runtime::error::Error;
use fuseline_runtime::source::{Encoding, Slices, SourceError, TensorSource, TensorView};
use fuseline_runtime::tensor::{Tensor, Tokens};
use half::{bf16, f16};

#[test]
fn elements_come_back_as_they_went() {
    let device = Device::cpu();
    let numbers = [1.5f32, -0.0, f32::MIN_POSITIVE / 4.0, f32::INFINITY, 3.0e38, -7.25];
    let tensor: Tensor<f32, 3, 2> = Tensor::from_slice(&device, &numbers).unwrap();
    let bits = |numbers: &[f32]| numbers.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&tensor.to_vec().unwrap()), bits(&numbers));
    let halves = [f16::from_f32(0.1), f16::NEG_INFINITY, f16::MIN_POSITIVE_SUBNORMAL];
    let tensor: Tensor<f16, 3> = Tensor::from_slice(&device, &halves).unwrap();
    assert_eq!(tensor.to_vec().unwrap(), halves);
    let uppers = [bf16::from_f32(0.1), bf16::MAX];
    let tensor: Tensor<bf16, 2, 1, 1, 1> = Tensor::from_slice(&device, &uppers).unwrap();
    assert_eq!((tensor.to_vec().unwrap(), tensor.shape()), (uppers.to_vec(), vec![2, 1, 1, 1]));
}

#[test]
fn rows_are_as_many_as_were_given() {
    let device = Device::cpu();
    let none: Tensor<f32, 3, 5> = Tensor::from_slice(&device, &[]).unwrap();
    assert_eq!((none.rows(), none.shape(), none.to_vec().unwrap()), (0, vec![0, 5], vec![]));
    let two: Tensor<f32, 3, 5> = Tensor::from_slice(&device, &[2.0; 10]).unwrap();
    assert_eq!((two.rows(), two.shape()), (2, vec![2, 5]));
    let zeros: Tensor<f32, 3, 5> = Tensor::zeros(&device, 3).unwrap();
    assert_eq!(zeros.to_vec().unwrap(), [0.0; 15]);
    let ragged = Tensor::<f32, 3, 5>::from_slice(&device, &[0.0; 7]).unwrap_err();
    assert_eq!(ragged.to_string(), "`tensor` has shape [7], expected [3, 5]");
    let many = Tensor::<f32, 3, 5>::from_slice(&device, &[0.0; 20]).unwrap_err();
    let text = "`tensor` has 4 rows, expected at most 3";
    assert_eq!(many.to_string(), text);
}

#[test]
fn filling_widens_only_where_that_changes_no_number() {
    let device = Device::cpu();
    let slices = Slices::new()
        .f32("f32", &[2], vec![0.1, -4.0])
        .f16("f16", &[2], vec![f16::from_f32(0.1), f16::from_f32(-4.0)])
        .bf16("bf16", &[2], vec![bf16::from_f32(0.1), bf16::from_f32(-4.0)])
        .i32("i32", &[2], vec![1, -4]);
    let fill = |name| Tensor::<f32, 2>::fill(&device, &slices, name);
    assert_eq!(fill("f32").unwrap().to_vec().unwrap(), [0.1, -4.0]);
    // 0.1 is 0x2E66 as binary16 (1638/2^14), and 0x3DCD as bfloat16 (205/2^11).
    assert_eq!(fill("f16").unwrap().to_vec().unwrap(), [1638.0 / 16384.0, -4.0]);
    assert_eq!(fill("bf16").unwrap().to_vec().unwrap(), [205.0 / 2048.0, -4.0]);
    let text = "`i32` is stored as i32, which does not become f32 exactly";
    assert_eq!(fill("i32").unwrap_err().to_string(), text);
    assert!(matches!(fill("x"), Err(Error::Source(SourceError::MissingTensor { .. }))));
    let f16s = |name| Tensor::<f16, 2>::fill(&device, &slices, name);
    assert_eq!(f16s("f16").unwrap().to_vec().unwrap()[1], f16::from_f32(-4.0));
    assert!(matches!(f16s("f32"), Err(Error::Encoding { .. })));
    assert!(matches!(f16s("bf16"), Err(Error::Encoding { .. })));
    assert!(matches!(
        Tensor::<bf16, 2>::fill(&device, &slices, "f16"),
        Err(Error::Encoding { .. })
    ));
    let long = Tensor::<f32, 3>::fill(&device, &slices, "f32").unwrap_err();
    assert_eq!(long.to_string(), "`f32` has shape [2], expected [3]");
    assert!(matches!(Tensor::<f32, 2, 1>::fill(&device, &slices, "f32"), Err(Error::Shape { .. })));
}

#[test]
fn tokens_are_ids_that_kernels_can_hold() {
    let device = Device::cpu();
    let tokens = Tokens::<4>::new(&device, &[0, 7, (1 << 31) - 1]).unwrap();
    assert_eq!((tokens.rows(), tokens.to_vec().unwrap()), (3, vec![0, 7, (1 << 31) - 1]));
    let large = Tokens::<4>::new(&device, &[0, 1 << 31]).unwrap_err();
    let text = "token id 2147483648 does not fit into an index of 32 bits";
    assert_eq!(large.to_string(), text);
    assert!(matches!(Tokens::<1>::new(&device, &[0, 1]), Err(Error::Rows { found: 2, .. })));
}

#[test]
fn indices_say_where_rows_go() {
    let device = Device::cpu();
    let decode = Index::<4>::decode(&device, &[9, 0, 3]).unwrap();
    assert_eq!(decode.rows(), 3);
    let prompt = Index::<4>::prompt(&device, 2, 5..9).unwrap();
    assert_eq!(prompt.rows(), 4);
    assert_eq!(Index::<4>::prompt(&device, 2, 5..5).unwrap().rows(), 0);
}

#[test]
fn indices_refuse_rows_that_do_not_fit() {
    let device = Device::cpu();
    let many = Index::<2>::decode(&device, &[0, 0, 0]).unwrap_err();
    assert_eq!(many.to_string(), "`index` has 3 rows, expected at most 2");
    let far = Index::<2>::new(&device, &[(1 << 31, 0)]).unwrap_err();
    assert_eq!(far.to_string(), "position 2147483648 does not fit into an index of 32 bits");
    let far = Index::<2>::new(&device, &[(0, 0), (0, usize::MAX)]).unwrap_err();
    assert!(matches!(far, Error::Index { what: "sequence", value: usize::MAX }), "{far}");
}

#[test]
fn a_range_longer_than_memory_is_refused_before_it_is_made() {
    let prompt = Index::<2>::prompt(&Device::cpu(), 0, 0..usize::MAX).unwrap_err();
    assert!(matches!(prompt, Error::Rows { found: usize::MAX, .. }), "{prompt}");
}

#[test]
fn sizes_that_overflow_are_errors() {
    const HUGE: usize = 1 << 62;
    let device = Device::cpu();
    let error = Tensor::<f32, HUGE, 8>::zeros(&device, HUGE).unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "tensor", .. }), "{error}");
    let error = Tensor::<f32, 2, HUGE, 8>::from_slice(&device, &[1.0]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let error = KvCache::<f32, HUGE, 2, 2, 2>::new(&device).unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "cache", .. }), "{error}");
}

/// A source that hands out fewer bytes than its shape asks for.
struct Short;

impl TensorSource for Short {
    fn tensor(&self, name: &str) -> Result<TensorView<'_>, SourceError> {
        let name = if name == "a" { "a" } else { "b" };
        let encoding = Encoding::Dense(DType::F32);
        Ok(TensorView { name, shape: vec![2], encoding, bytes: &[0, 0, 0x80, 0x3F] })
    }

    fn names(&self) -> Vec<&str> {
        vec!["a"]
    }
}

#[test]
fn sources_of_the_programs_own_are_not_trusted() {
    let error = Tensor::<f32, 2>::fill(&Device::cpu(), &Short, "a").unwrap_err();
    assert_eq!(error.to_string(), "tensor `a` of shape [2]: expected 8 bytes, found 4");
}
