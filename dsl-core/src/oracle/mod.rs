//! The oracle: an interpreter of graphs that is slow and obvious. What it computes is what a
//! block means, and every back end is measured against it.
//!
//! - Every value is computed in `f64` from its operands and then rounded once, to `f32` or to the
//!   type of a cast. Sums and dot products accumulate in `f64`.
//! - Weights decode exactly, by [`WeightFormat::decode`](crate::format::WeightFormat::decode).
//! - No function of [`crate::math`] is used, so that one cannot hide the other's mistakes.
//! - A NaN gives a NaN: in minima, maxima, clamps, maxima of rows and softmax too. The first NaN
//!   of a row is its largest element for `argmax`.
//! - `append` stores all rows of a call, rounded to the cache's type, before any row attends; of
//!   two rows at one place the later stays.
//! - `attend` rounds q, and the probabilities `exp(score - max)` that multiply values, to its
//!   `operand` type. The denominator is the sum of the probabilities before rounding, plus
//!   `exp(sink - max)`; the maximum is over the scores and the sink. A row with no key gives zeros.

mod attention;
mod call;
mod pointwise;
mod row;

use crate::format::Packed;
use crate::ir::{Graph, VerifyError};
use std::fmt;

/// An argument of a call. Dims marked as batch have as many elements as the call has rows, but
/// for the sequences of a cache, which are always all there.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// A number: an argument `f32[]`.
    Scalar(f32),
    /// Elements in row-major order; they are rounded to the argument's type when they are read.
    Tensor(Vec<f64>),
    /// Elements of an `i32` argument in row-major order.
    Tokens(Vec<i32>),
    /// A weight in the packed layout.
    Weight(Packed),
    /// `[sequences, kv_heads, capacity, head_dim]` each.
    Cache {
        /// Keys.
        keys: Vec<f64>,
        /// Values.
        values: Vec<f64>,
    },
    /// One element a row each.
    Index {
        /// Each row's position in its sequence.
        positions: Vec<i32>,
        /// Each row's sequence in the caches.
        sequences: Vec<i32>,
    },
}

impl Datum {
    /// What messages call the kind.
    fn kind(&self) -> &'static str {
        match self {
            Datum::Scalar(_) => "a scalar",
            Datum::Tensor(_) => "a tensor",
            Datum::Tokens(_) => "tokens",
            Datum::Weight(_) => "a weight",
            Datum::Cache { .. } => "a cache",
            Datum::Index { .. } => "an index",
        }
    }
}

/// Why a call cannot be computed.
#[derive(Clone, Debug, PartialEq)]
pub enum OracleError {
    /// The graph breaks rules.
    Graph(Vec<VerifyError>),
    /// More rows than the batch dim has.
    Rows {
        /// The batch dim's size.
        max: usize,
        /// Rows of the call.
        found: usize,
    },
    /// Too many or too few arguments.
    ArgCount {
        /// Arguments of the graph.
        expected: usize,
        /// Arguments of the call.
        found: usize,
    },
    /// An argument of another kind.
    Kind {
        /// The argument's name.
        arg: String,
        /// The kind that the graph declares.
        expected: &'static str,
        /// The kind that the call has.
        found: &'static str,
    },
    /// An argument of another length.
    Length {
        /// The argument's name.
        arg: String,
        /// What was counted.
        what: &'static str,
        /// What the graph declares.
        expected: usize,
        /// What the call has.
        found: usize,
    },
    /// A weight whose format cannot be decoded.
    Format {
        /// The argument's name.
        arg: String,
        /// What is wrong with it.
        message: String,
    },
    /// A token id that the table has no row for.
    Token {
        /// The id.
        id: i64,
        /// Rows of the table.
        n_rows: usize,
    },
    /// A position that the cache has no room for.
    Position {
        /// The row of the call.
        row: usize,
        /// Its position.
        position: i32,
        /// Positions of a sequence.
        capacity: usize,
    },
    /// A sequence that the cache does not hold.
    Sequence {
        /// The row of the call.
        row: usize,
        /// Its sequence.
        sequence: i32,
        /// Sequences of the cache.
        sequences: usize,
    },
}

impl fmt::Display for OracleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OracleError::Graph(errors) => {
                let errors: Vec<String> = errors.iter().map(VerifyError::to_string).collect();
                write!(f, "the graph breaks rules: {}", errors.join("; "))
            }
            OracleError::Rows { max, found } => {
                write!(f, "a call has up to {max} rows, found {found}")
            }
            OracleError::ArgCount { expected, found } => {
                write!(f, "expected {expected} arguments, found {found}")
            }
            OracleError::Kind { arg, expected, found } => {
                write!(f, "`{arg}` is {expected}, found {found}")
            }
            OracleError::Length { arg, what, expected, found } => {
                write!(f, "`{arg}` has {expected} {what}, found {found}")
            }
            OracleError::Format { arg, message } => write!(f, "`{arg}`: {message}"),
            OracleError::Token { id, n_rows } => {
                write!(f, "token id {id} is not in a table of {n_rows} rows")
            }
            OracleError::Position { row, position, capacity } => {
                write!(f, "row {row} is at position {position}, the cache has {capacity}")
            }
            OracleError::Sequence { row, sequence, sequences } => {
                write!(f, "row {row} is of sequence {sequence}, the cache has {sequences}")
            }
        }
    }
}

impl std::error::Error for OracleError {}

/// Computes the graph's results, in order, on `rows` rows; caches in `args` are updated. A graph
/// without a batch dim has its own number of rows, and `rows` does not matter.
///
/// # Errors
/// If the graph or a call's argument is not as declared; caches are unchanged then.
pub fn run(graph: &Graph, rows: usize, args: &mut [Datum]) -> Result<Vec<Vec<f64>>, OracleError> {
    let values = run_all(graph, rows, args)?;
    let result = |id: &crate::ir::ValueId| values[id.index()].clone().unwrap_or_default();
    Ok(graph.outputs.iter().map(result).collect())
}

/// Like [`run`], but gives every tensor of the graph, by the value's place; weights, caches,
/// indices and appends have none. With it, single kernels can be checked.
///
/// # Errors
/// Those of [`run`].
pub fn run_all(
    graph: &Graph,
    rows: usize,
    args: &mut [Datum],
) -> Result<Vec<Option<Vec<f64>>>, OracleError> {
    run_moved(graph, rows, args, &mut |element| element)
}

/// Like [`run_all`], but what is summed is moved before it is rounded: each element of a linear
/// layer, a sum over rows, a softmax, a norm, a rotation or an attention. With it, one sees what
/// becomes of the errors that sums in another order have.
///
/// # Errors
/// Those of [`run`].
pub fn run_moved(
    graph: &Graph,
    rows: usize,
    args: &mut [Datum],
    moved: &mut dyn FnMut(f64) -> f64,
) -> Result<Vec<Option<Vec<f64>>>, OracleError> {
    graph.verify().map_err(OracleError::Graph)?;
    call::check(graph, rows, args)?;
    call::Call::new(graph, rows, args).run(moved)
}
