//! The loop itself: some rows of a weight times a few rows of activations.

use super::codes::Codes;
use super::simd::{Kernel, Simd};
use std::ops::Range;

/// A block of a weight's rows, and as many rows of activations as there are rows in `out`: 1, 2,
/// 4 or 8.
pub(super) struct Tile<'a, 'o, C> {
    /// How codes become numbers.
    pub codes: C,
    /// Rows of codes, each of `row_bytes`.
    pub rows: &'a [u8],
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// `[rows, n_groups]` scales, if the format has groups.
    pub scales: Option<&'a [f32]>,
    /// `[rows, n_groups]` offsets, if the format has them.
    pub offsets: Option<&'a [f32]>,
    /// Groups of a row.
    pub n_groups: usize,
    /// Units that share a scale: all of a row's in a format without groups.
    pub units_per_group: usize,
    /// Rows of activations, each of `k`.
    pub x: &'a [f32],
    /// Elements of a row.
    pub k: usize,
    /// `[m, n_groups]` sums of the activations, if the format has offsets.
    pub sums: &'a [f32],
    /// Where the outputs of each row of activations go.
    pub out: &'a mut [&'o mut [f32]],
    /// Which elements of `out` the block's rows are.
    pub columns: Range<usize>,
}

impl<C: Codes> Tile<'_, '_, C> {
    /// Runs the loop that was compiled for the tile's shape.
    #[inline(always)]
    pub fn enter<S: Simd>(self, simd: S) {
        match self.out.len() {
            8 => self.enter_sized::<S, 8>(simd),
            4 => self.enter_sized::<S, 4>(simd),
            2 => self.enter_sized::<S, 2>(simd),
            _ => self.enter_sized::<S, 1>(simd),
        }
    }

    #[inline(always)]
    fn enter_sized<S: Simd, const M: usize>(self, simd: S) {
        match self.units_per_group {
            1 => simd.enter(SizedTile::<C, M, 1>(self)),
            2 => simd.enter(SizedTile::<C, M, 2>(self)),
            _ => simd.enter(SizedTile::<C, M, 0>(self)),
        }
    }
}

/// A tile with `M` rows of activations and `UNITS` units a group, or 0 for any other number.
struct SizedTile<'a, 'o, C, const M: usize, const UNITS: usize>(Tile<'a, 'o, C>);

impl<C: Codes, const M: usize, const UNITS: usize> Kernel for SizedTile<'_, '_, C, M, UNITS> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let tile = self.0;
        let n_groups = tile.n_groups;
        for (row, column) in tile.columns.clone().enumerate() {
            let codes = &tile.rows[row * tile.row_bytes..][..tile.row_bytes];
            let groups = row * n_groups..(row + 1) * n_groups;
            let scales = tile.scales.map_or(&[1.0][..], |scales| &scales[groups.clone()]);
            let acc = tile.dot_codes::<S, M, UNITS>(simd, codes, scales);
            let mut sums = [0.0; M];
            if let Some(offsets) = tile.offsets {
                sums = tile.dot_offsets(simd, &offsets[groups], acc);
            } else {
                for m in 0..M {
                    sums[m] = simd.sum(acc[m]);
                }
            }
            // Only formats without groups leave elements after the last unit.
            let whole = scales.len() * tile.units_per_group * 2 * S::LANES;
            for index in whole..tile.k {
                let number = tile.codes.one(codes, index);
                for m in 0..M {
                    sums[m] += number * tile.x[m * tile.k + index];
                }
            }
            for m in 0..M {
                tile.out[m][column] = sums[m];
            }
        }
    }
}

impl<C: Codes> Tile<'_, '_, C> {
    /// Σ map(code) · scale · x over whole units of one row, for each row of activations, left in
    /// the lanes of a vector.
    #[inline(always)]
    fn dot_codes<S: Simd, const M: usize, const UNITS: usize>(
        &self,
        simd: S,
        row: &[u8],
        scales: &[f32],
    ) -> [S::F32; M] {
        let (x, k) = (self.x, self.k);
        let units_per_group = if UNITS == 0 { self.units_per_group } else { UNITS };
        let unit = 2 * S::LANES;
        let unit_bytes = unit * C::BITS / 8;
        let n_units = scales.len() * units_per_group;
        // These slices end with the last unit, which is what the unchecked reads rely on.
        let units = &row[..n_units * unit_bytes];
        let mut x_units = [&x[..0]; M];
        for m in 0..M {
            x_units[m] = &x[m * k..][..n_units * unit];
        }
        let mut acc = [simd.splat(0.0); M];
        let mut at = 0;
        for &scale in scales {
            let mut part = [simd.splat(0.0); M];
            for _ in 0..units_per_group {
                // SAFETY: `at` counts units, so it is below `n_units`.
                let bytes = unsafe { piece(units, at * unit_bytes, unit_bytes) };
                let (w0, w1) = self.codes.unit(simd, bytes);
                for m in 0..M {
                    // SAFETY: the same.
                    let x_unit = unsafe { piece(x_units[m], at * unit, unit) };
                    part[m] = simd.mul_add(w0, simd.load(x_unit), part[m]);
                    part[m] = simd.mul_add(w1, simd.load(&x_unit[S::LANES..]), part[m]);
                }
                at += 1;
            }
            let scale = simd.splat(scale);
            for m in 0..M {
                acc[m] = simd.mul_add(part[m], scale, acc[m]);
            }
        }
        acc
    }

    /// The lanes of `acc`, and Σ offset · Σ x over the groups of one row.
    #[inline(always)]
    fn dot_offsets<S: Simd, const M: usize>(
        &self,
        simd: S,
        offsets: &[f32],
        mut acc: [S::F32; M],
    ) -> [f32; M] {
        let n_groups = self.n_groups;
        let vectors = offsets.chunks_exact(S::LANES);
        let rest = vectors.remainder();
        for (index, vector) in vectors.enumerate() {
            let vector = simd.load(vector);
            for m in 0..M {
                let x_sums = &self.sums[m * n_groups + index * S::LANES..];
                acc[m] = simd.mul_add(vector, simd.load(x_sums), acc[m]);
            }
        }
        let mut sums = [0.0; M];
        for m in 0..M {
            sums[m] = simd.sum(acc[m]);
            let x_sums = &self.sums[(m + 1) * n_groups - rest.len()..][..rest.len()];
            for (offset, x_sum) in rest.iter().zip(x_sums) {
                sums[m] += offset * x_sum;
            }
        }
        sums
    }
}

/// `from[begin..begin + len]` without a check, which would cost the loop as much as its sums.
///
/// # Safety
///
/// `begin + len` must not be above `from.len()`.
#[inline(always)]
unsafe fn piece<T>(from: &[T], begin: usize, len: usize) -> &[T] {
    debug_assert!(begin + len <= from.len());
    // SAFETY: the caller's promise.
    unsafe { from.get_unchecked(begin..begin + len) }
}
