//! Comparing what kernels stored with the oracle's values.

use super::fault::Line;
use fuseline_core::dtype::DType;
use fuseline_core::ir::{Dim, Graph, Op, ValueId};
use fuseline_core::oracle::{self, Datum, OracleError};
use fuseline_core::random::Rng;
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

/// Whether what a kernel stores was rounded to a narrow type nowhere but where it is stored.
pub(crate) fn rounded_once(graph: &Graph, members: &[ValueId], stored: ValueId) -> bool {
    let before = members.iter().copied().filter(|&id| id != stored).collect::<Vec<_>>();
    !is_narrow(graph, &before) && !matches!(graph[stored].op, Op::Attend { .. })
}

/// How far numbers among the arguments are moved to see what values make of it, and how many times
/// as far as by such a move a value may be off: a few roundings of a float, or one of a narrow
/// type, which goes the other way here and there.
const NUDGES: [(f64, f64); 2] = [(1.0 / 1048576.0, 4.0), (1.0 / 512.0, 4.0)];

/// By how much each value of a graph may be off beside its [`limit`], in its own unit, because
/// small differences before it become large: where terms of a sum cancel, where a norm makes a
/// small row large. Measured: the oracle runs again on arguments that are moved by about as much
/// as numbers are rounded, to floats or to `narrow` types, with every sum moved by a float's error.
///
/// # Errors
/// Those of the oracle.
pub fn slack(
    graph: &Graph,
    rows: usize,
    args: &[Datum],
    all: &[Option<Vec<f64>>],
    narrow: bool,
) -> Result<Vec<f64>, OracleError> {
    let (by, times) = NUDGES[usize::from(narrow)];
    let mut slack = vec![0.0f64; all.len()];
    for seed in 0..2 {
        let mut rng = Rng::new(seed);
        let mut nudge_by = |x: f64, by: f64| x * (1.0 + by * rng.signed());
        let mut nudge = |x| nudge_by(x, by);
        let mut moved = args.to_vec();
        for datum in &mut moved {
            match datum {
                Datum::Scalar(x) => *x = nudge(f64::from(*x)) as f32,
                Datum::Tensor(x) => x.iter_mut().for_each(|x| *x = nudge(*x)),
                Datum::Cache { keys, values } => {
                    keys.iter_mut().chain(values).for_each(|x| *x = nudge(*x));
                }
                Datum::Tokens(_) | Datum::Weight(_) | Datum::Index { .. } => {}
            }
        }
        let mut nudge_sum = |x| nudge_by(x, NUDGES[0].0);
        let moved = oracle::run_moved(graph, rows, &mut moved, &mut nudge_sum)?;
        for ((slack, before), after) in slack.iter_mut().zip(all).zip(&moved) {
            let (Some(before), Some(after)) = (before, after) else { continue };
            let distances = before.iter().zip(after).map(|(a, b)| (a - b).abs());
            let most = distances.filter(|distance| distance.is_finite()).fold(0.0, f64::max);
            *slack = slack.max(times * most);
        }
    }
    Ok(slack)
}

/// Whether any of these operations rounds to a narrow type.
pub fn is_narrow(graph: &Graph, members: &[ValueId]) -> bool {
    limit(graph, members) > F32_LIMIT
}

/// What may differ between stored elements and the oracle's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    /// The largest error, relative to the largest element.
    pub limit: f64,
    /// What it may be beside that, in the elements' unit.
    pub slack: f64,
    /// How many elements may differ at all.
    pub max_rounded: usize,
}

impl Bounds {
    /// For `n` elements of a type that kernels with this [`limit`] store. A narrow type that is
    /// rounded to once, from sums with errors of a float, has few elements that go the other way;
    /// some more where operands of products are not exact.
    pub fn new(
        dtype: DType,
        n: usize,
        slack: f64,
        limit: f64,
        rounded_once: bool,
        is_exact: bool,
    ) -> Bounds {
        let slack = if dtype == DType::I32 { 0.0 } else { slack };
        let (limit, narrow) = match dtype {
            DType::I32 => (0.0, false),
            DType::F32 => (limit, false),
            DType::F16 => (limit.max(1e-3), true),
            DType::BF16 => (limit.max(4e-3), true),
        };
        let few = if is_exact { n / 50 } else { n / 8 };
        let max_rounded = if narrow && rounded_once { 2 + few } else { n };
        Bounds { limit, slack, max_rounded }
    }
}

