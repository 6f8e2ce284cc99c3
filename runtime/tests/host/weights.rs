//! Weights: from numbers, planes and files, and back.

use fuseline_core::dtype::DType;
use fuseline_core::format::{self, CodeMap, Group, PackError, WeightFormat};
use fuseline_runtime::device::Device;
use fuseline_runtime::element::{Format, Q4_1, Q8_0};
use fuseline_runtime::error::Error;
use fuseline_runtime::source::Slices;
use fuseline_runtime::weight::Weight;
use half::{bf16, f16};
use std::borrow::Cow;

/// Sixteen numbers by 4-bit codes, with a scale for each 8 elements.
struct Table;

const TABLE: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

impl Format for Table {
    fn declaration() -> WeightFormat {
        WeightFormat {
            name: Cow::Borrowed("Table"),
            bits: 4,
            code: CodeMap::Codebook(Cow::Borrowed(&TABLE)),
            group: Some(Group { size: 8, scale: DType::F32, offset: None }),
            gguf: None,
        }
    }
}

/// Two groups of 32 for eight outputs: code k mod 16, zero point 1 + output, scale 1/2 and 2.
#[test]
fn weights_of_gptq_are_taken_as_they_are() {
    use fuseline_core::format::interop::{Gptq, GptqVersion};
    use fuseline_runtime::element::{Int4G32, Int4ZeroG32};
    let device = Device::cpu();
    let word = |nibble: &dyn Fn(u32) -> u32| {
        (0..8).fold(0, |word: u32, i| word | nibble(i) << (4 * i)) as i32
    };
    let qweight: Vec<i32> = (0..64).map(|at: u32| word(&|i| (8 * (at / 8) + i) % 16)).collect();
    let qzeros = [word(&|output| output); 2];
    let scales: Vec<f16> = (0..16).map(|at| f16::from_f32([0.5, 2.0][at / 8])).collect();
    let version = GptqVersion::V1;
    let stored = Gptq { qweight: &qweight, qzeros: &qzeros, scales: &scales, g_idx: None, version };
    let weight: Weight<Int4ZeroG32, 8, 64> = Weight::from_gptq(&device, &stored).unwrap();
    let expected: Vec<f32> = (0..8 * 64)
        .map(|at| ((at % 64 % 16) as f32 - (1 + at / 64) as f32) * [0.5, 2.0][at % 64 / 32])
        .collect();
    assert_eq!(weight.to_f32().unwrap(), expected);
    let error = Weight::<Int4G32, 8, 64>::from_gptq(&device, &stored).unwrap_err();
    assert_eq!(error.to_string(), "`weight`: expected an `Int4Zero` format, found `Int4G32`");
}

#[test]
fn numbers_that_a_format_holds_survive_quantising() {
    let device = Device::cpu();
    // Two rows of 64; every group spans -127/4 ..= 127/4 in quarters, so the scale is 1/4.
    let q8: Vec<f32> =
        (0..128).map(|i| [127, -127, i - 64][(i % 3) as usize] as f32 / 4.0).collect();
    let weight: Weight<Q8_0, 2, 64> = Weight::quantize(&device, &q8).unwrap();
    assert_eq!(weight.to_f32().unwrap(), q8);
    // Every group spans 15 steps of 1/2 from -3.
    let q4: Vec<f32> = (0..96).map(|i| (i * 7 % 16) as f32 / 2.0 - 3.0).collect();
    let weight: Weight<Q4_1, 3, 32> = Weight::quantize(&device, &q4).unwrap();
    assert_eq!(weight.to_f32().unwrap(), q4);
    let dense = [0.1f32, -2.5e-3, 7.0];
    let weight: Weight<f32, 1, 3> = Weight::quantize(&device, &dense).unwrap();
    assert_eq!(weight.to_f32().unwrap(), dense);
    let weight: Weight<f16, 3, 1> = Weight::quantize(&device, &dense).unwrap();
    assert_eq!(weight.to_f32().unwrap(), dense.map(|v| f16::from_f32(v).to_f32()));
    let weight: Weight<bf16, 3, 1> = Weight::quantize(&device, &dense).unwrap();
    assert_eq!(weight.to_f32().unwrap(), dense.map(|v| bf16::from_f32(v).to_f32()));
}

