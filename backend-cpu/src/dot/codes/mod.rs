//! Code families: how a row's bytes become vectors of numbers, before scale and offset. A format
//! belongs to one family by its bits and code map; everything else about it is data.

mod byte;
mod float;
mod nibble;

pub(super) use byte::{ByteTable, SignedByte, UnsignedByte};
pub(super) use float::{Bf16, F16, F32};
pub(super) use nibble::TableNibble;

use super::simd::Simd;

/// One family.
pub(super) trait Codes: Copy {
    /// Bits of a code.
    const BITS: usize;

    /// The numbers of one unit, `2 · S::LANES` codes: its first and second half or, for 4-bit
    /// codes, its even and its odd elements.
    fn unit<S: Simd>(&self, simd: S, bytes: &[u8]) -> (S::F32, S::F32);

    /// The number of element `index` of a row.
    fn one(&self, row: &[u8], index: usize) -> f32;
}
