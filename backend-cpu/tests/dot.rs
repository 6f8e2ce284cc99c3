//! Products, decoded rows and attention loops against sums in f64, at every vector level of the
//! machine that runs the tests.

use fuseline_core::dtype::DType;
use fuseline_core::format::{
    BF16, CodeMap, F32, FORMATS, Group, PackError, Packed, Q4_1, Q8_0, WeightFormat,
};
use fuseline_cpu::dot::{
    Activations, DotError, Element, Level, Planes, axpy, axpy_rows, dot, dot_rows, embed_row,
    linear,
};
use half::{bf16, f16};

/// xorshift64*: enough for test data, the same everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        println!("seed {seed}");
        Random(seed.wrapping_mul(2).wrapping_add(1))
    }

    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// In -1..1, and not zero.
    fn number(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 23) as f32 - 1.0 + 1e-7
    }

    fn numbers(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.number()).collect()
    }

    /// A weight with random codes, scales and offsets.
    fn weight(&mut self, format: &WeightFormat, n: usize, k: usize) -> Result<Packed, PackError> {
        if format.group.is_none() && matches!(format.code, CodeMap::Float(_)) {
            let values = self.numbers(n * k);
            return format.quantize(&values, n, k);
        }
        let codes: Vec<u32> = match format.code {
            CodeMap::Float(DType::BF16) => {
                (0..n * k).map(|_| u32::from(bf16::from_f32(self.number()).to_bits())).collect()
            }
            _ => (0..n * k).map(|_| self.bits() >> (32 - u32::from(format.bits))).collect(),
        };
        let n_groups = n * format.n_groups(k);
        let n_offsets = if has_offset(format) { n_groups } else { 0 };
        let (scales, offsets) = (self.numbers(n_groups), self.numbers(n_offsets));
        format.pack_planes(&codes, &scales, &offsets, n, k)
    }
}

fn has_offset(format: &WeightFormat) -> bool {
    format.group.is_some_and(|group| group.offset.is_some())
}

fn format(
    name: &'static str,
    bits: u8,
    code: CodeMap,
    group: Option<(usize, DType, Option<DType>)>,
) -> WeightFormat {
    let group = group.map(|(size, scale, offset)| Group { size, scale, offset });
    WeightFormat { name: name.into(), bits, code, group, gguf: None }
}

/// The built-in formats, and formats as users declare them: every code map, group sizes that are
/// and are not multiples of the vectors, every scale and offset type.
fn formats() -> Vec<WeightFormat> {
    let fp4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let fp4: Vec<f32> = fp4.iter().copied().chain(fp4.iter().map(|v| -v)).collect();
    let cubes: Vec<f32> = (0..256).map(|i| ((i - 128) as f32 / 64.0).powi(3)).collect();
    let (f32_, f16_, bf16_) = (DType::F32, DType::F16, DType::BF16);
    let unsigned = |bias| CodeMap::Unsigned { bias };
    let book = |values: &Vec<f32>| CodeMap::Codebook(values.clone().into());
    let declared = vec![
        format("book4_g32", 4, book(&fp4), Some((32, f16_, None))),
        format("book4_g16", 4, book(&fp4), Some((16, f32_, Some(bf16_)))),
        format("signed4_g16", 4, CodeMap::Signed, Some((16, bf16_, Some(f32_)))),
        format("signed4_g32", 4, CodeMap::Signed, Some((32, f32_, None))),
        format("unsigned4_g8", 4, unsigned(8), Some((8, f16_, Some(f16_)))),
        format("unsigned4_g96", 4, unsigned(7), Some((96, f16_, None))),
        format("unsigned4", 4, unsigned(8), None),
        format("unsigned8_g64", 8, unsigned(128), Some((64, f16_, None))),
        format("unsigned8_g24", 8, unsigned(3), Some((24, f32_, Some(f32_)))),
        format("signed8_g16", 8, CodeMap::Signed, Some((16, f16_, Some(f16_)))),
        format("signed8", 8, CodeMap::Signed, None),
        format("book8_g32", 8, book(&cubes), Some((32, f16_, Some(f16_)))),
        format("book8", 8, book(&cubes), None),
        format("bf16_g32", 16, CodeMap::Float(bf16_), Some((32, f32_, Some(f16_)))),
    ];
    FORMATS.iter().map(|&format| format.clone()).chain(declared).collect()
}

