//! Fuseline's own `f32` functions: the CPU back end calls these, CUDA kernels carry the same
//! algorithms as text (`backend-cuda/cuda/math.cuh`), operation for operation.
//!
//! Only IEEE operations that are rounded correctly everywhere are used: `+ - * /`, square root,
//! fused multiply-add where it is written as `mul_add`, comparisons and integer operations.
//! Neither side contracts or reassociates, so every result that is a number has the same bits on
//! the CPU and on the GPU. A NaN gives a NaN; its sign and payload are unspecified.
//!
//! There are no branches, only selections, so loops over these functions vectorize. They are
//! always inlined: `mul_add` becomes one instruction where the *caller* is compiled with FMA, and
//! is a slow call with the same result elsewhere.
//!
//! | function | largest error, units in the last place | reduction |
//! |---|---|---|
//! | [`exp`] | 1.1 | x = n·ln 2 + r, polynomial in r on ±ln 2 / 2 |
//! | [`log`] | 1.0 | x = 2^n·(1 + f), polynomial in f on [√½ − 1, √2 − 1] |
//! | [`tanh`] | 2 | odd polynomial below 0.55, then 1 − 2 / (e^2x + 1) |
//! | [`erf`] | 2 | odd polynomial below 1, then 1 − e^−p(x) |
//! | [`sigmoid`] | 2.5 | e^−abs(x) |
//! | [`sin_cos_turns`] | 1.5 | quadrant, polynomials on ± an eighth of a turn |
//!
//! Coefficients are minimax fits made for this file: a Remez exchange in 40-digit arithmetic on
//! the interval named at each table, weighted for relative error of the function's result, and
//! rounded to `f32`. They stand lowest degree first.

use std::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E, TAU};

/// Round-to-integer constant: added to |x| < 2²², it leaves the nearest integer in the low bits.
const SHIFT: f32 = 12_582_912.0;
/// ln 2 less its `f32` rounding.
const LN_2_LOW: f32 = -1.904_654_2e-9;
/// 2π less its `f32` rounding.
const TAU_LOW: f32 = -1.748_455_5e-7;
const SIGN: u32 = 0x8000_0000;

/// (e^r − 1 − r) / r² on ±1.002 · ln 2 / 2.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_4, 0.008_368_851, 0.001_381_432];
/// (ln(1 + f) − f + f²/2) / f³ on [√½ − 1, √2 − 1].
const LOG: [f32; 8] = [
    0.333_333_3,
    -0.250_008_2,
    0.200_012_27,
    -0.166_233_57,
    0.142_017_57,
    -0.131_601_83,
    0.127_615_78,
    -0.076_344_98,
];
/// (tanh(x) − x) / x³ in x², for x on [0, 0.55].
const TANH: [f32; 5] = [-0.333_333_16, 0.133_325_86, -0.053_852_31, 0.021_071_68, -0.006_274_239_6];
/// erf(x) / x − 1 in x², for x on [0, 1].
const ERF: [f32; 7] = [
    0.128_379_17,
    -0.376_126_26,
    0.112_835_854,
    -0.026_853_813,
    0.005_188_327_7,
    -0.000_801_019_37,
    7.853_861_5e-5,
];
/// −ln(1 − erf(x)) / x on [1, 6], weighted by what 1 − erf(x) contributes to erf(x) and at least
/// 0.02. Above 6 it goes on growing.
const ERFC: [f32; 9] = [
    1.129_040_4,
    0.633_641_8,
    0.108_631_14,
    -0.025_782_41,
    0.004_618_663_3,
    -0.000_592_012_3,
    5.063_114_8e-5,
    -2.563_983_8e-6,
    5.766_404_6e-8,
];
/// (sin(2πt) / t − 2π) / t² in t², for t on [0, 1/8].
const SIN: [f32; 3] = [-41.341_675, 81.593_94, -75.453_4];
/// (cos(2πt) − 1) / t² in t², for t on [0, 1/8].
const COS: [f32; 4] = [-19.739_208, 64.939_32, -85.443_74, 59.245_964];

/// The polynomial with these coefficients, by Horner's rule.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: &[f32; N]) -> f32 {
    let mut sum = coefficients[N - 1];
    for degree in (0..N - 1).rev() {
        sum = sum.mul_add(x, coefficients[degree]);
    }
    sum
}

#[inline(always)]
fn abs(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !SIGN)
}

/// `magnitude`, which is not negative, with the sign of `sign`.
#[inline(always)]
fn with_sign(magnitude: f32, sign: f32) -> f32 {
    f32::from_bits(magnitude.to_bits() | (sign.to_bits() & SIGN))
}

