//! Int4 weights of other projects on a device: the constructors, and what they refuse.

use fuseline_core::format::PackError;
use fuseline_core::format::interop::{Awq, Gptq, GptqVersion, TinyGemm, TorchAo};
use fuseline_runtime::device::Device;
use fuseline_runtime::element::{Int4FloatG64, Int4G128, Int4ZeroG32, Int4ZeroG64};
use fuseline_runtime::error::Error;
use fuseline_runtime::weight::Weight;
use half::{bf16, f16};

/// Code of output `n`, element `k`.
fn code(n: usize, k: usize) -> u32 {
    ((5 * n + 3 * k + k / 16) % 16) as u32
}

/// Zero point of output `n`, group `g`: 1 to 15.
fn zero(n: usize, g: usize) -> u32 {
    ((7 * n + 4 * g) % 15 + 1) as u32
}

/// A power of two, so that every product below is exact in f32.
fn scale(n: usize, g: usize) -> f32 {
    0.125 * 2f32.powi(((n + 2 * g) % 5) as i32)
}

fn word(nibble: impl Fn(usize) -> u32) -> i32 {
    (0..8).map(|i| nibble(i) << (4 * i)).sum::<u32>() as i32
}

fn elements(n: usize, k: usize, value: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    (0..n * k).map(|i| value(i / k, i % k)).collect()
}

#[test]
fn gptq_and_awq_tensors_become_the_same_weight() {
    const N: usize = 24;
    const K: usize = 192;
    let device = Device::cpu();
    let groups = K / 64;
    let scales: Vec<f16> = (0..groups * N).map(|i| f16::from_f32(scale(i % N, i / N))).collect();
    let qweight: Vec<i32> =
        (0..K / 8 * N).map(|i| word(|j| code(i % N, 8 * (i / N) + j))).collect();
    let zeros = |less: u32| -> Vec<i32> {
        (0..groups * 3).map(|i| word(|j| zero(8 * (i % 3) + j, i / 3) - less)).collect()
    };
    let expected =
        elements(N, K, |n, k| (code(n, k) as f32 - zero(n, k / 64) as f32) * scale(n, k / 64));
    for (version, less) in [(GptqVersion::V1, 1), (GptqVersion::V2, 0)] {
        let qzeros = zeros(less);
        let stored =
            Gptq { qweight: &qweight, qzeros: &qzeros, scales: &scales, g_idx: None, version };
        let weight = Weight::<Int4ZeroG64, N, K>::from_gptq(&device, &stored).unwrap();
        assert_eq!(weight.to_f32().unwrap(), expected, "{version:?}");
        let error = Weight::<Int4ZeroG32, N, K>::from_gptq(&device, &stored).unwrap_err();
        assert_eq!(error.to_string(), "`weight`: expected 18 words of zero points, found 9");
    }
    let order = [0, 2, 4, 6, 1, 3, 5, 7];
    let qweight: Vec<i32> =
        (0..K * 3).map(|i| word(|j| code(8 * (i % 3) + order[j], i / 3))).collect();
    let qzeros: Vec<i32> =
        (0..groups * 3).map(|i| word(|j| zero(8 * (i % 3) + order[j], i / 3))).collect();
    let stored = Awq { qweight: &qweight, qzeros: &qzeros, scales: &scales };
    let weight = Weight::<Int4ZeroG64, N, K>::from_awq(&device, &stored).unwrap();
    assert_eq!(weight.to_f32().unwrap(), expected);
    let error = Weight::<Int4G128, N, 128>::from_awq(&device, &stored).unwrap_err();
    assert!(matches!(error, Error::Pack { error: PackError::Family { .. }, .. }), "{error}");
}

#[test]
fn torchao_tensors_become_weights() {
    const N: usize = 5;
    const K: usize = 384;
    let device = Device::cpu();
    let qdata: Vec<u8> = (0..N * K / 2)
        .map(|i| {
            let at = |k| (code(i / (K / 2), k) as i32 - 8) as u8 & 15;
            at(2 * (i % (K / 2))) | at(2 * (i % (K / 2)) + 1) << 4
        })
        .collect();
    let plane = |groups: usize, number: &dyn Fn(usize, usize) -> f32| -> Vec<bf16> {
        (0..groups * N).map(|i| bf16::from_f32(number(i % N, i / N))).collect()
    };
    let symmetric = plane(3, &scale);
    let stored = TorchAo { qdata: &qdata, scale: &symmetric, zero: None };
    let weight = Weight::<Int4G128, N, K>::from_torchao(&device, &stored).unwrap();
    let expected = elements(N, K, |n, k| (code(n, k) as f32 - 8.0) * scale(n, k / 128));
    assert_eq!(weight.to_f32().unwrap(), expected);

    let offset = |n, g| zero(n, g) as f32 / 4.0 - 2.0;
    let (scales, zeros) = (plane(6, &scale), plane(6, &offset));
    let expected =
        elements(N, K, |n, k| (code(n, k) as f32 - 8.0) * scale(n, k / 64) + offset(n, k / 64));
    let stored = TorchAo { qdata: &qdata, scale: &scales, zero: Some(&zeros) };
    let weight = Weight::<Int4FloatG64, N, K>::from_torchao(&device, &stored).unwrap();
    assert_eq!(weight.to_f32().unwrap(), expected);
    let pairs: Vec<bf16> = scales.iter().zip(&zeros).flat_map(|(&s, &z)| [s, z]).collect();
    let codes: Vec<i32> = (0..N * K).map(|i| code(i / K, i % K) as i32).collect();
    let stored = TinyGemm { codes: &codes, scales_and_zeros: &pairs };
    let weight = Weight::<Int4FloatG64, N, K>::from_tinygemm(&device, &stored).unwrap();
    assert_eq!(weight.to_f32().unwrap(), expected);
    let error = Weight::<Int4FloatG64, N, 100>::from_tinygemm(&device, &stored).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`weight`: a row of 100 elements does not divide into groups of 64"
    );
}