const GUARD: usize = 9;

/// `linear` into poisoned outputs with a guard after each; panics if the guard changes.
fn product(level: Level, x: &[f32], m: usize, weights: &[Planes<'_>]) -> Vec<Vec<f32>> {
    let k = weights.first().map_or(0, Planes::k);
    let mut activations = Activations::new(level);
    activations.fill(x, m, k, weights.iter().map(Planes::format)).unwrap();
    let mut outputs: Vec<_> = weights.iter().map(|w| vec![f32::NAN; m * w.n() + GUARD]).collect();
    let mut slices: Vec<_> =
        outputs.iter_mut().zip(weights).map(|(output, w)| &mut output[..m * w.n()]).collect();
    linear(&activations, weights, &mut slices).unwrap();
    for (output, weight) in outputs.iter_mut().zip(weights) {
        let guard = output.split_off(m * weight.n());
        assert!(guard.iter().all(|v| v.is_nan()), "the guard was written");
    }
    outputs
}

/// Checks `[m, n]` outputs against sums in f64. The bound is that of f32 sums of `map(code) · x`
/// in at least eight partial sums: each product and each of k / 8 additions rounds once, and a
/// group's offset rounds beside it, so what is summed is |map · scale · x| + |offset · x|.
fn assert_product(
    format: &WeightFormat,
    packed: &Packed,
    x: &[f32],
    m: usize,
    y: &[f32],
    what: &str,
) {
    let (n, k) = (packed.n, packed.k);
    assert_eq!(y.len(), m * n);
    // w = map · scale + offset, so |map · scale| is at most |w| + |offset|.
    let offset_at = |row: usize, col: usize| -> f64 {
        let Some(group) = format.group else { return 0.0 };
        let index = row * format.n_groups(k) + col / group.size;
        match group.offset {
            None => 0.0,
            Some(DType::F16) => {
                f16::from_le_bytes([packed.offsets[2 * index], packed.offsets[2 * index + 1]])
                    .to_f64()
            }
            Some(DType::BF16) => {
                bf16::from_le_bytes([packed.offsets[2 * index], packed.offsets[2 * index + 1]])
                    .to_f64()
            }
            Some(_) => {
                f64::from(f32::from_le_bytes([0, 1, 2, 3].map(|i| packed.offsets[4 * index + i])))
            }
        }
    };
    for row in 0..n {
        let decoded: Vec<_> = (0..k)
            .map(|col| (format.decode(packed, row, col), offset_at(row, col).abs()))
            .collect();
        for (i, x) in x.chunks_exact(k).enumerate() {
            let (mut expected, mut size) = (0.0, 0.0);
            for (&x, (w, offset)) in x.iter().zip(&decoded) {
                expected += f64::from(x) * w;
                size += f64::from(x).abs() * (w.abs() + 2.0 * offset);
            }
            let roundings = 4.0 + (k as f64 / 8.0).min(64.0);
            let bound = roundings * f64::from(f32::EPSILON) / 2.0 * size;
            let found = f64::from(y[i * n + row]);
            assert!(
                (found - expected).abs() <= bound,
                "{what} {} n={n} k={k} y[{i}][{row}]: expected {expected}, found {found}, bound {bound}",
                format.name
            );
        }
    }
}

#[test]
fn products_match_sums_in_f64() {
    let mut random = Random::new(1);
    for format in formats() {
        let grouped = format.group.is_some();
        let ks: &[usize] =
            if grouped { &[24, 32, 64, 96, 128, 384, 576, 1536] } else { &[1, 7, 31, 32, 33, 577] };
        for &k in ks.iter().filter(|&k| k.is_multiple_of(format.group_size())) {
            let ns: &[usize] = if k > 1000 { &[17] } else { &[1, 17, 63, 65] };
            for &n in ns {
                let packed = random.weight(&format, n, k).unwrap();
                let planes = Planes::of(&format, &packed).unwrap();
                let ms: &[usize] = if n == 17 { &[1, 2, 4, 5, 8, 15, 16] } else { &[3] };
                for &m in ms {
                    let x = random.numbers(m * k);
                    for level in Level::available() {
                        let y = product(level, &x, m, &[planes]);
                        let what = format!("{} m={m}", level.name());
                        assert_product(&format, &packed, &x, m, &y[0], &what);
                    }
                }
            }
        }
    }
}

#[test]
fn levels_are_the_cpus_own() {
    let levels = Level::available();
    assert_eq!(levels[0], Level::PORTABLE);
    assert_eq!(levels.last(), Some(&Level::best()));
    #[cfg(target_arch = "x86_64")]
    assert_eq!(levels.len() > 1, is_x86_feature_detected!("avx2"));
}

#[test]
fn outputs_do_not_depend_on_threads_or_neighbors() {
    let mut random = Random::new(2);
    let (k, m) = (576, 5);
    let formats = [Q4_1, Q8_0, BF16];
    let packed: Vec<_> = formats
        .iter()
        .zip([577, 192, 65])
        .map(|(format, n)| random.weight(format, n, k).unwrap())
        .collect();
    let weights: Vec<_> =
        formats.iter().zip(&packed).map(|(f, p)| Planes::of(f, p).unwrap()).collect();
    let x = random.numbers(m * k);
    for level in Level::available() {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| product(level, &x, m, &weights))
        };
        let one = run(1);
        for threads in [2, 3, 8] {
            assert_eq!(bits(&one), bits(&run(threads)), "{threads} threads, {level:?}");
        }
        // Alone, and row by row, which uses other tiles.
        for (weight, output) in weights.iter().zip(&one) {
            for (row, expected) in x.chunks_exact(k).zip(output.chunks_exact(weight.n())) {
                let found = product(level, row, 1, &[*weight]);
                assert_eq!(bits(&[expected.to_vec()]), bits(&found), "{level:?}");
            }
        }
    }
}

