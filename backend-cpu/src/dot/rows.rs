//! One chunk of a product, on one thread: the choice of the code family, and the cut into tiles.
//!
//! Rows of a weight are taken in blocks that stay in the first-level cache while all rows of the
//! activations pass over them, and activations in tiles, so that a decoded vector serves a whole
//! tile. An output's order of additions depends on neither: it is the same for every tile size,
//! chunk and number of threads.

use super::activations::Activations;
use super::codes::{Bf16, ByteTable, Codes, F16, F32, SignedByte, TableNibble, UnsignedByte};
use super::planes::Planes;
use super::simd::{Kernel, Simd};
use super::tile::Tile;
use fuseline_core::dtype::DType;
use fuseline_core::format::CodeMap;

/// Output rows of a block.
const BLOCK: usize = 16;

/// Outputs `first..first + out[0].len()` of a product, for all rows of the activations.
pub(super) struct Rows<'a, 'o> {
    /// The weight.
    pub weight: Planes<'a>,
    /// `[m, k]` activations in the order that the weight's codes are read in.
    pub x: &'a [f32],
    /// `[m, k / group]` sums of the activations, if the format has offsets.
    pub sums: &'a [f32],
    /// The first output row.
    pub first: usize,
    /// For each row of the activations, where its outputs go.
    pub out: &'a mut [&'o mut [f32]],
}

impl<'a, 'o> Rows<'a, 'o> {
    /// The chunk that begins at output row `first`; none if the activations were not prepared.
    pub fn new(
        x: &'a Activations,
        weight: Planes<'a>,
        first: usize,
        out: &'a mut [&'o mut [f32]],
    ) -> Option<Self> {
        let (rows, sums) = (x.rows_for(weight.format)?, x.sums_for(weight.format)?);
        Some(Rows { weight, x: rows, sums, first, out })
    }
}

impl Kernel for Rows<'_, '_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let format = self.weight.format;
        match (&format.code, format.bits) {
            (CodeMap::Float(DType::F16), _) => self.product(simd, F16),
            (CodeMap::Float(DType::BF16), _) => self.product(simd, Bf16),
            // No other float has 32 bits: `Planes::new` refuses integers.
            (CodeMap::Float(DType::F32 | DType::I32), _) => self.product(simd, F32),
            (CodeMap::Signed | CodeMap::Unsigned { .. } | CodeMap::Codebook(_), 4) => {
                let values = std::array::from_fn(|code| format.map_code(code as u32) as f32);
                self.product(simd, TableNibble::new(values));
            }
            (CodeMap::Signed, _) => self.product(simd, SignedByte),
            (CodeMap::Unsigned { bias }, _) => self.product(simd, UnsignedByte::new(*bias)),
            (CodeMap::Codebook(_), _) => {
                let values = std::array::from_fn(|code| format.map_code(code as u32) as f32);
                self.product(simd, ByteTable::new(&values));
            }
        }
    }
}

impl Rows<'_, '_> {
    #[inline(always)]
    fn product<S: Simd, C: Codes>(self, simd: S, codes: C) {
        let Rows { weight, x, sums, first, out } = self;
        let (format, k) = (weight.format, weight.k);
        let (row_bytes, n_groups) = (format.code_row_bytes(k), format.n_groups(k));
        let n_rows = out.first().map_or(0, |row| row.len());
        let has_offsets = format.group.is_some_and(|group| group.offset.is_some());
        let unit = 2 * S::LANES;
        let units_per_group = format.group.map_or(k, |group| group.size) / unit;
        let (mut scales, mut offsets) = (Vec::new(), Vec::new());
        for begin in (0..n_rows).step_by(BLOCK) {
            let (row, end) = (first + begin, n_rows.min(begin + BLOCK));
            if let Some(group) = format.group {
                let groups = row * n_groups..(first + end) * n_groups;
                widen(simd, group.scale, weight.scales, groups.clone(), &mut scales);
                if let Some(dtype) = group.offset {
                    widen(simd, dtype, weight.offsets, groups, &mut offsets);
                }
            }
            let mut m = 0;
            while m < out.len() {
                let size = tile_size::<S>(out.len() - m);
                let tile = Tile {
                    codes,
                    rows: &weight.codes[row * row_bytes..(first + end) * row_bytes],
                    row_bytes,
                    scales: format.group.map(|_| &scales[..]),
                    offsets: has_offsets.then_some(&offsets[..]),
                    n_groups,
                    units_per_group,
                    x: &x[m * k..][..size * k],
                    k,
                    sums: if has_offsets { &sums[m * n_groups..] } else { sums },
                    out: &mut out[m..m + size],
                    columns: begin..end,
                };
                tile.enter(simd);
                m += size;
            }
        }
    }
}

/// Rows of activations that the next tile takes when `left` remain: as many as the registers
/// hold, in steps for which code was compiled.
#[inline(always)]
fn tile_size<S: Simd>(left: usize) -> usize {
    match left {
        8.. if S::LANES == 16 => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// Widens elements `range` of a plane into `to`.
#[inline(always)]
fn widen<S: Simd>(
    simd: S,
    dtype: DType,
    plane: &[u8],
    range: std::ops::Range<usize>,
    to: &mut Vec<f32>,
) {
    let bytes = &plane[range.start * dtype.bytes()..range.end * dtype.bytes()];
    to.clear();
    to.resize(range.len(), 0.0);
    match dtype {
        DType::F16 => widen_codes(simd, F16, bytes, to),
        DType::BF16 => widen_codes(simd, Bf16, bytes, to),
        // `WeightFormat::check` refuses integers.
        DType::F32 | DType::I32 => widen_codes(simd, F32, bytes, to),
    }
}

#[inline(always)]
fn widen_codes<S: Simd, C: Codes>(simd: S, codes: C, bytes: &[u8], to: &mut [f32]) {
    let unit = 2 * S::LANES;
    let whole = to.len() / unit * unit;
    for (values, bytes) in
        to[..whole].chunks_exact_mut(unit).zip(bytes.chunks_exact(unit * C::BITS / 8))
    {
        let (first, second) = codes.unit(simd, bytes);
        simd.store(first, values);
        simd.store(second, &mut values[S::LANES..]);
    }
    for (index, value) in to.iter_mut().enumerate().skip(whole) {
        *value = codes.one(bytes, index);
    }
}
