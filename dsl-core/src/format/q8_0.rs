//! `Q8_0`: 32 signed bytes and an f16 scale, `value = code · d`.
//!
//! ```text
//! byte   0    2                                   34
//!        | d  | q0 q1 q2 …                    q31 |
//! ```

use super::{CodeMap, CodeOrder, GgufBlock, Group, WeightFormat};
use crate::dtype::DType;
use std::borrow::Cow;

/// 8-bit signed codes in groups of 32 with an f16 scale.
pub const Q8_0: WeightFormat = WeightFormat {
    name: Cow::Borrowed("Q8_0"),
    bits: 8,
    code: CodeMap::Signed,
    group: Some(Group { size: 32, scale: DType::F16, offset: None }),
    gguf: Some(GgufBlock {
        type_id: 8,
        bytes: 34,
        scale_at: Some(0),
        offset_at: None,
        codes_at: 2,
        order: CodeOrder::Sequential,
    }),
};
