//! `Q4_1`: 32 unsigned nibbles with an f16 scale and an f16 offset, `value = code · d + m`.
//!
//! ```text
//! byte   0    2    4                                            20
//!        | d  | m  | q16:q0  q17:q1  …                  q31:q15 |    high:low nibble
//! ```

use super::{CodeMap, CodeOrder, GgufBlock, Group, WeightFormat};
use crate::dtype::DType;
use std::borrow::Cow;

/// 4-bit unsigned codes in groups of 32 with an f16 scale and offset.
pub const Q4_1: WeightFormat = WeightFormat {
    name: Cow::Borrowed("Q4_1"),
    bits: 4,
    code: CodeMap::Unsigned { bias: 0 },
    group: Some(Group { size: 32, scale: DType::F16, offset: Some(DType::F16) }),
    gguf: Some(GgufBlock {
        type_id: 3,
        bytes: 20,
        scale_at: Some(0),
        offset_at: Some(2),
        codes_at: 4,
        order: CodeOrder::NibbleHalves,
    }),
};
