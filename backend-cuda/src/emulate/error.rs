//! Why a block could not be run under emulation, or what was wrong with its kernels.

use super::compare::Mismatch;
use super::fault::Fault;
use fuseline_core::backend::BackendError;
use fuseline_core::oracle::OracleError;
use fuseline_core::plan::CompileError;
use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No C++ compiler.
    #[error(
        "no C++ compiler: tried {}\n  help: install g++ or clang++, or set CXX to a compiler",
        tried.join(", ")
    )]
    NoCompiler {
        /// The commands that were tried.
        tried: Vec<String>,
    },
    /// The compiler refused a source.
    #[error("{compiler} does not compile {}:\n{log}", path.display())]
    Compile {
        /// The compiler.
        compiler: String,
        /// The source; it stays until the emulator is dropped.
        path: PathBuf,
        /// What it said.
        log: String,
    },
    /// Files or processes.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The emulator's process ended without an answer.
    #[error("the emulator ended early: {stderr}")]
    Died {
        /// What it said.
        stderr: String,
    },
    /// A launch that does not fit its kernel.
    #[error("kernel `{kernel}`: {message}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What was expected and what was found.
        message: String,
    },
    /// A kernel did something that it must not do.
    #[error("{0}")]
    Fault(Box<Fault>),
    /// A kernel computed something else than the oracle.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// The block's text is no graph.
    #[error("the block's text: {0}")]
    Parse(fuseline_core::ir::ParseError),
    /// The block cannot be planned.
    #[error(transparent)]
    Plan(#[from] CompileError),
    /// The oracle cannot compute the call.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// Rows that the block has no variant for.
    #[error("the block takes {expected} rows, found {found}")]
    Rows {
        /// What it takes.
        expected: String,
        /// What was asked for.
        found: usize,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}

impl From<Error> for BackendError {
    fn from(error: Error) -> BackendError {
        BackendError::Device { message: error.to_string() }
    }
}

/// The module's results.
pub type Result<T> = std::result::Result<T, Error>;
