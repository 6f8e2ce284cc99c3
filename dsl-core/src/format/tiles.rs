//! The layout that a device with matrix instructions keeps weights in: tiles of 16 output rows,
//! chunks of 64 bytes of each.
//!
//! A matrix instruction takes 16 rows at a time, and a warp loads a chunk of a tile as two runs of
//! 512 contiguous bytes: lane `4·r + t` has the t-th 16 bytes of row r, and then of row `r + 8`.
//! Its four lanes of a row multiply the same 16 elements along K in one instruction, so that a word
//! of each lane has to hold elements of the same group: the words of a chunk's row are transposed.
//!
//! | plane | layout |
//! |---|---|
//! | codes | `[tile][chunk][16 rows][64 bytes]`; of narrow codes, the 4 by 4 words of the 64 bytes are transposed |
//! | scales, offsets | `[tile][block][8 rows][groups of the block][row, row + 8]` |
//!
//! A *block* is a chunk, or as many of them as a group spans. Rows and chunks that the weight does
//! not fill are zero, scales too, so that they add nothing.

use super::{CodeMap, Packed, WeightFormat};
use crate::dtype::DType;

/// Output rows of a tile.
pub const TILE_ROWS: usize = 16;
/// Bytes of a row in a chunk.
pub const CHUNK_BYTES: usize = 64;
/// Elements along K that two matrix instructions multiply: 8 of each lane.
pub const PIECE: usize = 32;

/// How a device keeps weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeightLayout {
    /// The packed layout as it is.
    #[default]
    Rows,
    /// In tiles, if the format can be; else as it is.
    Tiles,
}

/// The tiles of an `[n, k]` weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Bits of a code.
    pub bits: usize,
    /// Elements of a row in one chunk.
    pub chunk: usize,
    /// Tiles, the last one perhaps not full.
    pub n_tiles: usize,
    /// Chunks of a tile, the last one perhaps not full.
    pub n_chunks: usize,
    /// Groups of a block: at least one, whether or not the format has groups.
    pub block_groups: usize,
    /// Chunks of a block.
    pub block_chunks: usize,
}

impl WeightFormat {
    /// Whether a device with matrix instructions keeps this format in tiles: if every number that a
    /// code stands for is one of `bf16`, and groups divide chunks or chunks divide groups.
    pub fn is_tiled(&self) -> bool {
        let exact = match &self.code {
            // Its words are not transposed, so that a lane's are of several groups.
            CodeMap::Float(dtype) => *dtype == DType::BF16 && self.group.is_none(),
            // Integers of up to 2^8 have no more significant bits than bf16 holds.
            CodeMap::Unsigned { bias } => self.bits <= 8 && (0..=128).contains(bias),
            CodeMap::Signed => self.bits <= 8,
            CodeMap::Codebook(_) => false,
        };
        let chunk = CHUNK_BYTES * 8 / usize::from(self.bits);
        let fits = |size: usize| {
            size.is_multiple_of(PIECE) && (size.is_multiple_of(chunk) || chunk.is_multiple_of(size))
        };
        exact && self.group.is_none_or(|group| fits(group.size))
    }

    /// The tiles of an `[n, k]` weight, if the format [is kept](Self::is_tiled) in tiles.
    pub fn tiles(&self, n: usize, k: usize) -> Option<Tiles> {
        if !self.is_tiled() {
            return None;
        }
        let bits = usize::from(self.bits);
        let chunk = CHUNK_BYTES * 8 / bits;
        let group = self.group_size();
        Some(Tiles {
            bits,
            chunk,
            n_tiles: n.div_ceil(TILE_ROWS),
            n_chunks: k.div_ceil(chunk),
            block_groups: self.group.map_or(1, |_| (chunk / group).max(1)),
            block_chunks: self.group.map_or(1, |_| (group / chunk).max(1)),
        })
    }

    /// Bytes of the planes of codes, scales and offsets of an `[n, k]` weight.
    pub fn plane_bytes(&self, n: usize, k: usize, layout: WeightLayout) -> [usize; 3] {
        let (code_bytes, n_groups) = match (layout, self.tiles(n, k)) {
            (WeightLayout::Tiles, Some(tiles)) => (tiles.code_bytes(), tiles.n_groups()),
            _ => (n.saturating_mul(self.code_row_bytes(k)), n.saturating_mul(self.n_groups(k))),
        };
        let plane = |dtype: Option<DType>| n_groups.saturating_mul(dtype.map_or(0, DType::bytes));
        [
            code_bytes,
            plane(self.group.map(|group| group.scale)),
            plane(self.group.and_then(|group| group.offset)),
        ]
    }
}

impl Tiles {
    /// Bytes of the plane of codes.
    pub fn code_bytes(&self) -> usize {
        let chunks = self.n_tiles.saturating_mul(self.n_chunks);
        chunks.saturating_mul(TILE_ROWS * CHUNK_BYTES)
    }

    /// Pieces of a chunk.
    pub fn chunk_pieces(&self) -> usize {
        self.chunk / PIECE
    }