fn bits(outputs: &[Vec<f32>]) -> Vec<Vec<u32>> {
    outputs.iter().map(|output| output.iter().map(|v| v.to_bits()).collect()).collect()
}

#[test]
fn group_sums_beyond_f16_are_exact() {
    // d = 0 and m = 1: every weight is 1, so the output is 32 · 3000.
    let packed = Q4_1.pack_planes(&[5; 32], &[0.0], &[1.0], 1, 32).unwrap();
    for level in Level::available() {
        let y = product(level, &[3000.0; 32], 1, &[Planes::of(&Q4_1, &packed).unwrap()]);
        assert_eq!(y, [[96000.0]]);
    }
}

#[test]
fn every_row_is_written_at_any_n() {
    // W[n][k] = 1 where k = n, x = k: y[n] = n.
    let k = 1024;
    let x: Vec<f32> = (0..k).map(|i| i as f32).collect();
    for n in [1, 32, 63, 65, 96, 257] {
        let expected: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let codes: Vec<u32> = (0..n * k).map(|i| u32::from(i % k == i / k)).collect();
        for (format, has_offset) in [(&Q8_0, false), (&Q4_1, true)] {
            let n_groups = n * k / 32;
            let offsets = vec![0.0; if has_offset { n_groups } else { 0 }];
            let packed = format.pack_planes(&codes, &vec![1.0; n_groups], &offsets, n, k).unwrap();
            for level in Level::available() {
                let y = product(level, &x, 1, &[Planes::of(format, &packed).unwrap()]);
                assert_eq!(y[0], expected, "{} n={n} {level:?}", format.name);
            }
        }
        let values: Vec<f32> = codes.iter().map(|&code| code as f32).collect();
        let packed = F32.quantize(&values, n, k).unwrap();
        let y = product(Level::best(), &x, 1, &[Planes::of(&F32, &packed).unwrap()]);
        assert_eq!(y[0], expected);
    }
}

#[test]
fn one_group_is_enough() {
    // Nibbles 9 less 8, d = 1: every weight is 1; Σ 1..=32 = 528.
    let format = format("q4_0", 4, CodeMap::Unsigned { bias: 8 }, Some((32, DType::F16, None)));
    let packed = format.pack_planes(&[9; 32], &[1.0], &[], 1, 32).unwrap();
    let x: Vec<f32> = (1..=32).map(|i| i as f32).collect();
    for level in Level::available() {
        let y = product(level, &x, 1, &[Planes::of(&format, &packed).unwrap()]);
        assert_eq!(y, [[528.0]]);
    }
}

