//! The generated source, run without a GPU.
//!
//! A host compiler gets the source as it is, with definitions of the few functions through which
//! it reaches memory and the machine (`emulation/machine.h`). The threads of a block become fibers
//! that wait for each other at barriers and exchanges, and every access to memory is checked: its
//! bounds and alignment, whether what it reads was ever written, and whether another thread or
//! block touches the same element in no order. A kernel that goes wrong names the thread, the
//! line of the source and the value of the `.ir` text. What kernels store is compared with the
//! oracle, each kernel alone and all of a plan in a chain.
//!
//! [`check`] does all of it for the text of a block:
//!
//! ```
//! # use fuseline_cuda::emulate::{self, Options};
//! # if std::process::Command::new("g++").arg("--version").output().is_err() { return Ok(()) }
//! let gate = "block gate
//! batch B 1..=2
//! arg %0 x input f32[B<=2, D:64]
//! arg %1 w weight Q8_0{N:33, D:64}
//! %2 = linear %0 %1 : f32[B<=2, N:33]
//! %3 = silu %2 : f32[B<=2, N:33]
//! return %3
//! ";
//! let report = emulate::check(gate, &emulate::Check::default())?;
//! assert!(report.worst_error < 2e-5);
//! # Ok::<(), emulate::Error>(())
//! ```
//!
//! [`EmulatedDevice`] runs whole programs so.
//!
//! What cannot be seen here: the order in which warps really run (races are found from the order
//! that barriers guarantee, whatever the fibers did), the speed of anything, and the bits of
//! float sums inside matrix instructions.

mod call;
mod check;
mod compare;
mod compiler;
mod device;
mod error;
mod fault;
mod process;

pub use call::{Half, Outcome, Stored, appends, run, run_observed};
pub use check::{Check, Report, blank_unread, check, check_graph};
pub use compare::{Mismatch, is_narrow, limit, slack};
pub use compiler::{Emulator, Library, MACHINE, Options, fma_flag};
pub use device::EmulatedDevice;
pub use error::{Error, Result};
pub use fault::{Fault, FaultKind, Line, Memory, Other};
pub use process::{Argument, BufferId, Process, Shape, Writer};
