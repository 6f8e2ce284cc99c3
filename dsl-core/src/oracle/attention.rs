//! Rotary embedding, caches and attention, in `f64`.

use super::call::round;
use super::pointwise::softcap;
use super::row::largest;
use crate::dtype::DType;
use crate::ir::{Pairing, Type};

/// Rotates `x`, `[rows, heads, head_dim]`: pair i turns by `position · base^(-2i / rotary)`
/// radians, and elements from `rotary` on stay.
pub(super) fn rope(
    x: &[f64],
    shape: &[usize],
    positions: &[i32],
    pairing: Pairing,
    base: f64,
    rotary: usize,
) -> Vec<f64> {
    let (n_heads, head_dim) = (shape[1], shape[2]);
    let mut y = x.to_vec();
    for (row, &position) in positions.iter().enumerate() {
        for head in 0..n_heads {
            let first = (row * n_heads + head) * head_dim;
            for i in 0..rotary / 2 {
                let turn = libm::pow(base, -2.0 * i as f64 / rotary as f64);
                let (sin, cos) = libm::sincos(f64::from(position) * turn);
                let (a, b) = match pairing {
                    Pairing::Interleaved => (first + 2 * i, first + 2 * i + 1),
                    Pairing::HalfSplit => (first + i, first + i + rotary / 2),
                };
                y[a] = x[a] * cos - x[b] * sin;
                y[b] = x[a] * sin + x[b] * cos;
            }
        }
    }
    y
}

/// Keys and values, `[sequences, kv_heads, capacity, head_dim]` each.
pub(super) struct Cache {
    dtype: DType,
    kv_heads: usize,
    capacity: usize,
    head_dim: usize,
    pub(super) keys: Vec<f64>,
    pub(super) values: Vec<f64>,
}

impl Cache {
    /// A cache of type `ty`; none if that is another kind of type.
    pub(super) fn new(ty: &Type, keys: &[f64], values: &[f64]) -> Option<Cache> {
        let Type::Cache { dtype, kv_heads, head_dim, capacity, .. } = ty else { return None };
        let stored = |x: &[f64]| x.iter().map(|&x| round(*dtype, x)).collect();
        Some(Cache {
            dtype: *dtype,
            kv_heads: kv_heads.size,
            capacity: capacity.size,
            head_dim: head_dim.size,
            keys: stored(keys),
            values: stored(values),
        })
    }

    /// Stores rows of keys and values, `[rows, kv_heads, head_dim]`, at their sequences and
    /// positions.
    pub(super) fn append(&mut self, k: &[f64], v: &[f64], places: &[(usize, usize)]) {
        for (row, &(sequence, position)) in places.iter().enumerate() {
            for head in 0..self.kv_heads {
                let to = self.start(sequence, head, position);
                let from = (row * self.kv_heads + head) * self.head_dim;
                for i in 0..self.head_dim {
                    self.keys[to + i] = round(self.dtype, k[from + i]);
                    self.values[to + i] = round(self.dtype, v[from + i]);
                }
            }
        }
    }

    /// Where a head's elements begin.
    fn start(&self, sequence: usize, head: usize, position: usize) -> usize {
        ((sequence * self.kv_heads + head) * self.capacity + position) * self.head_dim
    }
}

/// What an `attend` does beyond its tensors.
pub(super) struct Attend<'a> {
    pub(super) scale: f64,
    pub(super) window: Option<usize>,
    pub(super) softcap: Option<f64>,
    /// `[heads]`.
    pub(super) sinks: Option<&'a [f64]>,
    pub(super) operand: DType,
}

impl Attend<'_> {
    /// Attention of `q`, `[rows, heads, head_dim]`, to the cache.
    pub(super) fn run(
        &self,
        q: &[f64],
        n_heads: usize,
        cache: &Cache,
        places: &[(usize, usize)],
    ) -> Vec<f64> {
        let mut y = Vec::with_capacity(q.len());
        for (row, &(sequence, position)) in places.iter().enumerate() {
            for head in 0..n_heads {
                let q = &q[(row * n_heads + head) * cache.head_dim..][..cache.head_dim];
                y.extend(self.head(
                    q,
                    head,
                    head * cache.kv_heads / n_heads,
                    cache,
                    sequence,
                    position,
                ));
            }
        }
        y
    }

    /// One query head of one row.
    fn head(
        &self,
        q: &[f64],
        head: usize,
        kv_head: usize,
        cache: &Cache,
        sequence: usize,
        position: usize,
    ) -> Vec<f64> {
        let end = position + 1;
        let start = self.window.map_or(0, |window| end.saturating_sub(window));
        let at = |position: usize| cache.start(sequence, kv_head, position);
        let mut scores: Vec<f64> = (start..end)
            .map(|position| {
                let key = &cache.keys[at(position)..][..cache.head_dim];
                let products = q.iter().zip(key).map(|(q, k)| round(self.operand, *q) * k);
                let score = self.scale * products.sum::<f64>();
                self.softcap.map_or(score, |cap| softcap(score, cap))
            })
            .collect();
        let n_keys = scores.len();
        // A sink takes part in the softmax like a key, but has no value.
        scores.extend(self.sinks.map(|sinks| sinks[head]));
        let max = largest(&scores);
        let exps: Vec<f64> = scores.iter().map(|score| libm::exp(score - max)).collect();
        let denominator: f64 = exps.iter().sum();
        let mut y = vec![0.0; cache.head_dim];
        if n_keys == 0 {
            return y;
        }
        for (position, exp) in (start..end).zip(&exps) {
            let value = &cache.values[at(position)..][..cache.head_dim];
            for (y, v) in y.iter_mut().zip(value) {
                *y += round(self.operand, *exp) * v;
            }
        }
        y.iter().map(|y| y / denominator).collect()
    }
}
