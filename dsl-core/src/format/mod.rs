//! Weight formats: how a stored code becomes a number. A format is data, not a type of its own
//! in the compiler, so one that a user declares is planned exactly like the ones declared here.
//!
//! The value of an element is `map(code) · scale + offset`, with one `scale` and `offset` for
//! each group of consecutive elements along K. Formats without groups have neither.
//!
//! Every weight is packed in one layout, which serves every batch bucket and every use: up to three
//! planes, each row-major by output row `n`. Devices with matrix instructions [rearrange](tiles) it.
//!
//! | plane | shape | row stride |
//! |---|---|---|
//! | codes | `[N, K]`, `bits` each, element k at bit `k·bits`, low bits first | [`WeightFormat::code_row_bytes`] |
//! | scales | `[N, K / group]` | [`WeightFormat::n_groups`] elements |
//! | offsets | `[N, K / group]` | [`WeightFormat::n_groups`] elements |

mod dense;
mod int4;
pub mod interop;
mod pack;
mod q4_1;
mod q8_0;
mod tiles;

pub use dense::{BF16, F16, F32};
pub use int4::{
    INT4_FLOAT_G32, INT4_FLOAT_G64, INT4_FLOAT_G128, INT4_G32, INT4_G64, INT4_G128, INT4_ZERO_G32,
    INT4_ZERO_G64, INT4_ZERO_G128,
};
pub use pack::{PackError, Packed};
pub use q4_1::Q4_1;
pub use q8_0::Q8_0;
pub use tiles::{CHUNK_BYTES, PIECE, TILE_ROWS, Tiles, WeightLayout};

use crate::dtype::DType;
use std::borrow::Cow;

/// The formats that a program can name without declaring them.
pub const FORMATS: &[&WeightFormat] = &[
    &F32,
    &F16,
    &BF16,
    &Q8_0,
    &Q4_1,
    &INT4_G32,
    &INT4_G64,
    &INT4_G128,
    &INT4_FLOAT_G32,
    &INT4_FLOAT_G64,
    &INT4_FLOAT_G128,
    &INT4_ZERO_G32,
    &INT4_ZERO_G64,
    &INT4_ZERO_G128,
];

/// The built-in format of that name.
pub fn builtin(name: &str) -> Option<&'static WeightFormat> {
    FORMATS.iter().copied().find(|format| format.name == name)
}

/// The declaration of a weight format.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightFormat {
    /// The name that programs use as a type.
    pub name: Cow<'static, str>,
    /// Bits of one stored code: 4, 8, 16 or 32.
    pub bits: u8,
    /// How a code becomes a number, before scale and offset.
    pub code: CodeMap,
    /// The scales along K, if the format has them.
    pub group: Option<Group>,
    /// How GGUF files store the format, if they do.
    pub gguf: Option<GgufBlock>,
}

/// How a code becomes a number.
#[derive(Clone, Debug, PartialEq)]
pub enum CodeMap {
    /// The code is the bit pattern of a floating-point number of this type.
    Float(DType),
    /// The code as an unsigned integer, less `bias`.
    Unsigned {
        /// Subtracted from the code.
        bias: i32,
    },
    /// The code as a two's complement integer.
    Signed,
    /// A table with one entry for each code.
    Codebook(Cow<'static, [f32]>),
}

/// Scales, and perhaps offsets, shared by consecutive elements along K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Elements of a group. A multiple of 8, so that no 32-bit word of codes spans two groups.
    pub size: usize,
    /// The type that a scale is stored in.
    pub scale: DType,
    /// The type that an offset is stored in, if there are offsets.
    pub offset: Option<DType>,
}

/// One group as GGUF stores it: a few bytes with scale, offset and codes at fixed places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GgufBlock {
    /// The number that names the type in a tensor's header.
    pub type_id: u32,
    /// Bytes of a block.
    pub bytes: usize,
    /// Where in the block the scale is.
    pub scale_at: Option<usize>,
    /// Where in the block the offset is.
    pub offset_at: Option<usize>,
    /// Where in the block the codes begin.
    pub codes_at: usize,
    /// Which element each code belongs to.
    pub order: CodeOrder,
}