#[test]
fn planes_are_code_times_scale_plus_offset() {
    let device = Device::cpu();
    let codes: Vec<u32> = (0..32).map(|i| i * 5 % 16).collect();
    let scales = [0.5, -3.0, 1.0, 2.0];
    let weight: Weight<Table, 2, 16> = Weight::from_planes(&device, &codes, &scales, &[]).unwrap();
    let expected: Vec<f32> =
        codes.iter().zip(0..).map(|(&c, i)| TABLE[c as usize] * scales[i / 8]).collect();
    assert_eq!(weight.to_f32().unwrap(), expected);
    let weight: Weight<Q4_1, 1, 32> =
        Weight::from_planes(&device, &codes, &[0.25], &[-8.0]).unwrap();
    let expected: Vec<f32> = codes.iter().map(|&c| c as f32 * 0.25 - 8.0).collect();
    assert_eq!(weight.to_f32().unwrap(), expected);
}

#[test]
fn planes_that_do_not_fit_are_refused() {
    let device = Device::cpu();
    let make = |codes: &[u32], scales: &[f32], offsets: &[f32]| {
        Weight::<Q4_1, 1, 32>::from_planes(&device, codes, scales, offsets)
    };
    let short = make(&[1; 31], &[1.0], &[0.0]).unwrap_err();
    assert_eq!(short.to_string(), "`weight`: expected 32 codes, found 31");
    assert!(matches!(make(&[1; 32], &[1.0], &[]), Err(Error::Pack { .. })));
    assert!(matches!(make(&[1; 32], &[1.0; 2], &[0.0]), Err(Error::Pack { .. })));
    // All 32 bits are a code.
    assert!(Weight::<f32, 1, 1>::from_planes(&device, &[u32::MAX], &[], &[]).is_ok());
}

#[test]
fn every_format_is_filled_from_a_source() {
    let device = Device::cpu();
    // A Q8_0 block is an f16 scale and 32 signed bytes.
    let q8: Vec<u8> =
        f16::from_f32(0.5).to_le_bytes().into_iter().chain(240..=255).chain(0..16).collect();
    // A Q4_1 block is an f16 scale, an f16 offset and 16 bytes: low nibbles come first.
    let head = [f16::from_f32(2.0), f16::from_f32(-1.0)].map(f16::to_le_bytes).concat();
    let q4: Vec<u8> = head.into_iter().chain((0..16).map(|i| i | (15 - i) << 4)).collect();
    let slices = Slices::new()
        .blocks("q8", &[1, 32], &format::Q8_0, q8)
        .and_then(|slices| slices.blocks("q4", &[1, 32], &format::Q4_1, q4))
        .unwrap()
        .f32("f32", &[2, 1], vec![0.1, 2.0])
        .f16("f16", &[2, 1], vec![f16::from_f32(0.5), f16::MAX])
        .bf16("bf16", &[2, 1], vec![bf16::from_f32(0.5), bf16::MAX])
        .i32("i32", &[2, 1], vec![1, 2]);
    let weight = Weight::<Q8_0, 1, 32>::fill(&device, &slices, "q8").unwrap();
    let expected: Vec<f32> = (-16..16).map(|code| code as f32 / 2.0).collect();
    assert_eq!(weight.to_f32().unwrap(), expected);
    let weight = Weight::<Q4_1, 1, 32>::fill(&device, &slices, "q4").unwrap();
    let codes = (0..16).chain((0..16).rev());
    let expected: Vec<f32> = codes.map(|code| code as f32 * 2.0 - 1.0).collect();
    assert_eq!(weight.to_f32().unwrap(), expected);
    let f32s = |name| Weight::<f32, 2, 1>::fill(&device, &slices, name);
    assert_eq!(f32s("f32").unwrap().to_f32().unwrap(), [0.1, 2.0]);
    assert_eq!(f32s("f16").unwrap().to_f32().unwrap(), [0.5, 65504.0]);
    assert_eq!(f32s("bf16").unwrap().to_f32().unwrap(), [0.5, bf16::MAX.to_f32()]);
    assert!(matches!(f32s("i32"), Err(Error::Encoding { .. })));
    let f16s = Weight::<f16, 2, 1>::fill(&device, &slices, "f16").unwrap();
    assert_eq!(f16s.to_f32().unwrap(), [0.5, 65504.0]);
    assert!(matches!(
        Weight::<f16, 2, 1>::fill(&device, &slices, "f32"),
        Err(Error::Encoding { .. })
    ));
    let bf16s = Weight::<bf16, 2, 1>::fill(&device, &slices, "bf16").unwrap();
    assert_eq!(bf16s.to_f32().unwrap(), [0.5, bf16::MAX.to_f32()]);
    let other = Weight::<Q4_1, 1, 32>::fill(&device, &slices, "q8").unwrap_err();
    assert_eq!(other.to_string(), "`q8` is stored as Q8_0, which does not become Q4_1 exactly");
    let turned = Weight::<Q8_0, 32, 1>::fill(&device, &slices, "q8").unwrap_err();
    assert_eq!(turned.to_string(), "`q8` has shape [1, 32], expected [32, 1]");
    assert!(matches!(
        Weight::<Q8_0, 2, 1>::fill(&device, &slices, "f32"),
        Err(Error::Encoding { .. })
    ));
    assert!(matches!(Weight::<Q8_0, 2, 1>::fill(&device, &slices, "none"), Err(Error::Source(_))));
}

