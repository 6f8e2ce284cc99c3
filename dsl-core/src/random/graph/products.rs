//! Steps with weights: products and tables.

use super::{Builder, CURVE4, Row, WIDTHS};
use crate::dtype::DType;
use crate::format::{FORMATS, WeightFormat};
use crate::ir::{Dim, Op, Pointwise, Role, Type, ValueId};
use std::sync::Arc;

impl Builder {
    fn weight(&mut self, n: Dim, k: usize) -> ValueId {
        // Rows are short: larger groups would hardly ever fit.
        let fits: Vec<&WeightFormat> = FORMATS
            .iter()
            .copied()
            .chain([&CURVE4])
            .filter(|format| format.group_size() <= 32 && k.is_multiple_of(format.group_size()))
            .collect();
        let format = Arc::new(self.rng.pick(&fits).clone());
        let k = self.dim(k);
        self.arg("w", Role::Weight, Type::Weight { format, n, k })
    }

    pub(super) fn product(&mut self, x: Row, n: Dim) -> ValueId {
        let weight = self.weight(n, x.width);
        self.op(Op::Linear, &[x.value, weight])
    }

    pub(super) fn embed(&mut self) {
        let tokens = Type::tensor(DType::I32, vec![self.rows.clone()]);
        let tokens = self.arg("tokens", Role::Input, tokens);
        let n_rows = 2 + self.rng.below(40);
        let (n, k) = (Dim::named(n_rows, "V"), self.rng.pick(&WIDTHS));
        let table = self.weight(n, k);
        let value = self.op(Op::Embed, &[tokens, table]);
        self.keep(value, 1.0);
    }

    pub(super) fn linear(&mut self) {
        let x = self.pick();
        let width = self.rng.pick(&WIDTHS);
        let n = self.dim(width);
        let mut value = self.product(x, n);
        if self.rng.chance(30) {
            let bias = self.vector(width);
            let operands = self.either(value, bias);
            value = self.pointwise(Pointwise::Add, &operands);
        }
        self.keep(value, 2.0 * x.size + 1.0);
    }

    /// A product of a product, and perhaps of that.
    pub(super) fn chain(&mut self) {
        let mut x = self.pick();
        for _ in 0..2 + self.rng.below(2) {
            let width = self.rng.pick(&WIDTHS);
            let n = self.dim(width);
            let value = self.product(x, n);
            x = Row { value, width, size: 2.0 * x.size };
        }
        self.keep(x.value, x.size);
    }

    /// Two products of one input, gated or kept apart.
    pub(super) fn siblings(&mut self) {
        let x = self.pick();
        let width = self.rng.pick(&WIDTHS);
        let n = self.dim(width);
        let gate = self.product(x, n.clone());
        let up = self.product(x, n);
        if self.rng.chance(70) {
            let op = self.rng.pick(&[Pointwise::Silu, Pointwise::GeluTanh, Pointwise::GeluErf]);
            let gate = self.pointwise(op, &[gate]);
            let value = self.pointwise(Pointwise::Mul, &[gate, up]);
            self.keep(value, 4.0 * x.size * x.size);
        } else {
            self.keep(gate, 2.0 * x.size);
            self.keep(up, 2.0 * x.size);
        }
    }

    /// One value that a norm, products and elements read.
    pub(super) fn fan_out(&mut self) {
        let x = self.pick();
        let weight = self.vector(x.width);
        let normed = self.op(Op::RmsNorm { eps: 1e-5 }, &[x.value, weight]);
        let normed = self.keep(normed, 3.0);
        let (width, back) = (self.rng.pick(&WIDTHS), self.dim(x.width));
        let n = self.dim(width);
        let of_norm = self.product(normed, back);
        let of_x = self.product(x, n);
        let op = self.rng.pick(&[Pointwise::Silu, Pointwise::Tanh, Pointwise::Relu]);
        let gate = self.pointwise(op, &[x.value]);
        // The residual stream goes on.
        let operands = self.either(gate, of_norm);
        let sum = self.pointwise(Pointwise::Add, &operands);
        self.keep(of_x, 2.0 * x.size);
        self.keep(sum, x.size + 6.0);
    }
}
