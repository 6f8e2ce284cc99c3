//! Codes that are floating-point numbers.

use super::Codes;
use crate::dot::simd::Simd;
use half::{bf16, f16};

macro_rules! float_codes {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $widen:ident, $number:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name;

        impl Codes for $name {
            const BITS: usize = 8 * $bytes;

            #[inline(always)]
            fn unit<S: Simd>(&self, simd: S, bytes: &[u8]) -> (S::F32, S::F32) {
                (simd.$widen(bytes), simd.$widen(&bytes[$bytes * S::LANES..]))
            }

            #[inline(always)]
            fn one(&self, row: &[u8], index: usize) -> f32 {
                let mut bytes = [0; $bytes];
                bytes.copy_from_slice(&row[$bytes * index..][..$bytes]);
                <$number>::from_le_bytes(bytes).into()
            }
        }
    };
}

float_codes!(
    /// IEEE 754 binary32.
    F32, 4, widen_f32, f32
);
float_codes!(
    /// IEEE 754 binary16.
    F16, 2, widen_f16, f16
);
float_codes!(
    /// The upper half of a binary32.
    Bf16, 2, widen_bf16, bf16
);