/// How elements differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The first bad element, or none, and how many are bad.
    pub first: Option<usize>,
    pub n_bad: usize,
    /// The largest error, relative to the largest element, and what it may be.
    pub worst: f64,
    pub limit: f64,
}

/// Compares elements: bad are those with too large an error, or if there are none and too many
/// differ, all that differ.
pub(crate) fn compare(expected: &[f64], found: &[f64], bounds: &Bounds) -> Difference {
    let finite = expected.iter().filter(|x| x.is_finite());
    let scale = finite.fold(f64::MIN_POSITIVE, |max, x| max.max(x.abs()));
    let limit = bounds.limit + bounds.slack / scale;
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
    let above = match (worst > limit, count(0.0)) {
        (true, _) => limit,
        (false, n) if n > bounds.max_rounded => 0.0,
        (false, _) => return Difference { first: None, n_bad: 0, worst, limit },
    };
    let first = errors.iter().position(|&error| error > above);
    Difference { first, n_bad: count(above), worst, limit }
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
    use fuseline_core::format::builtin;

    fn bounds(dtype: DType, n: usize) -> Bounds {
        Bounds::new(dtype, n, 0.0, F32_LIMIT, true, true)
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
    fn slack_is_where_terms_cancel() {
        let text = "block sums
arg %0 x input f32[3, D:4]
%1 = row_sum %0 : f32[3, 1]
%2 = exp %0 : f32[3, D:4]
return %1 %2
";
        let graph = Graph::parse(text).unwrap();
        let big = 4096.0;
        let x = [1.0, 2.0, 3.0, 4.0, big, -big, big + 1.0, -big, 1.0, 1.0, 1.0, 1.0];
        let x = x.map(|x: f64| x / big).to_vec();
        let args = [Datum::Tensor(x)];
        let all = oracle::run_all(&graph, 1, &mut args.to_vec()).unwrap();
        let slack = slack(&graph, 1, &args, &all, false).unwrap();
        // The second sum is 2^-12 of terms of 1: it is off by what they are.
        let nudge = NUDGES[0].0;
        assert!(slack[1] > nudge && slack[1] < 16.0 * nudge, "{slack:?}");
        // Exponentials of at most e are off by about their own roundings.
        assert!(slack[2] < 16.0 * nudge, "{slack:?}");
    }

    #[test]
    fn slack_is_where_sums_of_weights_cancel() {
        // Whatever x is, the row is -1: only weights are summed, and their sum is of its errors.
        let text = "block clipped
arg %0 x input f32[1, D:4]
arg %1 w weight f32{1, D:4}
arg %2 v weight f32{1, 1}
%3 = const value=1.0 : f32[]
%4 = neg %3 : f32[]
%5 = min %0 %4 : f32[1, D:4]
%6 = linear %5 %1 : f32[1, 1]
%7 = linear %6 %2 : f32[1, 1]
%8 = const value=4.0 : f32[]
%9 = add %7 %8 : f32[1, 1]
return %9
";
        let graph = Graph::parse(text).unwrap();
        let weight = |elements: &[f32]| {
            let format = builtin("f32").unwrap();
            Datum::Weight(format.quantize(elements, 1, elements.len()).unwrap())
        };
        let args = [Datum::Tensor(vec![1.0; 4]), weight(&[1.0, 1.0, 1.0, 1.0]), weight(&[0.9999])];
        let all = oracle::run_all(&graph, 1, &mut args.to_vec()).unwrap();
        assert!((all[9].as_ref().unwrap()[0] - 4e-4).abs() < 1e-6);
        let slack = slack(&graph, 1, &args, &all, false).unwrap();
        let nudge = NUDGES[0].0;
        assert!(slack[9] > nudge && slack[9] < 64.0 * nudge, "{slack:?}");
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