#[test]
fn nan_in_gives_nan_out() {
    let mut random = Random::new(3);
    for format in formats() {
        let k = 384;
        let packed = random.weight(&format, 3, k).unwrap();
        let mut x = random.numbers(2 * k);
        x[k + 5] = f32::NAN;
        for level in Level::available() {
            let y = &product(level, &x, 2, &[Planes::of(&format, &packed).unwrap()])[0];
            assert!(y[..3].iter().all(|v| v.is_finite()), "{} {level:?}", format.name);
            assert!(y[3..].iter().all(|v| v.is_nan()), "{} {level:?}", format.name);
        }
    }
}

#[test]
fn empty_shapes_are_products_too() {
    for level in Level::available() {
        let none = Planes::new(&Q8_0, 0, 64, &[], &[], &[]).unwrap();
        assert_eq!(product(level, &[1.0; 64], 1, &[none]), [vec![]]);
        let packed = Q8_0.pack_planes(&[1; 64], &[1.0, 1.0], &[], 1, 64).unwrap();
        let planes = Planes::of(&Q8_0, &packed).unwrap();
        assert_eq!(product(level, &[], 0, &[planes]), [vec![]]);
        let empty = Planes::new(&Q4_1, 3, 0, &[], &[], &[]).unwrap();
        assert_eq!(product(level, &[], 2, &[empty]), [[0.0; 6]]);
        assert!(product(level, &[], 2, &[]).is_empty());
    }
}

#[test]
fn activations_can_be_filled_again() {
    let mut random = Random::new(4);
    let mut activations = Activations::new(Level::best());
    for (format, n, k, m) in [(&Q4_1, 9, 96, 4), (&Q8_0, 5, 64, 2), (&Q4_1, 33, 64, 1)] {
        let packed = random.weight(format, n, k).unwrap();
        let planes = Planes::of(format, &packed).unwrap();
        let x = random.numbers(m * k);
        activations.fill(&x, m, k, [format]).unwrap();
        let mut y = vec![f32::NAN; m * n];
        linear(&activations, &[planes], &mut [&mut y]).unwrap();
        assert_product(format, &packed, &x, m, &y, "filled again");
    }
}

#[test]
fn embedded_rows_are_decoded_exactly() {
    let mut random = Random::new(5);
    for format in formats() {
        let k = if format.group.is_some() { format.group_size() * 3 } else { 77 };
        let packed = random.weight(&format, 5, k).unwrap();
        let planes = Planes::of(&format, &packed).unwrap();
        for row in 0..5 {
            let mut out = vec![f32::NAN; k];
            embed_row(&planes, row, &mut out).unwrap();
            let expected: Vec<_> =
                (0..k).map(|col| format.decode(&packed, row, col) as f32).collect();
            assert_eq!(out, expected, "{} row {row}", format.name);
        }
        let mut out = vec![0.0; k];
        assert_eq!(embed_row(&planes, 5, &mut out), Err(DotError::Row { row: 5, n: 5 }));
        assert!(matches!(embed_row(&planes, 0, &mut out[1..]), Err(DotError::Length { .. })));
    }
}

#[test]
fn attention_loops_match_sums_in_f64() {
    let mut random = Random::new(6);
    for dim in [1, 7, 16, 33, 64, 80, 96, 128, 160] {
        for n_tokens in [0, 1, 2, 37] {
            let stride = dim + 5;
            let q = random.numbers(dim);
            let p = random.numbers(n_tokens);
            let cache = random.numbers(n_tokens * stride);
            let halves: Vec<_> = cache.iter().map(|&v| f16::from_f32(v)).collect();
            let brains: Vec<_> = cache.iter().map(|&v| bf16::from_f32(v)).collect();
            for level in Level::available() {
                assert_attention(level, &q, &p, &cache, stride);
                assert_attention(level, &q, &p, &halves, stride);
                assert_attention(level, &q, &p, &brains, stride);
            }
        }
    }
}