/// 2^n for n in −126 ..= 127, from n as a two's complement number.
#[inline(always)]
fn power_of_two(n: u32) -> f32 {
    f32::from_bits(n.wrapping_add(127) << 23)
}

/// e^x. Infinite above 88.72, subnormal results correct, 0 below −103.97.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is settled, and n must stay within two factors 2^n/2. NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x.mul_add(LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2, x));
    let e_r = polynomial(r, &EXP).mul_add(r * r, r) + 1.0;
    // Two factors: 2^128 and 2^-150 are not normal numbers. Only the second product rounds.
    let n = shifted.to_bits().wrapping_sub(SHIFT.to_bits());
    let half = (n as i32 >> 1) as u32;
    e_r * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// The natural logarithm. −∞ at 0, NaN below.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let normal = if subnormal { x * 8_388_608.0 } else { x };
    let bias = if subnormal { -23.0 } else { 0.0 };
    // Exponent and significand of a number between √½ and √2.
    let bits = normal.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits());
    let n = (bits as i32 >> 23) as f32 + bias;
    let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(FRAC_1_SQRT_2.to_bits())) - 1.0;
    let curve = polynomial(f, &LOG).mul_add(f, -0.5);
    let low = (f * f).mul_add(curve, n * LN_2_LOW);
    let result = n.mul_add(LN_2, f + low);
    let result = if x < f32::INFINITY { result } else { x };
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    if x < 0.0 { f32::NAN } else { result }
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = abs(x);
    let square = a * a;
    let small = (a * square).mul_add(polynomial(square, &TANH), a);
    let large = 1.0 - 2.0 / (exp(a + a) + 1.0);
    with_sign(if a < 0.55 { small } else { large }, x)
}

/// erf(a) for a on [0, 1].
#[inline(always)]
fn erf_small(a: f32) -> f32 {
    a.mul_add(polynomial(a * a, &ERF), a)
}

/// 1 − erf(a) for a from 1 on.
#[inline(always)]
fn erfc_large(a: f32) -> f32 {
    exp(-(a * polynomial(a, &ERFC)))
}

/// The error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = abs(x);
    let large = 1.0 - erfc_large(a);
    with_sign(if a < 1.0 { erf_small(a) } else { large }, x)
}

/// 1 / (1 + e^−x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    // With e^-|x| nothing overflows.
    let e = exp(-abs(x));
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// `x · weight` for a weight that is 0 at −200 and below: −0 there, also for x = −∞.
#[inline(always)]
fn gate(x: f32, weight: f32) -> f32 {
    (if x < -200.0 { -200.0 } else { x }) * weight
}

/// x · sigmoid(x). −0 at −∞, the limit.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    gate(x, sigmoid(x))
}

/// The tanh form of GELU, 0.5x · (1 + tanh(√(2/π) · (x + 0.044715x³))). −0 at −∞.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    // (1 + tanh(u)) / 2 = sigmoid(2u), which does not cancel for negative u. The constants are
    // 2√(2/π) and 0.044715 times that.
    let slope = (x * x).mul_add(0.071_354_814, 1.595_769_2);
    gate(x, sigmoid(x * slope))
}

/// GELU with the error function, 0.5x · (1 + erf(x/√2)). −0 at −∞.
#[inline(always)]
pub fn gelu_erf(x: f32) -> f32 {
    let scaled = x * FRAC_1_SQRT_2;
    let a = abs(scaled);
    let small = with_sign(erf_small(a), scaled).mul_add(0.5, 0.5);
    // 1 + erf(-a) = erfc(a), which does not cancel.
    let tail = 0.5 * erfc_large(a);
    let large = if x < 0.0 { tail } else { 1.0 - tail };
    gate(x, if a < 1.0 { small } else { large })
}

/// cap · tanh(x / cap).
#[inline(always)]
pub fn softcap(x: f32, cap: f32) -> f32 {
    cap * tanh(x / cap)
}

/// 1 / x.
#[inline(always)]
pub fn recip(x: f32) -> f32 {
    1.0 / x
}

/// The square root, rounded correctly.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    x.sqrt()
}

/// 1 / √x, rounded twice.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// The nearest integer, halves to the even one; the sign stays, of zeros too.
#[inline(always)]
pub fn round(x: f32) -> f32 {
    x.round_ties_even()
}

/// x where it is positive, else +0; NaN stays.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

/// The lesser number. NaN if either is; −0 is less than +0, so the order of operands and of
/// whole reductions is immaterial.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    let lesser = if a < b || a.is_nan() { a } else { b };
    // Equal numbers have equal bits, but for the sign of zeros.
    if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { lesser }
}

