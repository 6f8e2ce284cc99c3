//! Where each row of a call belongs: a position in a sequence.

use crate::argument::{ArgRef, Argument, IndexArg};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::Memory;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Positions and sequences are `i32` in kernels.
const LIMIT: usize = 1 << 31;

/// The position and sequence of up to `B` rows. Clones share memory.
#[derive(Clone)]
pub struct Index<const B: usize> {
    places: Arc<Places>,
}

/// The rows' places, on the device and for checks.
#[derive(Debug)]
pub(crate) struct Places {
    pub positions: Memory,
    pub sequences: Memory,
    /// (position, sequence) of each row.
    pub rows: Vec<(usize, usize)>,
}

impl<const B: usize> Index<B> {
    /// Rows at (position, sequence).
    ///
    /// # Errors
    /// If there are more than `B`, if two are at the same place, or if the device has no memory
    /// left.
    pub fn new(device: &Device, rows: &[(usize, usize)]) -> Result<Self> {
        if rows.len() > B {
            let what = "Index".to_string();
            return Err(Error::Rows { what, min: 0, max: B, found: rows.len() });
        }
        let number = |what, row, found| {
            i32::try_from(found).map_err(|_| Error::IndexRange { what, row, limit: LIMIT, found })
        };
        let (mut positions, mut sequences) = (Vec::new(), Vec::new());
        for (row, &(position, sequence)) in rows.iter().enumerate() {
            positions.push(number("position", row, position)?);
            sequences.push(number("sequence", row, sequence)?);
        }
        check_places(rows)?;
        let places = Places {
            positions: Memory::of(device, &positions)?,
            sequences: Memory::of(device, &sequences)?,
            rows: rows.to_vec(),
        };
        Ok(Index { places: Arc::new(places) })
    }

    /// One row of each sequence: row i is sequence i, at `positions[i]`.
    ///
    /// # Errors
    /// As [`Index::new`].
    pub fn decode(device: &Device, positions: &[usize]) -> Result<Self> {
        let rows = positions.iter().enumerate();
        let rows: Vec<_> = rows.map(|(sequence, &position)| (position, sequence)).collect();
        Index::new(device, &rows)
    }

    /// Consecutive positions of one sequence.
    ///
    /// # Errors
    /// As [`Index::new`].
    pub fn prompt(device: &Device, sequence: usize, positions: Range<usize>) -> Result<Self> {
        // A range of any length is given, of which `B` rows at most are ever made.
        if positions.len() > B {
            let what = "Index".to_string();
            return Err(Error::Rows { what, min: 0, max: B, found: positions.len() });
        }
        let rows: Vec<_> = positions.map(|position| (position, sequence)).collect();
        Index::new(device, &rows)
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.places.rows.len()
    }

    /// (position, sequence) of each row.
    pub fn places(&self) -> &[(usize, usize)] {
        &self.places.rows
    }

    /// Where it lies.
    pub fn device(&self) -> &Device {
        self.places.positions.device()
    }
}

/// Refuses two rows at one place: which of them stayed in the cache would be chance.
fn check_places(rows: &[(usize, usize)]) -> Result<()> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&row| (rows[row], row));
    match order.windows(2).find(|pair| rows[pair[0]] == rows[pair[1]]) {
        None => Ok(()),
        Some(pair) => {
            let (first, second) = (pair[0], pair[1]);
            let (position, sequence) = rows[first];
            Err(Error::SamePlace { first, second, position, sequence })
        }
    }
}

impl<const B: usize> Argument for Index<B> {
    fn as_arg(&self) -> ArgRef<'_> {
        ArgRef::Index(IndexArg { places: &self.places })
    }
}

impl<const B: usize> fmt::Debug for Index<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index{:?} on {}", self.places.rows, self.device().name())
    }
}
