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

/// Integer codes by arithmetic: `(code ^ flip) - bias`. Flipping the sign bit of a two's
/// complement nibble adds 8 to it, which makes it unsigned.
#[derive(Clone, Copy)]
pub struct IntegerNibble {
    flip: u8,
    bias: f32,
}

impl IntegerNibble {
    /// Unsigned codes, less `bias`.
    pub fn unsigned(bias: i32) -> Self {
        IntegerNibble { flip: 0, bias: bias as f32 }
    }

    /// Two's complement codes.
    pub fn signed() -> Self {
        IntegerNibble { flip: 0x88, bias: 8.0 }
    }
}

impl Codes for IntegerNibble {
    const BITS: usize = 4;

    #[inline(always)]
    fn unit<S: Simd>(&self, simd: S, bytes: &[u8]) -> (S::F32, S::F32) {
        let (mut low, mut high) = ([0; 16], [0; 16]);
        for i in 0..S::LANES {
            low[i] = (bytes[i] ^ self.flip) & 0xF;
            high[i] = (bytes[i] ^ self.flip) >> 4;
        }
        let bias = simd.splat(self.bias);
        (simd.sub(simd.widen_u8(&low), bias), simd.sub(simd.widen_u8(&high), bias))
    }

    #[inline(always)]
    fn one(&self, row: &[u8], index: usize) -> f32 {
        let code = (row[index / 2] ^ self.flip) >> (index % 2 * 4) & 0xF;
        f32::from(code) - self.bias
    }
}
