//! Kernels of `machine.cu` with inputs and what they must leave, computed by other means: plain
//! loops, the `half` crate, and a search for the nearest number of a type of 8 bits.

use fuseline_core::random::Rng;
use half::{bf16, f16};

/// The kernels, behind the functions that they use.
pub fn source() -> String {
    let helpers = fuseline_cuda::emit::HELPERS.iter().map(|(_, text)| *text);
    helpers.chain([include_str!("machine.cu")]).collect::<Vec<_>>().join("\n")
}

/// One launch.
pub struct Case {
    pub kernel: &'static str,
    pub n_blocks: usize,
    pub shared_bytes: usize,
    /// The argument `rows`.
    pub rows: usize,
    pub words: Vec<u32>,
    /// What is in each result before and after.
    pub results: Vec<(Vec<u32>, Vec<u32>)>,
}

/// Threads of every block.
pub const N_THREADS: usize = 64;

impl Case {
    /// A launch with one thread a word, whose result was not written before.
    fn of_words(kernel: &'static str, words: Vec<u32>, expected: Vec<u32>) -> Case {
        let rows = words.len();
        let n_blocks = rows.div_ceil(N_THREADS);
        let before = vec![u32::MAX; expected.len()];
        let results = vec![(before, expected)];
        Case { kernel, n_blocks, shared_bytes: 0, rows, words, results }
    }
}

pub fn cases() -> Vec<Case> {
    let mut rng = Rng::new(11);
    let words: Vec<u32> = (0..64).map(|_| rng.bits() as u32 & 0x3fff_ffff).collect();
    let counted: Vec<u32> = (0..320).map(|_| rng.bits() as u32 & 0x3fff_ffff).collect();
    let codes: Vec<u32> = (0..1 << 16).collect();
    let bytes: Vec<u32> = (0..256).collect();
    let numbers = numbers(&mut rng);
    let widen = |x: u32| [canonical(f16::from_bits(x as u16).to_f32()), x << 16];
    let widen_byte = |x: u32| [canonical(E4M3.value(x)), canonical(E5M2.value(x))];
    let narrow = |x: u32| {
        let x = f32::from_bits(x);
        let bits = [f16::from_f32(x).to_bits(), bf16::from_f32(x).to_bits()];
        bits.map(|bits| if x.is_nan() { 0x7fff } else { u32::from(bits) })
    };
    let narrow_byte = |x: u32| [E4M3, E5M2].map(|ty| ty.nearest(f32::from_bits(x)));
    let each = |words: &[u32], f: &dyn Fn(u32) -> [u32; 2]| -> Vec<u32> {
        words.iter().flat_map(|&x| f(x)).collect()
    };
    let (wide, wide_bytes) = (each(&codes, &widen), each(&bytes, &widen_byte));
    let (small, small_bytes) = (each(&numbers, &narrow), each(&numbers, &narrow_byte));
    vec![
        Case::of_words("exchanges", words.clone(), exchanges(&words)),
        Case { shared_bytes: 256, ..Case::of_words("barriers", words.clone(), barriers(&words)) },
        Case { results: atomics(&counted), ..Case::of_words("atomics", counted, Vec::new()) },
        Case::of_words("widen", codes, wide),
        Case::of_words("narrow", numbers.clone(), small),
        Case::of_words("widen_bytes", bytes, wide_bytes),
        Case::of_words("narrow_bytes", numbers, small_bytes),
        Case::of_words("products", words.clone(), products(&words)),
        Case::of_words("pairs", words.clone(), pairs(&words)),
        Case { shared_bytes: 1280, ..Case::of_words("copies", words.clone(), copies(&words)) },
    ]
}

