//! What a back end is: memory, and programs that run on it. Interfaces only, so that the host
//! API is the same for every back end and a back end knows nothing of the host API.

mod signature;

pub use signature::{Bound, Count, Signature, Use, What};

use crate::format::WeightLayout;
use crate::plan::Plan;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Memory of a device.
pub trait Buffer: Any + Send + Sync + fmt::Debug {
    /// Its size.
    fn bytes(&self) -> usize;
    /// For the back end that made it; another device's buffer is an error, not a crash.
    fn as_any(&self) -> &dyn Any;
}

/// A shared buffer.
pub type BufferRef = Arc<dyn Buffer>;

/// Why a back end cannot do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendError {
    /// The device has not that much memory left.
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// A buffer of another device.
    ForeignBuffer {
        /// The device that was to use it.
        device: String,
    },
    /// A buffer that is smaller than its use needs.
    Size {
        /// What the buffer is for.
        what: String,
        /// What its use needs.
        expected_bytes: usize,
        /// What it has.
        found_bytes: usize,
    },
    /// A token id that the table has no row for.
    Token {
        /// The id.
        id: i32,
        /// Rows of the table.
        n_rows: usize,
    },
    /// One buffer both read and written where the program needs two.
    Alias {
        /// What the buffer is for.
        what: String,
    },
    /// Anything that only this device can say.
    Device {
        /// What happened, what was expected and what was found.
        message: String,
    },
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::OutOfMemory { bytes } => {
                write!(f, "the device has no {bytes} bytes of memory left")
            }
            BackendError::ForeignBuffer { device } => {
                write!(f, "a buffer of another device was given to {device}")
            }
            BackendError::Size { what, expected_bytes, found_bytes } => {
                write!(f, "{what} needs {expected_bytes} bytes, found {found_bytes}")
            }
            BackendError::Token { id, n_rows } => {
                write!(f, "token id {id} is not in a table of {n_rows} rows")
            }
            BackendError::Alias { what } => {
                write!(f, "{what} is both read and written by one call")
            }
            BackendError::Device { message } => f.write_str(message),
        }
    }
}

impl std::error::Error for BackendError {}

/// A program as back ends load it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The checked plan, for calls of up to a bucket of rows.
    pub plan: Arc<Plan>,
    /// The CUDA source that was generated from it at build time; empty if there is none.
    pub cuda: &'static str,
}

/// A device: memory and programs.
pub trait Backend: Send + Sync + fmt::Debug {
    /// How messages call the device.
    fn name(&self) -> String;

    /// Zero-filled memory.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`].
    fn alloc(&self, bytes: usize) -> Result<BufferRef, BackendError>;

    /// Copies `bytes` to the buffer from byte `at` on.
    ///
    /// # Errors
    /// If the buffer is another device's, or too small.
    fn write(&self, buffer: &BufferRef, at: usize, bytes: &[u8]) -> Result<(), BackendError>;

    /// Copies the buffer's bytes from `at` on to `out`, after all work that was started before.
    ///
    /// # Errors
    /// If the buffer is another device's, or too small.
    fn read(&self, buffer: &BufferRef, at: usize, out: &mut [u8]) -> Result<(), BackendError>;

    /// How weights are to be arranged that programs of this device read.
    fn weight_layout(&self) -> WeightLayout {
        WeightLayout::Rows
    }

    /// Makes a program ready to run.
    ///
    /// # Errors
    /// If the device cannot run it.
    fn load(&self, program: &Program) -> Result<Box<dyn Executable>, BackendError>;

    /// The back end itself, for what only it can do.
    fn as_any(&self) -> &dyn Any;

    /// Waits until all work that was started is done.
    ///
    /// # Errors
    /// If some of it failed.
    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Begins to record calls instead of running them.
    ///
    /// # Errors
    /// If the device records none, or does already.
    fn begin_recording(&self) -> Result<(), BackendError> {
        Err(BackendError::Device { message: format!("{} records no calls", self.name()) })
    }

    /// Ends a recording.
    ///
    /// # Errors
    /// If none was begun, or something in it cannot be recorded.
    fn end_recording(&self) -> Result<Box<dyn Recorded>, BackendError> {
        Err(BackendError::Device { message: format!("{} records no calls", self.name()) })
    }
}

/// Recorded calls, which keep what they work on.
pub trait Recorded: Send + Sync + fmt::Debug {
    /// Runs them all, in order, on what is in their buffers then.
    ///
    /// # Errors
    /// If the device fails.
    fn replay(&self) -> Result<(), BackendError>;

    /// How many kernels a replay runs.
    fn n_launches(&self) -> usize;
}

/// A loaded program.
pub trait Executable: Send + Sync + fmt::Debug {
    /// Runs it once. Sizes are checked before anything is written.
    ///
    /// # Errors
    /// If a buffer does not fit; results are unspecified then, caches included.
    fn run(&self, call: &Call<'_>) -> Result<(), BackendError>;
}

/// What one run works on.
#[derive(Debug)]
pub struct Call<'a> {
    /// Rows of the batch dim, at most the plan's bucket; the plan's own count if it is fixed.
    pub rows: usize,
    /// The block's arguments, in the order of [`crate::ir::Graph::args`].
    pub args: &'a [Binding<'a>],
    /// Where results go, in the order of [`crate::ir::Graph::outputs`].
    pub outputs: &'a [&'a BufferRef],
    /// Memory for values between kernels, [`Plan::scratch_bytes`] or more.
    pub scratch: &'a BufferRef,
}

/// One argument's memory.
#[derive(Clone, Copy, Debug)]
pub enum Binding<'a> {
    /// Elements in row-major order.
    Tensor(&'a BufferRef),
    /// The planes of a packed weight; a plane that the format lacks has 0 bytes.
    Weight {
        /// Codes.
        codes: &'a BufferRef,
        /// Scales.
        scales: &'a BufferRef,
        /// Offsets.
        offsets: &'a BufferRef,
    },
    /// `[sequences, kv_heads, capacity, head_dim]` each.
    Cache {
        /// Keys.
        keys: &'a BufferRef,
        /// Values.
        values: &'a BufferRef,
    },
    /// `i32[rows]` each.
    Index {
        /// Each row's position in its sequence, less than the capacity.
        positions: &'a BufferRef,
        /// Each row's sequence in the caches.
        sequences: &'a BufferRef,
    },
    /// A number.
    Scalar(f32),
}
