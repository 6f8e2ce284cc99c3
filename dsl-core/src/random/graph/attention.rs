//! Attention in random graphs, from a row to a row.

use super::{Builder, Row};
use crate::dtype::DType;
use crate::ir::{Dim, Op, Pairing, Role, Type, ValueId};

const HEAD_DIMS: [usize; 8] = [2, 4, 6, 7, 8, 12, 16, 33];

impl Builder {
    /// Heads of one row, with all that attention can have: grouped heads, norms, rotation, caches,
    /// windows, caps and sinks.
    pub(super) fn attention(&mut self) {
        let x = self.pick();
        let (kv, group) = (1 + self.rng.below(3), 1 + self.rng.below(4));
        let (h, hd) = (kv * group, self.rng.pick(&HEAD_DIMS));
        let (q, k, v) = self.qkv(x, h, kv, hd);
        let index = match self.index {
            Some(index) => index,
            None => self.arg("pos", Role::Input, Type::Index { rows: self.rows.clone() }),
        };
        self.index = Some(index);
        let (mut q, mut k) = (self.heads(q, h, hd), self.heads(k, kv, hd));
        let v = self.heads(v, kv, hd);
        if self.rng.chance(25) {
            let weight = self.vector(hd);
            q = self.op(Op::RmsNorm { eps: 1e-5 }, &[q, weight]);
        }
        if self.rng.chance(75) {
            let pairing = self.rng.pick(&Pairing::ALL);
            let base = self.rng.pick(&[10_000.0, 1e6, 100.0]);
            let rotary =
                if self.rng.chance(60) { hd / 2 * 2 } else { 2 * (1 + self.rng.below(hd / 2)) };
            let rope = Op::Rope { pairing, base, rotary };
            q = self.op(rope.clone(), &[q, index]);
            k = self.op(rope, &[k, index]);
        }
        let cache = self.cache(kv, hd);
        let cache = self.op(Op::Append, &[cache, k, v, index]);
        let mut inputs = vec![q, cache, index];
        let sinks = self.rng.chance(30);
        if sinks {
            let sinks = self.vector(h);
            inputs.push(sinks);
        }
        let attend = Op::Attend {
            scale: 1.0 / (hd as f32).sqrt(),
            window: self.rng.chance(40).then(|| 1 + self.rng.below(6)),
            softcap: self.rng.chance(30).then_some(5.0),
            sinks,
            operand: match self.options.narrow && self.rng.chance(30) {
                true => DType::BF16,
                false => DType::F32,
            },
        };
        let a = self.op(attend, &inputs);
        let shape = vec![self.rows.clone(), Dim::named(h * hd, "H * HD")];
        let value = self.op(Op::Reshape { shape }, &[a]);
        self.keep(value, 2.0 * x.size);
    }

    /// Query, key and value rows: three products, or parts of one.
    fn qkv(&mut self, x: Row, h: usize, kv: usize, hd: usize) -> (ValueId, ValueId, ValueId) {
        let (q_dim, kv_dim) = (Dim::named(h * hd, "H * HD"), Dim::named(kv * hd, "KV * HD"));
        if self.rng.chance(50) {
            let q = self.product(x, q_dim);
            let k = self.product(x, kv_dim.clone());
            return (q, k, self.product(x, kv_dim));
        }
        let fused = self.product(x, Dim::named((h + 2 * kv) * hd, "(H + 2 * KV) * HD"));
        let (q_len, kv_len) = (q_dim.size, kv_dim.size);
        let mut part = |start, len: &Dim| self.op(Op::Slice { start, len: len.clone() }, &[fused]);
        (part(0, &q_dim), part(q_len, &kv_dim), part(q_len + kv_len, &kv_dim))
    }

    fn heads(&mut self, x: ValueId, n: usize, hd: usize) -> ValueId {
        let shape = vec![self.rows.clone(), self.dim(n), self.dim(hd)];
        self.op(Op::Reshape { shape }, &[x])
    }

    fn cache(&mut self, kv: usize, hd: usize) -> ValueId {
        let narrow = self.options.narrow && self.rng.chance(40);
        let dtype = if narrow { self.rng.pick(&[DType::F16, DType::BF16]) } else { DType::F32 };
        // Where the number of rows is fixed, a cache may hold more sequences.
        let spare = if self.rows.batch { 0 } else { self.rng.below(2) };
        let batch = Dim { size: self.rows.size + spare, ..self.rows.clone() };
        let capacity = Dim::named(5 + self.rng.below(13), "T");
        let (kv_heads, head_dim) = (self.dim(kv), self.dim(hd));
        let ty = Type::Cache { dtype, batch, kv_heads, head_dim, capacity };
        self.arg("cache", Role::Cache, ty)
    }
}
