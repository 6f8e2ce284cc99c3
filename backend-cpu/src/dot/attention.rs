//! The two loops of attention over a cache: scores against keys, and the weighted sum of values.

use super::simd::{Kernel, Level, Simd};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// An element type of a cache.
pub trait Element: Copy + Sync + private::Widen {}

impl Element for f32 {}
impl Element for f16 {}
impl Element for bf16 {}

mod private {
    use crate::dot::simd::Simd;

    /// Kept out of sight, so that only this module's types are elements.
    pub trait Widen: Sized + Into<f32> {
        /// The first `LANES` elements as f32.
        fn widen<S: Simd>(simd: S, from: &[Self]) -> S::F32;
    }
}

use private::Widen;

impl Widen for f32 {
    #[inline(always)]
    fn widen<S: Simd>(simd: S, from: &[Self]) -> S::F32 {
        simd.load(from)
    }
}

impl Widen for f16 {
    #[inline(always)]
    fn widen<S: Simd>(simd: S, from: &[Self]) -> S::F32 {
        simd.widen_f16(bytemuck::cast_slice(from.reinterpret_cast()))
    }
}

impl Widen for bf16 {
    #[inline(always)]
    fn widen<S: Simd>(simd: S, from: &[Self]) -> S::F32 {
        simd.widen_bf16(bytemuck::cast_slice(from.reinterpret_cast()))
    }
}

/// `scores[t] = Σ q · keys[t · stride ..]`, over the `q.len()` elements of a head. The order of
/// additions depends only on `level` and `q.len()`.
///
/// # Panics
///
/// If `keys` ends before the last key does.
pub fn dot_rows<T: Element>(
    level: Level,
    q: &[f32],
    keys: &[T],
    stride: usize,
    scores: &mut [f32],
) {
    level.run(DotRows { q, keys, stride, scores });
}

/// `acc += Σ p[t] · values[t · stride ..]`, over the `acc.len()` elements of a head, in the order
/// of t.
///
/// # Panics
///
/// If `values` ends before the last value does.
pub fn axpy_rows<T: Element>(
    level: Level,
    p: &[f32],
    values: &[T],
    stride: usize,
    acc: &mut [f32],
) {
    level.run(AxpyRows { p, values, stride, acc });
}

/// `Σ q · key`. To score a whole cache, [`dot_rows`] is faster.
///
/// # Panics
///
/// If `key` is shorter than `q`.
pub fn dot<T: Element>(level: Level, q: &[f32], key: &[T]) -> f32 {
    let mut score = [0.0];
    dot_rows(level, q, key, 0, &mut score);
    score[0]
}

/// `acc += p · value`. To sum a whole cache, [`axpy_rows`] is faster.
///
/// # Panics
///
/// If `value` is shorter than `acc`.
pub fn axpy<T: Element>(level: Level, p: f32, value: &[T], acc: &mut [f32]) {
    axpy_rows(level, &[p], value, 0, acc);
}

struct DotRows<'a, T> {
    q: &'a [f32],
    keys: &'a [T],
    stride: usize,
    scores: &'a mut [f32],
}

impl<T: Element> Kernel for DotRows<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let DotRows { q, keys, stride, scores } = self;
        let unit = 2 * S::LANES;
        let whole = q.len() / unit * unit;
        for (t, score) in scores.iter_mut().enumerate() {
            let key = &keys[t * stride..][..q.len()];
            let mut acc = [simd.splat(0.0); 2];
            for (q, key) in q.chunks_exact(unit).zip(key.chunks_exact(unit)) {
                acc[0] = simd.mul_add(simd.load(q), T::widen(simd, key), acc[0]);
                let (q, key) = (&q[S::LANES..], &key[S::LANES..]);
                acc[1] = simd.mul_add(simd.load(q), T::widen(simd, key), acc[1]);
            }
            *score = simd.sum(acc[0]) + simd.sum(acc[1]);
            for (&q, &key) in q[whole..].iter().zip(&key[whole..]) {
                *score += q * key.into();
            }
        }
    }
}

struct AxpyRows<'a, T> {
    p: &'a [f32],
    values: &'a [T],
    stride: usize,
    acc: &'a mut [f32],
}

impl<T: Element> Kernel for AxpyRows<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let AxpyRows { p, values, stride, acc } = self;
        let dim = acc.len();
        let mut at = 0;
        // A panel of the sum stays in registers while the whole cache passes.
        while dim - at >= 4 * S::LANES {
            panel::<S, T, 4>(simd, p, values, stride, acc, at);
            at += 4 * S::LANES;
        }
        while dim - at >= S::LANES {
            panel::<S, T, 1>(simd, p, values, stride, acc, at);
            at += S::LANES;
        }
        for (i, sum) in acc.iter_mut().enumerate().skip(at) {
            for (t, &p) in p.iter().enumerate() {
                *sum += p * values[t * stride + i].into();
            }
        }
    }
}

/// Columns `at..at + V · LANES` of [`AxpyRows`].
#[inline(always)]
fn panel<S: Simd, T: Element, const V: usize>(
    simd: S,
    p: &[f32],
    values: &[T],
    stride: usize,
    acc: &mut [f32],
    at: usize,
) {
    let acc = &mut acc[at..][..V * S::LANES];
    let mut sums = [simd.splat(0.0); V];
    for v in 0..V {
        sums[v] = simd.load(&acc[v * S::LANES..]);
    }
    for (t, &p) in p.iter().enumerate() {
        let value = &values[t * stride + at..][..V * S::LANES];
        let p = simd.splat(p);
        for v in 0..V {
            sums[v] = simd.mul_add(p, T::widen(simd, &value[v * S::LANES..]), sums[v]);
        }
    }
    for v in 0..V {
        simd.store(sums[v], &mut acc[v * S::LANES..]);
    }
}
