//! `f32`, `f16`, `bf16`: the code is the number.

use super::{CodeMap, CodeOrder, GgufBlock, WeightFormat};
use crate::dtype::DType;
use std::borrow::Cow;

const fn dense(name: &'static str, dtype: DType, bits: u8, type_id: u32) -> WeightFormat {
    WeightFormat {
        name: Cow::Borrowed(name),
        bits,
        code: CodeMap::Float(dtype),
        group: None,
        gguf: Some(GgufBlock {
            type_id,
            bytes: bits as usize / 8,
            scale_at: None,
            offset_at: None,
            codes_at: 0,
            order: CodeOrder::Sequential,
        }),
    }
}

/// IEEE 754 binary32.
pub const F32: WeightFormat = dense("f32", DType::F32, 32, 0);
/// IEEE 754 binary16.
pub const F16: WeightFormat = dense("f16", DType::F16, 16, 1);
/// The upper half of a binary32.
pub const BF16: WeightFormat = dense("bf16", DType::BF16, 16, 30);
