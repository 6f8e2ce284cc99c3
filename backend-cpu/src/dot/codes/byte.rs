//! 8-bit codes.

use super::Codes;
use crate::dot::simd::Simd;

/// Two's complement codes.
#[derive(Clone, Copy)]
pub struct SignedByte;

impl Codes for SignedByte {
    const BITS: usize = 8;

    #[inline(always)]
    fn unit<S: Simd>(&self, simd: S, bytes: &[u8]) -> (S::F32, S::F32) {
        (simd.widen_i8(bytes), simd.widen_i8(&bytes[S::LANES..]))
    }

    #[inline(always)]
    fn one(&self, row: &[u8], index: usize) -> f32 {
        f32::from(row[index] as i8)
    }
}

/// Unsigned codes, less a bias.
#[derive(Clone, Copy)]
pub struct UnsignedByte {
    bias: f32,
}

impl UnsignedByte {
    /// The family for that bias.
    pub fn new(bias: i32) -> Self {
        UnsignedByte { bias: bias as f32 }
    }
}

impl Codes for UnsignedByte {
    const BITS: usize = 8;

    #[inline(always)]
    fn unit<S: Simd>(&self, simd: S, bytes: &[u8]) -> (S::F32, S::F32) {
        let bias = simd.splat(self.bias);
        let first = simd.sub(simd.widen_u8(bytes), bias);
        (first, simd.sub(simd.widen_u8(&bytes[S::LANES..]), bias))
    }

    #[inline(always)]
    fn one(&self, row: &[u8], index: usize) -> f32 {
        f32::from(row[index]) - self.bias
    }
}

/// Any code map, through a table of 256 numbers.
#[derive(Clone, Copy)]
pub struct ByteTable<'a> {
    values: &'a [f32; 256],
}

impl<'a> ByteTable<'a> {
    /// The family for a map with these `values`.
    pub fn new(values: &'a [f32; 256]) -> Self {
        ByteTable { values }
    }
}

impl Codes for ByteTable<'_> {
    const BITS: usize = 8;

    #[inline(always)]
    fn unit<S: Simd>(&self, simd: S, bytes: &[u8]) -> (S::F32, S::F32) {
        let mut numbers = [0.0; 32];
        for (number, &code) in numbers.iter_mut().zip(&bytes[..2 * S::LANES]) {
            *number = self.values[usize::from(code)];
        }
        (simd.load(&numbers), simd.load(&numbers[S::LANES..]))
    }

    #[inline(always)]
    fn one(&self, row: &[u8], index: usize) -> f32 {
        self.values[usize::from(row[index])]
    }
}
