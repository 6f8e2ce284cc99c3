//! AVX2 with FMA and F16C: vectors of 8.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// The token for AVX2, FMA and F16C.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

impl Avx2 {
    /// The token, if the CPU has the features.
    pub fn detect() -> Option<Avx2> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Avx2(()))
    }
}

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn enter<K: Kernel>(token: Avx2, kernel: K) {
    kernel.run(token);
}

impl Simd for Avx2 {
    type F32 = __m256;
    const LANES: usize = 8;

    #[inline]
    fn enter<K: Kernel>(self, kernel: K) {
        // SAFETY: the token vouches for the features.
        unsafe { enter(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: the token vouches for the features.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        let from = &from[..8];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: __m256, to: &mut [f32]) {
        let to = &mut to[..8];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token vouches for the features.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the token vouches for the features.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sum(self, value: __m256) -> f32 {
        // SAFETY: the token vouches for the features.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps::<1>(value));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn widen_f32(self, bytes: &[u8]) -> __m256 {
        let bytes = &bytes[..32];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm256_loadu_ps(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn widen_f16(self, bytes: &[u8]) -> __m256 {
        let bytes = &bytes[..16];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn widen_bf16(self, bytes: &[u8]) -> __m256 {
        let bytes = &bytes[..16];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    fn widen_u8(self, bytes: &[u8]) -> __m256 {
        let bytes = &bytes[..8];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let integers = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.as_ptr().cast()));
            _mm256_cvtepi32_ps(integers)
        }
    }

    #[inline(always)]
    fn widen_i8(self, bytes: &[u8]) -> __m256 {
        let bytes = &bytes[..8];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let integers = _mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes.as_ptr().cast()));
            _mm256_cvtepi32_ps(integers)
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[f32; 16], bytes: &[u8]) -> (__m256, __m256) {
        let bytes = &bytes[..8];
        let (table_low, table_high) = (self.load(table), self.load(&table[8..]));
        // A permutation reads the low three bits of an index; bit 3, moved to the sign, chooses
        // between the two halves of the table.
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.as_ptr().cast()));
            let high_codes = _mm256_srli_epi32::<4>(codes);
            let low = _mm256_blendv_ps(
                _mm256_permutevar8x32_ps(table_low, codes),
                _mm256_permutevar8x32_ps(table_high, codes),
                _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes)),
            );
            let high = _mm256_blendv_ps(
                _mm256_permutevar8x32_ps(table_low, high_codes),
                _mm256_permutevar8x32_ps(table_high, high_codes),
                _mm256_castsi256_ps(_mm256_slli_epi32::<24>(codes)),
            );
            (low, high)
        }
    }
}
