//! Int4 weights as GPTQ, AWQ and torchao store them: packed here from the layouts' definitions,
//! decoded through the formats, compared with the numbers that they were made of.

use fuseline_core::format::interop::{Awq, Gptq, GptqVersion, TinyGemm, TorchAo};
use fuseline_core::format::{PackError, Packed, WeightFormat, builtin};
use half::{bf16, f16};

/// Codes, zero points and scales of an `[n, k]` weight in groups: none of them regular.
struct Plain {
    n: usize,
    k: usize,
    group: usize,
    codes: Vec<u32>,
    zeros: Vec<u32>,
    scales: Vec<f32>,
}

impl Plain {
    fn new(n: usize, k: usize, group: usize, most_zero: u32) -> Plain {
        let mut state = (n * 31 + k * 7 + group) as u64;
        let mut next = |below: u32| {
            // A linear congruential generator; the upper bits are the good ones.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % u64::from(below)) as u32
        };
        let n_groups = n * (k / group);
        Plain {
            n,
            k,
            group,
            codes: (0..n * k).map(|_| next(16)).collect(),
            zeros: (0..n_groups).map(|_| next(most_zero + 1)).collect(),
            // Of eight significant bits: exact in bf16 and in f16.
            scales: (0..n_groups).map(|_| (128 + next(128)) as f32 / 8192.0).collect(),
        }
    }

    fn at_group(&self, row: usize, k: usize) -> usize {
        row * (self.k / self.group) + k / self.group
    }

    /// `[k / group, n]` of a plane with a number a group.
    fn by_group<T>(&self, number: impl Fn(usize) -> T) -> Vec<T> {
        let n_groups = self.k / self.group;
        let places = (0..n_groups).flat_map(|g| (0..self.n).map(move |row| (g, row)));
        places.map(|(g, row)| number(row * n_groups + g)).collect()
    }

    /// Checks every element against a formula of code, zero point and scale.
    fn check(&self, format: &WeightFormat, packed: &Packed, value: impl Fn(f64, f64, f64) -> f64) {
        for row in 0..self.n {
            for k in 0..self.k {
                let group = self.at_group(row, k);
                let code = f64::from(self.codes[row * self.k + k]);
                let (zero, scale) = (f64::from(self.zeros[group]), f64::from(self.scales[group]));
                let expected = value(code, zero, scale);
                assert_eq!(format.decode(packed, row, k), expected, "row {row}, k {k}");
            }
        }
    }
}

/// Words of eight nibbles: nibble i of a word is `nibble(word, i)`.
fn words(n_words: usize, nibble: impl Fn(usize, usize) -> u32) -> Vec<i32> {
    let word = |w: usize| (0..8).fold(0u32, |word, i| word | nibble(w, i) << (4 * i));
    (0..n_words).map(|w| word(w) as i32).collect()
}

const SHAPES: [(usize, usize); 4] = [(8, 1), (24, 3), (64, 2), (16, 7)];

fn families(prefix: &str) -> Vec<&'static WeightFormat> {
    ["32", "64", "128"].iter().map(|group| builtin(&format!("{prefix}G{group}")).unwrap()).collect()
}

fn gptq(plain: &Plain, less: u32) -> (Vec<i32>, Vec<i32>, Vec<f16>) {
    let Plain { n, k, group, .. } = *plain;
    let qweight = words(k / 8 * n, |w, i| plain.codes[w % n * k + 8 * (w / n) + i]);
    let qzeros = words(k / group * (n / 8), |w, j| {
        let (g, row) = (w / (n / 8), 8 * (w % (n / 8)) + j);
        plain.zeros[row * (k / group) + g] - less
    });
    (qweight, qzeros, plain.by_group(|group| f16::from_f32(plain.scales[group])))
}

#[test]
fn gptq_weights_decode_to_what_they_were_made_of() {
    for format in families("Int4Zero") {
        let group = format.group_size();
        for (n, groups) in SHAPES {
            for (version, less) in [(GptqVersion::V1, 1), (GptqVersion::V2, 0)] {
                let mut plain = Plain::new(n, groups * group, group, 15);
                plain.zeros.iter_mut().for_each(|zero| *zero = (*zero).max(less));
                if less == 1 {
                    plain.zeros[0] = 16;
                }
                let (qweight, qzeros, scales) = gptq(&plain, less);
                let g_idx: Vec<i32> = (0..plain.k).map(|k| (k / group) as i32).collect();
                let weight = Gptq {
                    qweight: &qweight,
                    qzeros: &qzeros,
                    scales: &scales,
                    g_idx: Some(&g_idx),
                    version,
                };
                let packed = weight.pack(format, n, plain.k).unwrap();
                plain.check(format, &packed, |code, zero, scale| (code - zero) * scale);
            }
        }
    }
}

