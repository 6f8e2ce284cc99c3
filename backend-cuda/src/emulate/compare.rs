//! Comparing what kernels stored with the oracle's values.

use super::fault::Line;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Graph, Op, Reduction, ValueId};
use std::fmt;

/// A value of a kernel that is not the oracle's.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The kernel that was run last.
    pub kernel: String,
    /// Whether it was run on the oracle's operands; else on those that kernels before it stored.
    pub alone: bool,
    /// The value's line in the `.ir` text; for a cache that of the append, and which half.
    pub value: String,
    /// The first bad element, in row-major order.
    pub element: usize,
    /// Its coordinates.
    pub coords: Vec<usize>,
    /// How many are bad.
    pub n_bad: usize,
    /// Of how many.
    pub n_elements: usize,
    /// The oracle's number.
    pub expected: f64,
    /// The kernel's.
    pub found: f64,
    /// The largest error, relative to the largest number expected.
    pub error: f64,
    /// The largest that is allowed.
    pub limit: f64,
    /// Block and thread that wrote the element, and the line where it did.
    pub writer: Option<(u32, u32, Option<Line>)>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.alone { "alone" } else { "after the kernels before it" };
        write!(f, "kernel `{}`, run {how}, computes another value", self.kernel)?;
        write!(f, "\n  value {}", self.value)?;
        write!(
            f,
            "\n  element {} {:?}: expected {}, found {}; {} of {} are off, by {:.2e} of {:.2e} allowed",
            self.element,
            self.coords,
            self.expected,
            self.found,
            self.n_bad,
            self.n_elements,
            self.error,
            self.limit
        )?;
        if let Some((block, thread, line)) = &self.writer {
            write!(f, "\n  written by block {block}, thread {thread}")?;
            if let Some(line) = line {
                write!(f, ", at {line}")?;
            }
        }
        Ok(())
    }
}

/// The largest error of a float that a kernel computes, relative to the largest element: sums are
/// taken in another order than the oracle's.
const F32_LIMIT: f64 = 2e-5;

/// The largest error of what these operations store, relative to the largest element. A sum that
/// differs in its last bit may be rounded to a narrower type the other way.
pub fn limit(graph: &Graph, members: &[ValueId]) -> f64 {
    let of_type = |dtype| match dtype {
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        DType::F32 | DType::I32 => F32_LIMIT,
    };
    let narrow = members.iter().map(|&id| match graph[id].op {
        Op::Attend { operand, .. } => of_type(operand),
        Op::Append => of_type(graph[id].ty.dtype()),
        Op::Cast(dtype) => of_type(dtype),
        _ => F32_LIMIT,
    });
    narrow.fold(F32_LIMIT, f64::max)
}

/// The largest error of a stored type: integers are exact.
pub(crate) fn stored_limit(dtype: DType, limit: f64) -> f64 {
    match dtype {
        DType::I32 => 0.0,
        DType::F32 => limit,
        DType::F16 => limit.max(1e-3),
        DType::BF16 => limit.max(4e-3),
    }
}

/// What errors of a sum are relative to: the largest sum of magnitudes, since terms may cancel.
/// Other values have the largest element, so 0 here.
pub fn sum_scale(graph: &Graph, id: ValueId, rows: usize, all: &[Option<Vec<f64>>]) -> f64 {
    let value = &graph[id];
    let Op::Reduce(Reduction::Sum | Reduction::Mean) = value.op else { return 0.0 };
    let x = value.inputs[0];
    let width = match graph[x].ty.shape().last() {
        Some(dim) if dim.batch => rows,
        Some(dim) => dim.size,
        None => 1,
    };
    let count = if value.op == Op::Reduce(Reduction::Mean) { width as f64 } else { 1.0 };
    let sums = all[x.index()].iter().flat_map(|elements| elements.chunks(width.max(1)));
    let sums = sums.map(|row| row.iter().map(|x| x.abs()).sum::<f64>() / count);
    sums.filter(|sum| sum.is_finite()).fold(0.0, f64::max)
}

/// The first bad element, how many are, and the largest error.
pub(crate) fn first_bad(
    expected: &[f64],
    found: &[f64],
    scale: f64,
    limit: f64,
) -> Option<(usize, usize, f64)> {
    let finite = expected.iter().filter(|x| x.is_finite());
    let scale = finite.fold(scale.max(f64::MIN_POSITIVE), |max, x| max.max(x.abs()));
    let (mut first, mut n_bad, mut worst) = (None, 0, 0.0f64);
    for (at, (&e, &f)) in expected.iter().zip(found).enumerate() {
        let error = if e == f || (e.is_nan() && f.is_nan()) {
            0.0
        } else if e.is_finite() && f.is_finite() {
            (e - f).abs() / scale
        } else {
            f64::INFINITY
        };
        worst = worst.max(error);
        if error > limit {
            first.get_or_insert(at);
            n_bad += 1;
        }
    }
    first.map(|at| (at, n_bad, worst))
}

/// The coordinates of an element in a call of `rows` rows.
pub(crate) fn coords_of(shape: &[Dim], rows: usize, mut element: usize) -> Vec<usize> {
    let mut coords = Vec::new();
    for dim in shape.iter().rev() {
        let n = if dim.batch { rows } else { dim.size }.max(1);
        coords.push(element % n);
        element /= n;
    }
    coords.reverse();
    coords
}
