//! Operations on rows over the last axis. Sums are f32, over a fixed number of lanes.

use super::frame::{Frame, Operand, Target};
use super::program::Builder;
use super::vector::{self, Loop};
use fuseline_core::ir::{Op, Reduction, ValueId};
use fuseline_core::math;

/// Partial sums of a row: element i goes to sum `i % LANES`.
const LANES: usize = 16;

/// One operation on every row of a value.
#[derive(Clone, Debug)]
pub(super) struct RowStep {
    op: RowOp,
    x: Operand,
    /// Elements of a row.
    width: usize,
    weight: Option<Operand>,
    bias: Option<Operand>,
    target: Target,
}

#[derive(Clone, Copy, Debug)]
enum RowOp {
    Reduce(Reduction),
    Softmax,
    Argmax,
    RmsNorm { eps: f32 },
    LayerNorm { eps: f32 },
}

impl RowStep {
    /// The step of an operation on rows; none for other operations.
    pub fn new(cx: &mut Builder<'_>, id: ValueId) -> Option<RowStep> {
        let op = match cx.graph()[id].op {
            Op::Reduce(reduction) => RowOp::Reduce(reduction),
            Op::Softmax => RowOp::Softmax,
            Op::Argmax => RowOp::Argmax,
            Op::RmsNorm { eps } => RowOp::RmsNorm { eps },
            Op::LayerNorm { eps } => RowOp::LayerNorm { eps },
            _ => return None,
        };
        let n_inputs = cx.graph()[id].inputs.len();
        let width = cx.graph()[cx.graph()[id].inputs[0]].ty.shape().last().map_or(1, |d| d.size);
        Some(RowStep {
            op,
            x: cx.input(id, 0),
            width,
            weight: (n_inputs > 1).then(|| cx.input(id, 1)),
            bias: (n_inputs > 2).then(|| cx.input(id, 2)),
            target: cx.target(id),
        })
    }

    pub fn run(&self, frame: &mut Frame<'_>) {
        let mut values = frame.take(self.target);
        let side = |operand: Option<Operand>| operand.map_or(&[][..], |o| frame.read(o));
        let (x, weight, bias) = (frame.read(self.x), side(self.weight), side(self.bias));
        let width = self.width;
        let out_width = match self.op {
            RowOp::Reduce(_) | RowOp::Argmax => 1,
            RowOp::Softmax | RowOp::RmsNorm { .. } | RowOp::LayerNorm { .. } => width,
        };
        if out_width > 0 {
            for (row, out) in values.chunks_exact_mut(out_width).enumerate() {
                let x = &x[row * width..][..width];
                vector::run(Row { op: self.op, x, weight, bias, out });
            }
        }
        frame.put(self.target, values);
    }
}

/// One row.
struct Row<'a> {
    op: RowOp,
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    out: &'a mut [f32],
}

impl Loop for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Row { op, x, weight, bias, out } = self;
        let n = x.len() as f32;
        match op {
            RowOp::Reduce(Reduction::Sum) => out[0] = sum(x),
            RowOp::Reduce(Reduction::Mean) => out[0] = sum(x) / n,
            RowOp::Reduce(Reduction::Max) => out[0] = max(x),
            RowOp::Argmax => out[0] = f32::from_bits(argmax(x) as u32),
            RowOp::Softmax => {
                let max = max(x);
                for (y, &x) in out.iter_mut().zip(x) {
                    *y = math::exp(x - max);
                }
                let sum = sum(out);
                out.iter_mut().for_each(|y| *y /= sum);
            }
            RowOp::RmsNorm { eps } => {
                let squares = fold(x, 0.0, |sum, x| x.mul_add(x, sum), |a, b| a + b);
                let scale = math::rsqrt(squares / n + eps);
                for ((y, x), w) in out.iter_mut().zip(x).zip(weight) {
                    *y = x * scale * w;
                }
            }
            RowOp::LayerNorm { eps } => {
                let centre = sum(x) / n;
                let step = |sum: f32, x: f32| (x - centre).mul_add(x - centre, sum);
                let squares = fold(x, 0.0, step, |a, b| a + b);
                let scale = math::rsqrt(squares / n + eps);
                for (((y, x), w), b) in out.iter_mut().zip(x).zip(weight).zip(bias) {
                    *y = (x - centre) * scale * w + b;
                }
            }
        }
    }
}

/// Folds a row into lanes and the lanes into one number, halving their number each time.
#[inline(always)]
fn fold(
    row: &[f32],
    start: f32,
    step: impl Fn(f32, f32) -> f32,
    join: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut lanes = [start; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = step(lanes[i], chunk[i]);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, x);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = join(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of a row.
#[inline(always)]
pub(super) fn sum(row: &[f32]) -> f32 {
    fold(row, 0.0, |sum, x| sum + x, |a, b| a + b)
}

/// The largest element; NaN if there is one; -∞ of no elements.
#[inline(always)]
pub(super) fn max(row: &[f32]) -> f32 {
    fold(row, f32::NEG_INFINITY, math::max, math::max)
}

/// The first index of the largest element, or of the first NaN.
#[inline(always)]
fn argmax(row: &[f32]) -> i32 {
    let largest = max(row);
    let is_best = |x: &f32| if largest.is_nan() { x.is_nan() } else { *x == largest };
    row.iter().position(is_best).unwrap_or(0) as i32
}
