//! How many bytes the tensor types of GGUF take, and what those are called that no weight format
//! declares.

use crate::source::Encoding;
use fuseline_core::dtype::DType;
use fuseline_core::format::{CodeMap, WeightFormat};

/// The number of 32-bit integers, which no weight format stands for.
const I32: u32 = 26;

/// Numbers and names of ggml's types (`enum ggml_type` in `ggml.h`). Only error messages use
/// them: what can be read is what is declared.
const NAMES: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
];

/// A tensor type that can be read.
#[derive(Clone, Debug)]
pub(super) struct TensorType {
    /// The number in the file.
    pub type_id: u32,
    /// What a reader is told.
    pub encoding: Encoding,
    /// Elements and bytes of a block.
    pub block: (usize, usize),
}

impl TensorType {
    /// What a format's declaration says about its blocks, if GGUF files store it.
    pub fn of_format(format: &WeightFormat) -> Option<TensorType> {
        let block = format.gguf?;
        let encoding = match (&format.code, format.group) {
            (CodeMap::Float(dtype), None) => Encoding::Dense(*dtype),
            _ => Encoding::Gguf { type_id: block.type_id, name: format.name.clone() },
        };
        let block_elements = format.group_size().max(1);
        Some(TensorType { type_id: block.type_id, encoding, block: (block_elements, block.bytes) })
    }

    /// 32-bit integers.
    pub fn i32() -> TensorType {
        let dtype = DType::I32;
        TensorType { type_id: I32, encoding: Encoding::Dense(dtype), block: (1, dtype.bytes()) }
    }
}

/// What to call a type in an error.
pub(super) fn describe(type_id: u32) -> String {
    match NAMES.iter().find(|(id, _)| *id == type_id) {
        Some((_, name)) => format!("{name} (GGUF type {type_id})"),
        None => format!("the unknown GGUF type {type_id}"),
    }
}
