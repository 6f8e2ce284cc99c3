//! Steps on single elements.

use super::{Builder, Row};
use crate::dtype::DType;
use crate::ir::{Dim, Op, Pointwise, Reduction, Role, Type, ValueId};

/// Numbers of both signs; none is what an operation gives by itself, so that comparisons with it
/// do not hang on a last bit.
const NUMBERS: [f32; 6] = [0.75, 2.5, 1e-3, -0.5, -1.25, -2.75];

impl Builder {
    /// Any operation but `round`: where it jumps, no two computations need agree.
    fn pick_pointwise(&mut self) -> Pointwise {
        let jumps = |op: &&Pointwise| **op == Pointwise::Round;
        let smooth: Vec<Pointwise> =
            Pointwise::ALL.iter().filter(|op| !jumps(op)).copied().collect();
        self.rng.pick(&smooth)
    }

    pub(super) fn unary(&mut self) {
        let x = self.pick();
        let op = self.pick_pointwise();
        let (value, size) = match op {
            Pointwise::Exp => {
                let x = self.pointwise(Pointwise::Tanh, &[x.value]);
                (self.pointwise(op, &[x]), 3.0)
            }
            Pointwise::Log | Pointwise::Recip | Pointwise::Sqrt | Pointwise::Rsqrt => {
                let x = self.square_plus(x.value, 1.5);
                (self.pointwise(op, &[x]), 7.0)
            }
            Pointwise::Neg
            | Pointwise::Silu
            | Pointwise::GeluTanh
            | Pointwise::GeluErf
            | Pointwise::Relu => (self.pointwise(op, &[x.value]), x.size),
            Pointwise::Sigmoid | Pointwise::Tanh => (self.pointwise(op, &[x.value]), 1.0),
            _ => return self.binary(),
        };
        self.keep(value, size);
    }

    /// `x² + number`, which is no less than `number`.
    fn square_plus(&mut self, x: ValueId, number: f32) -> ValueId {
        let square = self.pointwise(Pointwise::Mul, &[x, x]);
        let number = self.number(number);
        self.pointwise(Pointwise::Add, &[square, number])
    }

    /// Two rows, or a row and what broadcasts with it, in either order.
    pub(super) fn binary(&mut self) {
        let a = self.pick();
        let b = self.second(a.width);
        let op = self.pick_pointwise();
        let (value, size) = match op {
            Pointwise::Mul => {
                // One factor of at most 1.
                let b = self.pointwise(Pointwise::Tanh, &[b.value]);
                let operands = self.either(a.value, b);
                (self.pointwise(op, &operands), a.size)
            }
            Pointwise::Div => {
                let (x, y) = if self.rng.chance(50) { (a, b) } else { (b, a) };
                let divisor = self.square_plus(y.value, 1.0);
                (self.pointwise(op, &[x.value, divisor]), x.size)
            }
            Pointwise::Lt
            | Pointwise::Le
            | Pointwise::Gt
            | Pointwise::Ge
            | Pointwise::Eq
            | Pointwise::Ne => {
                let operands = self.either(a.value, b.value);
                let mask = self.pointwise(op, &operands);
                let c = self.second(a.width);
                let [yes, no] = self.either(a.value, c.value);
                let value = self.pointwise(Pointwise::Select, &[mask, yes, no]);
                (value, a.size.max(c.size))
            }
            Pointwise::Clamp => {
                let (low, high) = (self.number(-1.5), self.number(2.0));
                (self.pointwise(op, &[a.value, low, high]), 2.0)
            }
            Pointwise::Softcap => {
                let cap = self.number(3.0);
                (self.pointwise(op, &[a.value, cap]), 3.0)
            }
            Pointwise::Sub | Pointwise::Min | Pointwise::Max => {
                let operands = self.either(a.value, b.value);
                (self.pointwise(op, &operands), a.size + b.size)
            }
            _ => {
                let operands = self.either(a.value, b.value);
                (self.pointwise(Pointwise::Add, &operands), a.size + b.size)
            }
        };
        self.keep(value, size);
    }

    /// A row and a number, in either order.
    pub(super) fn with_constant(&mut self) {
        let x = self.pick();
        let number = self.constant();
        let ops = [Pointwise::Add, Pointwise::Sub, Pointwise::Mul, Pointwise::Min, Pointwise::Max];
        let op = self.rng.pick(&ops);
        let operands = self.either(x.value, number.value);
        let value = self.pointwise(op, &operands);
        let size = match op {
            Pointwise::Mul => x.size * number.size,
            _ => x.size + number.size,
        };
        self.keep(value, size);
    }

    /// A number, perhaps negated or computed from two.
    fn constant(&mut self) -> Row {
        let number = self.rng.pick(&NUMBERS);
        let mut value = self.number(number);
        let mut size = f64::from(number.abs());
        match self.rng.below(6) {
            0 | 1 => value = self.pointwise(Pointwise::Neg, &[value]),
            2 => {
                let other = self.rng.pick(&NUMBERS);
                let op = self.rng.pick(&[Pointwise::Sub, Pointwise::Max, Pointwise::Add]);
                let operand = self.number(other);
                value = self.pointwise(op, &[value, operand]);
                size += f64::from(other.abs());
            }
            _ => {}
        }
        Row { value, width: 1, size }
    }

    /// What broadcasts with rows of `width`: such a row, a vector, one number a row, a constant,
    /// a scalar argument, or what has no batch dim.
    fn second(&mut self, width: usize) -> Row {
        let (value, size) = match self.rng.below(12) {
            0 => (self.vector(width), 1.0),
            1 => {
                let x = self.pick();
                let reduction = self.rng.pick(&[Reduction::Mean, Reduction::Max]);
                (self.op(Op::Reduce(reduction), &[x.value]), x.size)
            }
            2 => {
                let number = self.constant();
                (number.value, number.size)
            }
            3 => (self.arg("s", Role::Input, Type::tensor(DType::F32, Vec::new())), 1.0),
            4 => {
                let shape = vec![Dim::literal(1), self.dim(width)];
                (self.arg("w", Role::Weight, Type::tensor(DType::F32, shape)), 1.0)
            }
            5 => self.row_without_batch(width),
            6 => {
                let x = self.pick();
                let mean = self.op(Op::Reduce(Reduction::Mean), &[x.value]);
                let vector = self.vector(width);
                // Both operands are broadcast.
                let operands = self.either(mean, vector);
                (self.pointwise(Pointwise::Add, &operands), x.size + 1.0)
            }
            _ => return self.partner(width),
        };
        Row { value, width, size }
    }

    pub(super) fn cast(&mut self) {
        let x = self.pick();
        if !self.options.narrow {
            return self.unary();
        }
        let dtype = self.rng.pick(&[DType::BF16, DType::F16, DType::F32]);
        let value = self.op(Op::Cast(dtype), &[x.value]);
        self.keep(value, x.size);
    }
}
