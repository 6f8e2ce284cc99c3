//! Rotation and attention in random graphs, from a row to a row.

use super::{Builder, Row};
use crate::dtype::DType;
use crate::ir::{Dim, Op, Pairing, Pointwise, Role, Type, ValueId};

const HEAD_DIMS: [usize; 11] = [1, 2, 4, 6, 7, 8, 12, 16, 33, 40, 80];
/// Those that a pairing rotates in whole pairs.
const EVEN_HEAD_DIMS: [usize; 8] = [2, 4, 6, 8, 12, 16, 40, 80];
/// Larger heads are few, so that graphs stay small.
const LARGE_HEAD_DIM: usize = 32;

impl Builder {
    /// Heads of one row, with all that attention can have: grouped heads, norms, rotation, caches,
    /// windows, caps and sinks.
    pub(super) fn attention(&mut self) {
        let x = self.pick();
        let hd = self.rng.pick(&HEAD_DIMS);
        let (max_kv, max_group) = if hd > LARGE_HEAD_DIM { (2, 2) } else { (3, 4) };
        let (kv, group) = (1 + self.rng.below(max_kv), 1 + self.rng.below(max_group));
        let h = kv * group;
        let [q, mut k, v] = self.qkv(x, h, kv, hd);
        let mut q = self.heads(q, h, hd);
        k = self.heads(k, kv, hd);
        let v = if self.rng.chance(10) { k } else { self.heads(v, kv, hd) };
        let index = self.index();
        if self.rng.chance(25) {
            let weight = self.vector(hd);
            q = self.op(Op::RmsNorm { eps: 1e-5 }, &[q, weight]);
        }
        if hd > 1 && self.rng.chance(75) {
            let mut rope = self.rope(hd);
            q = self.op(rope.clone(), &[q, index]);
            if self.rng.chance(20) {
                rope = self.rope(hd);
            }
            k = self.op(rope, &[k, index]);
        }
        for stored in [k, v] {
            if self.rng.chance(12) {
                self.returned.push(stored);
            }
        }
        let cache = self.cache(kv, hd);
        let cache = self.op(Op::Append, &[cache, k, v, index]);
        // Some caches are only filled, and some serve two queries.
        let n_attends = self.rng.pick(&[0, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
        for n in 0..n_attends {
            if n > 0 {
                q = self.pointwise(Pointwise::Neg, &[q]);
            }
            let value = self.attend(q, cache, h, hd);
            let value = self.flatten(value, Dim::named(h * hd, "H * HD"));
            self.keep(value, 2.0 * x.size);
        }
    }

    fn attend(&mut self, q: ValueId, cache: ValueId, h: usize, hd: usize) -> ValueId {
        let mut inputs = vec![q, cache, self.index()];
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
        self.op(attend, &inputs)
    }

    /// The positions of the block's rows.
    fn index(&mut self) -> ValueId {
        let index = match self.index {
            Some(index) => index,
            None => self.arg("pos", Role::Input, Type::Index { rows: self.rows.clone() }),
        };
        self.index = Some(index);
        index
    }

    /// A rotation of heads of at least two elements.
    fn rope(&mut self, hd: usize) -> Op {
        let pairing = self.rng.pick(&Pairing::ALL);
        let base = self.rng.pick(&[10_000.0, 1e6, 100.0]);
        let rotary =
            if self.rng.chance(60) { hd / 2 * 2 } else { 2 * (1 + self.rng.below(hd / 2)) };
        Op::Rope { pairing, base, rotary }
    }

    /// Parts of one product that rotate, each in its own way; in some, the same part twice.
    pub(super) fn rotations(&mut self) {
        let x = self.pick();
        let hd = self.rng.pick(&EVEN_HEAD_DIMS);
        let n = 1 + self.rng.below(if hd > LARGE_HEAD_DIM { 2 } else { 3 });
        let width = Dim::named(n * hd, "N * HD");
        let fused = self.product(x, Dim::named(2 * n * hd, "2 * N * HD"));
        let index = self.index();
        let second = if self.rng.chance(25) { 0 } else { n * hd };
        let rotated = [0, second].map(|start| {
            let part = self.op(Op::Slice { start, len: width.clone() }, &[fused]);
            let part = self.heads(part, n, hd);
            let rope = self.rope(hd);
            self.op(rope, &[part, index])
        });
        if self.rng.chance(40) {
            let sum = self.pointwise(Pointwise::Add, &rotated);
            let value = self.flatten(sum, width);
            self.keep(value, 6.0 * x.size);
            return;
        }
        for value in rotated {
            let value = self.flatten(value, width.clone());
            self.keep(value, 3.0 * x.size);
        }
    }

    /// Query, key and value rows: products, parts of one, or what is there already.
    fn qkv(&mut self, x: Row, h: usize, kv: usize, hd: usize) -> [ValueId; 3] {
        let (q_dim, kv_dim) = (Dim::named(h * hd, "H * HD"), Dim::named(kv * hd, "KV * HD"));
        if self.rng.chance(50) {
            return [q_dim, kv_dim.clone(), kv_dim].map(|width| self.projection(x, width));
        }
        let fused = self.product(x, Dim::named((h + 2 * kv) * hd, "(H + 2 * KV) * HD"));
        let (q_len, kv_len) = (q_dim.size, kv_dim.size);
        let mut part = |start, len: &Dim| self.op(Op::Slice { start, len: len.clone() }, &[fused]);
        [part(0, &q_dim), part(q_len, &kv_dim), part(q_len + kv_len, &kv_dim)]
    }

    /// A product, or in some cases an argument or an earlier value, of that width.
    fn projection(&mut self, x: Row, width: Dim) -> ValueId {
        if self.rng.chance(10) {
            return self.input(width.size).value;
        }
        let fits = |row: &&Row| row.width == width.size && row.size <= 2.0 * x.size;
        let earlier = self.pool.iter().rfind(fits).copied();
        match earlier {
            Some(row) if self.rng.chance(30) => row.value,
            _ => self.product(x, width),
        }
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
