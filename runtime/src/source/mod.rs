//! Where weights come from: tensors by name out of a GGUF file, a safetensors file or memory.
//!
//! A [`TensorSource`] hands out bytes as they are stored; packing them into the layout that
//! kernels read is the caller's next step. What holds for every source:
//!
//! - No byte string makes a loader panic, and no size that a file claims is allocated: memory is
//!   proportional to the bytes that are really there.
//! - Files are memory-mapped: each weight is read once, when it is packed, and a model of
//!   several gigabytes should not pass through the heap for that.
//! - Errors name the key or tensor, what was expected and what was found.

mod error;
mod file_bytes;
mod gguf;
mod named;
mod safetensors;
mod slices;

pub use error::SourceError;
pub use gguf::Gguf;
pub use safetensors::Safetensors;
pub use slices::Slices;

use fuseline_core::dtype::DType;
use std::borrow::Cow;

/// Tensors that are found by name.
pub trait TensorSource {
    /// The tensor of that name.
    ///
    /// # Errors
    /// [`SourceError::MissingTensor`] if there is none, and [`SourceError::UndeclaredType`] if
    /// its elements are stored in a way that nothing here can read.
    fn tensor(&self, name: &str) -> Result<TensorView<'_>, SourceError>;

    /// The names of all tensors, in the order of the source.
    fn names(&self) -> Vec<&str>;
}

/// A tensor as its source stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorView<'a> {
    /// The name that found it.
    pub name: &'a str,
    /// The dims, outermost first: a weight is `[out, in]`. (GGUF writes them the other way
    /// round; this is already turned.)
    pub shape: Vec<usize>,
    /// What the bytes mean.
    pub encoding: Encoding,
    /// The elements, row-major and little endian. They may start at any address: no alignment
    /// is promised.
    pub bytes: &'a [u8],
}

/// What the bytes of a tensor mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// One number after the other.
    Dense(DType),
    /// Blocks of a GGUF type that a weight format declares.
    Gguf {
        /// The number that GGUF gives the type.
        type_id: u32,
        /// The name of the weight format.
        name: Cow<'static, str>,
    },
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Encoding::Dense(dtype) => dtype.fmt(f),
            Encoding::Gguf { name, .. } => f.write_str(name),
        }
    }
}

/// Bytes of a tensor that is stored in blocks of (elements, bytes) along its innermost dim.
fn stored_bytes(
    tensor: &str,
    shape: &[usize],
    (block_elements, block_bytes): (usize, usize),
) -> Result<u64, SourceError> {
    let too_large = || {
        let what = format!("tensor `{tensor}` of shape {shape:?}");
        SourceError::invalid(what, "a size below 2^64 bytes", "a larger one")
    };
    let row = shape.last().copied().unwrap_or(1);
    if row % block_elements != 0 {
        let what = format!("tensor `{tensor}` of shape {shape:?}");
        let expected = format!("rows of whole blocks of {block_elements} elements");
        return Err(SourceError::invalid(what, expected, format!("rows of {row}")));
    }
    let row_bytes = ((row / block_elements) as u64).checked_mul(block_bytes as u64);
    let rows = &shape[..shape.len().saturating_sub(1)];
    rows.iter()
        .try_fold(row_bytes.ok_or_else(too_large)?, |bytes, &n| bytes.checked_mul(n as u64))
        .ok_or_else(too_large)
}
