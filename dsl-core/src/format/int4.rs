//! 4-bit integers with a scale for each 32, 64 or 128 elements: what GPTQ, AWQ and torchao
//! quantise to. `interop` packs them from the bytes that those store.
//!
//! | family | value | scale, offset |
//! |---|---|---|
//! | `Int4G…` | `(code − 8) · scale` | bf16 |
//! | `Int4FloatG…` | `(code − 8) · scale + offset` | bf16, bf16: torchao's float zero points |
//! | `Int4ZeroG…` | `code · scale + offset`, `offset = −zero · scale` | f16, f32: integer zero points |
//!
//! The product of an integer zero point of five bits and an f16 scale has 16 significant bits, so
//! the offset is exact in f32, and so is every value.

use super::{CodeMap, Group, WeightFormat};
use crate::dtype::DType;
use std::borrow::Cow;

const fn int4(
    name: &'static str,
    bias: i32,
    size: usize,
    scale: DType,
    offset: Option<DType>,
) -> WeightFormat {
    WeightFormat {
        name: Cow::Borrowed(name),
        bits: 4,
        code: CodeMap::Unsigned { bias },
        group: Some(Group { size, scale, offset }),
        gguf: None,
    }
}

/// Symmetric, a bf16 scale for 32 elements.
pub const INT4_G32: WeightFormat = int4("Int4G32", 8, 32, DType::BF16, None);
/// Symmetric, a bf16 scale for 64 elements.
pub const INT4_G64: WeightFormat = int4("Int4G64", 8, 64, DType::BF16, None);
/// Symmetric, a bf16 scale for 128 elements.
pub const INT4_G128: WeightFormat = int4("Int4G128", 8, 128, DType::BF16, None);

/// A bf16 scale and a bf16 offset for 32 elements.
pub const INT4_FLOAT_G32: WeightFormat =
    int4("Int4FloatG32", 8, 32, DType::BF16, Some(DType::BF16));
/// A bf16 scale and a bf16 offset for 64 elements.
pub const INT4_FLOAT_G64: WeightFormat =
    int4("Int4FloatG64", 8, 64, DType::BF16, Some(DType::BF16));
/// A bf16 scale and a bf16 offset for 128 elements.
pub const INT4_FLOAT_G128: WeightFormat =
    int4("Int4FloatG128", 8, 128, DType::BF16, Some(DType::BF16));

/// An f16 scale and an integer zero point for 32 elements.
pub const INT4_ZERO_G32: WeightFormat = int4("Int4ZeroG32", 0, 32, DType::F16, Some(DType::F32));
/// An f16 scale and an integer zero point for 64 elements.
pub const INT4_ZERO_G64: WeightFormat = int4("Int4ZeroG64", 0, 64, DType::F16, Some(DType::F32));
/// An f16 scale and an integer zero point for 128 elements.
pub const INT4_ZERO_G128: WeightFormat = int4("Int4ZeroG128", 0, 128, DType::F16, Some(DType::F32));