/// A declaration that contradicts itself.
struct Wrong;

impl Format for Wrong {
    fn declaration() -> WeightFormat {
        WeightFormat { bits: 5, name: Cow::Borrowed("Wrong"), ..format::Q4_1 }
    }
}

/// Numbers with scales.
struct Scaled;

impl Format for Scaled {
    fn declaration() -> WeightFormat {
        let group = Some(Group { size: 8, scale: DType::F32, offset: None });
        WeightFormat { name: Cow::Borrowed("Scaled"), group, gguf: None, ..format::F16 }
    }
}

#[test]
fn what_cannot_be_quantised_is_refused() {
    let device = Device::cpu();
    let mut values = [1.0; 32];
    values[5] = f32::NAN;
    let error = Weight::<Q8_0, 1, 32>::quantize(&device, &values).unwrap_err();
    assert_eq!(error.to_string(), "value 5 is NaN, but `Q8_0` holds finite numbers only");
    // Plain numbers may be anything.
    let weight: Weight<f32, 1, 32> = Weight::quantize(&device, &values).unwrap();
    assert!(weight.to_f32().unwrap()[5].is_nan());
    let error = Weight::<Q8_0, 1, 32>::quantize(&device, &[1.0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "`weight`: expected 32 values, found 4");
    let error = Weight::<Q8_0, 2, 16>::quantize(&device, &[1.0; 32]).unwrap_err();
    assert!(matches!(error, Error::Pack { error: PackError::Group { k: 16, group: 32 }, .. }));
    let error = Weight::<Wrong, 1, 32>::quantize(&device, &[1.0; 32]).unwrap_err();
    assert!(error.to_string().starts_with("weight format `Wrong`: `bits` is 5"), "{error}");
    let error = Weight::<Scaled, 1, 32>::quantize(&device, &[1.0; 32]).unwrap_err();
    assert!(matches!(error, Error::Format { .. }), "{error}");
    let error = Weight::<f32, { 1 << 40 }, { 1 << 40 }>::quantize(&device, &[]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "weight", .. }), "{error}");
}

#[test]
fn codes_that_are_too_wide_are_refused() {
    let device = Device::cpu();
    let codes = [[1; 31].as_slice(), &[16]].concat();
    let error = Weight::<Q4_1, 1, 32>::from_planes(&device, &codes, &[1.0], &[0.0]).unwrap_err();
    assert_eq!(error.to_string(), "code 31 is 16, but codes of `Q4_1` have 4 bits");
}

#[test]
fn a_format_needs_no_traits_of_its_own() {
    let weight: Weight<Table, 1, 8> =
        Weight::from_planes(&Device::cpu(), &[2; 8], &[4.0], &[]).unwrap();
    assert_eq!(weight.clone().to_f32().unwrap(), [4.0; 8]);
    assert_eq!(format!("{weight:?}"), "Weight<Table>[1, 8] on the CPU");
}
