//! Comparing what kernels stored with the oracle's values.

use super::fault::Line;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Graph, Op, Reduction, Type, ValueId};
use fuseline_core::oracle::Datum;
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
    /// How many elements may be rounded to the other neighbour, if no error is too large.
    pub max_rounded: usize,
    /// Block and thread that wrote the element, and the line where it did.
    pub writer: Option<(u32, u32, Option<Line>)>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.alone { "alone" } else { "after the kernels before it" };
        write!(f, "kernel `{}`, run {how}, computes another value", self.kernel)?;
        write!(f, "\n  value {}", self.value)?;
        let Mismatch { element, coords, expected, found, .. } = self;
        write!(f, "\n  element {element} {coords:?}: expected {expected}, found {found}; ")?;
        let (n_bad, n_elements) = (self.n_bad, self.n_elements);
        if self.error > self.limit {
            let (error, limit) = (self.error, self.limit);
            write!(f, "{n_bad} of {n_elements} are off, by {error:.2e} of {limit:.2e} allowed")?;
        } else {
            let max = self.max_rounded;
            write!(f, "{n_bad} of {n_elements} are rounded otherwise, {max} may be")?;
        }
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

/// By how much norms enlarge the errors of values that were rounded to a narrow type on the way:
/// a row that is small beside the largest element is made as large as the others.
pub(crate) fn gain(graph: &Graph, all: &[Option<Vec<f64>>]) -> f64 {
    let of_norm = |id: ValueId| {
        let centered = match graph[id].op {
            Op::RmsNorm { .. } => false,
            Op::LayerNorm { .. } => true,
            _ => return 1.0,
        };
        let x = graph[id].inputs[0];
        let width = graph[x].ty.shape().last().map_or(1, |dim| dim.size).max(1);
        let elements = all[x.index()].as_deref().unwrap_or_default();
        let max = elements.iter().fold(0.0f64, |max, x| max.max(x.abs()));
        let deviation = |row: &[f64]| {
            let mean = if centered { row.iter().sum::<f64>() / width as f64 } else { 0.0 };
            (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64).sqrt()
        };
        let least = elements.chunks(width).map(deviation).fold(f64::INFINITY, f64::min);
        // Of an ordinary row the largest element is twice the deviation.
        let ratio = max / (2.0 * least);
        if ratio.is_finite() { ratio.max(1.0) } else { 1.0 }
    };
    graph.ids().map(of_norm).product()
}

/// Whether what a kernel stores was rounded to a narrow type nowhere but where it is stored.
pub(crate) fn rounded_once(graph: &Graph, members: &[ValueId], stored: ValueId) -> bool {
    let before = members.iter().copied().filter(|&id| id != stored).collect::<Vec<_>>();
    limit(graph, &before) <= F32_LIMIT && !matches!(graph[stored].op, Op::Attend { .. })
}

/// Of so many sums of products one is of ordinary size, whatever cancels in others.
const MANY_SUMS: usize = 64;

/// What errors of a sum are relative to: the largest sum of magnitudes, since terms may cancel.
/// Other values, and products of many rows and columns, have the largest element, so 0 here.
pub fn sum_scale(
    graph: &Graph,
    id: ValueId,
    rows: usize,
    all: &[Option<Vec<f64>>],
    args: &[Datum],
) -> f64 {
    let value = &graph[id];
    let elements = |id: ValueId| all[id.index()].as_deref().unwrap_or_default();
    let finite = |sums: &mut dyn Iterator<Item = f64>| {
        sums.filter(|sum| sum.is_finite()).fold(0.0, f64::max)
    };
    match &value.op {
        Op::Reduce(Reduction::Sum | Reduction::Mean) => {
            let x = value.inputs[0];
            let width = match graph[x].ty.shape().last() {
                Some(dim) if dim.batch => rows,
                Some(dim) => dim.size,
                None => 1,
            };
            let is_mean = value.op == Op::Reduce(Reduction::Mean);
            let count = if is_mean { width as f64 } else { 1.0 };
            let sum = |row: &[f64]| row.iter().map(|x| x.abs()).sum::<f64>() / count;
            finite(&mut elements(x).chunks(width.max(1)).map(sum))
        }
        Op::Linear if elements(id).len() <= MANY_SUMS => {
            let (x, w) = (elements(value.inputs[0]), value.inputs[1]);
            let place = graph.args.iter().position(|arg| arg.value == w);
            let (Type::Weight { format, n, k }, Some(Datum::Weight(packed))) =
                (&graph[w].ty, place.and_then(|place| args.get(place)))
            else {
                return 0.0;
            };
            let sum = |row: &[f64], output: usize| -> f64 {
                let term = |(col, x): (usize, &f64)| (x * format.decode(packed, output, col)).abs();
                row.iter().enumerate().map(term).sum()
            };
            let rows = x.chunks(k.size.max(1));
            finite(&mut rows.flat_map(|row| (0..n.size).map(move |output| sum(row, output))))
        }
        _ => 0.0,
    }
}