/// The greater number. NaN if either is; +0 is greater than −0, as for [`min`].
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    let greater = if a > b || a.is_nan() { a } else { b };
    if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { greater }
}

/// min(max(x, low), high). NaN if any of them is; `high` if the bounds are crossed.
#[inline(always)]
pub fn clamp(x: f32, low: f32, high: f32) -> f32 {
    min(max(x, low), high)
}

/// How far rotary embedding turns `pair` at each position: base^(−2·pair/rotary) radians, as a
/// fraction of a turn in units of 2^-64, rounded to nearest.
///
/// `rotary` is the number of rotated elements of a head. A base that is not positive and finite,
/// or a `rotary` of 0, gives 0: nothing is rotated. For bases from 1e-100 to 1e100 the result is
/// within one unit, so that angles of all `i32` positions are right to 2^-32 turn.
pub fn turns(base: f64, rotary: usize, pair: usize) -> u64 {
    if rotary == 0 || base <= 0.0 || !base.is_finite() {
        return 0;
    }
    // base^(-2/rotary), with one Newton step on root^rotary · base² = 1.
    let root = libm::pow(base, -2.0 / rotary as f64);
    let one = Double::new(root, 0.0).power(rotary).times(Double::product(base, base));
    let residual = (one.high - 1.0) + one.low;
    // The product of a base out of range underflows; its root is left as it is.
    let correction = if residual.abs() < 1e-6 { -root * residual / rotary as f64 } else { 0.0 };
    let radians = Double::new(root, correction).power(pair);
    radians
        .times(Double { high: 0.159_154_943_091_895_35, low: -9.839_338_337_591_243e-18 })
        .fraction()
}

/// A number as the unevaluated sum of two `f64`, good to about 2^-104.
#[derive(Clone, Copy)]
struct Double {
    high: f64,
    low: f64,
}

impl Double {
    /// The sum of two numbers, the second much smaller.
    fn new(large: f64, small: f64) -> Self {
        let high = large + small;
        Self { high, low: small - (high - large) }
    }

    /// The exact product of two `f64`.
    fn product(a: f64, b: f64) -> Self {
        let high = a * b;
        Self { high, low: libm::fma(a, b, -high) }
    }

    fn times(self, other: Self) -> Self {
        let product = Self::product(self.high, other.high);
        Self::new(product.high, product.low + (self.high * other.low + self.low * other.high))
    }

    fn power(self, mut exponent: usize) -> Self {
        let (mut result, mut square) = (Self::new(1.0, 0.0), self);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = result.times(square);
            }
            square = square.times(square);
            exponent >>= 1;
        }
        result
    }

    /// The fractional part in units of 2^-64, or 0 for what is not finite.
    fn fraction(self) -> u64 {
        const UNIT: f64 = 18_446_744_073_709_551_616.0;
        if !self.high.is_finite() || !self.low.is_finite() {
            return 0;
        }
        let scaled = (self.high - libm::floor(self.high)) * UNIT;
        let whole = libm::floor(scaled);
        let rest = libm::round((scaled - whole) + self.low * UNIT);
        (whole as u64).wrapping_add(rest as i64 as u64)
    }
}

/// The angle of a position, in units of 2^-64 turn: exact multiplication, whole turns dropped.
/// `frequency` is what [`turns`] gives.
#[inline(always)]
pub fn rope_turn(position: i32, frequency: u64) -> u64 {
    (position as i64 as u64).wrapping_mul(frequency)
}

/// Sine and cosine of an angle in units of 2^-64 turn.
#[inline(always)]
pub fn sin_cos_turns(turn: u64) -> (f32, f32) {
    // The nearest quarter, and the signed rest of at most an eighth of a turn.
    let quarter = turn.wrapping_add(1 << 61) >> 62;
    let rest = turn.wrapping_sub(quarter << 62) as i64;
    let t = rest as f32 * 5.421_011e-20; // 2^-64
    let square = t * t;
    let curve = polynomial(square, &SIN).mul_add(square, TAU_LOW);
    let sin = t.mul_add(TAU, t * curve);
    let cos = polynomial(square, &COS).mul_add(square, 1.0);
    let quarter = quarter as u32;
    let swap = quarter & 1 == 1;
    let sin_sign = (quarter & 2) << 30;
    let cos_sign = (quarter.wrapping_add(1) & 2) << 30;
    let (s, c) = (if swap { cos } else { sin }, if swap { sin } else { cos });
    (f32::from_bits(s.to_bits() ^ sin_sign), f32::from_bits(c.to_bits() ^ cos_sign))
}