    /// Blocks of a tile.
    pub fn n_blocks(&self) -> usize {
        self.n_chunks.div_ceil(self.block_chunks)
    }

    /// Scales of a plane, whether or not the format has groups.
    pub fn n_groups(&self) -> usize {
        let blocks = self.n_tiles.saturating_mul(self.n_blocks());
        blocks.saturating_mul(TILE_ROWS * self.block_groups)
    }

    /// The byte at which byte `at` of row `row`, as rows are packed, is.
    pub fn code_at(&self, row: usize, at: usize) -> usize {
        let (chunk, within) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
        let (word, byte) = (within / 4, within % 4);
        let word = if self.bits <= 8 { word % 4 * 4 + word / 4 } else { word };
        let tile = row / TILE_ROWS * self.n_chunks + chunk;
        (tile * TILE_ROWS + row % TILE_ROWS) * CHUNK_BYTES + word * 4 + byte
    }

    /// The place of the scale of row `row` for the group that element `k` is in, of a format with
    /// groups of `group` elements.
    pub fn scale_at(&self, row: usize, k: usize, group: usize) -> usize {
        let block = k / (self.chunk * self.block_chunks);
        let within = if self.block_groups > 1 { k % self.chunk / group } else { 0 };
        let (high, low) = (row % TILE_ROWS / 8, row % 8);
        let tile = row / TILE_ROWS * self.n_blocks() + block;
        ((tile * 8 + low) * self.block_groups + within) * 2 + high
    }
}

impl Packed {
    /// The planes of codes, scales and offsets in a layout. What a plane has beyond the weight's size
    /// is left out.
    pub fn arranged(self, format: &WeightFormat, layout: WeightLayout) -> [Vec<u8>; 3] {
        let tiles = format.tiles(self.n, self.k);
        let (WeightLayout::Tiles, Some(tiles)) = (layout, tiles) else {
            return [self.codes, self.scales, self.offsets];
        };
        let [code_bytes, scale_bytes, offset_bytes] = format.plane_bytes(self.n, self.k, layout);
        let mut codes = vec![0; code_bytes];
        let row_bytes = format.code_row_bytes(self.k);
        for (row, from) in self.codes.chunks_exact(row_bytes.max(1)).take(self.n).enumerate() {
            // Rows are whole words.
            for (word, bytes) in from.chunks_exact(4).enumerate() {
                codes[tiles.code_at(row, 4 * word)..][..4].copy_from_slice(bytes);
            }
        }
        let plane = |from: &[u8], dtype: Option<DType>, n_bytes: usize| {
            let mut to = vec![0; n_bytes];
            let (size, group) = (dtype.map_or(1, DType::bytes), format.group_size());
            let n_groups = format.n_groups(self.k).max(1);
            let numbers = from.chunks_exact(size).take(self.n * n_groups);
            for (index, number) in numbers.enumerate() {
                let (row, k) = (index / n_groups, index % n_groups * group);
                let at = tiles.scale_at(row, k, group) * size;
                to[at..][..size].copy_from_slice(number);
            }
            to
        };
        let scale = format.group.map(|group| group.scale);
        let offset = format.group.and_then(|group| group.offset);
        [codes, plane(&self.scales, scale, scale_bytes), plane(&self.offsets, offset, offset_bytes)]
    }

    /// The packed weight of planes that were [arranged](Self::arranged): none if they have other
    /// sizes.
    pub fn from_arranged(
        format: &WeightFormat,
        (n, k): (usize, usize),
        planes: [Vec<u8>; 3],
        layout: WeightLayout,
    ) -> Option<Packed> {
        let expected = format.plane_bytes(n, k, layout);
        if planes.iter().map(Vec::len).ne(expected) {
            return None;
        }
        let [codes, scales, offsets] = planes;
        let (WeightLayout::Tiles, Some(tiles)) = (layout, format.tiles(n, k)) else {
            return Some(Packed { n, k, codes, scales, offsets });
        };
        let row_bytes = format.code_row_bytes(k);
        let words = (0..n).flat_map(|row| (0..row_bytes / 4).map(move |word| (row, 4 * word)));
        let word = |(row, at): (usize, usize)| codes[tiles.code_at(row, at)..][..4].to_vec();
        let group = format.group_size();
        let groups = (0..n).flat_map(|row| (0..format.n_groups(k)).map(move |g| (row, g * group)));
        let plane = |from: &[u8], dtype: Option<DType>| -> Vec<u8> {
            let Some(size) = dtype.map(DType::bytes) else { return Vec::new() };
            let number = |(row, k)| from[tiles.scale_at(row, k, group) * size..][..size].to_vec();
            groups.clone().flat_map(number).collect()
        };
        let scale = format.group.map(|group| group.scale);
        let offset = format.group.and_then(|group| group.offset);
        Some(Packed {
            n,
            k,
            codes: words.flat_map(word).collect(),
            scales: plane(&scales, scale),
            offsets: plane(&offsets, offset),
        })
    }
}
