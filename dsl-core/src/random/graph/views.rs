//! Steps through views: parts of rows, heads, and rows taken together.

use super::{Builder, Row};
use crate::dtype::DType;
use crate::ir::{Dim, Op, Pointwise, Reduction, Role, Type, ValueId};

/// Elements that are taken as one row at most.
const MAX_FOLDED: usize = 512;

impl Builder {
    pub(super) fn split(&mut self) {
        let x = self.pick();
        if x.width < 2 {
            return self.linear();
        }
        let first = 1 + self.rng.below(x.width - 1);
        for (start, len) in [(0, first), (first, x.width - first)] {
            let len = self.dim(len);
            let value = self.op(Op::Slice { start, len }, &[x.value]);
            self.keep(value, x.size);
        }
    }

    /// `[rows, n · d]` as `[rows, n, d]`.
    pub(super) fn heads(&mut self, x: ValueId, n: usize, d: usize) -> ValueId {
        let shape = vec![self.rows.clone(), self.dim(n), self.dim(d)];
        self.op(Op::Reshape { shape }, &[x])
    }

    /// A row for each row of the call again.
    pub(super) fn flatten(&mut self, x: ValueId, width: Dim) -> ValueId {
        let shape = vec![self.rows.clone(), width];
        self.op(Op::Reshape { shape }, &[x])
    }

    /// A step on the heads of a row, which may be as many as it has elements.
    pub(super) fn in_heads(&mut self) {
        let x = self.pick();
        let divisors: Vec<usize> = (1..=x.width).filter(|n| x.width.is_multiple_of(*n)).collect();
        let n = self.rng.pick(&divisors);
        let d = x.width / n;
        let mut heads = self.heads(x.value, n, d);
        if self.rng.chance(25) {
            // A view of a view.
            let shape = vec![self.rows.clone(), Dim::literal(1), self.dim(n), self.dim(d)];
            heads = self.op(Op::Reshape { shape }, &[heads]);
        }
        let (value, d, size) = match self.rng.below(7) {
            0 => {
                let weight = self.vector(d);
                (self.op(Op::RmsNorm { eps: 1e-5 }, &[heads, weight]), d, 3.0)
            }
            1 => (self.op(Op::Softmax, &[heads]), d, 1.0),
            2 => {
                // One number a head.
                let shape = vec![self.dim(n), Dim::literal(1)];
                let gain = self.arg("w", Role::Weight, Type::tensor(DType::F32, shape));
                let operands = self.either(heads, gain);
                (self.pointwise(Pointwise::Mul, &operands), d, x.size)
            }
            3 => {
                let reduction = self.rng.pick(&[Reduction::Mean, Reduction::Max]);
                let number = self.op(Op::Reduce(reduction), &[heads]);
                let operands = self.either(heads, number);
                (self.pointwise(Pointwise::Add, &operands), d, 2.0 * x.size)
            }
            4 => {
                let width = self.rng.pick(&[1, 2, 5]);
                let len = self.dim(width);
                let row = Row { value: heads, width: d, size: x.size };
                (self.product(row, len), width, 2.0 * x.size)
            }
            5 => {
                let start = self.rng.below(d);
                let len = 1 + self.rng.below(d - start);
                let dim = self.dim(len);
                (self.op(Op::Slice { start, len: dim }, &[heads]), len, x.size)
            }
            _ => (self.op(Op::Reduce(Reduction::Max), &[heads]), 1, x.size),
        };
        let width = self.dim(n * d);
        let value = self.flatten(value, width);
        self.keep(value, size);
    }

    /// A step on rows across the rows of the call, where their number is fixed.
    pub(super) fn fold(&mut self) {
        let x = self.pick();
        let (rows, n) = (self.rows.size, self.rows.size * x.width);
        if self.rows.batch || n > MAX_FOLDED {
            return self.in_heads();
        }
        let (lead, last) = self.rng.pick(&[(1, n), (x.width, rows)]);
        let mut shape = vec![self.dim(lead), self.dim(last)];
        if lead == 1 && self.rng.chance(50) {
            shape.remove(0);
        }
        let folded = self.op(Op::Reshape { shape }, &[x.value]);
        let (value, width, size) = match self.rng.below(4) {
            0 => (self.op(Op::Softmax, &[folded]), x.width, 1.0),
            1 => {
                let weight = self.vector(last);
                (self.op(Op::RmsNorm { eps: 1e-5 }, &[folded, weight]), x.width, 3.0)
            }
            2 => {
                let n = Dim::named(2 * rows, "2 * B");
                let row = Row { value: folded, width: last, size: x.size };
                (self.product(row, n), 2 * lead, 2.0 * x.size)
            }
            _ => {
                let mean = self.op(Op::Reduce(Reduction::Mean), &[folded]);
                let operands = self.either(folded, mean);
                (self.pointwise(Pointwise::Add, &operands), x.width, 2.0 * x.size)
            }
        };
        let width = self.dim(width);
        let value = self.flatten(value, width);
        self.keep(value, size);
    }
}
