//! Why a tensor or a metadata value cannot be had.

use std::io;
use std::path::PathBuf;

/// Why a file cannot be opened, or a tensor or metadata value of it cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The operating system refuses the file.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The file is of another kind.
    #[error("expected a GGUF file, which begins with `GGUF`, found `{}`", found.escape_ascii())]
    NotGguf {
        /// The first bytes of the file, up to four.
        found: Vec<u8>,
    },
    /// A version of GGUF that is not read here.
    #[error("expected GGUF version 2 or 3, found {found}{}", if found.swap_bytes() <= 3 { " (a big-endian file)" } else { "" })]
    Version {
        /// The version that the file states.
        found: u32,
    },
    /// The file ends too early, or states a length that it does not have.
    #[error("expected {expected} bytes of {what} at offset {offset}, found {found}")]
    Truncated {
        /// What the bytes belong to.
        what: String,
        /// Where in the file they begin.
        offset: u64,
        /// How many there should be.
        expected: u64,
        /// How many there are up to the end of the file.
        found: u64,
    },
    /// A field has a value that the file format does not allow.
    #[error("{what}: expected {expected}, found {found}")]
    Invalid {
        /// The field, with the key or tensor that it belongs to.
        what: String,
        /// What the format allows.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A header of a claimed size that is never read.
    #[error("the header is stated to be {found} bytes long, but the limit is {limit}")]
    HeaderTooLong {
        /// The size that the file states, in bytes.
        found: u64,
        /// The largest size that is read, in bytes.
        limit: u64,
    },
    /// Two entries of one name.
    #[error("{what} `{name}` appears twice")]
    Duplicate {
        /// `tensor` or `metadata key`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// No metadata of that key.
    #[error("the file has no metadata key `{key}`")]
    MissingKey {
        /// The key that was asked for.
        key: String,
    },
    /// Metadata of another type than the one asked for.
    #[error("metadata key `{key}`: expected {expected}, found {found}")]
    KeyType {
        /// The key that was asked for.
        key: String,
        /// The type that was asked for.
        expected: String,
        /// The type that the file states.
        found: String,
    },
    /// No tensor of that name.
    #[error("no tensor is named `{name}`, among {count}")]
    MissingTensor {
        /// The name that was asked for.
        name: String,
        /// How many tensors there are.
        count: usize,
    },
    /// A tensor of a type that no declared format reads.
    #[error("tensor `{tensor}`: expected one of {expected}, found {found}")]
    UndeclaredType {
        /// The tensor that was asked for.
        tensor: String,
        /// The types that can be read.
        expected: String,
        /// The type it is stored in.
        found: String,
    },
    /// The bytes or elements of a tensor are not as many as its shape asks for.
    #[error("tensor `{tensor}` of shape {shape:?}: expected {expected} {unit}, found {found}")]
    TensorSize {
        /// The tensor.
        tensor: String,
        /// Its dims, outermost first.
        shape: Vec<usize>,
        /// What is counted.
        unit: &'static str,
        /// How many the shape asks for.
        expected: u64,
        /// How many there are.
        found: u64,
    },
}

impl SourceError {
    /// [`SourceError::Invalid`] from anything that can be printed.
    pub(super) fn invalid(
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl ToString,
    ) -> SourceError {
        SourceError::Invalid {
            what: what.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }
}
