//! Fuseline's CUDA back end. With feature `emit` (all that the macro needs): CUDA source text
//! from plans. Pure, like the core: the same plan gives the same bytes. With feature `emulate`:
//! the same text, run on the CPU and checked. With feature `runtime`: on an NVIDIA GPU.

#[cfg(feature = "emit")]
pub mod emit;
#[cfg(feature = "emulate")]
pub mod emulate;
#[cfg(feature = "runtime")]
pub mod runtime;