#[test]
fn awq_weights_decode_to_what_they_were_made_of() {
    // Written out: which output stands in which nibble.
    let output = |nibble: usize| [0, 2, 4, 6, 1, 3, 5, 7][nibble];
    for format in families("Int4Zero") {
        let group = format.group_size();
        for (n, groups) in SHAPES {
            let plain = Plain::new(n, groups * group, group, 15);
            let (k, n_words) = (plain.k, n / 8);
            let row = |w: usize, i: usize| 8 * (w % n_words) + output(i);
            let qweight = words(k * n_words, |w, i| plain.codes[row(w, i) * k + w / n_words]);
            let qzeros =
                words(groups * n_words, |w, i| plain.zeros[row(w, i) * groups + w / n_words]);
            let scales = plain.by_group(|group| f16::from_f32(plain.scales[group]));
            let weight = Awq { qweight: &qweight, qzeros: &qzeros, scales: &scales };
            let packed = weight.pack(format, n, k).unwrap();
            plain.check(format, &packed, |code, zero, scale| (code - zero) * scale);
        }
    }
}

#[test]
fn torchao_weights_decode_to_what_they_were_made_of() {
    for (prefix, has_zeros) in [("Int4", false), ("Int4Float", true)] {
        for format in families(prefix) {
            let group = format.group_size();
            for (n, groups) in [(1, 1), (5, 3), (24, 2)] {
                let plain = Plain::new(n, groups * group, group, 15);
                // Signed nibbles: 8 less than the code, in two's complement.
                let signed = |i: usize| (plain.codes[i] as u8).wrapping_sub(8) & 0xF;
                let qdata: Vec<u8> =
                    (0..n * plain.k / 2).map(|i| signed(2 * i) | signed(2 * i + 1) << 4).collect();
                let scale = plain.by_group(|group| bf16::from_f32(plain.scales[group]));
                let zero = plain.by_group(|group| bf16::from_f32(plain.zeros[group] as f32 / 64.0));
                let zeros = has_zeros.then_some(&zero[..]);
                let weight = TorchAo { qdata: &qdata, scale: &scale, zero: zeros };
                let packed = weight.pack(format, n, plain.k).unwrap();
                let value = |code: f64, zero: f64, scale: f64| {
                    (code - 8.0) * scale + if has_zeros { zero / 64.0 } else { 0.0 }
                };
                plain.check(format, &packed, value);
                if !has_zeros {
                    continue;
                }
                let codes: Vec<i32> = plain.codes.iter().map(|&code| code as i32).collect();
                let pairs: Vec<bf16> =
                    scale.iter().zip(&zero).flat_map(|(&scale, &zero)| [scale, zero]).collect();
                let weight = TinyGemm { codes: &codes, scales_and_zeros: &pairs };
                plain.check(format, &weight.pack(format, n, plain.k).unwrap(), value);
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let format = builtin("Int4ZeroG32").unwrap();
    let plain = Plain::new(8, 64, 32, 15);
    let (qweight, qzeros, scales) = gptq(&plain, 0);
    let whole = Gptq {
        qweight: &qweight,
        qzeros: &qzeros,
        scales: &scales,
        g_idx: None,
        version: GptqVersion::V2,
    };
    assert!(whole.pack(format, 8, 64).is_ok());
    let moved: Vec<i32> = (0..64).map(|k| if k == 40 { 0 } else { k / 32 }).collect();
    let error = Gptq { g_idx: Some(&moved), ..whole }.pack(format, 8, 64).unwrap_err();
    assert_eq!(error, PackError::ActOrder { k: 40, group: 0, expected: 1 });
    assert_eq!(
        error.to_string(),
        "element 40 of a row is in group 0, expected group 1: act-order is not supported"
    );
    let negative: Vec<i32> = (0..64).map(|k| if k == 0 { -1 } else { k / 32 }).collect();
    assert!(Gptq { g_idx: Some(&negative), ..whole }.pack(format, 8, 64).is_err());
    let short = Gptq { qweight: &qweight[1..], ..whole };
    assert!(matches!(short.pack(format, 8, 64), Err(PackError::Length { .. })));
    let short = Gptq { qzeros: &[], ..whole };
    assert!(matches!(short.pack(format, 8, 64), Err(PackError::Length { .. })));
    let short = Gptq { scales: &scales[1..], ..whole };
    assert!(matches!(short.pack(format, 8, 64), Err(PackError::Length { .. })));
    assert_eq!(whole.pack(format, 8, 48), Err(PackError::Group { k: 48, group: 32 }));
    assert_eq!(whole.pack(format, 9, 64), Err(PackError::Columns { n: 9 }));
    let other = builtin("Int4G32").unwrap();
    assert!(matches!(whole.pack(other, 8, 64), Err(PackError::Family { .. })));
    let format = builtin("Int4FloatG32").unwrap();
    let mut codes = vec![15; 32];
    let pairs = [bf16::ONE; 2];
    assert!(TinyGemm { codes: &codes, scales_and_zeros: &pairs }.pack(format, 1, 32).is_ok());
    codes[7] = 16;
    let error = TinyGemm { codes: &codes, scales_and_zeros: &pairs }.pack(format, 1, 32);
    assert_eq!(error, Err(PackError::Code { at: 7, found: 16 }));
    let empty = TorchAo { qdata: &[], scale: &[], zero: None };
    assert!(matches!(empty.pack(other, 1, 32), Err(PackError::Length { .. })));
    assert!(matches!(empty.pack(format, 1, 32), Err(PackError::Family { .. })));
}

#[test]
fn zero_points_are_exact_for_every_scale() {
    // Eight outputs of one group each; elements 0 to 15 of a group are the codes 0 to 15.
    let format = builtin("Int4ZeroG32").unwrap();
    let qweight = words(32, |w, i| (8 * (w / 8) + i) as u32 % 16);
    let scales: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).filter(|s| s.is_finite()).collect();
    for zero in 0..=16 {
        let version = if zero == 16 { GptqVersion::V1 } else { GptqVersion::V2 };
        let qzeros = words(1, |_, _| zero.min(15));
        for scales in scales.chunks_exact(8) {
            let weight = Gptq { qweight: &qweight, qzeros: &qzeros, scales, g_idx: None, version };
            let packed = weight.pack(format, 8, 32).unwrap();
            for (row, scale) in scales.iter().enumerate() {
                for code in 0..16 {
                    let expected = f64::from(code - zero as i32) * scale.to_f64();
                    let found = format.decode(&packed, row, code as usize);
                    assert_eq!(found, expected, "({code} - {zero}) * {scale}");
                    assert_eq!(f64::from(found as f32), found);
                }
            }
        }
    }
}

#[test]
fn shapes_beyond_any_memory_are_refused() {
    let (zero, float) = (builtin("Int4ZeroG32").unwrap(), builtin("Int4FloatG32").unwrap());
    let symmetric = builtin("Int4G32").unwrap();
    for (n, k) in [(1 << 34, 1 << 35), (1 << 40, 1 << 40), (1 << 62, 1 << 62)] {
        let gptq =
            Gptq { qweight: &[], qzeros: &[], scales: &[], g_idx: None, version: GptqVersion::V2 };
        assert!(gptq.pack(zero, n, k).is_err(), "gptq {n} {k}");
        let awq = Awq { qweight: &[], qzeros: &[], scales: &[] };
        assert!(awq.pack(zero, n, k).is_err(), "awq {n} {k}");
        let plain = TorchAo { qdata: &[], scale: &[], zero: None };
        assert!(plain.pack(symmetric, n, k).is_err(), "torchao {n} {k}");
        let tiny = TinyGemm { codes: &[], scales_and_zeros: &[] };
        assert!(tiny.pack(float, n, k).is_err(), "tinygemm {n} {k}");
        assert!(float.pack_planes(&[], &[], &[], n, k).is_err(), "planes {n} {k}");
        assert!(float.quantize(&[], n, k).is_err(), "numbers {n} {k}");
        let blocks = builtin("Q4_1").unwrap();
        assert!(blocks.pack_gguf(&[], n, k).is_err(), "blocks {n} {k}");
    }
}
