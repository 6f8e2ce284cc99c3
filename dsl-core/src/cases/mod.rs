//! Small blocks with answers that were worked out by hand, one for each fault that decode
//! kernels are known to have had: support for tests. The oracle and every back end run the same
//! table.
//!
//! Numbers are exact where possible, and then the tolerance is 0.

mod attention;
mod elements;
mod products;

use crate::format::WeightFormat;
use crate::ir::Graph;
use crate::oracle::Datum;

/// One call of a block, with its answer.
#[derive(Clone, Debug)]
pub struct Case {
    /// What must hold.
    pub name: String,
    /// The block, verified.
    pub graph: Graph,
    /// Rows of the call.
    pub rows: usize,
    /// The arguments, in the order of [`Graph::args`].
    pub args: Vec<Datum>,
    /// The results, in the order of [`Graph::outputs`].
    pub expected: Vec<Vec<f64>>,
    /// The largest relative error of an element that is right; where 0 is expected, it is exact.
    pub tolerance: f64,
}

impl Case {
    fn new(name: impl Into<String>, text: &str, args: Vec<Datum>, expected: &[&[f64]]) -> Case {
        let name = name.into();
        let graph = match Graph::parse(text) {
            Ok(graph) => graph,
            Err(error) => panic!("the case `{name}` does not parse: {error}"),
        };
        if let Err(errors) = graph.verify() {
            panic!("the case `{name}` is not a graph: {errors:?}");
        }
        let expected = expected.iter().map(|result| result.to_vec()).collect();
        Case { name, graph, rows: 1, args, expected, tolerance: 0.0 }
    }

    fn rows(self, rows: usize) -> Case {
        Case { rows, ..self }
    }

    fn tolerance(self, tolerance: f64) -> Case {
        Case { tolerance, ..self }
    }

    /// Compares results with the answer.
    ///
    /// # Errors
    /// The first element that is wrong, with what was expected and found.
    pub fn check(&self, found: &[Vec<f64>]) -> Result<(), String> {
        let name = &self.name;
        if found.len() != self.expected.len() {
            let (expected, found) = (self.expected.len(), found.len());
            return Err(format!("{name}: expected {expected} results, found {found}"));
        }
        for (result, (expected, found)) in self.expected.iter().zip(found).enumerate() {
            if expected.len() != found.len() {
                let (expected, found) = (expected.len(), found.len());
                return Err(format!(
                    "{name}: expected {expected} elements in result {result}, found {found}"
                ));
            }
            let right = |e: f64, f: f64| {
                e == f || (e.is_nan() && f.is_nan()) || (e - f).abs() <= self.tolerance * e.abs()
            };
            let wrong = expected.iter().zip(found).position(|(&e, &f)| !right(e, f));
            if let Some(at) = wrong {
                let (e, f) = (expected[at], found[at]);
                return Err(format!("{name}: expected {e} at {at} of result {result}, found {f}"));
            }
        }
        Ok(())
    }
}

/// The largest difference of two results, relative to the largest number expected. Infinite if
/// they differ in length, or one has a NaN or infinity where the other has none.
pub fn relative_error(expected: &[f64], found: &[f64]) -> f64 {
    if expected.len() != found.len() {
        return f64::INFINITY;
    }
    let finite = expected.iter().filter(|x| x.is_finite());
    let scale = finite.fold(f64::MIN_POSITIVE, |max, x| max.max(x.abs()));
    expected.iter().zip(found).fold(0.0, |worst, (&e, &f)| {
        let error = if e == f || (e.is_nan() && f.is_nan()) {
            0.0
        } else if e.is_finite() && f.is_finite() {
            (e - f).abs() / scale
        } else {
            f64::INFINITY
        };
        f64::max(worst, error)
    })
}

/// Every case.
pub fn cases() -> Vec<Case> {
    [elements::cases(), products::cases(), attention::cases()].concat()
}

/// A tensor of these elements.
fn tensor(elements: &[f64]) -> Datum {
    Datum::Tensor(elements.to_vec())
}

/// A tensor of `n` equal elements.
fn filled(n: usize, element: f64) -> Datum {
    Datum::Tensor(vec![element; n])
}

/// A weight of a format without groups, exact if its elements are.
fn dense(
    format: &WeightFormat,
    n: usize,
    k: usize,
    element: impl Fn(usize, usize) -> f32,
) -> Datum {
    let values: Vec<f32> = (0..n * k).map(|i| element(i / k, i % k)).collect();
    match format.quantize(&values, n, k) {
        Ok(packed) => Datum::Weight(packed),
        Err(error) => panic!("{error}"),
    }
}

/// A weight by its codes, and by the scale and offset of each group of a row.
fn grouped(
    format: &WeightFormat,
    [n, k]: [usize; 2],
    code: impl Fn(usize, usize) -> u32,
    scale: impl Fn(usize) -> f32,
    offset: impl Fn(usize) -> f32,
) -> Datum {
    let codes: Vec<u32> = (0..n * k).map(|i| code(i / k, i % k)).collect();
    let n_groups = format.n_groups(k);
    let groups = |f: &dyn Fn(usize) -> f32| -> Vec<f32> {
        (0..n * n_groups).map(|i| f(i % n_groups)).collect()
    };
    let has_offset = format.group.is_some_and(|group| group.offset.is_some());
    let offsets = if has_offset { groups(&offset) } else { Vec::new() };
    match format.pack_planes(&codes, &groups(&scale), &offsets, n, k) {
        Ok(packed) => Datum::Weight(packed),
        Err(error) => panic!("{error}"),
    }
}
