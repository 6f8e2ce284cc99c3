//! Plans on an NVIDIA GPU, through cudarc's driver interface. Needs the driver and, for kernels
//! that were not built ahead, NVRTC; no toolkit and no Python.
//!
//! | module | holds |
//! |---|---|
//! | `driver` | whether the driver is there: cudarc panics where it is not |
//! | `nvrtc` | the compiler, the same way |
//! | `cache` | compiled kernels on disk |
//! | `kernels` | compiling on several threads, loading, comparing with the plan |
//! | `launch`, `program` | calls as launches |
//! | `graph` | calls recorded and replayed |
//! | `ahead` | kernels that are compiled when the program is built |

mod ahead;
mod buffer;
pub mod cache;
mod device;
pub mod driver;
mod error;
mod graph;
mod kernels;
mod launch;
pub mod nvrtc;
mod program;

/// The version of cudarc whose types this module takes and gives.
pub use cudarc;

pub use ahead::{Archive, ArchiveError, build_archive};
pub use buffer::{CudaBuffer, SliceOf};
pub use cache::DiskCache;
pub use device::{CudaDevice, Options};
pub use error::{Error, Result};
pub use kernels::{Origins, arch_of, compile_kernel};
