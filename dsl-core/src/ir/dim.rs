//! Dimensions: a size, and the user's words for it.

use std::fmt;
use std::sync::Arc;

/// One dimension of a tensor.
#[derive(Clone, Debug)]
pub struct Dim {
    /// Elements; for the batch dim, the most that a call may have.
    pub size: usize,
    /// The expression that the user wrote, `D` or `(H + 2 * KV) * HD`; empty for a literal.
    pub label: Arc<str>,
    /// Whether this is the batch dim, of which a call may fill fewer rows than `size`.
    pub batch: bool,
}

/// The dimensions of a tensor, outermost first.
pub type Shape = Vec<Dim>;

impl Dim {
    /// A dimension without a name.
    pub fn literal(size: usize) -> Dim {
        Dim { size, label: Arc::from(""), batch: false }
    }

    /// A dimension with the user's expression for it.
    pub fn named(size: usize, label: &str) -> Dim {
        Dim { size, label: Arc::from(label), batch: false }
    }

    /// The batch dim: up to `size` rows.
    pub fn batch(size: usize, label: &str) -> Dim {
        Dim { size, label: Arc::from(label), batch: true }
    }
}

/// Labels are words for people: two dims are equal if their sizes are.
impl PartialEq for Dim {
    fn eq(&self, other: &Dim) -> bool {
        self.size == other.size && self.batch == other.batch
    }
}

impl Eq for Dim {}

/// For messages: `D = 576`, `up to B = 16` or `576`.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.batch, self.label.is_empty()) {
            (true, _) => write!(f, "up to {} = {}", self.label, self.size),
            (false, false) => write!(f, "{} = {}", self.label, self.size),
            (false, true) => write!(f, "{}", self.size),
        }
    }
}

/// Elements of a shape, with the batch dim full.
pub fn elements(shape: &[Dim]) -> usize {
    // Text may hold any number; more elements than can be counted are as many as can be.
    shape.iter().fold(1, |n, dim| n.saturating_mul(dim.size))
}

/// For messages: `[B = 1, D = 576]`.
pub fn show(shape: &[Dim]) -> String {
    let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}