/// By matrices: A is 16 by 16, B is 16 by 8, of whole numbers from bits of the lanes' words.
fn products(words: &[u32]) -> Vec<u32> {
    let number = |x: u32, n: usize| f64::from(x >> (2 * n) & 7) - 3.0;
    let mut out = Vec::new();
    for (first, warp) in [(0, &words[..32]), (32, &words[32..64])] {
        let (mut a, mut b) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
        for (lane, &x) in warp.iter().enumerate() {
            let (r, t) = (lane / 4, lane % 4);
            for j in 0..2 {
                a[r][2 * t + j] = number(x, j);
                a[r + 8][2 * t + j] = number(x, 2 + j);
                a[r][2 * t + 8 + j] = number(x, 4 + j);
                a[r + 8][2 * t + 8 + j] = number(x, 6 + j);
                b[2 * t + j][r] = number(x, 8 + j);
                b[2 * t + 8 + j][r] = number(x, 10 + j);
            }
        }
        for lane in 0..32 {
            let (r, t) = (lane / 4, lane % 4);
            let before = [(first + lane) as f64, 0.0, -1.0, 0.5];
            for (i, before) in before.into_iter().enumerate() {
                let (row, column) = (r + i / 2 * 8, 2 * t + i % 2);
                let sum: f64 = (0..16).map(|k| a[row][k] * b[k][column]).sum();
                out.push(((before + sum) as f32).to_bits());
            }
        }
    }
    out
}

fn pairs(words: &[u32]) -> Vec<u32> {
    let pair = |low: i32, high: i32| {
        let half = |x: i32| u32::from(bf16::from_f32(x as f32).to_bits());
        half(low) | half(high) << 16
    };
    let of_word = |&x: &u32| {
        let nibble = |n: u32| (x >> (4 * n) & 15) as i32;
        let byte = |x: u32, n: u32| x >> (8 * n) & 255;
        let picked = [byte(!x, 0), byte(x, 1), byte(x, 2), byte(!x, 3)];
        [
            pair(nibble(1) - 8, nibble(5) - 8),
            pair(byte(x, 2) as i32 - 128, byte(x, 3) as i32 - 128),
            picked.iter().rev().fold(0, |word, byte| word << 8 | byte),
            (x & 0x0f0f_0f0f) | 0x4000_4000,
        ]
    };
    words.iter().flat_map(of_word).collect()
}

fn copies(words: &[u32]) -> Vec<u32> {
    let of_thread = |i: usize| {
        let four = &words[i % 16 * 4..][..4];
        four.iter().copied().chain([words[63 - i]]).collect::<Vec<u32>>()
    };
    (0..64).flat_map(of_thread).collect()
}

fn exchanges(words: &[u32]) -> Vec<u32> {
    let mut out = Vec::new();
    for i in 0..64 {
        let (lane, warp) = (i % 32, &words[i / 32 * 32..][..32]);
        let odd = |(at, x): (usize, &u32)| (x % 2) << at;
        out.extend([
            warp[(7 * i + 3) % 32],
            warp[lane ^ 5],
            warp[lane ^ 24],
            warp[if lane + 3 < 32 { lane + 3 } else { lane }],
            warp[if lane >= 9 { lane - 9 } else { lane }],
            warp.iter().enumerate().map(odd).sum(),
            u32::from(warp.iter().any(|x| x % 1024 == 0)),
            u32::from(warp.iter().all(|x| x % 1024 != 0)),
        ]);
    }
    out
}

fn barriers(words: &[u32]) -> Vec<u32> {
    let neighbour = |i: usize| words[i / 32 * 32 + (i + 1) % 32] % 4096;
    (0..64).map(|i| neighbour(63 - i) + neighbour(i)).collect()
}

fn atomics(words: &[u32]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let x: Vec<u32> = words.iter().map(|word| word % 1000).collect();
    let part = |n: usize, of: usize| x.iter().skip(n).step_by(of).sum::<u32>();
    let max = x.iter().copied().max().unwrap_or(0);
    let counters = vec![part(0, 3), part(1, 3), part(2, 3), max, x.iter().sum(), 1, 1];
    let sums = vec![(part(0, 2) as f32).to_bits(), (part(1, 2) as f32).to_bits()];
    vec![(vec![0; 7], counters), (vec![0; 2], sums)]
}

