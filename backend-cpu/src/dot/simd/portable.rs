//! Plain Rust on small arrays, which compilers turn into whatever vectors the target has.

use super::{Kernel, Simd};
use half::bf16;

/// 2^112.
const TWO_112: f32 = f32::from_bits((127 + 112) << 23);

/// An f16 as f32, without the branches and calls that keep a loop from becoming vectors.
#[inline(always)]
fn f16_to_f32(half: u16) -> f32 {
    // Exponent and fraction in an f32's places, where the exponent is 127 - 15 too small. The
    // product is exact, and normalizes subnormals.
    let magnitude = f32::from_bits(u32::from(half & 0x7FFF) << 13) * TWO_112;
    // Infinity and NaN have become 2^16 and more, which no finite f16 reaches.
    let exponent = if magnitude >= 65536.0 { 0x7F80_0000 } else { 0 };
    f32::from_bits(magnitude.to_bits() | exponent | u32::from(half & 0x8000) << 16)
}

/// Vectors of `L` numbers as arrays.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Portable<const L: usize>;

impl<const L: usize> Simd for Portable<L> {
    type F32 = [f32; L];
    const LANES: usize = L;

    #[inline(never)]
    fn enter<K: Kernel>(self, kernel: K) {
        kernel.run(self);
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; L] {
        [value; L]
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> [f32; L] {
        let mut value = [0.0; L];
        value.copy_from_slice(&from[..L]);
        value
    }

    #[inline(always)]
    fn store(self, value: [f32; L], to: &mut [f32]) {
        to[..L].copy_from_slice(&value);
    }

    #[inline(always)]
    fn sub(self, mut a: [f32; L], b: [f32; L]) -> [f32; L] {
        for i in 0..L {
            a[i] -= b[i];
        }
        a
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; L], b: [f32; L], mut c: [f32; L]) -> [f32; L] {
        for i in 0..L {
            // Elsewhere a fused multiply-add may be a library call, far slower than two roundings.
            c[i] = if cfg!(target_arch = "aarch64") || cfg!(target_feature = "fma") {
                a[i].mul_add(b[i], c[i])
            } else {
                a[i] * b[i] + c[i]
            };
        }
        c
    }

    #[inline(always)]
    fn sum(self, mut value: [f32; L]) -> f32 {
        let mut half = L / 2;
        while half > 0 {
            for i in 0..half {
                value[i] += value[i + half];
            }
            half /= 2;
        }
        value[0]
    }

    #[inline(always)]
    fn widen_f32(self, bytes: &[u8]) -> [f32; L] {
        let bytes = &bytes[..4 * L];
        let mut value = [0.0; L];
        for i in 0..L {
            let at = 4 * i;
            value[i] = f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        }
        value
    }

    #[inline(always)]
    fn widen_f16(self, bytes: &[u8]) -> [f32; L] {
        let bytes = &bytes[..2 * L];
        let mut value = [0.0; L];
        for i in 0..L {
            value[i] = f16_to_f32(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
        }
        value
    }

    #[inline(always)]
    fn widen_bf16(self, bytes: &[u8]) -> [f32; L] {
        let bytes = &bytes[..2 * L];
        let mut value = [0.0; L];
        for i in 0..L {
            value[i] = bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32();
        }
        value
    }

    #[inline(always)]
    fn widen_u8(self, bytes: &[u8]) -> [f32; L] {
        let bytes = &bytes[..L];
        let mut value = [0.0; L];
        for i in 0..L {
            value[i] = f32::from(bytes[i]);
        }
        value
    }

    #[inline(always)]
    fn widen_i8(self, bytes: &[u8]) -> [f32; L] {
        let bytes = &bytes[..L];
        let mut value = [0.0; L];
        for i in 0..L {
            value[i] = f32::from(bytes[i] as i8);
        }
        value
    }

    #[inline(always)]
    fn lookup(self, table: &[f32; 16], bytes: &[u8]) -> ([f32; L], [f32; L]) {
        let bytes = &bytes[..L];
        let (mut low, mut high) = ([0.0; L], [0.0; L]);
        for i in 0..L {
            low[i] = table[usize::from(bytes[i] & 0xF)];
            high[i] = table[usize::from(bytes[i] >> 4)];
        }
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::f16_to_f32;
    use half::f16;

    #[test]
    fn every_f16_widens_to_its_value() {
        for bits in 0..=u16::MAX {
            let (expected, found) = (f16::from_bits(bits).to_f64(), f64::from(f16_to_f32(bits)));
            let same = expected == found && expected.is_sign_negative() == found.is_sign_negative();
            assert!(same || expected.is_nan() && found.is_nan(), "{bits:#06x}: {found}");
        }
    }
}
