//! Why a GPU cannot be used, or could not do what it was asked.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;
use fuseline_core::backend::BackendError;
use std::path::PathBuf;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library cannot be opened.
    #[error(
        "no NVIDIA driver: cannot open {}: {reason}\n  help: install the driver; `fuseline doctor` says what was found",
        tried.join(" or ")
    )]
    NoDriver {
        /// The names that were tried.
        tried: Vec<String>,
        /// What the loader said of the last one.
        reason: String,
    },
    /// The driver lacks a function that is needed.
    #[error("the NVIDIA driver is too old: it has no `{symbol}`; expected CUDA 12.4 or later")]
    OldDriver {
        /// The function.
        symbol: &'static str,
    },
    /// No such GPU.
    #[error("no GPU {ordinal}: the driver has {found}")]
    NoDevice {
        /// What was asked for.
        ordinal: usize,
        /// How many there are.
        found: usize,
    },
    /// NVRTC's library cannot be opened, and a kernel has to be compiled.
    #[error(
        "no NVRTC: cannot open {}: {reason}\n  help: install CUDA's NVRTC (pip's nvidia-cuda-nvrtc has it), name it with FUSELINE_NVRTC, or build kernels ahead",
        tried.join(" or ")
    )]
    NoNvrtc {
        /// The names that were tried.
        tried: Vec<String>,
        /// What the loader said of the last one.
        reason: String,
    },
    /// NVRTC refused a source.
    #[error("NVRTC {version} does not compile `{kernel}` for {arch}:\n{log}")]
    Compile {
        /// The kernel.
        kernel: String,
        /// NVRTC's version.
        version: String,
        /// The architecture.
        arch: String,
        /// What it said.
        log: String,
    },
    /// The driver refused a compiled kernel.
    #[error(
        "driver {driver} does not load `{kernel}`, compiled by {compiler} for {arch}: {reason}"
    )]
    Load {
        /// The kernel.
        kernel: String,
        /// The CUDA version that the driver supports.
        driver: String,
        /// What compiled it.
        compiler: String,
        /// The architecture that it was compiled for.
        arch: String,
        /// What the driver said.
        reason: String,
    },
    /// A compiled kernel is not the one that was planned.
    #[error("kernel `{kernel}`: expected {expected}, found {found}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// What the plan needs.
        expected: String,
        /// What the kernel or the device has.
        found: String,
    },
    /// Memory.
    #[error("the device has no {bytes} bytes of memory left")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// The driver failed.
    #[error("{what}: {reason}")]
    Driver {
        /// What was tried.
        what: String,
        /// The driver's name and text for it.
        reason: String,
    },
    /// Files of the kernel cache.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    /// An error of the driver while `what` was tried.
    pub(crate) fn driver(what: impl Into<String>) -> impl FnOnce(DriverError) -> Error {
        let what = what.into();
        move |error| Error::Driver { what, reason: driver_text(error) }
    }
}

/// The driver's name and text for an error.
pub(crate) fn driver_text(error: DriverError) -> String {
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    match (name, text) {
        (Ok(name), Ok(text)) => format!("{name} ({text})"),
        _ => format!("CUDA error {}", error.0 as u32),
    }
}

/// Whether an error is want of memory.
pub(crate) fn is_out_of_memory(error: DriverError) -> bool {
    error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY
}

impl From<Error> for BackendError {
    fn from(error: Error) -> BackendError {
        match error {
            Error::OutOfMemory { bytes } => BackendError::OutOfMemory { bytes },
            other => BackendError::Device { message: other.to_string() },
        }
    }
}

/// The module's results.
pub type Result<T> = std::result::Result<T, Error>;