fn assert_attention<T: Element + Into<f32>>(
    level: Level,
    q: &[f32],
    p: &[f32],
    cache: &[T],
    stride: usize,
) {
    let (dim, n_tokens) = (q.len(), p.len());
    let element = |t: usize, i: usize| -> f64 { f64::from(cache[t * stride + i].into()) };
    let close = |found: f32, expected: f64, size: f64, n: usize| {
        let bound = (2.0 + n as f64) * f64::from(f32::EPSILON) / 2.0 * size;
        let error = (f64::from(found) - expected).abs();
        assert!(error <= bound, "{level:?} dim {dim}: {found} is not {expected}");
    };
    let mut scores = vec![f32::NAN; n_tokens];
    dot_rows(level, q, cache, stride, &mut scores);
    for (t, &score) in scores.iter().enumerate() {
        let terms = (0..dim).map(|i| f64::from(q[i]) * element(t, i));
        close(score, terms.clone().sum(), terms.map(f64::abs).sum(), dim);
        let alone = dot(level, q, &cache[t * stride..][..dim]);
        assert_eq!(alone.to_bits(), score.to_bits());
    }
    let mut acc = q.to_vec();
    axpy_rows(level, p, cache, stride, &mut acc);
    let mut one_by_one = q.to_vec();
    for (t, &p) in p.iter().enumerate() {
        axpy(level, p, &cache[t * stride..][..dim], &mut one_by_one);
    }
    assert_eq!(acc, one_by_one);
    for (i, &sum) in acc.iter().enumerate() {
        let terms = (0..n_tokens).map(|t| f64::from(p[t]) * element(t, i));
        let (start, n) = (f64::from(q[i]), n_tokens);
        close(
            sum,
            start + terms.clone().sum::<f64>(),
            start.abs() + terms.map(f64::abs).sum::<f64>(),
            n,
        );
    }
}

#[test]
fn planes_that_do_not_fit_are_refused() {
    let packed = Q4_1.pack_planes(&[1; 192], &[1.0; 6], &[0.0; 6], 3, 64).unwrap();
    let Packed { codes, scales, offsets, .. } = &packed;
    let length = |planes: Result<Planes<'_>, DotError>| match planes {
        Err(DotError::Length { what, expected, found }) => (what, expected, found),
        other => panic!("expected a length error, found {other:?}"),
    };
    assert_eq!(
        length(Planes::new(&Q4_1, 3, 64, &codes[1..], scales, offsets)),
        ("bytes of codes", 96, 95)
    );
    assert_eq!(
        length(Planes::new(&Q4_1, 3, 64, codes, &scales[1..], offsets)),
        ("bytes of scales", 12, 11)
    );
    assert_eq!(
        length(Planes::new(&Q4_1, 3, 64, codes, scales, &offsets[1..])),
        ("bytes of offsets", 12, 11)
    );
    assert_eq!(length(Planes::new(&Q4_1, usize::MAX, 64, codes, scales, offsets)).2, 96);
    assert_eq!(length(Planes::new(&F32, 1, usize::MAX, codes, &[], &[])).0, "elements of a row");
    assert_eq!(
        Planes::new(&Q4_1, 3, 48, codes, scales, offsets).unwrap_err(),
        DotError::Group { k: 48, group: 32 }
    );
    let integers = format("i32", 32, CodeMap::Float(DType::I32), None);
    let error = Planes::new(&integers, 1, 4, codes, &[], &[]).unwrap_err();
    assert!(matches!(error, DotError::Format(_)), "{error}");
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let packed = Q4_1.pack_planes(&[1; 192], &[1.0; 6], &[0.0; 6], 3, 64).unwrap();
    let planes = Planes::of(&Q4_1, &packed).unwrap();
    let mut x = Activations::new(Level::best());
    assert_eq!(
        x.fill(&[0.0; 65], 1, 64, [&Q4_1]),
        Err(DotError::Length { what: "activations", expected: 64, found: 65 })
    );
    x.fill(&[1.0; 64], 1, 64, [&Q8_0]).unwrap();
    let mut y = [f32::NAN; 3];
    assert_eq!(
        linear(&x, &[planes], &mut [&mut y]),
        Err(DotError::Unprepared { format: "Q4_1".into() })
    );
    x.fill(&[1.0; 64], 1, 64, [&Q4_1]).unwrap();
    assert_eq!(
        linear(&x, &[planes], &mut [&mut y[1..]]),
        Err(DotError::Length { what: "elements of an output", expected: 3, found: 2 })
    );
    assert_eq!(
        linear(&x, &[planes], &mut []),
        Err(DotError::Length { what: "outputs", expected: 1, found: 0 })
    );
    x.fill(&[1.0; 32], 1, 32, [&Q4_1]).unwrap();
    assert_eq!(
        linear(&x, &[planes], &mut [&mut y]),
        Err(DotError::Length { what: "elements of a weight's row", expected: 32, found: 64 })
    );
    assert!(y.iter().all(|v| v.is_nan()), "a refused launch wrote");
}