/// What may differ between stored elements and the oracle's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// What errors are relative to, if no element is larger.
    pub scale: f64,
    /// The largest error.
    pub limit: f64,
    /// How many elements may differ at all.
    pub max_rounded: usize,
}

impl Bounds {
    /// For `n` elements of a type that kernels with this [`limit`] store. A narrow type that is
    /// rounded to once, from sums with errors of a float, has few elements that go the other way.
    pub fn new(dtype: DType, n: usize, scale: f64, limit: f64, rounded_once: bool) -> Bounds {
        let (limit, narrow) = match dtype {
            DType::I32 => (0.0, false),
            DType::F32 => (limit, false),
            DType::F16 => (limit.max(1e-3), true),
            DType::BF16 => (limit.max(4e-3), true),
        };
        let max_rounded = if narrow && rounded_once { 2 + n / 50 } else { n };
        Bounds { scale, limit, max_rounded }
    }
}

/// How elements differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The first bad element, or none, and how many are bad.
    pub first: Option<usize>,
    pub n_bad: usize,
    /// The largest error.
    pub worst: f64,
}

/// Compares elements: bad are those with too large an error, or if there are none and too many
/// differ, all that differ.
pub(crate) fn compare(expected: &[f64], found: &[f64], bounds: &Bounds) -> Difference {
    let finite = expected.iter().filter(|x| x.is_finite());
    let scale = finite.fold(bounds.scale.max(f64::MIN_POSITIVE), |max, x| max.max(x.abs()));
    let error = |(&e, &f): (&f64, &f64)| {
        if e == f || (e.is_nan() && f.is_nan()) {
            0.0
        } else if e.is_finite() && f.is_finite() {
            (e - f).abs() / scale
        } else {
            f64::INFINITY
        }
    };
    let errors: Vec<f64> = expected.iter().zip(found).map(error).collect();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let count = |above: f64| errors.iter().filter(|&&error| error > above).count();
    let above = match (worst > bounds.limit, count(0.0)) {
        (true, _) => bounds.limit,
        (false, n) if n > bounds.max_rounded => 0.0,
        (false, _) => return Difference { first: None, n_bad: 0, worst },
    };
    let first = errors.iter().position(|&error| error > above);
    Difference { first, n_bad: count(above), worst }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(dtype: DType, n: usize) -> Bounds {
        Bounds::new(dtype, n, 0.0, F32_LIMIT, true)
    }

    #[test]
    fn errors_are_relative_to_the_largest_element() {
        let near = compare(&[100.0, 1.0], &[100.0, 1.001], &bounds(DType::F32, 2));
        assert_eq!((near.first, near.n_bad), (None, 0));
        let far = compare(&[1.0, 1.0], &[1.0, 1.001], &bounds(DType::F32, 2));
        assert_eq!((far.first, far.n_bad), (Some(1), 1));
        assert_eq!(compare(&[7.0], &[8.0], &bounds(DType::I32, 1)).first, Some(0));
        assert_eq!(compare(&[f64::NAN], &[f64::NAN], &bounds(DType::F32, 1)).first, None);
        assert_eq!(compare(&[f64::NAN], &[0.0], &bounds(DType::F32, 1)).first, Some(0));
        assert_eq!(compare(&[f64::INFINITY], &[1e30], &bounds(DType::F32, 1)).first, Some(0));
    }

    #[test]
    fn few_elements_go_to_the_other_neighbour() {
        let expected = vec![1.0; 200];
        let mut found = expected.clone();
        found[..6].fill(1.0 + 1.0 / 512.0);
        assert_eq!(compare(&expected, &found, &bounds(DType::BF16, 200)).first, None);
        found[..7].fill(1.0 + 1.0 / 512.0);
        assert_eq!(compare(&expected, &found, &bounds(DType::BF16, 200)).n_bad, 7);
    }

    #[test]
    fn coordinates_count_the_rows_of_the_call() {
        let dims = [Dim::batch(8, "B"), Dim::named(5, "D")];
        assert_eq!(coords_of(&dims, 3, 13), [2, 3]);
    }
}
