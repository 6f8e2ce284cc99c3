//! Types of elements, and weight formats as types.

use fuseline_core::dtype::DType;
use fuseline_core::format::{self, WeightFormat};
use half::{bf16, f16};
use std::fmt::Debug;

/// The type of a tensor's elements: `f32`, `f16`, `bf16`, `i32`.
pub trait Element: bytemuck::Pod + Debug + PartialEq + Send + Sync + 'static {
    /// The type's name in plans.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for bf16 {
    const DTYPE: DType = DType::BF16;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

/// A weight format as a type.
pub trait Format: 'static {
    /// How its codes become numbers.
    fn declaration() -> WeightFormat;
}

macro_rules! builtin_formats {
    ($($(#[$doc:meta])* $marker:ident = $constant:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $marker;

        impl Format for $marker {
            fn declaration() -> WeightFormat {
                format::$constant
            }
        }
    )*};
}

builtin_formats! {
    /// 8-bit signed codes in groups of 32 with an f16 scale.
    Q8_0 = Q8_0;
    /// 4-bit unsigned codes in groups of 32 with an f16 scale and offset.
    Q4_1 = Q4_1;
    /// Symmetric 4-bit integers, a bf16 scale for 32 elements.
    Int4G32 = INT4_G32;
    /// Symmetric 4-bit integers, a bf16 scale for 64 elements.
    Int4G64 = INT4_G64;
    /// Symmetric 4-bit integers, a bf16 scale for 128 elements.
    Int4G128 = INT4_G128;
    /// 4-bit integers, a bf16 scale and offset for 32 elements: torchao's float zero points.
    Int4FloatG32 = INT4_FLOAT_G32;
    /// 4-bit integers, a bf16 scale and offset for 64 elements: torchao's float zero points.
    Int4FloatG64 = INT4_FLOAT_G64;
    /// 4-bit integers, a bf16 scale and offset for 128 elements: torchao's float zero points.
    Int4FloatG128 = INT4_FLOAT_G128;
    /// 4-bit integers, an f16 scale and a zero point for 32 elements: GPTQ's and AWQ's.
    Int4ZeroG32 = INT4_ZERO_G32;
    /// 4-bit integers, an f16 scale and a zero point for 64 elements: GPTQ's and AWQ's.
    Int4ZeroG64 = INT4_ZERO_G64;
    /// 4-bit integers, an f16 scale and a zero point for 128 elements: GPTQ's and AWQ's.
    Int4ZeroG128 = INT4_ZERO_G128;
}

impl Format for f32 {
    fn declaration() -> WeightFormat {
        format::F32
    }
}
impl Format for f16 {
    fn declaration() -> WeightFormat {
        format::F16
    }
}
impl Format for bf16 {
    fn declaration() -> WeightFormat {
        format::BF16
    }
}
