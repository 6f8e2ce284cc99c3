//! AVX-512 F: vectors of 16.

use super::avx2::Avx2;
use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// The token for AVX-512 F, beside all that [`Avx2`] needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// The token, if the CPU has the features.
    pub fn detect() -> Option<Avx512> {
        Avx2::detect().filter(|_| is_x86_feature_detected!("avx512f")).map(Avx512)
    }

    /// The token for vectors of half the width.
    pub fn narrower(self) -> Avx2 {
        self.0
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx2,fma,f16c")]
fn enter<K: Kernel>(token: Avx512, kernel: K) {
    kernel.run(token);
}

impl Simd for Avx512 {
    type F32 = __m512;
    const LANES: usize = 16;

    #[inline]
    fn enter<K: Kernel>(self, kernel: K) {
        // SAFETY: the token vouches for the features.
        unsafe { enter(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: the token vouches for the features.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        let from = &from[..16];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: __m512, to: &mut [f32]) {
        let to = &mut to[..16];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the token vouches for the features.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the token vouches for the features.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sum(self, value: __m512) -> f32 {
        // SAFETY: the token vouches for the features.
        unsafe { _mm512_reduce_add_ps(value) }
    }

    #[inline(always)]
    fn widen_f32(self, bytes: &[u8]) -> __m512 {
        let bytes = &bytes[..64];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm512_loadu_ps(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn widen_f16(self, bytes: &[u8]) -> __m512 {
        let bytes = &bytes[..32];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn widen_bf16(self, bytes: &[u8]) -> __m512 {
        let bytes = &bytes[..32];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(bytes.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    fn widen_u8(self, bytes: &[u8]) -> __m512 {
        let bytes = &bytes[..16];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let integers = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
            _mm512_cvtepi32_ps(integers)
        }
    }

    #[inline(always)]
    fn widen_i8(self, bytes: &[u8]) -> __m512 {
        let bytes = &bytes[..16];
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let integers = _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
            _mm512_cvtepi32_ps(integers)
        }
    }

    #[inline(always)]
    fn lookup(self, table: &[f32; 16], bytes: &[u8]) -> (__m512, __m512) {
        let (table, bytes) = (self.load(table), &bytes[..16]);
        // A permutation reads only the low four bits of an index, so low nibbles need no mask.
        // SAFETY: the token vouches for the features, the slice for the length.
        unsafe {
            let codes = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
            let low = _mm512_permutexvar_ps(codes, table);
            let high = _mm512_permutexvar_ps(_mm512_srli_epi32::<4>(codes), table);
            (low, high)
        }
    }
}