/// The bits of a number; NaN as conversions give it.
fn canonical(x: f32) -> u32 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() }
}

/// A type of 8 bits.
#[derive(Clone, Copy)]
struct Narrow {
    fraction_bits: u32,
    bias: i32,
    /// The largest number's code; codes above it are no numbers.
    max: u32,
    infinity: Option<u32>,
}

const E4M3: Narrow = Narrow { fraction_bits: 3, bias: 7, max: 0x7e, infinity: None };
const E5M2: Narrow = Narrow { fraction_bits: 2, bias: 15, max: 0x7b, infinity: Some(0x7c) };

impl Narrow {
    fn value(self, code: u32) -> f32 {
        let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
        let magnitude = code & 0x7f;
        if Some(magnitude) == self.infinity {
            return sign * f32::INFINITY;
        }
        if magnitude > self.max {
            return f32::NAN;
        }
        let fraction = f32::from((magnitude % (1 << self.fraction_bits)) as u16)
            / f32::from(1u16 << self.fraction_bits);
        let exponent = (magnitude >> self.fraction_bits) as i32;
        match exponent {
            0 => sign * fraction * 2f32.powi(1 - self.bias),
            _ => sign * (1.0 + fraction) * 2f32.powi(exponent - self.bias),
        }
    }

    /// The code whose number is nearest, the even one of two; the largest beyond it.
    fn nearest(self, x: f32) -> u32 {
        if x.is_nan() {
            return 0x7f;
        }
        let sign = if x.is_sign_negative() { 0x80 } else { 0 };
        // Far beyond the largest number all distances look alike.
        let x = f64::from(x.abs().min(2.0 * self.value(self.max)));
        let distance = |code: u32| (f64::from(self.value(code)) - x).abs();
        let nearer = |a: u32, b: u32| match distance(b).total_cmp(&distance(a)) {
            std::cmp::Ordering::Less => b,
            std::cmp::Ordering::Equal if b.is_multiple_of(2) => b,
            _ => a,
        };
        let best = (0..=self.max).fold(0, nearer);
        sign | best
    }
}

/// Numbers around every place where rounding to a narrower type turns, special ones, random bits.
fn numbers(rng: &mut Rng) -> Vec<u32> {
    let mut turns: Vec<f64> = Vec::new();
    for ty in [E4M3, E5M2] {
        let value = |code| f64::from(ty.value(code));
        turns.extend(
            (0..ty.max).flat_map(|code| [value(code), (value(code) + value(code + 1)) / 2.0]),
        );
        turns.extend([value(ty.max), value(ty.max) * 1.03, value(ty.max) * 1.07]);
    }
    for code in (0..0x7bff).step_by(97).chain([0, 1, 2, 0x3ff, 0x400, 0x7bfe]) {
        let value = |code| f16::from_bits(code).to_f64();
        turns.extend([value(code), (value(code) + value(code + 1)) / 2.0]);
    }
    turns.extend([65504.0, 65519.99, 65520.0, 65536.0]);
    let mut numbers: Vec<u32> = Vec::new();
    for turn in turns {
        let bits = (turn as f32).to_bits();
        let around = [bits.saturating_sub(1), bits, bits + 1];
        numbers.extend(around.into_iter().flat_map(|bits| [bits, bits | 1 << 31]));
    }
    numbers.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-40].map(f32::to_bits));
    // The halfway cases of bf16, even and odd.
    numbers.extend([0x3f80_8000, 0x3f81_8000, 0x3f80_8001, 0x3f80_7fff, 0x7f7f_8000, 0x0000_8000]);
    numbers.extend((0..4000).map(|_| rng.bits() as u32));
    numbers
}
