//! 4-bit codes. Byte j holds element 2j in its low nibble and element 2j + 1 in its high nibble.

use super::Codes;
use crate::dot::simd::Simd;

/// Any code map, through a table of sixteen numbers.
#[derive(Clone, Copy)]
pub struct TableNibble {
    values: [f32; 16],
}

impl TableNibble {
    /// The family for a map with these `values`.
    pub fn new(values: [f32; 16]) -> Self {
        TableNibble { values }
    }
}

impl Codes for TableNibble {
    const BITS: usize = 4;

    #[inline(always)]
    fn unit<S: Simd>(&self, simd: S, bytes: &[u8]) -> (S::F32, S::F32) {
        simd.lookup(&self.values, bytes)
    }

    #[inline(always)]
    fn one(&self, row: &[u8], index: usize) -> f32 {
        self.values[usize::from(row[index / 2] >> (index % 2 * 4) & 0xF)]
    }
}