/// Which element a code of a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeOrder {
    /// Element i is code i, low bits first.
    Sequential,
    /// Byte i holds element i in its low nibble and element `size / 2 + i` in its high nibble.
    NibbleHalves,
}

impl WeightFormat {
    /// Elements that share a scale, or 1 for a format without groups.
    pub fn group_size(&self) -> usize {
        self.group.map_or(1, |group| group.size)
    }

    /// Groups in a row of `k` elements: 0 for a format without groups.
    pub fn n_groups(&self, k: usize) -> usize {
        self.group.map_or(0, |group| k / group.size)
    }

    /// Bytes from one row of codes to the next: whole 16-byte vectors, so that every row can be
    /// read with the widest load. The padding is zero.
    pub fn code_row_bytes(&self, k: usize) -> usize {
        let bytes = k.saturating_mul(usize::from(self.bits)).div_ceil(8);
        bytes.checked_next_multiple_of(16).unwrap_or(bytes)
    }

    /// Bytes that an `[n, k]` weight of this format takes, all planes.
    pub fn packed_bytes(&self, n: usize, k: usize) -> usize {
        let group_bytes = self.group.map_or(0, |group| {
            self.n_groups(k) * (group.scale.bytes() + group.offset.map_or(0, DType::bytes))
        });
        n.saturating_mul(self.code_row_bytes(k).saturating_add(group_bytes))
    }

    /// Operations that decode one element inside a dot product, by the counting rule of the
    /// planner: load, unpack, map, scale, offset.
    pub fn decode_ops(&self) -> usize {
        let unpack = match self.bits {
            4 => 2, // shift, mask
            _ => 0,
        };
        let map = match &self.code {
            CodeMap::Float(DType::F32) => 0,
            CodeMap::Float(_) | CodeMap::Signed => 1, // widen
            CodeMap::Unsigned { bias: 0 } => 1,
            CodeMap::Unsigned { .. } => 2, // widen, subtract
            CodeMap::Codebook(_) => 1,     // table read
        };
        let group = match self.group {
            None => 0,
            Some(Group { offset: None, .. }) => 2, // load, multiply
            Some(Group { offset: Some(_), .. }) => 4,
        };
        1 + unpack + map + group
    }

    /// Checks that the declaration can be packed and decoded; the text says what to change.
    pub fn check(&self) -> Result<(), String> {
        if ![4, 8, 16, 32].contains(&self.bits) {
            return Err(format!("`bits` is {}, but a code has 4, 8, 16 or 32 bits", self.bits));
        }
        match &self.code {
            CodeMap::Float(dtype) if dtype.bytes() * 8 != usize::from(self.bits) => {
                return Err(format!("a code of {} bits cannot hold {dtype}", self.bits));
            }
            CodeMap::Codebook(values) if self.bits > 8 || values.len() != 1 << self.bits => {
                return Err(format!(
                    "the codebook has {} entries, but codes of {} bits need {}",
                    values.len(),
                    self.bits,
                    1u64 << self.bits
                ));
            }
            CodeMap::Unsigned { .. } | CodeMap::Signed if self.bits > 8 => {
                return Err(format!("integer codes have 4 or 8 bits, found {}", self.bits));
            }
            CodeMap::Float(_)
            | CodeMap::Unsigned { .. }
            | CodeMap::Signed
            | CodeMap::Codebook(_) => {}
        }
        if let Some(group) = self.group {
            if group.size == 0 || group.size % 8 != 0 {
                return Err(format!("`group` is {}, but a group is a multiple of 8", group.size));
            }
            for dtype in [Some(group.scale), group.offset].into_iter().flatten() {
                if !dtype.is_float() {
                    return Err(format!("scales and offsets are f32, f16 or bf16, found {dtype}"));
                }
            }
        }
        Ok(())
    }
}
