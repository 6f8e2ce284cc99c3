//! What can go wrong at run time: each error names what was expected and what was found.

use crate::source::SourceError;
use fuseline_core::backend::BackendError;
use fuseline_core::format::PackError;

/// A result of the host API.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the host API.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device cannot do what it was asked.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A tensor cannot be had from its source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A weight cannot be packed.
    #[error("`{name}`: {error}")]
    Pack {
        /// The tensor.
        name: String,
        /// Why.
        error: PackError,
    },
    /// A weight format whose declaration contradicts itself, or cannot do what was asked.
    #[error("weight format `{format}`: {message}")]
    Format {
        /// Its name.
        format: String,
        /// What to change.
        message: String,
    },
    /// A code that has more bits than the format's.
    #[error("code {index} is {found}, but codes of `{format}` have {bits} bits")]
    Code {
        /// The format.
        format: String,
        /// Bits of a code.
        bits: u8,
        /// Which code.
        index: usize,
        /// Its value.
        found: u32,
    },
    /// A number that a format with scales cannot hold.
    #[error("value {index} is {found}, but `{format}` holds finite numbers only")]
    NotFinite {
        /// The format.
        format: String,
        /// Which value.
        index: usize,
        /// Its value.
        found: f32,
    },
    /// More elements than any device can hold.
    #[error("a {what} of shape {shape:?} has more elements than any device can hold")]
    TooLarge {
        /// Which type.
        what: &'static str,
        /// Its dims.
        shape: Vec<usize>,
    },
    /// Another number of arguments or results than the block has.
    #[error("block `{block}` has {expected} {what}, found {found}")]
    Count {
        /// The block.
        block: String,
        /// `arguments` or `results`.
        what: &'static str,
        /// What it has.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// Another shape than the program declares.
    #[error("`{name}` has shape {found:?}, expected {expected:?}")]
    Shape {
        /// The tensor or argument.
        name: String,
        /// What the program declares.
        expected: Vec<usize>,
        /// What there is.
        found: Vec<usize>,
    },
    /// Another encoding than the program declares, and no exact conversion.
    #[error("`{name}` is stored as {found}, which does not become {expected} exactly")]
    Encoding {
        /// The tensor.
        name: String,
        /// What the program declares.
        expected: String,
        /// What there is.
        found: String,
    },
    /// An argument of another kind than the block takes.
    #[error("`{name}` takes {expected}, found {found}")]
    Kind {
        /// The argument.
        name: String,
        /// What the block takes.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Another number of rows than the other arguments have, or than fit.
    #[error("`{name}` has {found} rows, expected {expected}")]
    Rows {
        /// The argument.
        name: String,
        /// What fits.
        expected: String,
        /// What there is.
        found: usize,
    },
    /// A position that a sequence has no room for.
    #[error(
        "position {position} of sequence {sequence} is beyond the capacity of `{cache}`, {capacity} positions"
    )]
    Position {
        /// The cache.
        cache: String,
        /// The sequence.
        sequence: usize,
        /// The position.
        position: usize,
        /// What fits.
        capacity: usize,
    },
    /// A sequence that a cache has no room for.
    #[error("sequence {sequence} is beyond the {n_sequences} sequences of `{cache}`")]
    Sequence {
        /// The cache.
        cache: String,
        /// The sequence.
        sequence: usize,
        /// What fits.
        n_sequences: usize,
    },
    /// Two rows of one call with the same place in a cache.
    #[error("rows {first} and {second} are both position {position} of sequence {sequence}")]
    SamePlace {
        /// The earlier row.
        first: usize,
        /// The later row.
        second: usize,
        /// Their position.
        position: usize,
        /// Their sequence.
        sequence: usize,
    },
    /// A token id, position or sequence that a 32-bit index cannot hold.
    #[error("{what} {value} does not fit into an index of 32 bits")]
    Index {
        /// What it is.
        what: &'static str,
        /// The number.
        value: usize,
    },
    /// Something of one device given to another.
    #[error("`{name}` is on another device than the block, {device}")]
    Device {
        /// The argument.
        name: String,
        /// The block's device.
        device: String,
    },
    /// A result's memory that is an argument's too.
    #[error("result {result} is written to the memory of `{name}`")]
    Alias {
        /// The result's number.
        result: usize,
        /// The argument.
        name: String,
    },
    /// A block whose text this version does not plan as it was planned when it was built.
    #[error(
        "block `{block}` was built as {expected:016x}, this version plans it as {found:016x}: macro and runtime are of different versions"
    )]
    Digest {
        /// The block.
        block: String,
        /// What was built.
        expected: u64,
        /// What this version makes of it.
        found: u64,
    },
    /// A block whose text cannot be read.
    #[error("block `{block}`: {message}")]
    Block {
        /// The block.
        block: String,
        /// Why.
        message: String,
    },
}
