//! Steps that reduce rows, and what is computed without the batch dim.

use super::{Builder, Row, WIDTHS};
use crate::dtype::DType;
use crate::ir::{Dim, Op, Pointwise, Reduction, Role, Type, ValueId};

impl Builder {
    pub(super) fn norm(&mut self) {
        let x = self.pick();
        let mut weight = self.vector(x.width);
        if self.rng.chance(25) {
            let one = self.number(1.0);
            weight = self.pointwise(Pointwise::Add, &[one, weight]);
        }
        let eps = self.rng.pick(&[1e-5, 1e-6, 1e-2]);
        let value = if self.rng.chance(70) {
            self.op(Op::RmsNorm { eps }, &[x.value, weight])
        } else {
            let bias = self.vector(x.width);
            self.op(Op::LayerNorm { eps: 1e-3 }, &[x.value, weight, bias])
        };
        self.keep(value, 3.0);
    }

    pub(super) fn reduce(&mut self) {
        let x = self.pick();
        let reduction = self.rng.pick(&Reduction::ALL);
        let value = self.op(Op::Reduce(reduction), &[x.value]);
        let size = x.size * if reduction == Reduction::Sum { x.width as f64 } else { 1.0 };
        self.keep(value, size);
    }

    pub(super) fn softmax(&mut self) {
        let x = self.pick();
        let value = self.op(Op::Softmax, &[x.value]);
        self.keep(value, 1.0);
    }

    /// A row of `width`, or one number, that is reduced from a vector; and its size.
    pub(super) fn row_without_batch(&mut self, width: usize) -> (ValueId, f64) {
        let x = self.vector(width);
        let op = match self.rng.below(4) {
            0 => Op::Softmax,
            1 => {
                let weight = self.vector(width);
                return (self.op(Op::RmsNorm { eps: 1e-2 }, &[x, weight]), 3.0);
            }
            2 => Op::Reduce(Reduction::Max),
            _ => Op::Reduce(Reduction::Mean),
        };
        (self.op(op, &[x]), 1.0)
    }

    /// Fixed dims beside the batch dim: an argument without it, in half of the cases with as many
    /// elements as a full batch has, and what is computed from it.
    pub(super) fn apart(&mut self) {
        let x = self.pick();
        let width = if self.rng.chance(60) { x.width } else { self.rng.pick(&WIDTHS) };
        let dtype = self.input_dtype();
        let mut shape = vec![self.dim(width)];
        if self.rng.chance(50) {
            shape.insert(0, Dim::literal(self.rows.size));
        }
        let y = self.arg("f", Role::Input, Type::tensor(dtype, shape));
        let value = match self.rng.below(6) {
            0 => {
                let n = self.rng.pick(&WIDTHS);
                let n = self.dim(n);
                self.product(Row { value: y, width, size: 1.0 }, n)
            }
            1 => self.op(Op::Softmax, &[y]),
            2 => self.op(Op::Reduce(Reduction::Max), &[y]),
            3 => {
                // Both are computed from one number, so that they may share a kernel.
                let number = self.arg("s", Role::Input, Type::tensor(DType::F32, Vec::new()));
                let number = self.pointwise(Pointwise::Tanh, &[number]);
                let operands = self.either(x.value, number);
                let row = self.pointwise(Pointwise::Mul, &operands);
                self.keep(row, x.size);
                let operands = self.either(y, number);
                self.pointwise(Pointwise::Mul, &operands)
            }
            _ => self.pointwise(Pointwise::Silu, &[y]),
        };
        // Rows that it fits read it; the others are beside it.
        let shape = self.graph[value].ty.shape();
        let last = shape.last().map_or(1, |dim| dim.size);
        let is_row = shape.len() == 1 || shape[0].size == 1 || !self.rows.batch;
        if is_row && (last == 1 || last == x.width) && self.rng.chance(60) {
            let operands = self.either(x.value, value);
            let value = self.pointwise(Pointwise::Add, &operands);
            self.keep(value, x.size + 4.0);
        }
    }
}
