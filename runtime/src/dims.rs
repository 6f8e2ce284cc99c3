//! The dims that a type's const generics give.

use crate::error::{Error, Result};

/// The const generic that stands for "no such dim".
pub(crate) const NO_DIM: usize = usize::MAX;

/// The most elements that anything may have, so that sizes in bytes do not overflow.
const MAX_ELEMENTS: usize = isize::MAX as usize / 16;

/// Up to four sizes, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dims {
    sizes: [usize; 4],
    rank: usize,
}

impl Dims {
    /// The sizes before the first [`NO_DIM`].
    pub const fn new(sizes: [usize; 4]) -> Dims {
        let mut rank = 0;
        while rank < 4 && sizes[rank] != NO_DIM {
            rank += 1;
        }
        Dims { sizes, rank }
    }

    pub fn as_slice(&self) -> &[usize] {
        &self.sizes[..self.rank]
    }

    /// The size of the outermost dim; a number has one row.
    pub fn first(&self) -> usize {
        self.as_slice().first().copied().unwrap_or(1)
    }

    /// The sizes inside the outermost one.
    pub fn row(&self) -> &[usize] {
        self.as_slice().get(1..).unwrap_or(&[])
    }

    /// The shape with another outermost size.
    pub fn with_rows(&self, rows: usize) -> Vec<usize> {
        let mut shape = self.as_slice().to_vec();
        if let Some(first) = shape.first_mut() {
            *first = rows;
        }
        shape
    }

    /// Elements of a row.
    pub fn row_elements(&self, what: &'static str) -> Result<usize> {
        self.product(what, self.row())
    }

    /// Elements of all rows.
    pub fn elements(&self, what: &'static str) -> Result<usize> {
        self.product(what, self.as_slice())
    }

    fn product(&self, what: &'static str, sizes: &[usize]) -> Result<usize> {
        sizes
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size))
            .filter(|&elements| elements <= MAX_ELEMENTS)
            .ok_or_else(|| Error::TooLarge { what, shape: self.as_slice().to_vec() })
    }
}
